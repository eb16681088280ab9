// The four things a kernel does with the rows of a block of edges; everything else is arithmetic on small arrays.
//
// A block is up to kMaxBlock edges of one row. Numbers per edge and head lie in "flat" arrays, edge-major:
// flat[e * head_stride + h]. head_stride is the number of heads rounded up so that vectors of V::kWidth lanes and the
// pattern of heads fit one another; the lanes between are padding whose content never matters.
// VPH is the number of whole vectors per head (channels = VPH * kWidth), or 0 for any number of channels.
#pragma once

#include <stdint.h>

#include "../platform.h"
#include "kernels.h"

namespace sage {

constexpr int64_t kMaxBlock = 32;
constexpr int64_t kBlockBytes = 16384;  // rows of a block are read twice: the second time from the first-level cache
constexpr int64_t kAhead = 8;           // edges whose rows are prefetched before they are needed

template <class V>
struct Shape {
    static constexpr int64_t kW = V::kWidth;
    int64_t heads, channels, edge_channels, width;  // width = heads * channels
    int64_t head_stride;                            // see above
    int64_t pattern;                                // lanes after which the pattern of heads repeats in vectors
    int64_t block;                                  // edges per block

    SAGE_INLINE Shape(int64_t h, int64_t c, int64_t d) : heads(h), channels(c), edge_channels(d), width(h * c) {
        head_stride = 1;
        if (h >= kW) {
            head_stride = (h + kW - 1) / kW * kW;
        } else {
            while (head_stride < h) head_stride *= 2;
        }
        pattern = max(head_stride, kW);
        block = min(max(kBlockBytes / (width * static_cast<int64_t>(sizeof(typename V::T))), int64_t{4}), kMaxBlock);
    }
    // Elements of a flat array: a block of edges, up to a whole pattern.
    SAGE_INLINE int64_t flat_size() const { return kMaxBlock * head_stride + pattern; }
    // Elements used by n edges, up to a whole pattern.
    SAGE_INLINE int64_t used(int64_t n) const { return (n * head_stride + pattern - 1) / pattern * pattern; }
};

SAGE_INLINE int64_t index_at(const void* indices, bool wide, int64_t e) {
    return wide ? static_cast<const int64_t*>(indices)[e] : static_cast<const int32_t*>(indices)[e];
}

// Pointers to the rows of a block of edges, and of those kAhead further on (to be prefetched).
template <class T>
struct Rows {
    const T* here[kMaxBlock];
    const T* ahead[kMaxBlock];
};

template <class T>
SAGE_INLINE void point(Rows<T>& rows, const AttentionTask& task, const void* base, int64_t stride, int64_t e,
                       int64_t n) {
    const T* table = static_cast<const T*>(base);
    for (int64_t k = 0; k < n; ++k) {
        rows.here[k] = table + index_at(task.indices, task.wide_indices, e + k) * stride;
        const int64_t a = min(e + k + kAhead, task.num_edges - 1);
        rows.ahead[k] = table + index_at(task.indices, task.wide_indices, a) * stride;
    }
}

template <class T>
SAGE_INLINE void prefetch_row(const T* p, int64_t elements) {
    const char* bytes = reinterpret_cast<const char*>(p);
    for (int64_t b = 0; b < elements * static_cast<int64_t>(sizeof(T)); b += kCacheLine) prefetch(bytes + b);
}

// How to touch memory: all lanes, or the first `lanes` only (the rest read as zero).
template <class V>
struct Whole {
    SAGE_INLINE V load(const typename V::T* p) const { return V::load(p); }
    SAGE_INLINE void store(typename V::T* p, V v) const { v.store(p); }
};
template <class V>
struct Part {
    int64_t lanes;
    SAGE_INLINE V load(const typename V::T* p) const { return V::load_partial(p, lanes); }
    SAGE_INLINE void store(typename V::T* p, V v) const { v.store_partial(p, lanes); }
};

// Calls f(offset, access) over `n` channels: whole vectors, then what is left. With VPH > 0 the loop unrolls.
template <class V, int VPH, class F>
SAGE_INLINE void over_channels(int64_t n, const F& f) {
    if constexpr (VPH > 0) {
        for (int v = 0; v < VPH; ++v) f(int64_t{v} * V::kWidth, Whole<V>{});
    } else {
        int64_t c = 0;
        for (; c + V::kWidth <= n; c += V::kWidth) f(c, Whole<V>{});
        if (c < n) f(c, Part<V>{n - c});
    }
}

// 1. flat[e, h] = the sum of the lanes of term(e, h), which is asked for each edge and head once, edges in order.
template <class V, class F>
SAGE_INLINE void reduce_heads(const Shape<V>& s, int64_t n, typename V::T* flat, const F& term) {
    constexpr int64_t W = V::kWidth;
    int64_t e = 0, h = 0;
    for (int64_t x = 0; x < n * s.head_stride; x += W) {
        V part[W];
        for (int64_t l = 0; l < W; ++l) {
            part[l] = h < s.heads && e < n ? term(e, h) : V::set(0);
            if (++h == s.head_stride) {
                h = 0;
                ++e;
            }
        }
        V::reduce(part).store(flat + x);
    }
}

// flat[e, h] = rows[e, h, :] . fixed[h, :]
template <class V, int VPH>
SAGE_INLINE void dot_heads(const Shape<V>& s, int64_t n, const Rows<typename V::T>& rows,
                           const typename V::T* fixed, typename V::T* flat) {
    reduce_heads<V>(s, n, flat, [&](int64_t e, int64_t h) {
        if (h == 0) prefetch_row(rows.ahead[e], s.width);
        const typename V::T* row = rows.here[e] + h * s.channels;
        const typename V::T* other = fixed + h * s.channels;
        V sum = V::set(0);
        over_channels<V, VPH>(s.channels, [&](int64_t c, auto access) {
            sum = V::fma(access.load(row + c), access.load(other + c), sum);
        });
        return sum;
    });
}

// flat[e, h] = attention[h, :] . LeakyReLU(rows[e, h, :] + fixed[h, :])
template <class V, int VPH>
SAGE_INLINE void leaky_dot_heads(const Shape<V>& s, int64_t n, const Rows<typename V::T>& rows,
                                 const typename V::T* fixed, const typename V::T* attention,
                                 typename V::T negative_slope, typename V::T* flat) {
    const V slope = V::set(negative_slope);
    reduce_heads<V>(s, n, flat, [&](int64_t e, int64_t h) {
        if (h == 0) prefetch_row(rows.ahead[e], s.width);
        const int64_t start = h * s.channels;
        V sum = V::set(0);
        over_channels<V, VPH>(s.channels, [&](int64_t c, auto access) {
            const V z = access.load(rows.here[e] + start + c) + access.load(fixed + start + c);
            sum = V::fma(access.load(attention + start + c), V::if_positive(z, z, z * slope), sum);
        });
        return sum;
    });
}

// 2. For each register block of channels: body(offset, head, access, kind) where kind says how many vectors it holds
// and which head each belongs to. The body loops over the edges with its sums in registers.
template <int N, int Per>
struct RegisterBlock {
    static constexpr int kVectors = N;
    // head of the v-th vector, relative to the block's first
    static SAGE_INLINE constexpr int head(int v) { return Per == 0 ? 0 : v / Per; }
};

template <class V, int VPH, int Most, class F>
SAGE_INLINE void over_register_blocks(const Shape<V>& s, const F& body) {
    constexpr int64_t W = V::kWidth;
    if constexpr (VPH > 0) {
        // All heads are whole vectors: blocks run across heads.
        const int64_t vectors = s.heads * VPH;
        int64_t v = 0;
        for (; v + Most <= vectors; v += Most) body(v * W, v / VPH, Whole<V>{}, RegisterBlock<Most, VPH>{});
        if constexpr (Most > VPH) {
            for (; v < vectors; v += VPH) body(v * W, v / VPH, Whole<V>{}, RegisterBlock<VPH, VPH>{});
        }
    } else {
        for (int64_t h = 0; h < s.heads; ++h) {
            const int64_t start = h * s.channels;
            int64_t c = 0;
            for (; c + Most * W <= s.channels; c += Most * W) body(start + c, h, Whole<V>{}, RegisterBlock<Most, 0>{});
            for (; c + W <= s.channels; c += W) body(start + c, h, Whole<V>{}, RegisterBlock<1, 0>{});
            if (c < s.channels) body(start + c, h, Part<V>{s.channels - c}, RegisterBlock<1, 0>{});
        }
    }
}

// sum[h, :] = sum[h, :] * factor[h] + sum over e of weight[e, h] * rows[e, h, :].
// factor null: 1. `fresh`: sum is taken as zero. second/second_weight: a second sum over the same rows, or null.
template <class V, int VPH, bool kPair>
SAGE_INLINE void weighted_sum(const Shape<V>& s, int64_t n, const Rows<typename V::T>& rows,
                              const typename V::T* weight, const typename V::T* factor, bool fresh,
                              typename V::T* sum, const typename V::T* second_weight, typename V::T* second,
                              bool prefetch_ahead) {
    using T = typename V::T;
    constexpr int kMost = kPair ? 4 : 8;
    over_register_blocks<V, VPH, kMost>(s, [&](int64_t offset, int64_t head, auto access, auto block) {
        using Block = decltype(block);
        constexpr int N = Block::kVectors;
        constexpr int64_t W = V::kWidth;
        V a[N], b[kPair ? N : 1];
        for (int v = 0; v < N; ++v) {
            const V f = V::set(factor ? factor[head + Block::head(v)] : T(1));
            a[v] = fresh ? V::set(0) : access.load(sum + offset + v * W) * f;
            if constexpr (kPair) b[v] = fresh ? V::set(0) : access.load(second + offset + v * W) * f;
        }
        for (int64_t e = 0; e < n; ++e) {
            const T* row = rows.here[e] + offset;
            const T* w = weight + e * s.head_stride + head;
            if (prefetch_ahead) prefetch_row(rows.ahead[e] + offset, N * W);
            for (int v = 0; v < N; ++v) {
                const V x = access.load(row + v * W);
                a[v] = V::fma(V::set(w[Block::head(v)]), x, a[v]);
                if constexpr (kPair) {
                    const T* w2 = second_weight + e * s.head_stride + head;
                    b[v] = V::fma(V::set(w2[Block::head(v)]), x, b[v]);
                }
            }
        }
        for (int v = 0; v < N; ++v) {
            access.store(sum + offset + v * W, a[v]);
            if constexpr (kPair) access.store(second + offset + v * W, b[v]);
        }
    });
}

// 3. GATv2's derivative. With z = rows[e, h, :] + fixed[h, :] and g = weight[e, h]:
//   sum[h, :] += attention[h, :] * sum over e of g * LeakyReLU'(z)      attention_sum[h, :] += sum of g * LeakyReLU(z)
template <class V, int VPH, bool kAttention>
SAGE_INLINE void leaky_sum(const Shape<V>& s, int64_t n, const Rows<typename V::T>& rows,
                           const typename V::T* fixed, const typename V::T* attention,
                           typename V::T negative_slope, const typename V::T* weight, typename V::T* sum,
                           typename V::T* attention_sum) {
    using T = typename V::T;
    over_register_blocks<V, VPH, 4>(s, [&](int64_t offset, int64_t head, auto access, auto block) {
        using Block = decltype(block);
        constexpr int N = Block::kVectors;
        constexpr int64_t W = V::kWidth;
        const V slope = V::set(negative_slope);
        V a[N], b[kAttention ? N : 1];
        for (int v = 0; v < N; ++v) {
            a[v] = V::set(0);
            if constexpr (kAttention) b[v] = V::set(0);
        }
        for (int64_t e = 0; e < n; ++e) {
            const T* row = rows.here[e] + offset;
            const T* w = weight + e * s.head_stride + head;
            for (int v = 0; v < N; ++v) {
                const V z = access.load(row + v * W) + access.load(fixed + offset + v * W);
                const V g = V::set(w[Block::head(v)]);
                const V slopes = V::if_positive(z, g, g * slope);
                a[v] = a[v] + slopes;
                if constexpr (kAttention) b[v] = V::fma(slopes, z, b[v]);
            }
        }
        for (int v = 0; v < N; ++v) {
            T* out = sum + offset + v * W;
            const V weights = access.load(attention + offset + v * W);
            access.store(out, V::fma(a[v], weights, access.load(out)));
            if constexpr (kAttention) {
                T* out2 = attention_sum + offset + v * W;
                access.store(out2, b[v] + access.load(out2));
            }
        }
    });
}

// 4. flat[e, h] = table[neighbour(e) * stride + h]: the per-head numbers of a block's neighbours.
template <class V>
SAGE_INLINE void gather_heads(const Shape<V>& s, const AttentionTask& task, const void* table, int64_t stride,
                              int64_t e, int64_t n, typename V::T* flat) {
    using T = typename V::T;
    const T* base = static_cast<const T*>(table);
    for (int64_t k = 0; k < n; ++k) {
        const int64_t a = min(e + k + 2 * kAhead, task.num_edges - 1);
        prefetch(base + index_at(task.indices, task.wide_indices, a) * stride);
        const T* from = base + index_at(task.indices, task.wide_indices, e + k) * stride;
        T* to = flat + k * s.head_stride;
        int64_t h = 0;
        for (; h + V::kWidth <= s.heads; h += V::kWidth) V::load(from + h).store(to + h);
        for (; h < s.heads; ++h) to[h] = from[h];
    }
}

}  // namespace sage
