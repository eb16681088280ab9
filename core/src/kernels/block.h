// Scratch of one thread, and the scores of a block of edges: what forward and backward passes share.
#pragma once

#include <math.h>

#include "../dropout.h"
#include "rows.h"
#include "sage_attention.h"
#include "vector_math.h"

namespace sage {

// Hands out cache-line aligned pieces of scratch. Over address 0 it only measures.
class Arena {
  public:
    explicit SAGE_INLINE Arena(void* base) : start_(reinterpret_cast<uintptr_t>(base)), at_(start_) {}
    template <class T>
    SAGE_INLINE T* take(int64_t count) {
        const uintptr_t p = at_;
        at_ += (static_cast<uintptr_t>(count) * sizeof(T) + kCacheLine - 1) / kCacheLine * kCacheLine;
        return reinterpret_cast<T*>(p);
    }
    SAGE_INLINE size_t used() const { return at_ - start_; }

  private:
    uintptr_t start_, at_;
};

template <class V>
struct Work {
    using T = typename V::T;
    Shape<V> s;
    Rows<T>* rows;        // whose scores are taken; GATV2 with edge features: rows of `shifted`
    Rows<T>* value_rows;  // whose sums are taken
    int64_t* edge_rows;   // [block]
    // flat
    T *z, *score, *weight, *applied, *gated, *dropped, *slope, *maxima, *inverse, *mean;
    // patterns
    T *row_max, *row_sum, *row_factor, *row_positive, *row_fixed;
    // one row of channels or of edge channels per head
    T *sum, *second, *fixed, *edge_sum, *edge_fixed, *edge_fixed2;
    T* shifted;  // [block, width] GATV2 with edge features: rows + projected edge features
    size_t bytes;

