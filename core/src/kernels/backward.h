// The backward passes. With p the weights before dropout, m the dropout scales, g the gradient of `out`:
//   dA_e = m_e (g_i . v_j) + [gradient of the returned weight]      D_i = sum over e of p_e dA_e
//   dS_e = p_e (dA_e - D_i)                                          the gradient of edge e's score
// prepare finds D_i from what the forward pass kept (sum of p m (g . v) = g . out), so that each later pass needs one
// walk. Nothing per edge was stored: scores are taken again. Every output row is summed by one thread in one order.
#pragma once

#include "forward.h"

namespace sage {

// records [R, 4, H]
enum { kRecordLogits = 0, kRecordMax = 1, kRecordInverse = 2, kRecordMean = 3, kRecordFields = 4 };

template <class V, int VPH>
SAGE_NOINLINE void prepare_row(const AttentionTask& t, Work<V>& work, int64_t r) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t H = s.heads, C = s.channels, D = s.edge_channels;
    const int64_t row = r + t.row_offset, first = t.indptr[r], last = t.indptr[r + 1];
    const auto at = [&](const void* table, int64_t width) { return static_cast<const T*>(table) + row * width; };
    const auto dot = [&](const T* a, const T* b, int64_t n) {
        V part[V::kWidth];
        for (V& p : part) p = V::set(0);
        over_channels<V, 0>(n, [&](int64_t c, auto access) { part[0] = V::fma(access.load(a + c), access.load(b + c), part[0]); });
        T lanes[V::kWidth];
        V::reduce(part).store(lanes);
        return lanes[0];
    };
    const T* grad = at(t.grad_out, s.width);
    const T* sums = at(t.row_sum, H);
    T* record = static_cast<T*>(t.records) + row * kRecordFields * H;
    const bool positives = t.grad_target_logits != nullptr;
    for (int64_t h = 0; h < H; ++h) {
        T mean = dot(grad + h * C, at(t.out, s.width) + h * C, C);
        if (t.grad_edge_out) mean += dot(at(t.grad_edge_out, H * D) + h * D, at(t.edge_out, H * D) + h * D, D);
        record[kRecordLogits * H + h] = t.target_logits ? at(t.target_logits, H)[h] : T(0);
        record[kRecordMax * H + h] = at(t.row_max, H)[h];
        record[kRecordInverse * H + h] = first == last ? T(0) : T(1) / sums[h];
        record[kRecordMean * H + h] = mean;
        // sum of p dA over edges with a positive score, so far without returned weights
        if (positives) work.row_positive[h] = dot(grad + h * C, at(t.positive_out, s.width) + h * C, C);
    }
    if (t.grad_weights && first < last) {
        const Sides<T> sides = t.score == SAGE_ATTENTION_GAT ? target_sides<V>(t, work, row) : Sides<T>{};
        for (int64_t e = first; e < last; e += s.block) {
            const int64_t n = min(s.block, last - e);
            if (positives) {
                block_scores<V, VPH>(t, work, sides, e, n);
            } else {
                for (int64_t k = 0; k < n; ++k) work.edge_rows[k] = edge_row(t, e + k);
            }
            gather_edge_heads<V>(work, n, t.weights, work.weight);
            gather_edge_heads<V>(work, n, t.grad_weights, work.applied);
            for (int64_t k = 0; k < n; ++k) {
                for (int64_t h = 0; h < H; ++h) {
                    const int64_t x = k * s.head_stride + h;
                    const T product = work.weight[x] * work.applied[x];
                    record[kRecordMean * H + h] += product;
                    if (positives && work.z[x] > 0) work.row_positive[h] += product;
                }
            }
        }
    }
    if (positives) {
        // sum of dS is 0, so the sum of dS LeakyReLU' is (1 - slope) times the sum over positive scores.
        T* out = static_cast<T*>(t.grad_target_logits) + row * H;
        for (int64_t h = 0; h < H; ++h) {
            const T of_positive = work.row_positive[h] - record[kRecordMean * H + h] * at(t.positive_sum, H)[h];
            out[h] = (T(1) - static_cast<T>(t.negative_slope)) * of_positive;
        }
    }
}

