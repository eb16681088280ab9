// Scratch of one thread, and the scores of a block of edges: what forward and backward passes share.
#pragma once

#include <math.h>

#include "dropout.h"
#include "row_operations.h"
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
    const Shape<V> s;
    const RowOperations<V> operations;
    Neighbours<V> neighbours;
    int64_t counting[kMaxBlock + kAhead];  // 0, 1, 2, ...: the index of rows that lie one after another
    int64_t edge_rows[kMaxBlock];          // edge row of each edge, where task.needs_edge_rows
    // flat
    T *z, *score, *weight, *applied, *gated, *dropped, *slope, *maxima, *inverse, *mean;
    // patterns
    T *row_max, *row_sum, *row_factor, *row_inverse, *row_positive, *row_fixed, *scale;
    // one row of channels or of edge channels per head
    T *sum, *second, *fixed, *edge_sum, *edge_fixed;
    T* shifted;  // [block + 1, width] GATV2 with edge features: rows + projected edge features
    T* unpacked;  // [block, width] rows of a table that is kept packed, as floats
    size_t bytes;

    Work(const AttentionTask& t, void* scratch)
        : s(t.heads, t.channels, t.edge_channels), operations(row_operations<V>(s, t.negative_slope)) {
        Arena arena(scratch);
        T** flats[] = {&z, &score, &weight, &applied, &gated, &dropped, &slope, &maxima, &inverse, &mean};
        for (T** flat : flats) *flat = arena.take<T>(s.flat_size());
        T** patterns[] = {&row_max, &row_sum, &row_factor, &row_inverse, &row_positive, &row_fixed, &scale};
        for (T** pattern : patterns) *pattern = arena.take<T>(s.pattern);
        T** channel_rows[] = {&sum, &second, &fixed};
        for (T** row : channel_rows) *row = arena.take<T>(s.width);
        T** edge_channel_rows[] = {&edge_sum, &edge_fixed};
        for (T** row : edge_channel_rows) *row = arena.take<T>(s.heads * s.edge_channels);
        const bool shift = t.score == SAGE_ATTENTION_GATV2 && t.edge_channels > 0;
        shifted = arena.take<T>(shift ? (s.block + 1) * s.width : 0);
        const bool packed = t.values_kind != SAGE_ATTENTION_PLAIN || t.keys_kind != SAGE_ATTENTION_PLAIN;
        unpacked = arena.take<T>(packed ? s.block * s.width : 0);
        bytes = arena.used();
        if (!scratch) return;
        for (int64_t k = 0; k < kMaxBlock + kAhead; ++k) counting[k] = k;
        for (int64_t l = 0; l < s.pattern; ++l) scale[l] = static_cast<T>(t.scale);
    }
};

// Joins the lanes that belong to one head; each of them gets the result.
template <class V, class F>
SAGE_INLINE V fold(const Shape<V>& s, V x, const F& join) {
    if constexpr (V::kWidth > 4) {
        if (s.head_stride <= 4) x = join(x, V::template swap<4>(x));
    }
    if constexpr (V::kWidth > 2) {
        if (s.head_stride <= 2) x = join(x, V::template swap<2>(x));
    }
    if constexpr (V::kWidth > 1) {
        if (s.head_stride <= 1) x = join(x, V::template swap<1>(x));
    }
    return x;
}
template <class V>
SAGE_INLINE V fold_sum(const Shape<V>& s, V x) {
    return fold<V>(s, x, [](V a, V b) SAGE_LAMBDA { return a + b; });
}

// pattern[h] for h < heads becomes the whole pattern; null: zeros.
template <class V>
SAGE_INLINE void spread(const Shape<V>& s, const typename V::T* heads, typename V::T* pattern) {
    using T = typename V::T;
    over_channels<V>(s.heads, [&](int64_t h, auto access) SAGE_LAMBDA {
        const V x = heads ? access.load(heads + h) : V::set(0);
        x.store(pattern + h);
    });
    for (int64_t l = s.head_stride; l < s.pattern; ++l) pattern[l] = T(pattern[l - s.head_stride]);
}

// Lanes of a flat array past the last edge.
template <class V>
SAGE_INLINE void pad(const Shape<V>& s, int64_t n, typename V::T* flat, typename V::T value) {
    for (int64_t x = n * s.head_stride; x < s.used(n); ++x) flat[x] = value;
}

SAGE_INLINE int64_t edge_row(const AttentionTask& t, int64_t e) {
    const int64_t position = t.positions ? t.positions[e] : e;
    return t.edge_rows ? t.edge_rows[position] : position;
}

