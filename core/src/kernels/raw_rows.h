// GAT over raw rows: all heads sum the same rows of the table, sum_j alpha_jh x_j, and only these sums are projected, a
// block of targets at a time, while they are in cache. Cost per edge: its row once from memory, H F multiplications for
// the scores and H F for the sums (the backward pass: 2 to 4 H F); per target H F C (twice more in the backward pass).
#pragma once

#include <math.h>

#include "block.h"
#include "raw_task.h"
#include "tiles.h"

namespace sage {

// Targets whose sums are projected together: their bytes fit in the second-level cache, beside the projection.
constexpr int64_t kMostTargets = 32;
constexpr int64_t kTargetBytes = 131072;
constexpr int64_t kRawAhead = 32;  // edges whose rows may be fetched early
constexpr int64_t kRawSoon = 8;    // edges whose rows are asked for before anything is done with them

// The table's rows of edges, as `Neighbours` has them, by way of row_ids.
template <class V>
class RawNeighbours {
  public:
    // index[k], k < n + kLookAhead, is the row of the source of edge e + k; past the last edge, some row.
    SAGE_INLINE const int64_t* of(const RawTask& t, int64_t e, int64_t n) {
        if (e < first_ || e + n + kLookAhead > first_ + kWindow) fill(t, e);
        return index_ + (e - first_);
    }

  private:
    static constexpr int64_t kWindow = 256, kLookAhead = kRawAhead + Fetcher::kTouched;
    SAGE_NOINLINE void fill(const RawTask& t, int64_t e) {
        first_ = e;
        const int64_t n = min(kWindow, t.num_edges - e);
        for (int64_t k = 0; k < n; ++k) {
            index_[k] = t.wide_indices ? static_cast<const int64_t*>(t.indices)[e + k]
                                       : static_cast<const int32_t*>(t.indices)[e + k];
        }
        if (t.row_ids) {
            for (int64_t k = 0; k < n; ++k) index_[k] = t.row_ids[index_[k]];
        }
        for (int64_t k = n; k < kWindow; ++k) index_[k] = index_[n - 1];
    }
    int64_t first_ = INT64_MAX;
    int64_t index_[kWindow];
};

template <class V>
struct RawWork {
    using T = typename V::T;
    const Shape<V> s;  // its channels are the features
    int64_t edges, targets;
    RawNeighbours<V> neighbours;
    int64_t edge_rows[kMaxBlock];
    int64_t target_index[kMostTargets + Fetcher::kTouched];
    Fetcher fetcher;
    // flat, of a block of edges; target_flat and target_sums are those of a block of targets
    T *z, *weight, *applied, *gated, *dropped, *target_flat, *target_sums;
    T *row_max, *row_sum, *row_factor, *row_inverse, *row_fixed, *row_mean;  // patterns
    T *sums, *grads;  // [targets, H, F] sums of rows, and their gradients
    int64_t* ascending;  // 0, 1, ...: the index of rows that lie one after the other
    size_t bytes;

    RawWork(const RawTask& t, void* scratch)
        : s(t.heads, t.features, 0), fetcher(t.table, t.features * static_cast<int64_t>(sizeof(T))) {
        const int64_t element = sizeof(T);
        edges = min(max(kBlockBytes / (t.features * element), int64_t{4}), kMaxBlock);
        targets = min(max(kTargetBytes / (s.width * element), int64_t{4}), kMostTargets);
        Arena arena(scratch);
        T** flats[] = {&z, &weight, &applied, &gated, &dropped, &target_flat, &target_sums};
        for (T** flat : flats) *flat = arena.take<T>(s.flat_size());
        T** patterns[] = {&row_max, &row_sum, &row_factor, &row_inverse, &row_fixed, &row_mean};
        for (T** pattern : patterns) *pattern = arena.take<T>(s.pattern);
        sums = arena.take<T>(targets * s.width);
        grads = arena.take<T>(t.grad_out ? targets * s.width : 0);
        const int64_t longest = max(max(t.features, t.channels), targets);
        ascending = arena.take<int64_t>(longest);
        bytes = arena.used();
        for (int64_t k = 0; scratch && k < longest; ++k) ascending[k] = k;
    }
    SAGE_INLINE T* sums_of(int64_t k) const { return sums + k * s.width; }
    SAGE_INLINE T* grads_of(int64_t k) const { return grads + k * s.width; }
};

// work.target_flat: the share in the scores of targets r .. r + n - 1.
template <class V>
SAGE_NOINLINE Rows<typename V::T> raw_target_scores(const RawTask& t, RawWork<V>& work, int64_t r, int64_t n) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t F = t.features;
    const Rows<T> rows{static_cast<const T*>(t.target_table), F, work.target_index};
    if (t.target_table) {
        for (int64_t k = 0; k < n; ++k) work.target_index[k] = t.target_row_ids ? t.target_row_ids[r + k] : r + k;
        for (int64_t k = n; k < n + Fetcher::kTouched; ++k) work.target_index[k] = work.target_index[n - 1];
        Fetcher fetcher(t.target_table, F * static_cast<int64_t>(sizeof(T)));
        fetcher.edges(0, work.target_index, min(n, kRawSoon), n);
        fetcher.spread(n * fetcher.lines(), dot_steps<V>(s, n));
        dot_rows<V>(s, n, F, rows, static_cast<const T*>(t.target_weight), work.target_flat, fetcher);
        return rows;
    }
    const T* logits = static_cast<const T*>(t.target_logits);
    for (int64_t k = 0; k < n; ++k) {
        for (int64_t h = 0; h < s.heads; ++h) {
            work.target_flat[k * s.head_stride + h] = logits ? logits[(r + k) * s.heads + h] : T(0);
        }
    }
    return rows;
}