// From work.score, work.maxima, work.inverse, work.mean (all flat) and work.gated = g . v:
// work.weight = p, work.applied = p m, work.slope = dS.
template <class V>
SAGE_INLINE void block_gradients(const AttentionTask& t, Work<V>& work, int64_t n) {
    const Shape<V>& s = work.s;
    const bool drop = t.dropout > 0;
    if (drop) draw_dropout<V>(t, work, n);
    if (t.grad_weights) gather_edge_heads<V>(work, n, t.grad_weights, work.slope);
    const bool weights_dropped = drop && !t.weights_before_dropout;
    over_flat<V>(s, n, [&](int64_t x) {
        const V p = exp_nonpositive(V::load(work.score + x) - V::load(work.maxima + x)) * V::load(work.inverse + x);
        V of_out = V::load(work.gated + x), applied = p;
        if (drop) {
            const V scale = V::load(work.dropped + x);
            of_out = of_out * scale;
            applied = p * scale;
        }
        if (t.grad_weights) {
            V of_weight = V::load(work.slope + x);
            if (weights_dropped) of_weight = of_weight * V::load(work.dropped + x);
            of_out = of_out + of_weight;
        }
        applied.store(work.applied + x);
        (p * (of_out - V::load(work.mean + x))).store(work.slope + x);
    });
}

// table[edge row, :] += sum over h of weight[e, h] * vectors(e)[h, :]
template <class V, class F>
SAGE_INLINE void add_to_edge_features(const Work<V>& work, int64_t n, const typename V::T* weight, void* table,
                                      const F& vectors) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t D = s.edge_channels;
    for (int64_t k = 0; k < n; ++k) {
        T* to = static_cast<T*>(table) + work.edge_rows[k] * D;
        const T* from = vectors(k);
        over_channels<V, 0>(D, [&](int64_t d, auto access) {
            V x = access.load(to + d);
            for (int64_t h = 0; h < s.heads; ++h) {
                x = V::fma(V::set(weight[k * s.head_stride + h]), access.load(from + h * D + d), x);
            }
            access.store(to + d, x);
        });
    }
}

// GATV2: gradients of edge features and of edge_weight (transposed) from dS, per edge through
// dZ[c] = dS attention[c] LeakyReLU'(z[c]), z = shifted row + fixed.
template <class V>
SAGE_INLINE void edge_gradients_gatv2(const AttentionTask& t, Work<V>& work, int64_t n, const typename V::T* fixed,
                                      void* grad_edge_weight) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t D = s.edge_channels;
    const T* attention = static_cast<const T*>(t.attention);
    const T* weight = static_cast<const T*>(t.edge_weight);
    T* grad_weight = static_cast<T*>(grad_edge_weight);
    T* of_z = work.shifted + s.block * s.width;
    const T slope = static_cast<T>(t.negative_slope);
    for (int64_t k = 0; k < n; ++k) {
        const T* row = work.shifted + k * s.width;
        for (int64_t h = 0; h < s.heads; ++h) {
            const V g = V::set(work.slope[k * s.head_stride + h]);
            over_channels<V, 0>(s.channels, [&](int64_t i, auto access) {
                const int64_t c = h * s.channels + i;
                const V z = access.load(row + c) + access.load(fixed + c);
                access.store(of_z + c, V::if_positive(z, g, g * V::set(slope)) * access.load(attention + c));
            });
        }
        const T* feature = edge_features_of<V>(t, work, k);
        T* of_feature =
            t.grad_edge_features ? static_cast<T*>(t.grad_edge_features) + work.edge_rows[k] * D : nullptr;
        for (int64_t d = 0; d < D; ++d) {
            const V f = V::set(feature[d]);
            V part[V::kWidth];
            for (V& p : part) p = V::set(0);
            over_channels<V, 0>(s.width, [&](int64_t c, auto access) {
                const V x = access.load(of_z + c);
                part[0] = V::fma(x, access.load(weight + d * s.width + c), part[0]);
                if (grad_weight) {
                    T* to = grad_weight + d * s.width + c;
                    access.store(to, V::fma(x, f, access.load(to)));
                }
            });
            if (of_feature) {
                T lanes[V::kWidth];
                V::reduce(part).store(lanes);
                of_feature[d] += lanes[0];
            }
        }
    }
}

