// The backward passes. With p the weights before dropout, m the dropout scales, g the gradient of `out`:
//   dA_e = m_e (g_i . v_j) + [gradient of the returned weight]      D_i = sum over e of p_e dA_e
//   dS_e = p_e (dA_e - D_i)                                          the gradient of edge e's score
// prepare (prepare.h) finds D_i from what the forward pass kept, so that each later pass needs one walk. Nothing per
// edge was stored: scores are taken again. Every output row is summed by one thread in one order.
#pragma once

#include "prepare.h"

namespace sage {

// From work.score and work.gated = g . v: work.applied = p m, work.slope = dS. maxima, inverse and mean are those of
// the edges' targets: patterns of the row, where that is the target (kOfRow), else flat.
template <class V, bool kOfRow>
SAGE_INLINE void block_gradients(const AttentionTask& t, Work<V>& work, int64_t n, const typename V::T* maxima,
                                 const typename V::T* inverse, const typename V::T* mean) {
    const Shape<V>& s = work.s;
    const bool drop = t.dropout > 0, weights = t.grad_weights != nullptr;
    if (drop) draw_dropout<V>(t, work, n);
    if (weights) gather_edge_heads<V>(work, n, t.grad_weights, work.slope);
    const bool weights_dropped = drop && !t.weights_before_dropout;
    over_flat_pattern<V>(s, n, [&](int64_t x, int64_t q) SAGE_LAMBDA {
        const int64_t y = kOfRow ? q : x;
        const V p = exp_nonpositive(V::load(work.score + x) - V::load(maxima + y)) * V::load(inverse + y);
        V of_out = V::load(work.gated + x), applied = p;
        if (drop) {
            const V scale = V::load(work.dropped + x);
            of_out = of_out * scale;
            applied = p * scale;
        }
        if (weights) {
            V of_weight = V::load(work.slope + x);
            if (weights_dropped) of_weight = of_weight * V::load(work.dropped + x);
            of_out = of_out + of_weight;
        }
        applied.store(work.applied + x);
        (p * (of_out - V::load(mean + y))).store(work.slope + x);
    });
}

// GATV2 and DOT: what is summed per target.
template <class V>
SAGE_INLINE void backward_target_row(const AttentionTask& t, const PartialGradients& partial, Work<V>& work,
                                     int64_t r) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t row = r + t.row_offset, first = t.indptr[r], last = t.indptr[r + 1];
    const int64_t H = s.heads, D = s.edge_channels, edge_width = H * D;
    if (first == last) {
        fill<V>(t.grad_queries, row, s.width, 0);
        fill<V>(t.grad_edge_queries, row, edge_width, 0);
        return;
    }
    const bool gatv2 = t.score == SAGE_ATTENTION_GATV2;
    const T* record = static_cast<const T*>(t.records) + row * kRecordFields * H;
    const T* grad = static_cast<const T*>(t.grad_out) + row * s.width;
    const T* grad_edge = t.grad_edge_out ? static_cast<const T*>(t.grad_edge_out) + row * edge_width : nullptr;
    const T* fixed = target_share<V>(t, work, row);
    T *const maxima = work.row_max, *const inverse = work.row_inverse, *const mean = work.row_factor;
    spread<V>(s, record + kRecordMax * H, maxima);
    spread<V>(s, record + kRecordInverse * H, inverse);
    spread<V>(s, record + kRecordMean * H, mean);
    if (t.grad_edge_queries) fill<V>(work.edge_sum, 0, edge_width, 0);