    SAGE_INLINE Work(const AttentionTask& t, void* scratch) : s(t.heads, t.channels, t.edge_channels) {
        Arena arena(scratch);
        rows = arena.take<Rows<T>>(1);
        value_rows = arena.take<Rows<T>>(1);
        edge_rows = arena.take<int64_t>(kMaxBlock);
        T** flats[] = {&z, &score, &weight, &applied, &gated, &dropped, &slope, &maxima, &inverse, &mean};
        for (T** flat : flats) *flat = arena.take<T>(s.flat_size());
        T** patterns[] = {&row_max, &row_sum, &row_factor, &row_positive, &row_fixed};
        for (T** pattern : patterns) *pattern = arena.take<T>(s.pattern);
        T** channel_rows[] = {&sum, &second, &fixed};
        for (T** row : channel_rows) *row = arena.take<T>(s.width + V::kWidth);
        T** edge_channel_rows[] = {&edge_sum, &edge_fixed, &edge_fixed2};
        for (T** row : edge_channel_rows) *row = arena.take<T>(s.heads * s.edge_channels + V::kWidth);
        const bool shift = t.score == SAGE_ATTENTION_GATV2 && t.edge_channels > 0;
        shifted = arena.take<T>(shift ? (s.block + 1) * s.width : 0);
        bytes = arena.used();
    }
};

// f(x) for each vector-sized piece of the flat numbers of n edges.
template <class V, class F>
SAGE_INLINE void over_flat(const Shape<V>& s, int64_t n, const F& f) {
    for (int64_t x = 0; x < s.used(n); x += V::kWidth) f(x);
}
// f(x, q): the same, with the place in the pattern of heads.
template <class V, class F>
SAGE_INLINE void over_flat_pattern(const Shape<V>& s, int64_t n, const F& f) {
    for (int64_t x = 0; x < s.used(n); x += s.pattern) {
        for (int64_t q = 0; q < s.pattern; q += V::kWidth) f(x + q, q);
    }
}

// pattern[h] for h < heads becomes the whole pattern; null: zeros.
template <class V>
SAGE_INLINE void spread(const Shape<V>& s, const typename V::T* heads, typename V::T* pattern) {
    for (int64_t h = 0; h < s.head_stride; ++h) pattern[h] = heads && h < s.heads ? heads[h] : 0;
    for (int64_t l = s.head_stride; l < s.pattern; ++l) pattern[l] = pattern[l - s.head_stride];
}

// Joins the lanes that belong to one head, and spreads the result over the pattern again.
template <class V, class F>
SAGE_INLINE void fold(const Shape<V>& s, typename V::T* pattern, const F& join) {
    for (int64_t step = s.pattern / 2; step >= s.head_stride; step /= 2) {
        for (int64_t l = 0; l < step; ++l) pattern[l] = join(pattern[l], pattern[l + step]);
    }
    for (int64_t l = s.head_stride; l < s.pattern; ++l) pattern[l] = pattern[l - s.head_stride];
}

SAGE_INLINE int64_t edge_row(const AttentionTask& t, int64_t e) {
    const int64_t position = t.positions ? t.positions[e] : e;
    return t.edge_rows ? t.edge_rows[position] : position;
}

// work.dropped: what each weight of the block is multiplied with.
template <class V>
SAGE_INLINE void draw_dropout(const AttentionTask& t, Work<V>& work, int64_t n) {
    const Shape<V>& s = work.s;
    dropout_scales(t.dropout_seed, t.dropout, work.edge_rows, n, s.heads, s.head_stride, work.dropped);
    if (s.heads == s.head_stride) return;
    for (int64_t k = 0; k < n; ++k) {
        for (int64_t h = s.heads; h < s.head_stride; ++h) work.dropped[k * s.head_stride + h] = 0;
    }
}

// One side of the block's edges is the row itself (fixed), the other its neighbours (gathered).
template <class T>
struct Sides {
    const void* table = nullptr;   // GATV2, DOT: [_, H, C] of the neighbours
    const T* fixed = nullptr;      //             [H, C] of the row; DOT: times scale
    const void* logits = nullptr;  // GAT: [_, logits_stride] of the neighbours
    int64_t logits_stride = 0;
    const T* logits_pattern = nullptr;  // GAT: the row's, as a pattern
    const T* edge_fixed = nullptr;      // DOT: the row's edge queries times scale; null: they are the neighbours'
};

template <class V>
SAGE_INLINE const typename V::T* edge_features_of(const AttentionTask& t, const Work<V>& work, int64_t k) {
    return static_cast<const typename V::T*>(t.edge_features) + work.edge_rows[k] * t.edge_channels;
}

// flat[e, h] (+)= scale * vectors(e)[h, :] . edge_features(e)
template <class V, class F>
SAGE_INLINE void add_edge_dots(const AttentionTask& t, const Work<V>& work, int64_t n, typename V::T scale,
                               const F& vectors, typename V::T* dots, typename V::T* flat) {
    const Shape<V>& s = work.s;
    const int64_t D = s.edge_channels;
    reduce_heads<V>(s, n, dots, [&](int64_t e, int64_t h) {
        const typename V::T* feature = edge_features_of<V>(t, work, e);
        const typename V::T* vector = vectors(e) + h * D;
        V sum = V::set(0);
        over_channels<V, 0>(D, [&](int64_t d, auto access) {
            sum = V::fma(access.load(feature + d), access.load(vector + d), sum);
        });
        return sum;
    });
    over_flat<V>(s, n, [&](int64_t x) {
        V::fma(V::load(dots + x), V::set(scale), V::load(flat + x)).store(flat + x);
    });
}

// GATV2: work.shifted = rows + edge_weight edge_features, and `rows` points there.
template <class V>
SAGE_INLINE void shift_rows(const AttentionTask& t, Work<V>& work, int64_t n) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const T* weight = static_cast<const T*>(t.edge_weight);
    for (int64_t k = 0; k < n; ++k) {
        const T* feature = edge_features_of<V>(t, work, k);
        T* to = work.shifted + k * s.width;
        over_channels<V, 0>(s.width, [&](int64_t c, auto access) {
            V x = access.load(work.rows->here[k] + c);
            for (int64_t d = 0; d < s.edge_channels; ++d) {
                x = V::fma(V::set(feature[d]), access.load(weight + d * s.width + c), x);
            }
            access.store(to + c, x);
        });
        work.rows->here[k] = to;
    }
}