// GATV2 and DOT: what is summed per target.
template <class V, int VPH>
SAGE_NOINLINE void backward_target_row(const AttentionTask& t, const PartialGradients& partial, Work<V>& work,
                                       int64_t r) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t row = r + t.row_offset, first = t.indptr[r], last = t.indptr[r + 1];
    const int64_t H = s.heads, D = s.edge_channels, edge_width = H * D;
    if (first == last) {
        fill<T>(t.grad_queries, row, s.width, 0);
        fill<T>(t.grad_edge_queries, row, edge_width, 0);
        return;
    }
    const bool gatv2 = t.score == SAGE_ATTENTION_GATV2;
    const T* record = static_cast<const T*>(t.records) + row * kRecordFields * H;
    const T* grad = static_cast<const T*>(t.grad_out) + row * s.width;
    const T* grad_edge = t.grad_edge_out ? static_cast<const T*>(t.grad_edge_out) + row * edge_width : nullptr;
    const Sides<T> sides = target_sides<V>(t, work, row);
    T* maxima = work.row_max;
    T* inverse = work.row_sum;
    T* mean = work.row_factor;
    spread<V>(s, record + kRecordMax * H, maxima);
    spread<V>(s, record + kRecordInverse * H, inverse);
    spread<V>(s, record + kRecordMean * H, mean);
    for (int64_t c = 0; c < s.width; ++c) work.sum[c] = work.second[c] = 0;
    for (int64_t d = 0; d < edge_width; ++d) work.edge_sum[d] = 0;

    for (int64_t e = first; e < last; e += s.block) {
        const int64_t n = min(s.block, last - e);
        block_scores<V, VPH>(t, work, sides, e, n);
        over_flat_pattern<V>(s, n, [&](int64_t x, int64_t q) {
            V::load(maxima + q).store(work.maxima + x);
            V::load(inverse + q).store(work.inverse + x);
            V::load(mean + q).store(work.mean + x);
        });
        const bool same_rows = gatv2 && D == 0;
        if (!same_rows) point(*work.value_rows, t, t.values, s.width, e, n);
        dot_heads<V, VPH>(s, n, same_rows ? *work.rows : *work.value_rows, grad, work.gated);
        if (grad_edge) add_edge_dots<V>(t, work, n, T(1), [&](int64_t) { return grad_edge; }, work.z, work.gated);
        block_gradients<V>(t, work, n);
        if (gatv2) {
            const T* attention = static_cast<const T*>(t.attention);
            const T slope = static_cast<T>(t.negative_slope);
            leaky_sum<V, VPH, true>(s, n, *work.rows, sides.fixed, attention, slope, work.slope, work.sum,
                                    work.second);
            if (D > 0 && (t.grad_edge_features || partial.edge_weight)) {
                edge_gradients_gatv2<V>(t, work, n, sides.fixed, partial.edge_weight);
            }
        } else {
            over_flat<V>(s, n, [&](int64_t x) {
                (V::load(work.slope + x) * V::set(static_cast<T>(t.scale))).store(work.weight + x);
            });
            weighted_sum<V, VPH, false>(s, n, *work.rows, work.weight, nullptr, false, work.sum, nullptr, nullptr,
                                        false);
            if (t.grad_edge_queries) edge_weighted_sum<V>(t, work, n, work.weight, nullptr, work.edge_sum);
            if (t.grad_edge_features) {
                // edge_fixed is already times scale
                const T* edge_fixed = sides.edge_fixed;
                add_to_edge_features<V>(work, n, work.slope, t.grad_edge_features,
                                        [&](int64_t) { return edge_fixed; });
                if (grad_edge) {
                    add_to_edge_features<V>(work, n, work.applied, t.grad_edge_features,
                                            [&](int64_t) { return grad_edge; });
                }
            }
        }
    }
    const auto copy = [&](void* table, const T* from, int64_t width) {
        if (table) memcpy(static_cast<T*>(table) + row * width, from, static_cast<size_t>(width) * sizeof(T));
    };
    copy(t.grad_queries, work.sum, s.width);
    copy(t.grad_edge_queries, work.edge_sum, edge_width);
    if (partial.attention) {
        T* to = static_cast<T*>(partial.attention);
        for (int64_t c = 0; c < s.width; ++c) to[c] += work.second[c];
    }
}