    for (int64_t e = first; e < last; e += s.block) {
        const int64_t n = min(s.block, last - e);
        const Rows<T> values{static_cast<const T*>(t.values), s.width, work.neighbours.of(t, e, n)};
        Rows<T> keys{static_cast<const T*>(t.keys), s.width, values.index};
        target_scores<V>(t, work, fixed, e, n, keys, bytes_of(values));
        const Prefetch prefetch = keys.table == values.table ? Prefetch{4, 8} : kPrefetchAll;
        work.operations.dot(s, n, values, Fixed<T>{grad}, work.gated, prefetch);
        if (grad_edge) add_edge_dots<V>(t, work, n, T(1), EdgeVectors<T>{grad_edge, nullptr}, work.gated);
        block_gradients<V, true>(t, work, n, maxima, inverse, mean);
        Sum<T> sum{work.slope, e == first ? nullptr : work.sum, nullptr, work.sum, nullptr};
        const bool is_last = e + n == last;
        if (is_last && t.grad_queries) sum.to = static_cast<T*>(t.grad_queries) + row * s.width;
        if (gatv2) {
            const T* attention = static_cast<const T*>(t.attention);
            const T slope = static_cast<T>(t.negative_slope);
            if (partial.attention) {
                work.operations.leaky_sum_pair(s, n, keys, fixed, attention, slope, sum,
                                               static_cast<T*>(partial.attention));
            } else {
                work.operations.leaky_sum(s, n, keys, fixed, attention, slope, sum);
            }
            if (t.grad_edge_features || partial.edge_weight) {
                edge_gradients_gatv2<V>(t, work, n, fixed, partial.edge_weight);
            }
        } else {
            if (is_last) sum.to_factor = work.scale;
            work.operations.sum(s, n, keys, sum, Prefetch{});
            if (t.grad_edge_queries) edge_weighted_sum<V>(t, work, n, work.slope, nullptr, work.edge_sum);
            if (t.grad_edge_features) {
                // edge_fixed is already times scale
                add_to_edge_features<V>(work, n, work.slope, work.edge_fixed, t.grad_edge_features);
                if (grad_edge) add_to_edge_features<V>(work, n, work.applied, grad_edge, t.grad_edge_features);
            }
        }
    }
    if (t.grad_edge_queries) store_scaled<V>(t.grad_edge_queries, row, H, D, work.edge_sum, work.scale);
}

// GAT: work.weight becomes the gradient of LeakyReLU's argument, row_sum its sum so far, lane by lane.
template <class V>
SAGE_INLINE void gat_logit_gradients(const AttentionTask& t, Work<V>& work, int64_t n) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const V slope = V::set(static_cast<T>(t.negative_slope));
    pad<V>(s, n, work.slope, T(0));
    const int64_t end = s.used(n);
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
        V sum = V::load(work.row_sum + q);
        for (int64_t x = q; x < end; x += s.pattern) {
            const V g = V::load(work.slope + x);
            const V of_z = V::if_positive(V::load(work.z + x), g, g * slope);
            of_z.store(work.weight + x);
            sum = sum + of_z;
        }
        sum.store(work.row_sum + q);
    }
}

// The source's share of the scores: GAT work.row_fixed, GATV2 and DOT the row returned.
template <class V>
SAGE_INLINE const typename V::T* source_share(const AttentionTask& t, Work<V>& work, int64_t row) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    if (t.score == SAGE_ATTENTION_GATV2) return static_cast<const T*>(t.values) + row * s.width;
    if (t.score == SAGE_ATTENTION_GAT) {
        spread<V>(s, static_cast<const T*>(t.source_logits) + row * s.heads, work.row_fixed);
        return nullptr;
    }
    scale_row<V>(static_cast<const T*>(t.keys) + row * s.width, s.width, t.scale, work.fixed);
    return work.fixed;
}