// The rows of a block of edges; those that come next may be fetched.
template <class V>
SAGE_INLINE Rows<typename V::T> raw_rows(const RawTask& t, RawWork<V>& work, int64_t e, int64_t n) {
    using T = typename V::T;
    const int64_t* index = work.neighbours.of(t, e, n);
    work.fetcher.edges(e, index, e + min(n, kRawSoon), e + n + kRawAhead);
    return Rows<T>{static_cast<const T*>(t.table), t.features, index};
}

// Dot products of n rows with one vector per head, and weighted sums of them, while `parts` quarters of the lines of as
// many rows that come later are fetched.
template <class V>
SAGE_INLINE void raw_dots(RawWork<V>& work, int64_t n, const Rows<typename V::T>& rows, const typename V::T* fixed,
                          typename V::T* flat, int64_t parts) {
    work.fetcher.spread(n * work.fetcher.lines() * parts / 4, dot_steps<V>(work.s, n));
    dot_rows<V>(work.s, n, work.s.channels, rows, fixed, flat, work.fetcher);
}
template <class V>
SAGE_INLINE void raw_sums(RawWork<V>& work, int64_t n, const Rows<typename V::T>& rows,
                          const Combination<typename V::T>& sum, int64_t parts) {
    work.fetcher.spread(n * work.fetcher.lines() * parts / 4, combine_steps<V>(work.s.heads, work.s.channels));
    combine_rows<V>(n, work.s.heads, work.s.channels, rows, sum, work.fetcher);
}
// The products with a projection that follow, `steps` tiles, fetch all that may be.
template <class V>
SAGE_INLINE void raw_fetch_ahead(RawWork<V>& work, int64_t steps) {
    work.fetcher.spread(max(work.fetcher.left(), int64_t{0}), steps);
}

// work.z: LeakyReLU's argument for a block of edges; work.weight: the score.
template <class V>
SAGE_INLINE void raw_scores(const RawTask& t, RawWork<V>& work, int64_t n, const Rows<typename V::T>& rows,
                            int64_t parts) {
    using T = typename V::T;
    raw_dots<V>(work, n, rows, static_cast<const T*>(t.source_weight), work.z, parts);
    const V slope = V::set(static_cast<T>(t.negative_slope));
    over_flat_pattern<V>(work.s, n, [&](int64_t x, int64_t q) SAGE_LAMBDA {
        const V z = V::load(work.z + x) + V::load(work.row_fixed + q);
        z.store(work.z + x);
        V::if_positive(z, z, z * slope).store(work.weight + x);
    });
}

// work.weight from score to exp(score - row_max), with row_max, row_sum and row_factor as `block_softmax` has them.
template <class V>
SAGE_INLINE void raw_softmax(RawWork<V>& work, int64_t n, bool is_first) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    pad<V>(s, n, work.weight, -static_cast<T>(HUGE_VAL));
    const int64_t end = s.used(n);
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
        const V before = is_first ? V::set(V::lowest()) : V::load(work.row_max + q);
        V largest = before;
        for (int64_t x = q; x < end; x += s.pattern) largest = V::maximum(largest, V::load(work.weight + x));
        largest = fold<V>(s, largest, [](V a, V b) SAGE_LAMBDA { return V::maximum(a, b); });
        V sum = V::set(0);
        for (int64_t x = q; x < end; x += s.pattern) {
            const V weight = exp_nonpositive(V::load(work.weight + x) - largest);
            weight.store(work.weight + x);
            sum = sum + weight;
        }
        if (!is_first) {
            const V factor = exp_nonpositive(before - largest);
            factor.store(work.row_factor + q);
            sum = V::fma(V::load(work.row_sum + q), factor, sum);
        }
        sum.store(work.row_sum + q);
        largest.store(work.row_max + q);
    }
}

