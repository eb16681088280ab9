// The scores of a block of edges, taken alike by the forward pass (per target) and the backward ones (per target, per
// source): one side of each edge is the row itself, the other its neighbours.
#pragma once

#include "edge_features.h"

namespace sage {

// GAT: work.z becomes the argument of LeakyReLU, work.score its value. Before, work.z holds the neighbours' logits;
// work.row_fixed is the row's, as a pattern.
template <class V>
SAGE_INLINE void gat_scores(const AttentionTask& t, Work<V>& work, int64_t n) {
    using T = typename V::T;
    const V slope = V::set(static_cast<T>(t.negative_slope));
    over_flat_pattern<V>(work.s, n, [&](int64_t x, int64_t q) SAGE_LAMBDA {
        const V z = V::load(work.z + x) + V::load(work.row_fixed + q);
        z.store(work.z + x);
        V::if_positive(z, z, z * slope).store(work.score + x);
    });
    if (t.edge_channels == 0) return;
    add_edge_dots<V>(t, work, n, T(1), EdgeVectors<T>{static_cast<const T*>(t.edge_weight), nullptr}, work.z);
    over_flat<V>(work.s, n, [&](int64_t x) SAGE_LAMBDA {
        const V z = V::load(work.z + x);
        V::if_positive(z, z, z * slope).store(work.score + x);
    });
}

// GATV2: work.score of neighbours `rows` to which the row `fixed` is added. With edge features `rows` become shifted.
// Rows in scratch, one after another, need no fetching.
template <class V>
SAGE_INLINE void gatv2_scores(const AttentionTask& t, Work<V>& work, int64_t n, Rows<typename V::T>& rows,
                              const typename V::T* fixed, Prefetch prefetch) {
    using T = typename V::T;
    if (t.edge_channels > 0) shift_rows<V>(t, work, n, rows);
    work.operations.leaky_dot(work.s, n, rows, fixed, static_cast<const T*>(t.attention),
                              static_cast<T>(t.negative_slope), work.score,
                              rows.index == work.counting ? Prefetch{} : prefetch);
}

// DOT: work.score of neighbours `rows` with the row `fixed`, already times scale. edge_vectors meet the edge features:
// the row's (already times scale) or the neighbours'.
template <class V>
SAGE_INLINE void dot_scores(const AttentionTask& t, Work<V>& work, int64_t n, const Rows<typename V::T>& rows,
                            const typename V::T* fixed, const EdgeVectors<typename V::T>& edge_vectors,
                            Prefetch prefetch) {
    using T = typename V::T;
    work.operations.dot(work.s, n, rows, Fixed<T>{fixed}, work.score, prefetch);
    if (t.edge_channels == 0) return;
    const T scale = edge_vectors.index ? static_cast<T>(t.scale) : T(1);
    add_edge_dots<V>(t, work, n, scale, edge_vectors, work.score);
}

// to = from * scale
template <class V>
SAGE_INLINE void scale_row(const typename V::T* from, int64_t width, double scale, typename V::T* to) {
    const V factor = V::set(static_cast<typename V::T>(scale));
    over_channels<V>(width, [&](int64_t c, auto access) SAGE_LAMBDA { access.store(to + c, access.load(from + c) * factor); });
}

// The target's share of the scores: GAT work.row_fixed, DOT work.fixed and work.edge_fixed. Returns GATV2's and DOT's.
template <class V>
SAGE_INLINE const typename V::T* target_share(const AttentionTask& t, Work<V>& work, int64_t row) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    if (t.score == SAGE_ATTENTION_GAT) {
        const T* logits = static_cast<const T*>(t.target_logits);
        spread<V>(s, logits ? logits + row * s.heads : nullptr, work.row_fixed);
        return nullptr;
    }
    const T* query = static_cast<const T*>(t.queries) + row * s.width;
    if (t.score == SAGE_ATTENTION_GATV2) return query;
    scale_row<V>(query, s.width, t.scale, work.fixed);
    const int64_t size = s.heads * s.edge_channels;
    if (size > 0) scale_row<V>(static_cast<const T*>(t.edge_queries) + row * size, size, t.scale, work.edge_fixed);
    return work.fixed;
}

// work.score of a block of in-edges; `keys` are the neighbours of GATV2 and DOT, `next` the rows used next. Sets
// work.edge_rows, where any is used.
template <class V>
SAGE_INLINE void target_scores(const AttentionTask& t, Work<V>& work, const typename V::T* fixed, int64_t e, int64_t n,
                               Rows<typename V::T>& keys, const RowBytes& next) {
    using T = typename V::T;
    if (needs_edge_rows(t)) find_edge_rows<V>(t, work, e, n);
    if (t.score == SAGE_ATTENTION_GAT) {
        T* const flat[] = {work.z};
        gather_heads<V, 1>(work.s, n, keys.index, t.source_logits, flat, next);
        gat_scores<V>(t, work, n);
    } else if (t.score == SAGE_ATTENTION_GATV2) {
        gatv2_scores<V>(t, work, n, keys, fixed, Prefetch{0, kGatv2Scores});
    } else {
        dot_scores<V>(t, work, n, keys, fixed, EdgeVectors<T>{work.edge_fixed, nullptr},
                      keys.index == work.counting ? Prefetch{} : kPrefetchAll);
    }
}

}  // namespace sage
