// The forward pass: per target, one walk over its in-edges in blocks, with an online softmax.
// Cost per edge: the neighbour's row once from memory, H numbers from the logits (GAT), H exponentials.
#pragma once

#include "block.h"

namespace sage {

// The row's share of the scores; work.fixed, work.edge_fixed and work.row_fixed hold it.
template <class V>
SAGE_INLINE Sides<typename V::T> target_sides(const AttentionTask& t, Work<V>& work, int64_t row) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    Sides<T> sides;
    if (t.score == SAGE_ATTENTION_GAT) {
        const T* logits = static_cast<const T*>(t.target_logits);
        spread<V>(s, logits ? logits + row * s.heads : nullptr, work.row_fixed);
        sides.logits = t.source_logits;
        sides.logits_stride = s.heads;
        sides.logits_pattern = work.row_fixed;
        return sides;
    }
    const T* query = static_cast<const T*>(t.queries) + row * s.width;
    if (t.score == SAGE_ATTENTION_GATV2) {
        sides.table = t.values;
        sides.fixed = query;
        return sides;
    }
    const T scale = static_cast<T>(t.scale);
    for (int64_t c = 0; c < s.width; ++c) work.fixed[c] = query[c] * scale;
    sides.table = t.keys;
    sides.fixed = work.fixed;
    if (s.edge_channels > 0) {
        const int64_t size = s.heads * s.edge_channels;
        const T* edge_query = static_cast<const T*>(t.edge_queries) + row * size;
        for (int64_t d = 0; d < size; ++d) work.edge_fixed[d] = edge_query[d] * scale;
        sides.edge_fixed = work.edge_fixed;
    }
    return sides;
}

// work.score becomes work.weight = exp(score - row_max), after row_max has been raised to cover the block;
// row_factor is what earlier sums must be multiplied with; row_sum includes the block.
template <class V>
SAGE_INLINE void block_softmax(Work<V>& work, int64_t n) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
        V largest = V::load(work.row_max + q);
        for (int64_t x = q; x < s.used(n); x += s.pattern) largest = V::maximum(largest, V::load(work.score + x));
        largest.store(work.row_factor + q);
    }
    fold<V>(s, work.row_factor, [](T a, T b) { return a < b ? b : a; });
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
        const V largest = V::load(work.row_factor + q);
        const V factor = exp_nonpositive(V::load(work.row_max + q) - largest);
        V sum = V::load(work.row_sum + q) * factor;
        for (int64_t x = q; x < s.used(n); x += s.pattern) {
            const V weight = exp_nonpositive(V::load(work.score + x) - largest);
            weight.store(work.weight + x);
            sum = sum + weight;
        }
        sum.store(work.row_sum + q);
        largest.store(work.row_max + q);
        factor.store(work.row_factor + q);
    }
}

// table[edge row, h] = flat[e, h], and back.
template <class V>
SAGE_INLINE void scatter_edge_heads(const Work<V>& work, int64_t n, const typename V::T* flat, void* table) {
    const Shape<V>& s = work.s;
    for (int64_t k = 0; k < n; ++k) {
        typename V::T* to = static_cast<typename V::T*>(table) + work.edge_rows[k] * s.heads;
        for (int64_t h = 0; h < s.heads; ++h) to[h] = flat[k * s.head_stride + h];
    }
}
template <class V>
SAGE_INLINE void gather_edge_heads(const Work<V>& work, int64_t n, const void* table, typename V::T* flat) {
    const Shape<V>& s = work.s;
    for (int64_t k = 0; k < n; ++k) {
        const typename V::T* from = static_cast<const typename V::T*>(table) + work.edge_rows[k] * s.heads;
        for (int64_t h = 0; h < s.heads; ++h) flat[k * s.head_stride + h] = from[h];
    }
}

// Second walk over a row whose scores lie in t.weights: they become weights.
template <class V>
SAGE_INLINE void finish_weights(const AttentionTask& t, Work<V>& work, int64_t first, int64_t last) {
    const Shape<V>& s = work.s;
    const bool drop = t.dropout > 0 && !t.weights_before_dropout;
    for (int64_t e = first; e < last; e += s.block) {
        const int64_t n = min(s.block, last - e);
        for (int64_t k = 0; k < n; ++k) work.edge_rows[k] = edge_row(t, e + k);
        gather_edge_heads<V>(work, n, t.weights, work.score);
        if (drop) draw_dropout<V>(t, work, n);
        over_flat_pattern<V>(s, n, [&](int64_t x, int64_t q) {
            V weight = exp_nonpositive(V::load(work.score + x) - V::load(work.row_max + q)) *
                       V::load(work.row_factor + q);
            if (drop) weight = weight * V::load(work.dropped + x);
            weight.store(work.weight + x);
        });
        scatter_edge_heads<V>(work, n, work.weight, t.weights);
    }
}

template <class T>
SAGE_INLINE void fill(void* table, int64_t row, int64_t width, T value) {
    if (!table) return;
    for (int64_t c = 0; c < width; ++c) static_cast<T*>(table)[row * width + c] = value;
}