// What is summed per source; rows are sources, neighbours are targets.
template <class V, int VPH>
SAGE_NOINLINE void backward_source_row(const AttentionTask& t, const PartialGradients& partial, Work<V>& work,
                                       int64_t row) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t first = t.indptr[row], last = t.indptr[row + 1];
    const int64_t H = s.heads, D = s.edge_channels;
    if (first == last) {
        fill<T>(t.grad_values, row, s.width, 0);
        fill<T>(t.grad_keys, row, s.width, 0);
        fill<T>(t.grad_source_logits, row, H, 0);
        return;
    }
    const T* records = static_cast<const T*>(t.records);
    const int64_t record_size = kRecordFields * H;
    const T* values = static_cast<const T*>(t.values) + row * s.width;
    const T slope = static_cast<T>(t.negative_slope);
    Sides<T> sides;
    if (t.score == SAGE_ATTENTION_GAT) {
        spread<V>(s, static_cast<const T*>(t.source_logits) + row * H, work.row_fixed);
        sides.logits = records + kRecordLogits * H;
        sides.logits_stride = record_size;
        sides.logits_pattern = work.row_fixed;
    } else if (t.score == SAGE_ATTENTION_GATV2) {
        sides.table = t.queries;
        sides.fixed = values;
    } else {
        const T* key = static_cast<const T*>(t.keys) + row * s.width;
        for (int64_t c = 0; c < s.width; ++c) work.fixed[c] = key[c] * static_cast<T>(t.scale);
        sides.table = t.queries;
        sides.fixed = work.fixed;
    }
    for (int64_t c = 0; c < s.width; ++c) work.sum[c] = work.second[c] = 0;
    for (int64_t l = 0; l < s.pattern; ++l) work.row_sum[l] = 0;

    for (int64_t e = first; e < last; e += s.block) {
        const int64_t n = min(s.block, last - e);
        block_scores<V, VPH>(t, work, sides, e, n);
        gather_heads<V>(s, t, records + kRecordMax * H, record_size, e, n, work.maxima);
        gather_heads<V>(s, t, records + kRecordInverse * H, record_size, e, n, work.inverse);
        gather_heads<V>(s, t, records + kRecordMean * H, record_size, e, n, work.mean);
        point(*work.value_rows, t, t.grad_out, s.width, e, n);
        dot_heads<V, VPH>(s, n, *work.value_rows, values, work.gated);
        if (t.grad_edge_out) {
            const T* grad_edge = static_cast<const T*>(t.grad_edge_out);
            add_edge_dots<V>(
                t, work, n, T(1),
                [&](int64_t k) { return grad_edge + index_at(t.indices, t.wide_indices, e + k) * H * D; }, work.z,
                work.gated);
        }
        block_gradients<V>(t, work, n);
        weighted_sum<V, VPH, false>(s, n, *work.value_rows, work.applied, nullptr, false, work.sum, nullptr, nullptr,
                                    false);
        if (t.score == SAGE_ATTENTION_GAT) {
            over_flat<V>(s, n, [&](int64_t x) {
                const V g = V::load(work.slope + x);
                V::if_positive(V::load(work.z + x), g, g * V::set(slope)).store(work.weight + x);
            });
            for (int64_t k = 0; k < n; ++k) {
                for (int64_t h = 0; h < H; ++h) work.row_sum[h] += work.weight[k * s.head_stride + h];
            }
            const T* edge_weight = static_cast<const T*>(t.edge_weight);
            if (t.grad_edge_features) {
                add_to_edge_features<V>(work, n, work.weight, t.grad_edge_features,
                                        [&](int64_t) { return edge_weight; });
            }
            if (partial.edge_weight) {
                edge_weighted_sum<V>(t, work, n, work.weight, nullptr, static_cast<T*>(partial.edge_weight));
            }
        } else if (t.score == SAGE_ATTENTION_GATV2) {
            leaky_sum<V, VPH, false>(s, n, *work.rows, sides.fixed, static_cast<const T*>(t.attention), slope,
                                     work.slope, work.sum, nullptr);
        } else {
            over_flat<V>(s, n, [&](int64_t x) {
                (V::load(work.slope + x) * V::set(static_cast<T>(t.scale))).store(work.weight + x);
            });
            weighted_sum<V, VPH, false>(s, n, *work.rows, work.weight, nullptr, false, work.second, nullptr, nullptr,
                                        false);
        }
    }
    const auto copy = [&](void* table, const T* from, int64_t width) {
        if (table) memcpy(static_cast<T*>(table) + row * width, from, static_cast<size_t>(width) * sizeof(T));
    };
    copy(t.grad_values, work.sum, s.width);
    copy(t.grad_keys, work.second, s.width);
    copy(t.grad_source_logits, work.row_sum, H);
}

template <class V, int VPH>
void attention_prepare_rows(const AttentionTask& t, int64_t begin, int64_t end, void* scratch) {
    Work<V> work(t, scratch);
    for (int64_t r = begin; r < end; ++r) prepare_row<V, VPH>(t, work, r);
}

template <class V, int VPH>
void attention_backward_target_rows(const AttentionTask& t, const PartialGradients& partial, int64_t begin,
                                    int64_t end, void* scratch) {
    Work<V> work(t, scratch);
    for (int64_t r = begin; r < end; ++r) backward_target_row<V, VPH>(t, partial, work, r);
}

template <class V, int VPH>
void attention_backward_source_rows(const AttentionTask& t, const PartialGradients& partial, int64_t begin,
                                    int64_t end, void* scratch) {
    Work<V> work(t, scratch);
    for (int64_t r = begin; r < end; ++r) backward_source_row<V, VPH>(t, partial, work, r);
}

}  // namespace sage