// work.applied = work.weight * work.dropped; what the rows are weighed with.
template <class V>
SAGE_INLINE const typename V::T* raw_dropout(const RawTask& t, RawWork<V>& work, int64_t e, int64_t n) {
    if (!(t.dropout > 0)) return work.weight;
    const Shape<V>& s = work.s;
    for (int64_t k = 0; k < n; ++k) work.edge_rows[k] = t.edge_rows ? t.edge_rows[e + k] : e + k;
    dropout_scales<V>(t.dropout_seed, t.dropout, work.edge_rows, n, s, work.dropped);
    for (int64_t k = 0; k < n; ++k) {
        for (int64_t h = s.heads; h < s.head_stride; ++h) work.dropped[k * s.head_stride + h] = 0;
    }
    over_flat<V>(s, n, [&](int64_t x) SAGE_LAMBDA {
        (V::load(work.weight + x) * V::load(work.dropped + x)).store(work.applied + x);
    });
    return work.applied;
}

template <class V>
SAGE_INLINE void raw_store_heads(void* table, int64_t row, int64_t heads, const typename V::T* from) {
    if (!table) return;
    typename V::T* to = static_cast<typename V::T*>(table) + row * heads;
    over_channels<V>(heads, [&](int64_t h, auto access) SAGE_LAMBDA {
        access.store(to + h, from ? access.load(from + h) : V::set(0));
    });
}

template <class V>
SAGE_INLINE void raw_zero(typename V::T* to, int64_t count) {
    over_channels<V>(count, [&](int64_t c, auto access) SAGE_LAMBDA { access.store(to + c, V::set(0)); });
}

// Row r, the k-th of its block: its weighted sums, in work.sums_of(k).
template <class V>
SAGE_INLINE void raw_forward_row(const RawTask& t, RawWork<V>& work, int64_t r, int64_t k) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t first = t.indptr[r], last = t.indptr[r + 1], F = t.features;
    T* const to = work.sums_of(k);
    if (first == last) {
        raw_zero<V>(to, s.width);
        raw_store_heads<V>(t.row_max, r, s.heads, nullptr);
        raw_store_heads<V>(t.row_sum, r, s.heads, nullptr);
        return;
    }
    spread<V>(s, work.target_flat + k * s.head_stride, work.row_fixed);
    for (int64_t e = first; e < last; e += work.edges) {
        const int64_t n = min(work.edges, last - e);
        const bool is_first = e == first, is_last = e + n == last;
        const Rows<T> rows = raw_rows<V>(t, work, e, n);
        raw_scores<V>(t, work, n, rows, 2);
        raw_softmax<V>(work, n, is_first);
        if (is_last) {
            for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
                const V sum = fold_sum<V>(s, V::load(work.row_sum + q));
                sum.store(work.row_sum + q);
                (V::set(1) / sum).store(work.row_inverse + q);
            }
        }
        const T* weight = raw_dropout<V>(t, work, e, n);
        const Combination<T> sum{weight, s.head_stride, 1, is_first ? nullptr : to, F, to, F, work.row_factor,
                                 is_last ? work.row_inverse : nullptr};
        raw_sums<V>(work, n, rows, sum, 2);
    }
    raw_store_heads<V>(t.row_max, r, s.heads, work.row_max);
    raw_store_heads<V>(t.row_sum, r, s.heads, work.row_sum);
}

template <class V>
void raw_forward_rows(const RawTask& t, int64_t begin, int64_t end, void* scratch) {
    using T = typename V::T;
    RawWork<V> work(t, scratch);
    const int64_t H = t.heads, F = t.features, C = t.channels;
    for (int64_t r = begin; r < end; r += work.targets) {
        const int64_t n = min(work.targets, end - r);
        raw_target_scores<V>(t, work, r, n);
        for (int64_t k = 0; k < n; ++k) raw_forward_row<V>(t, work, r + k, k);
        raw_fetch_ahead<V>(work, H * combine_steps<V>(n, C));
        for (int64_t h = 0; h < H; ++h) {
            const T* bias = t.bias ? static_cast<const T*>(t.bias) + h * C : nullptr;
            const Combination<T> product{work.sums + h * F, 1, work.s.width, bias, 0,
                                         static_cast<T*>(t.out) + (r * H + h) * C, H * C};
            combine_rows<V>(F, n, C, Rows<T>{static_cast<const T*>(t.projection) + h * F * C, C, work.ascending}, product,
                            work.fetcher);
        }
    }
}