// work.score (GAT: and work.z, its argument before LeakyReLU) of edges e .. e + n - 1. Sets work.edge_rows; GATV2 and
// DOT: work.rows too. Lanes past the last edge get -infinity, so that their weight is 0.
template <class V, int VPH>
SAGE_INLINE void block_scores(const AttentionTask& t, Work<V>& work, const Sides<typename V::T>& sides, int64_t e,
                              int64_t n) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    for (int64_t k = 0; k < n; ++k) work.edge_rows[k] = edge_row(t, e + k);
    if (t.score == SAGE_ATTENTION_GAT) {
        gather_heads<V>(s, t, sides.logits, sides.logits_stride, e, n, work.z);
        over_flat_pattern<V>(s, n, [&](int64_t x, int64_t q) {
            (V::load(work.z + x) + V::load(sides.logits_pattern + q)).store(work.z + x);
        });
        if (s.edge_channels > 0) {
            const T* weight = static_cast<const T*>(t.edge_weight);
            add_edge_dots<V>(t, work, n, T(1), [&](int64_t) { return weight; }, work.score, work.z);
        }
        const V slope = V::set(static_cast<T>(t.negative_slope));
        over_flat<V>(s, n, [&](int64_t x) {
            const V z = V::load(work.z + x);
            V::if_positive(z, z, z * slope).store(work.score + x);
        });
    } else {
        point(*work.rows, t, sides.table, s.width, e, n);
        if (t.score == SAGE_ATTENTION_GATV2) {
            if (s.edge_channels > 0) shift_rows<V>(t, work, n);
            leaky_dot_heads<V, VPH>(s, n, *work.rows, sides.fixed, static_cast<const T*>(t.attention),
                                    static_cast<T>(t.negative_slope), work.score);
        } else {
            dot_heads<V, VPH>(s, n, *work.rows, sides.fixed, work.score);
            if (s.edge_channels > 0 && sides.edge_fixed) {
                add_edge_dots<V>(t, work, n, T(1), [&](int64_t) { return sides.edge_fixed; }, work.z, work.score);
            } else if (s.edge_channels > 0) {
                const T* queries = static_cast<const T*>(t.edge_queries);
                add_edge_dots<V>(
                    t, work, n, static_cast<T>(t.scale),
                    [&](int64_t k) {
                        return queries + index_at(t.indices, t.wide_indices, e + k) * s.heads * s.edge_channels;
                    },
                    work.z, work.score);
            }
        }
    }
    const T minus_infinity = -static_cast<T>(HUGE_VAL);
    for (int64_t x = n * s.head_stride; x < s.used(n); ++x) work.score[x] = minus_infinity;
}

// sum[h, :] = sum[h, :] * factor[h] + sum over e of weight[e, h] * edge_features(e), over edge channels.
template <class V>
SAGE_INLINE void edge_weighted_sum(const AttentionTask& t, const Work<V>& work, int64_t n,
                                   const typename V::T* weight, const typename V::T* factor, typename V::T* sum) {
    const Shape<V>& s = work.s;
    for (int64_t h = 0; h < s.heads; ++h) {
        over_channels<V, 0>(s.edge_channels, [&](int64_t d, auto access) {
            typename V::T* to = sum + h * s.edge_channels + d;
            V a = access.load(to) * V::set(factor ? factor[h] : 1);
            for (int64_t k = 0; k < n; ++k) {
                a = V::fma(V::set(weight[k * s.head_stride + h]), access.load(edge_features_of<V>(t, work, k) + d), a);
            }
            access.store(to, a);
        });
    }
}

}  // namespace sage
