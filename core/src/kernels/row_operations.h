// What is done with the rows of a block of edges, the only loops over channels of neighbours; all else is arithmetic on
// small arrays. Each is compiled for common shapes; the passes call them through a table chosen once per task, so that
// the passes themselves exist once per vector type.
#pragma once

#include "rows.h"

namespace sage {

// Weighted sums over rows, per head: to[h, :] = (from[h, :] * from_factor[h] + sum over e of weight[e, h] * ...)
// * to_factor[h].
template <class T>
struct Sum {
    const T* weight;       // flat
    const T* from;         // [H, C], or null: zero
    const T* from_factor;  // [H], or null: 1
    T* to;                 // [H, C]; may be `from`
    const T* to_factor;    // [H], or null: 1
};

// The other side of a dot product: one row, or (stride > 0) a row for each edge.
template <class T>
struct Fixed {
    const T* row;
    int64_t stride = 0;
};

template <class V>
struct RowOperations {
    using T = typename V::T;
    // flat[e, h] = rows[e, h, :] . fixed[h, :]
    void (*dot)(const Shape<V>& s, int64_t n, const Rows<T>& rows, const Fixed<T>& fixed, T* flat, Prefetch prefetch);
    // flat[e, h] = attention[h, :] . LeakyReLU(rows[e, h, :] + fixed[h, :])
    void (*leaky_dot)(const Shape<V>& s, int64_t n, const Rows<T>& rows, const T* fixed, const T* attention,
                      T negative_slope, T* flat, Prefetch prefetch);
    // sum of weight[e, h] * rows[e, h, :]
    void (*sum)(const Shape<V>& s, int64_t n, const Rows<T>& rows, const Sum<T>& sum, Prefetch prefetch);
    // the same for two weights; the second's factors are the first's
    void (*sum_pair)(const Shape<V>& s, int64_t n, const Rows<T>& rows, const Sum<T>& first, const Sum<T>& second,
                     Prefetch prefetch);
    // GATv2's derivative: sum of weight[e, h] * attention[h, :] * LeakyReLU'(z), z = rows[e, h, :] + fixed[h, :]
    void (*leaky_sum)(const Shape<V>& s, int64_t n, const Rows<T>& rows, const T* fixed, const T* attention,
                      T negative_slope, const Sum<T>& sum);
    // the same, and attention_sum[h, :] += sum of weight[e, h] * LeakyReLU(z)
    void (*leaky_sum_pair)(const Shape<V>& s, int64_t n, const Rows<T>& rows, const T* fixed, const T* attention,
                           T negative_slope, const Sum<T>& sum, T* attention_sum);
};

// flat[e, h] = the sum of the lanes of term(e, h), after before(e). kHeads is the head stride, where it is below the
// vector's width, or the width. kFull: the number of heads is the head stride. The last edge may be taken repeatedly.
template <class V, int kHeads, bool kFull, class B, class F>
SAGE_INLINE void reduce_heads(const Shape<V>& s, int64_t n, typename V::T* flat, const B& before, const F& term) {
    constexpr int W = V::kWidth, kEdges = W / kHeads;
    const int64_t heads = s.heads, head_stride = s.head_stride;
    for (int64_t e = 0; e < n; e += kEdges) {
        for (int64_t g = e; g < min(e + kEdges, n); ++g) before(g);
        for (int64_t h = 0; h < head_stride; h += W) {
            V part[W];
            unrolled<W>([&](int l) SAGE_LAMBDA {
                const int64_t edge = min(e + l / kHeads, n - 1), head = h + l % kHeads;
                part[l] = kFull || head < heads ? term(edge, head) : V::set(0);
            });
            V::reduce(part).store(flat + e * head_stride + h);
            if constexpr (kHeads < W) break;
        }
    }
}

// The same for any head stride: a tenth slower in the cache, for what is not worth a copy for each.
template <class V, class B, class F>
SAGE_INLINE void reduce_any_heads(const Shape<V>& s, int64_t n, typename V::T* flat, const B& before, const F& term) {
    constexpr int W = V::kWidth;
    const int64_t heads = s.heads, head_stride = s.head_stride;
    const int64_t side = min<int64_t>(head_stride, W);  // heads in a vector: a power of two
    const int64_t edges = W / side;
    for (int64_t e = 0; e < n; e += edges) {
        for (int64_t g = e; g < min(e + edges, n); ++g) before(g);
        for (int64_t h = 0; h < head_stride; h += W) {
            V part[W];
            int64_t edge = e, head = h;
            for (int l = 0; l < W; ++l) {
                part[l] = head < heads ? term(min(edge, n - 1), head) : V::set(0);
                if (++head == h + side) head = h, ++edge;
            }
            V::reduce(part).store(flat + e * head_stride + h);
        }
    }
}

// The same for heads of many channels, where joining lanes eight heads at a time gains nothing: term(e, h, c, access)
// adds to one of four sums, which hide one another's latency.
template <class V, class B, class F>
SAGE_INLINE void reduce_long_heads(const Shape<V>& s, int64_t n, typename V::T* flat, const B& before, const F& term) {
    constexpr int64_t W = V::kWidth;
    for (int64_t e = 0; e < n; ++e) {
        before(e);
        for (int64_t h = 0; h < s.heads; ++h) {
            V sum[4] = {V::set(0), V::set(0), V::set(0), V::set(0)};
            int64_t c = 0;
            for (; c + 4 * W <= s.channels; c += 4 * W) {
                unrolled<4>([&](int i) SAGE_LAMBDA { sum[i] = term(e, h, c + i * W, Whole<V>{}, sum[i]); });
            }
            for (; c + W <= s.channels; c += W) sum[0] = term(e, h, c, Whole<V>{}, sum[0]);
            if (c < s.channels) sum[1] = term(e, h, c, Part<V>{s.channels - c}, sum[1]);
            flat[e * s.head_stride + h] = V::total((sum[0] + sum[1]) + (sum[2] + sum[3]));
        }
    }
}

// flat[e, h] = the sum over c and lanes of what term(e, h, c, access, sum) adds to sum. kHeads 0: any head stride.
template <class V, int VPH, int kHeads, class B, class F>
SAGE_INLINE void reduce_channels(const Shape<V>& s, int64_t n, typename V::T* flat, const B& before, const F& term) {
    const auto over = [&](int64_t e, int64_t h) SAGE_LAMBDA {
        V sum = V::set(0);
        over_channels<V, VPH>(s.channels, [&](int64_t c, auto access) SAGE_LAMBDA { sum = term(e, h, c, access, sum); });
        return sum;
    };
    if constexpr (VPH == 0) {
        if (s.channels >= 8 * V::kWidth) return reduce_long_heads<V>(s, n, flat, before, term);
    }
    if constexpr (kHeads == 0) {
        reduce_any_heads<V>(s, n, flat, before, over);
    } else {
        reduce_heads<V, kHeads, (VPH > 0)>(s, n, flat, before, over);
    }
}

template <class V, int VPH, int kHeads>
void dot_heads(const Shape<V>& s, int64_t n, const Rows<typename V::T>& rows_in, const Fixed<typename V::T>& fixed_in,
               typename V::T* flat, Prefetch prefetch) {
    const Rows<typename V::T> rows = rows_in;
    const Fixed<typename V::T> fixed = fixed_in;
    const int64_t channels = VPH > 0 ? VPH * V::kWidth : s.channels;
    const PrefetchRange range(prefetch, s.width, 0, s.width, sizeof(typename V::T));
    const auto fetch = [&](int64_t e) SAGE_LAMBDA { range.of(rows[e + kAhead]); };
    reduce_channels<V, VPH, kHeads>(s, n, flat, fetch, [&](int64_t e, int64_t h, int64_t c, auto access, V sum) SAGE_LAMBDA {
        const int64_t at = h * channels + c;
        return V::fma(access.load(rows[e] + at), access.load(fixed.row + e * fixed.stride + at), sum);
    });
}

// kConvex: the slope is at most 1, as it nearly always is, so that LeakyReLU(z) = max(z, slope * z).
template <class V, int VPH, int kHeads, bool kConvex>
void leaky_dot_heads(const Shape<V>& s, int64_t n, const Rows<typename V::T>& rows_in, const typename V::T* fixed,
                     const typename V::T* attention, typename V::T negative_slope, typename V::T* flat,
                     Prefetch prefetch) {
    const Rows<typename V::T> rows = rows_in;
    const int64_t channels = VPH > 0 ? VPH * V::kWidth : s.channels;
    const PrefetchRange range(prefetch, s.width, 0, s.width, sizeof(typename V::T));
    const V slope = V::set(negative_slope);
    const auto fetch = [&](int64_t e) SAGE_LAMBDA { range.of(rows[e + kAhead]); };
    reduce_channels<V, VPH, kHeads>(s, n, flat, fetch, [&](int64_t e, int64_t h, int64_t c, auto access, V sum) SAGE_LAMBDA {
        const int64_t at = h * channels + c;
        const V z = access.load(rows[e] + at) + access.load(fixed + at);
        const V leaky = kConvex ? V::maximum(z, z * slope) : V::if_positive(z, z, z * slope);
        return V::fma(access.load(attention + at), leaky, sum);
    });
}

// The head of the v-th vector, relative to the first's.
template <int VPH>
SAGE_INLINE constexpr int64_t head_of_vector(int64_t v) {
    if constexpr (VPH > 0) return v / VPH;
    return VPH == kShort ? v : 0;
}

// A number of vectors whose sums are kept in registers.
template <int N, int VPH>
struct RegisterBlock {
    static constexpr int kVectors = N;
    static SAGE_INLINE constexpr int64_t head(int v) { return head_of_vector<VPH>(v); }
};

// body(offset, head, access, block) for register blocks of at most N vectors each, over `count` vectors that lie `step`
// apart from `offset` on, the first of which belongs to `head`.
template <class V, int VPH, int N, class Access, class F>
SAGE_INLINE void register_blocks(int64_t offset, int64_t head, int64_t count, int64_t step, const Access& access,
                                    const F& body) {
    int64_t v = 0;
    for (; v + N <= count; v += N) {
        body(offset + v * step, head + head_of_vector<VPH>(v), access, RegisterBlock<N, VPH>{});
    }
    if constexpr (N > 1 && (VPH <= 0 || N > VPH)) {
        const int64_t next = head + head_of_vector<VPH>(v);
        register_blocks<V, VPH, N / 2>(offset + v * step, next, count - v, step, access, body);
    }
}

template <class V, int VPH, int kMost, class F>
SAGE_INLINE void over_register_blocks(const Shape<V>& s, const F& body) {
    constexpr int64_t W = V::kWidth;
    if constexpr (VPH > 0) {
        register_blocks<V, VPH, kMost>(0, 0, s.heads * VPH, W, Whole<V>{}, body);
    } else if constexpr (VPH == kShort) {
        register_blocks<V, VPH, kMost>(0, 0, s.heads, s.channels, Part<V>{s.channels}, body);
    } else {
        const int64_t whole = s.channels / W, rest = s.channels % W;
        for (int64_t h = 0; h < s.heads; ++h) {
            register_blocks<V, 0, kMost>(h * s.channels, h, whole, W, Whole<V>{}, body);
            if (rest > 0) body(h * s.channels + whole * W, h, Part<V>{rest}, RegisterBlock<1, 0>{});
        }
    }
}

template <class V, int VPH, bool kPair, class E>
SAGE_INLINE void sum_rows(const Shape<V>& s, int64_t n, const Rows<E>& rows_in,
                          const Sum<typename V::T>& first_in, const Sum<typename V::T>& second_in, Prefetch prefetch) {
    using T = typename V::T;
    const Rows<E> rows = rows_in;
    const Sum<T> first = first_in, second = second_in;
    over_register_blocks<V, VPH, kPair ? 4 : 8>(s, [&](int64_t offset, int64_t head, auto access, auto block) SAGE_LAMBDA {
        using Block = decltype(block);
        constexpr int N = Block::kVectors;
        const int64_t step = VPH == kShort ? s.channels : V::kWidth;
        V a[N], b[kPair ? N : 1];
        unrolled<N>([&](int v) SAGE_LAMBDA {
            a[v] = V::set(0);
            if constexpr (kPair) b[v] = V::set(0);
        });
        const PrefetchRange range(prefetch, s.width, offset, N * step, sizeof(E));
        for (int64_t e = 0; e < n; ++e) {
            range.of(rows[e + ahead_of(sizeof(E))]);
            const E* row = rows[e] + offset;
            const T* w = first.weight + e * s.head_stride + head;
            unrolled<N>([&](int v) SAGE_LAMBDA {
                const V x = access.load(row + v * step);
                a[v] = V::fma(V::set(w[Block::head(v)]), x, a[v]);
                if constexpr (kPair) {
                    const T* w2 = second.weight + e * s.head_stride + head;
                    b[v] = V::fma(V::set(w2[Block::head(v)]), x, b[v]);
                }
            });
        }
        // Earlier blocks come in last: the rounding errors of a long row then grow with its blocks, not its edges.
        unrolled<N>([&](int v) SAGE_LAMBDA {
            const V before = V::set(first.from_factor ? first.from_factor[head + Block::head(v)] : T(1));
            if (first.from) a[v] = V::fma(access.load(first.from + offset + v * step), before, a[v]);
            if constexpr (kPair) {
                if (second.from) b[v] = V::fma(access.load(second.from + offset + v * step), before, b[v]);
            }
            const V f = V::set(first.to_factor ? first.to_factor[head + Block::head(v)] : T(1));
            access.store(first.to + offset + v * step, a[v] * f);
            if constexpr (kPair) access.store(second.to + offset + v * step, b[v] * f);
        });
    });
}

template <class V, int VPH>
void sum_one(const Shape<V>& s, int64_t n, const Rows<typename V::T>& rows, const Sum<typename V::T>& sum,
             Prefetch prefetch) {
    sum_rows<V, VPH, false>(s, n, rows, sum, sum, prefetch);
}
template <class V, int VPH>
void sum_pair(const Shape<V>& s, int64_t n, const Rows<typename V::T>& rows, const Sum<typename V::T>& first,
              const Sum<typename V::T>& second, Prefetch prefetch) {
    sum_rows<V, VPH, true>(s, n, rows, first, second, prefetch);
}

template <class V, int VPH, bool kAttention>
SAGE_INLINE void leaky_sum_rows(const Shape<V>& s, int64_t n, const Rows<typename V::T>& rows_in,
                                const typename V::T* fixed, const typename V::T* attention,
                                typename V::T negative_slope, const Sum<typename V::T>& sum_in,
                                typename V::T* attention_sum) {
    using T = typename V::T;
    const Rows<T> rows = rows_in;
    const Sum<T> sum = sum_in;
    over_register_blocks<V, VPH, 4>(s, [&](int64_t offset, int64_t head, auto access, auto block) SAGE_LAMBDA {
        using Block = decltype(block);
        constexpr int N = Block::kVectors;
        const int64_t step = VPH == kShort ? s.channels : V::kWidth;
        const V slope = V::set(negative_slope);
        V a[N], b[kAttention ? N : 1], own[N];
        unrolled<N>([&](int v) SAGE_LAMBDA {
            a[v] = V::set(0);
            if constexpr (kAttention) b[v] = V::set(0);
            own[v] = access.load(fixed + offset + v * step);
        });
        for (int64_t e = 0; e < n; ++e) {
            const T* row = rows[e] + offset;
            const T* w = sum.weight + e * s.head_stride + head;
            unrolled<N>([&](int v) SAGE_LAMBDA {
                const V z = access.load(row + v * step) + own[v];
                const V g = V::set(w[Block::head(v)]);
                const V slopes = V::if_positive(z, g, g * slope);
                a[v] = a[v] + slopes;
                if constexpr (kAttention) b[v] = V::fma(slopes, z, b[v]);
            });
        }
        unrolled<N>([&](int v) SAGE_LAMBDA {
            const V before = sum.from ? access.load(sum.from + offset + v * step) : V::set(0);
            access.store(sum.to + offset + v * step, V::fma(a[v], access.load(attention + offset + v * step), before));
            if constexpr (kAttention) {
                T* to = attention_sum + offset + v * step;
                access.store(to, b[v] + access.load(to));
            }
        });
    });
}

template <class V, int VPH>
void leaky_sum(const Shape<V>& s, int64_t n, const Rows<typename V::T>& rows, const typename V::T* fixed,
               const typename V::T* attention, typename V::T negative_slope, const Sum<typename V::T>& sum) {
    leaky_sum_rows<V, VPH, false>(s, n, rows, fixed, attention, negative_slope, sum, nullptr);
}
template <class V, int VPH>
void leaky_sum_pair(const Shape<V>& s, int64_t n, const Rows<typename V::T>& rows, const typename V::T* fixed,
                    const typename V::T* attention, typename V::T negative_slope, const Sum<typename V::T>& sum,
                    typename V::T* attention_sum) {
    leaky_sum_rows<V, VPH, true>(s, n, rows, fixed, attention, negative_slope, sum, attention_sum);
}

template <class V, int VPH, int kHeads>
SAGE_INLINE RowOperations<V> row_operations_of(bool convex) {
    RowOperations<V> o;
    o.dot = dot_heads<V, VPH, kHeads>;
    // A slope above 1 is not worth a copy for each number of channels.
    const auto any_slope = leaky_dot_heads<V, 0, 0, false>;
    o.leaky_dot = convex ? leaky_dot_heads<V, VPH, kHeads, true> : any_slope;
    o.sum = sum_one<V, VPH>;
    o.sum_pair = sum_pair<V, VPH>;
    o.leaky_sum = leaky_sum<V, VPH>;
    o.leaky_sum_pair = leaky_sum_pair<V, VPH>;
    return o;
}

// A copy for each head stride where that is a tenth faster: in float, and where heads are not long.
template <class V, int VPH>
SAGE_INLINE RowOperations<V> row_operations_for_heads(const Shape<V>& s, bool convex) {
    constexpr int W = V::kWidth;
    if constexpr (sizeof(typename V::T) != 4) return row_operations_of<V, VPH, 0>(convex);
    if constexpr (W > 1) {
        if (s.head_stride == 1) return row_operations_of<V, VPH, 1>(convex);
        if constexpr (VPH == 8) {
            if (s.head_stride < W) return row_operations_of<V, VPH, 0>(convex);
        }
    }
    if constexpr (W > 2 && VPH != 8) {
        if (s.head_stride == 2) return row_operations_of<V, VPH, 2>(convex);
    }
    if constexpr (W > 4 && VPH != 8) {
        if (s.head_stride == 4) return row_operations_of<V, VPH, 4>(convex);
    }
    return row_operations_of<V, VPH, W>(convex);
}

// Only float gets loops for few channels, and of fixed length for common numbers of them, to keep the library small.
template <class V>
RowOperations<V> row_operations(const Shape<V>& s, double negative_slope) {
    const bool convex = negative_slope <= 1;
    if constexpr (V::kWidth > 1 && sizeof(typename V::T) == 4) {
        if (s.channels < V::kWidth) return row_operations_for_heads<V, kShort>(s, convex);
        if (s.heads == s.head_stride) {
            switch (s.channels) {
                case V::kWidth:
                    return row_operations_for_heads<V, 1>(s, convex);
                case 2 * V::kWidth:
                    return row_operations_for_heads<V, 2>(s, convex);
                case 4 * V::kWidth:
                    return row_operations_for_heads<V, 4>(s, convex);
                case 8 * V::kWidth:
                    return row_operations_for_heads<V, 8>(s, convex);
                default:
                    break;
            }
        }
    }
    return row_operations_for_heads<V, 0>(s, convex);
}

}  // namespace sage