// work.weight, work.z of a block of edges as the forward pass had them; returns the weights after dropout.
template <class V>
SAGE_INLINE const typename V::T* raw_weights_again(const RawTask& t, RawWork<V>& work, int64_t e, int64_t n,
                                                   const Rows<typename V::T>& rows, int64_t parts) {
    raw_scores<V>(t, work, n, rows, parts);
    pad<V>(work.s, n, work.weight, -static_cast<typename V::T>(HUGE_VAL));
    over_flat_pattern<V>(work.s, n, [&](int64_t x, int64_t q) SAGE_LAMBDA {
        const V weight = exp_nonpositive(V::load(work.weight + x) - V::load(work.row_max + q));
        (weight * V::load(work.row_inverse + q)).store(work.weight + x);
    });
    return raw_dropout<V>(t, work, e, n);
}

// work.gated: the gradients of a block's weights, before dropout.
template <class V>
SAGE_INLINE void raw_weight_gradients(const RawTask& t, RawWork<V>& work, int64_t n, const Rows<typename V::T>& rows,
                                      const typename V::T* grad) {
    raw_dots<V>(work, n, rows, grad, work.gated, 1);
    if (!(t.dropout > 0)) return;
    over_flat<V>(work.s, n, [&](int64_t x) SAGE_LAMBDA {
        (V::load(work.gated + x) * V::load(work.dropped + x)).store(work.gated + x);
    });
}

// work.row_mean: the sum of weight times gradient, from the block, which is the whole row.
template <class V>
SAGE_INLINE void raw_mean_of_block(RawWork<V>& work, int64_t n) {
    const Shape<V>& s = work.s;
    pad<V>(s, n, work.gated, typename V::T(0));
    const int64_t end = s.used(n);
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
        V sum = V::set(0);
        for (int64_t x = q; x < end; x += s.pattern) sum = V::fma(V::load(work.weight + x), V::load(work.gated + x), sum);
        fold_sum<V>(s, sum).store(work.row_mean + q);
    }
}

// The same of a row of several blocks: the dot product of its sums and their gradient.
template <class V>
SAGE_NOINLINE void raw_mean_of_sums(RawWork<V>& work, const typename V::T* sums, const typename V::T* grad) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    for (int64_t h = 0; h < s.heads; ++h) {
        V sum = V::set(0);
        over_channels<V>(s.channels, [&](int64_t c, auto access) SAGE_LAMBDA {
            const int64_t at = h * s.channels + c;
            sum = V::fma(access.load(sums + at), access.load(grad + at), sum);
        });
        work.row_factor[h] = V::total(sum);
    }
    spread<V>(s, static_cast<const T*>(work.row_factor), work.row_mean);
}

// work.applied: the gradients of a block's logits; work.row_sum, their sum so far.
template <class V>
SAGE_INLINE void raw_logit_gradients(const RawTask& t, RawWork<V>& work, int64_t n) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const V slope = V::set(static_cast<T>(t.negative_slope));
    const int64_t end = s.used(n), whole = n * s.head_stride;
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
        const V mean = V::load(work.row_mean + q);
        for (int64_t x = q; x < end; x += s.pattern) {
            const V of_score = V::load(work.weight + x) * (V::load(work.gated + x) - mean);
            V::if_positive(V::load(work.z + x), of_score, of_score * slope).store(work.applied + x);
        }
    }
    for (int64_t x = whole; x < end; ++x) work.applied[x] = 0;
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
        V sum = V::load(work.row_sum + q);
        for (int64_t x = q; x < end; x += s.pattern) sum = sum + V::load(work.applied + x);
        sum.store(work.row_sum + q);
    }
}