// table[row, h, :] = sum[h, :] * factor[h]
template <class V>
SAGE_INLINE void store_scaled(void* table, int64_t row, int64_t heads, int64_t channels, const typename V::T* sum,
                              const typename V::T* factor) {
    typename V::T* to = static_cast<typename V::T*>(table) + row * heads * channels;
    for (int64_t h = 0; h < heads; ++h) {
        const V f = V::set(factor[h]);
        over_channels<V, 0>(channels, [&](int64_t c, auto access) {
            access.store(to + h * channels + c, access.load(sum + h * channels + c) * f);
        });
    }
}

template <class V, int VPH>
SAGE_NOINLINE void forward_row(const AttentionTask& t, Work<V>& work, int64_t r) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t row = r + t.row_offset, first = t.indptr[r], last = t.indptr[r + 1];
    const int64_t edge_width = s.heads * s.edge_channels;
    const bool positives = t.positive_out != nullptr, drop = t.dropout > 0;
    if (first == last) {
        fill<T>(t.out, row, s.width, 0);
        fill<T>(t.edge_out, row, edge_width, 0);
        fill<T>(t.positive_out, row, s.width, 0);
        fill<T>(t.row_max, row, s.heads, 0);
        fill<T>(t.row_sum, row, s.heads, 0);
        fill<T>(t.positive_sum, row, s.heads, 0);
        return;
    }
    const Sides<T> sides = target_sides<V>(t, work, row);
    for (int64_t l = 0; l < s.pattern; ++l) {
        work.row_max[l] = -static_cast<T>(HUGE_VAL);
        work.row_sum[l] = work.row_positive[l] = 0;
    }
    for (int64_t d = 0; t.edge_out && d < edge_width; ++d) work.edge_sum[d] = 0;

    for (int64_t e = first; e < last; e += s.block) {
        const int64_t n = min(s.block, last - e);
        const bool fresh = e == first;
        block_scores<V, VPH>(t, work, sides, e, n);
        if (t.weights) scatter_edge_heads<V>(work, n, work.score, t.weights);
        block_softmax<V>(work, n);
        const T* applied = work.weight;
        if (drop) {
            draw_dropout<V>(t, work, n);
            over_flat<V>(s, n, [&](int64_t x) {
                (V::load(work.weight + x) * V::load(work.dropped + x)).store(work.applied + x);
            });
            applied = work.applied;
        }
        // GATV2 without edge features has its rows already, and in cache.
        const bool same_rows = t.score == SAGE_ATTENTION_GATV2 && s.edge_channels == 0;
        if (!same_rows) point(*work.value_rows, t, t.values, s.width, e, n);
        const Rows<T>& rows = same_rows ? *work.rows : *work.value_rows;
        if (positives) {
            for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
                V sum = V::load(work.row_positive + q) * V::load(work.row_factor + q);
                for (int64_t x = q; x < s.used(n); x += s.pattern) {
                    const V z = V::load(work.z + x), zero = V::set(0);
                    sum = sum + V::if_positive(z, V::load(work.weight + x), zero);
                    V::if_positive(z, V::load(applied + x), zero).store(work.gated + x);
                }
                sum.store(work.row_positive + q);
            }
            weighted_sum<V, VPH, true>(s, n, rows, applied, work.row_factor, fresh, work.sum, work.gated, work.second,
                                       !same_rows);
        } else {
            weighted_sum<V, VPH, false>(s, n, rows, applied, work.row_factor, fresh, work.sum, nullptr, nullptr,
                                        !same_rows);
        }
        if (t.edge_out) edge_weighted_sum<V>(t, work, n, applied, fresh ? nullptr : work.row_factor, work.edge_sum);
    }

    const auto add = [](T a, T b) { return a + b; };
    fold<V>(s, work.row_sum, add);
    for (int64_t l = 0; l < s.pattern; ++l) work.row_factor[l] = T(1) / work.row_sum[l];
    store_scaled<V>(t.out, row, s.heads, s.channels, work.sum, work.row_factor);
    if (t.edge_out) store_scaled<V>(t.edge_out, row, s.heads, s.edge_channels, work.edge_sum, work.row_factor);
    if (positives) {
        fold<V>(s, work.row_positive, add);
        store_scaled<V>(t.positive_out, row, s.heads, s.channels, work.second, work.row_factor);
        store_scaled<V>(t.positive_sum, row, s.heads, 1, work.row_positive, work.row_factor);
    }
    for (int64_t h = 0; h < s.heads; ++h) {
        if (t.row_max) static_cast<T*>(t.row_max)[row * s.heads + h] = work.row_max[h];
        if (t.row_sum) static_cast<T*>(t.row_sum)[row * s.heads + h] = work.row_sum[h];
    }
    if (t.weights) finish_weights<V>(t, work, first, last);
}

template <class V, int VPH>
void attention_forward_rows(const AttentionTask& t, int64_t begin, int64_t end, void* scratch) {
    Work<V> work(t, scratch);
    for (int64_t r = begin; r < end; ++r) forward_row<V, VPH>(t, work, r);
}

}  // namespace sage