template <class V>
SAGE_INLINE void find_edge_rows(const AttentionTask& t, Work<V>& work, int64_t e, int64_t n) {
    for (int64_t k = 0; k < n; ++k) work.edge_rows[k] = edge_row(t, e + k);
}

// Does a pass read or write anything by edge row?
SAGE_INLINE bool needs_edge_rows(const AttentionTask& t) {
    return t.edge_channels > 0 || t.dropout > 0 || t.weights || t.grad_weights;
}

// work.dropped: what each weight of the block is multiplied with.
template <class V>
SAGE_NOINLINE void draw_dropout(const AttentionTask& t, Work<V>& work, int64_t n) {
    const Shape<V>& s = work.s;
    dropout_scales<V>(t.dropout_seed, t.dropout, work.edge_rows, n, s, work.dropped);
    if (s.heads == s.head_stride) return;
    for (int64_t k = 0; k < n; ++k) {
        for (int64_t h = s.heads; h < s.head_stride; ++h) work.dropped[k * s.head_stride + h] = 0;
    }
}

// flat[e, h] = table[edge row, h], and back.
template <class V>
SAGE_NOINLINE void gather_edge_heads(const Work<V>& work, int64_t n, const void* table, typename V::T* flat) {
    const Shape<V>& s = work.s;
    for (int64_t k = 0; k < n; ++k) {
        const typename V::T* from = static_cast<const typename V::T*>(table) + work.edge_rows[k] * s.heads;
        for (int64_t h = 0; h < s.heads; ++h) flat[k * s.head_stride + h] = from[h];
    }
}
template <class V>
SAGE_NOINLINE void scatter_edge_heads(const Work<V>& work, int64_t n, const typename V::T* flat, void* table) {
    const Shape<V>& s = work.s;
    for (int64_t k = 0; k < n; ++k) {
        typename V::T* to = static_cast<typename V::T*>(table) + work.edge_rows[k] * s.heads;
        for (int64_t h = 0; h < s.heads; ++h) to[h] = flat[k * s.head_stride + h];
    }
}

// flat[f][e, h] = table[index[e], f, h] for each of kFields: the per-head numbers of a block's neighbours.
// Fetches the first parts of rows further on, too, where `then` is given: rows of the same neighbours.
template <class V, int kFields, int kHeads>
SAGE_INLINE void gather_fields(const Shape<V>& s, int64_t n, const int64_t* index, const typename V::T* table,
                               typename V::T* const (&flat)[kFields], const RowBytes& then) {
    using T = typename V::T;
    const int64_t heads = kHeads > 0 ? kHeads : s.heads, record = heads * kFields;
    const PrefetchRange range(kPrefetchAll, record, 0, record, sizeof(T));
    const PrefetchRange then_range(then.table ? Prefetch{0, kGatScores} : Prefetch{}, then.stride, 0, then.stride, 1);
    const int64_t ahead = then.table ? then.ahead : kAhead;
    for (int64_t k = 0; k < n; ++k) {
        range.of(table + index[k + ahead] * record);
        if (then.table) then_range.of(then[k + ahead]);
        const T* from = table + index[k] * record;
        for (int f = 0; f < kFields; ++f) {
            T* to = flat[f] + k * s.head_stride;
            if constexpr (kHeads > 0 && kHeads < V::kWidth) {
                memcpy(to, from + f * heads, kHeads * sizeof(T));
            } else {
                over_channels<V>(heads, [&](int64_t h, auto access) SAGE_LAMBDA {
                    access.load(from + f * heads + h).store(to + h);  // spills over into lanes of padding only
                });
            }
        }
    }
}
template <class V, int kFields>
SAGE_NOINLINE void gather_heads(const Shape<V>& s, int64_t n, const int64_t* index, const void* base,
                                typename V::T* const (&flat)[kFields], const RowBytes& then) {
    const auto* table = static_cast<const typename V::T*>(base);
    switch (s.heads) {
        case 1:
            return gather_fields<V, kFields, 1>(s, n, index, table, flat, then);
        case 2:
            return gather_fields<V, kFields, 2>(s, n, index, table, flat, then);
        case 4:
            return gather_fields<V, kFields, 4>(s, n, index, table, flat, then);
        case 8:
            return gather_fields<V, kFields, 8>(s, n, index, table, flat, then);
        default:
            return gather_fields<V, kFields, 0>(s, n, index, table, flat, then);
    }
}

}  // namespace sage