// Row r, the k-th of its block: its sums again, its part of the source weight's gradient, and that of its own logits,
// in work.target_sums.
template <class V>
SAGE_INLINE void raw_backward_row(const RawTask& t, const RawPartial& partial, RawWork<V>& work, int64_t r,
                                  int64_t k) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t first = t.indptr[r], last = t.indptr[r + 1], F = t.features, H = s.heads;
    T *const sums = work.sums_of(k), *const own = work.target_sums + k * s.head_stride;
    if (first == last) {
        raw_zero<V>(sums, s.width);
        for (int64_t h = 0; h < s.head_stride; ++h) own[h] = 0;
        raw_store_heads<V>(t.grad_target_logits, r, H, nullptr);
        return;
    }
    const T* grad = work.grads_of(k);
    spread<V>(s, work.target_flat + k * s.head_stride, work.row_fixed);
    spread<V>(s, static_cast<const T*>(t.row_max) + r * H, work.row_max);
    spread<V>(s, static_cast<const T*>(t.row_sum) + r * H, work.row_inverse);
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
        (V::set(1) / V::load(work.row_inverse + q)).store(work.row_inverse + q);
        V::set(0).store(work.row_sum + q);
    }
    const bool one_block = last - first <= work.edges;
    for (int64_t e = first; e < last; e += work.edges) {
        const int64_t n = min(work.edges, last - e);
        const Rows<T> rows = raw_rows<V>(t, work, e, n);
        const T* weight = raw_weights_again<V>(t, work, e, n, rows, 1);
        if (partial.projection || !one_block) {
            const Combination<T> sum{weight, s.head_stride, 1, e == first ? nullptr : sums, F, sums, F};
            raw_sums<V>(work, n, rows, sum, 1);
        }
    }
    if (!one_block) {
        raw_mean_of_sums<V>(work, sums, grad);
        work.fetcher.restart(first);
    }
    for (int64_t e = first; e < last; e += work.edges) {
        const int64_t n = min(work.edges, last - e);
        const Rows<T> rows = raw_rows<V>(t, work, e, n);
        if (!one_block) raw_weights_again<V>(t, work, e, n, rows, 1);
        raw_weight_gradients<V>(t, work, n, rows, grad);
        if (one_block) raw_mean_of_block<V>(work, n);
        raw_logit_gradients<V>(t, work, n);
        if (!partial.source_weight) continue;
        T* const to = static_cast<T*>(partial.source_weight);
        raw_sums<V>(work, n, rows, Combination<T>{work.applied, s.head_stride, 1, to, F, to, F}, 1);
    }
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
        fold_sum<V>(s, V::load(work.row_sum + q)).store(work.row_sum + q);
    }
    for (int64_t h = 0; h < s.head_stride; ++h) own[h] = work.row_sum[h];
    raw_store_heads<V>(t.grad_target_logits, r, H, work.row_sum);
}

template <class V>
void raw_backward_rows(const RawTask& t, const RawPartial& partial, int64_t begin, int64_t end, void* scratch) {
    using T = typename V::T;
    RawWork<V> work(t, scratch);
    const int64_t H = t.heads, F = t.features, C = t.channels, width = work.s.width;
    Fetcher none(nullptr, 0);  // fetches nothing
    for (int64_t r = begin; r < end; r += work.targets) {
        const int64_t n = min(work.targets, end - r);
        const Rows<T> target_rows = raw_target_scores<V>(t, work, r, n);
        const T* grad_out = static_cast<const T*>(t.grad_out) + r * H * C;
        for (int64_t h = 0; h < H; ++h) {
            const Combination<T> product{grad_out + h * C, 1, H * C, nullptr, 0, work.grads + h * F, width};
            combine_rows<V>(C, n, F, Rows<T>{static_cast<const T*>(t.projection) + h * C * F, F, work.ascending}, product,
                            none);
        }
        for (int64_t k = 0; k < n; ++k) raw_backward_row<V>(t, partial, work, r + k, k);
        if (partial.target_weight) {
            T* const to = static_cast<T*>(partial.target_weight);
            combine_rows<V>(n, H, F, target_rows, Combination<T>{work.target_sums, work.s.head_stride, 1, to, F, to, F},
                            none);
        }
        if (!partial.projection) continue;
        raw_fetch_ahead<V>(work, H * combine_steps<V>(C, F));
        for (int64_t h = 0; h < H; ++h) {
            T* const to = static_cast<T*>(partial.projection) + h * C * F;
            combine_rows<V>(n, C, F, Rows<T>{work.sums + h * F, width, work.ascending},
                            Combination<T>{grad_out + h * C, H * C, 1, to, F, to, F}, work.fetcher);
        }
    }
}

template <class V>
size_t raw_scratch(const RawTask& t) {
    return RawWork<V>(t, nullptr).bytes;
}

}  // namespace sage
