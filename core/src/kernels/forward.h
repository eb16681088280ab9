// The forward pass: per target, one walk over its in-edges in blocks, with an online softmax.
// Cost per edge: the neighbour's row once from memory, H numbers from the logits (GAT), H exponentials.
#pragma once

#include "packed.h"
#include "scores.h"

namespace sage {

// work.score becomes work.weight = exp(score - row_max), after row_max has been raised to cover the block;
// row_factor is what earlier sums, if any, must be multiplied with; row_sum includes the block, lane by lane. Meanwhile
// `prefetch` of `rows` is fetched; only where an edge is at least one vector of exponentials.
template <class V>
SAGE_INLINE void block_softmax(Work<V>& work, int64_t n, bool is_first, const RowBytes& rows, Prefetch prefetch) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    pad<V>(s, n, work.score, -static_cast<T>(HUGE_VAL));
    const int64_t end = s.used(n);
    const PrefetchRange range(prefetch, rows.stride, 0, rows.stride, 1);
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
        // Not -infinity: a whole block of such scores (edges masked out) must weigh nothing, not be no number.
        const V before = is_first ? V::set(V::lowest()) : V::load(work.row_max + q);
        V largest = before;
        for (int64_t x = q; x < end; x += s.pattern) largest = V::maximum(largest, V::load(work.score + x));
        largest = fold<V>(s, largest, [](V a, V b) SAGE_LAMBDA { return V::maximum(a, b); });
        V sum = V::set(0);
        int64_t ahead = rows.ahead;
        for (int64_t x = q; x < end; x += s.pattern) {
            if (q == 0) range.of(rows[ahead++]);
            const V weight = exp_nonpositive(V::load(work.score + x) - largest);
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

// GAT: row_positive and work.gated, the part of row_sum and of `applied` that belongs to positive scores.
template <class V>
SAGE_INLINE void gate_positives(Work<V>& work, int64_t n, bool is_first, const typename V::T* applied) {
    const Shape<V>& s = work.s;
    const int64_t end = s.used(n);
    const V zero = V::set(0);
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
        V sum = V::set(0);
        for (int64_t x = q; x < end; x += s.pattern) {
            const V z = V::load(work.z + x);
            sum = sum + V::if_positive(z, V::load(work.weight + x), zero);
            V::if_positive(z, V::load(applied + x), zero).store(work.gated + x);
        }
        if (!is_first) sum = V::fma(V::load(work.row_positive + q), V::load(work.row_factor + q), sum);
        sum.store(work.row_positive + q);
    }
}

// Second walk over a row whose scores lie in t.weights: they become weights.
template <class V>
SAGE_NOINLINE void finish_weights(const AttentionTask& t, Work<V>& work, int64_t first, int64_t last) {
    const Shape<V>& s = work.s;
    const bool drop = t.dropout > 0 && !t.weights_before_dropout;
    for (int64_t e = first; e < last; e += s.block) {
        const int64_t n = min(s.block, last - e);
        find_edge_rows<V>(t, work, e, n);
        gather_edge_heads<V>(work, n, t.weights, work.score);
        if (drop) draw_dropout<V>(t, work, n);
        over_flat_pattern<V>(s, n, [&](int64_t x, int64_t q) SAGE_LAMBDA {
            V weight = exp_nonpositive(V::load(work.score + x) - V::load(work.row_max + q)) *
                       V::load(work.row_inverse + q);
            if (drop) weight = weight * V::load(work.dropped + x);
            weight.store(work.weight + x);
        });
        scatter_edge_heads<V>(work, n, work.weight, t.weights);
    }
}

// table[row, :] = value, for a table that is wanted.
template <class V>
SAGE_INLINE void fill(void* table, int64_t row, int64_t width, typename V::T value) {
    if (!table) return;
    typename V::T* to = static_cast<typename V::T*>(table) + row * width;
    over_channels<V>(width, [&](int64_t c, auto access) SAGE_LAMBDA { access.store(to + c, V::set(value)); });
}
// table[row, :] = from[:], for a table that is wanted.
template <class V>
SAGE_INLINE void store_row(void* table, int64_t row, int64_t width, const typename V::T* from) {
    if (!table) return;
    typename V::T* to = static_cast<typename V::T*>(table) + row * width;
    over_channels<V>(width, [&](int64_t c, auto access) SAGE_LAMBDA { access.store(to + c, access.load(from + c)); });
}
// table[row, h, :] = sum[h, :] * factor[h]
template <class V>
SAGE_NOINLINE void store_scaled(void* table, int64_t row, int64_t heads, int64_t channels, const typename V::T* sum,
                                const typename V::T* factor) {
    typename V::T* to = static_cast<typename V::T*>(table) + row * heads * channels;
    for (int64_t h = 0; h < heads; ++h) {
        for (int64_t c = 0; c < channels; ++c) to[h * channels + c] = sum[h * channels + c] * factor[h];
    }
}

template <class V>
SAGE_NOINLINE void forward_empty_row(const AttentionTask& t, const Shape<V>& s, int64_t row) {
    if (t.bias) {
        store_row<V>(t.out, row, s.width, static_cast<const typename V::T*>(t.bias));
    } else {
        fill<V>(t.out, row, s.width, 0);
    }
    fill<V>(t.edge_out, row, s.heads * s.edge_channels, 0);
    fill<V>(t.positive_out, row, s.width, 0);
    fill<V>(t.row_max, row, s.heads, 0);
    fill<V>(t.row_sum, row, s.heads, 0);
    fill<V>(t.positive_sum, row, s.heads, 0);
}

// How a row's neighbours are kept. Double has no other kind than plain.
template <class V>
SAGE_INLINE bool has_packed_values(const AttentionTask& t) {
    return sizeof(typename V::T) == 4 && t.values_kind != SAGE_ATTENTION_PLAIN;
}
template <class V>
SAGE_INLINE bool has_packed_keys(const AttentionTask& t) {
    return sizeof(typename V::T) == 4 && t.score != SAGE_ATTENTION_GAT && t.keys_kind != SAGE_ATTENTION_PLAIN;
}

template <class V>
SAGE_INLINE void forward_row(const AttentionTask& t, Work<V>& work, int64_t r) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t row = r + t.row_offset, first = t.indptr[r], last = t.indptr[r + 1];
    const bool positives = t.positive_out != nullptr, drop = t.dropout > 0;
    const bool packed_values = has_packed_values<V>(t), packed_keys = has_packed_keys<V>(t);
    if (first == last) return forward_empty_row<V>(t, s, row);
    const T* fixed = target_share<V>(t, work, row);
    if (t.edge_out) fill<V>(work.edge_sum, 0, s.heads * s.edge_channels, 0);