// What is summed per source; rows are sources, neighbours are targets.
template <class V>
SAGE_INLINE void backward_source_row(const AttentionTask& t, const PartialGradients& partial, Work<V>& work,
                                     int64_t row) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t first = t.indptr[row], last = t.indptr[row + 1];
    const int64_t H = s.heads;
    if (first == last) {
        fill<V>(t.grad_values, row, s.width, 0);
        fill<V>(t.grad_keys, row, s.width, 0);
        fill<V>(t.grad_source_logits, row, H, 0);
        return;
    }
    const T* values = static_cast<const T*>(t.values) + row * s.width;
    const T* fixed = source_share<V>(t, work, row);
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) V::set(0).store(work.row_sum + q);

    for (int64_t e = first; e < last; e += s.block) {
        const int64_t n = min(s.block, last - e);
        const bool is_first = e == first, is_last = e + n == last;
        const int64_t* index = work.neighbours.of(t, e, n);
        const Rows<T> grads{static_cast<const T*>(t.grad_out), s.width, index};
        Rows<T> queries{static_cast<const T*>(t.queries), s.width, index};
        if (needs_edge_rows(t)) find_edge_rows<V>(t, work, e, n);
        T* const record[] = {work.z, work.maxima, work.inverse, work.mean};
        gather_heads<V, kRecordFields>(s, n, index, t.records, record, RowBytes{});
        if (t.score == SAGE_ATTENTION_GAT) {
            gat_scores<V>(t, work, n);
        } else if (t.score == SAGE_ATTENTION_GATV2) {
            gatv2_scores<V>(t, work, n, queries, fixed, kPrefetchAll);
        } else {
            dot_scores<V>(t, work, n, queries, fixed, EdgeVectors<T>{static_cast<const T*>(t.edge_queries), index},
                          kPrefetchAll);
        }
        work.operations.dot(s, n, grads, Fixed<T>{values}, work.gated, Prefetch{0, 4});
        if (t.grad_edge_out) {
            const T* grad_edge = static_cast<const T*>(t.grad_edge_out);
            add_edge_dots<V>(t, work, n, T(1), EdgeVectors<T>{grad_edge, index}, work.gated);
        }
        block_gradients<V, false>(t, work, n, work.maxima, work.inverse, work.mean);
        if (t.grad_values) {
            // GATV2 has more to add to the sum.
            const bool done = is_last && t.score != SAGE_ATTENTION_GATV2;
            T* const to = static_cast<T*>(t.grad_values) + row * s.width;
            const Sum<T> sum{work.applied, is_first ? nullptr : work.sum, nullptr, done ? to : work.sum, nullptr};
            work.operations.sum(s, n, grads, sum, Prefetch{4, 8});
            if (t.score == SAGE_ATTENTION_GATV2) {
                work.operations.leaky_sum(s, n, queries, fixed, static_cast<const T*>(t.attention),
                                          static_cast<T>(t.negative_slope),
                                          Sum<T>{work.slope, work.sum, nullptr, is_last ? to : work.sum, nullptr});
            }
        }
        if (t.grad_keys) {
            T* const to = static_cast<T*>(t.grad_keys) + row * s.width;
            work.operations.sum(s, n, queries,
                                Sum<T>{work.slope, is_first ? nullptr : work.second, nullptr,
                                       is_last ? to : work.second, is_last ? work.scale : nullptr},
                                Prefetch{});
        }
        if (t.score == SAGE_ATTENTION_GAT) {
            gat_logit_gradients<V>(t, work, n);
            if (t.grad_edge_features) {
                add_to_edge_features<V>(work, n, work.weight, static_cast<const T*>(t.edge_weight),
                                        t.grad_edge_features);
            }
            if (partial.edge_weight) {
                edge_weighted_sum<V>(t, work, n, work.weight, nullptr, static_cast<T*>(partial.edge_weight));
            }
        }
    }
    if (t.grad_source_logits) {
        for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
            fold_sum<V>(s, V::load(work.row_sum + q)).store(work.row_sum + q);
        }
        store_row<V>(t.grad_source_logits, row, H, work.row_sum);
    }
}

template <class V>
void attention_backward_target_rows(const AttentionTask& t, const PartialGradients& partial, int64_t begin,
                                    int64_t end, void* scratch) {
    Work<V> work(t, scratch);
    for (int64_t r = begin; r < end; ++r) backward_target_row<V>(t, partial, work, r);
}

template <class V>
void attention_backward_source_rows(const AttentionTask& t, const PartialGradients& partial, int64_t begin,
                                    int64_t end, void* scratch) {
    Work<V> work(t, scratch);
    for (int64_t r = begin; r < end; ++r) backward_source_row<V>(t, partial, work, r);
}

}  // namespace sage