    for (int64_t e = first; e < last; e += s.block) {
        const int64_t n = min(s.block, last - e);
        const bool is_first = e == first, is_last = e + n == last;
        const int64_t* const index = work.neighbours.of(t, e, n);
        Rows<T> values{static_cast<const T*>(t.values), s.width, index};
        Rows<T> keys{static_cast<const T*>(t.keys), s.width, index};
        RowBytes rows = bytes_of(values);  // those that are fetched ahead
        bool packed = false;               // summed as they are
        if constexpr (sizeof(T) == 4) {
            if (packed_keys) {
                const bool shared = t.score == SAGE_ATTENTION_GATV2 && s.head_stride >= V::kWidth;
                unpack_rows<V>(s, n, PackedRows{t.keys, t.keys_kind, t.key_scales, index},
                               shared ? Prefetch{0, kUnpacking} : kPrefetchAll, work.unpacked);
                keys = Rows<T>{work.unpacked, s.width, work.counting};
            }
            if (packed_values) {
                packed = t.score != SAGE_ATTENTION_GATV2;
                rows.stride = s.width * packed_bytes(t.values_kind);
                rows.ahead = ahead_of(packed_bytes(t.values_kind));
                if (!packed) values = keys;
            }
        }
        target_scores<V>(t, work, fixed, e, n, keys, rows);
        if (t.weights) scatter_edge_heads<V>(work, n, work.score, t.weights);
        // How much of the values' rows scores have fetched, and will have been after the exponentials.
        const bool scored = t.score == SAGE_ATTENTION_GAT || keys.table == values.table;
        const bool fetched = values.index != index;
        int after_scores = !scored ? 0 : t.score == SAGE_ATTENTION_GAT ? kGatScores : kGatv2Scores;
        int after_softmax = s.head_stride < V::kWidth ? after_scores : after_scores + kSoftmax;
        if (fetched) {
            after_scores = s.head_stride < V::kWidth ? 8 : kUnpacking;
            after_softmax = 8;
        }
        block_softmax<V>(work, n, is_first, rows, Prefetch{after_scores, after_softmax});
        if (is_last) {
            for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
                const V sum = fold_sum<V>(s, V::load(work.row_sum + q));
                sum.store(work.row_sum + q);
                (V::set(1) / sum).store(work.row_inverse + q);
            }
        }
        const T* applied = work.weight;
        if (drop) {
            draw_dropout<V>(t, work, n);
            over_flat<V>(s, n, [&](int64_t x) SAGE_LAMBDA {
                (V::load(work.weight + x) * V::load(work.dropped + x)).store(work.applied + x);
            });
            applied = work.applied;
        }
        const T* to_factor = is_last ? work.row_inverse : nullptr;
        const Sum<T> sum{applied, is_first ? nullptr : work.sum, work.row_factor,
                         is_last ? static_cast<T*>(t.out) + row * s.width : work.sum, to_factor};
        const Prefetch prefetch{after_softmax, 8};
        if (positives) {
            gate_positives<V>(work, n, is_first, applied);
            const Sum<T> second{work.gated, is_first ? nullptr : work.second, work.row_factor,
                                is_last ? static_cast<T*>(t.positive_out) + row * s.width : work.second, to_factor};
            work.operations.sum_pair(s, n, values, sum, second, prefetch);
        } else if (packed) {
            if constexpr (sizeof(T) == 4) {
                const PackedRows kept{t.values, t.values_kind, t.value_scales, index};
                sum_packed_rows<V>(work, n, kept, sum, prefetch);
            }
        } else {
            work.operations.sum(s, n, values, sum, prefetch);
        }
        if (t.edge_out) edge_weighted_sum<V>(t, work, n, applied, is_first ? nullptr : work.row_factor, work.edge_sum);
    }

    if (t.bias) {
        T* out = static_cast<T*>(t.out) + row * s.width;
        const T* bias = static_cast<const T*>(t.bias);
        over_channels<V>(s.width, [&](int64_t c, auto access) SAGE_LAMBDA {
            access.store(out + c, access.load(out + c) + access.load(bias + c));
        });
    }
    store_row<V>(t.row_max, row, s.heads, work.row_max);
    store_row<V>(t.row_sum, row, s.heads, work.row_sum);
    if (t.edge_out) store_scaled<V>(t.edge_out, row, s.heads, s.edge_channels, work.edge_sum, work.row_inverse);
    if (positives) {
        for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
            const V sum = fold_sum<V>(s, V::load(work.row_positive + q));
            (sum * V::load(work.row_inverse + q)).store(work.row_positive + q);
        }
        store_row<V>(t.positive_sum, row, s.heads, work.row_positive);
    }
    if (t.weights) finish_weights<V>(t, work, first, last);
}

template <class V>
void attention_forward_rows(const AttentionTask& t, int64_t begin, int64_t end, void* scratch) {
    Work<V> work(t, scratch);
    for (int64_t r = begin; r < end; ++r) forward_row<V>(t, work, r);
}

}  // namespace sage
