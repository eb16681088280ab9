// Edge features: their share of the scores, their weighted sums, their gradients. Read once per edge, D numbers each,
// so memory matters little and plain loops do. None of this is inlined: passes without edge features stay small.
#pragma once

#include "block.h"

namespace sage {

template <class V>
SAGE_INLINE const typename V::T* edge_features_of(const AttentionTask& t, const Work<V>& work, int64_t k) {
    return static_cast<const typename V::T*>(t.edge_features) + work.edge_rows[k] * t.edge_channels;
}

// A [H, D] matrix for each edge: that of its neighbour (index given), or the same for all (index null).
template <class T>
struct EdgeVectors {
    const T* table;
    const int64_t* index;
    SAGE_INLINE const T* of(int64_t k, int64_t size) const { return index ? table + index[k] * size : table; }
};

// flat[e, h] += scale * vectors(e)[h, :] . edge_features(e)
template <class V>
SAGE_NOINLINE void add_edge_dots(const AttentionTask& t, const Work<V>& work, int64_t n, typename V::T scale,
                                 const EdgeVectors<typename V::T>& vectors, typename V::T* flat) {
    const Shape<V>& s = work.s;
    const int64_t D = s.edge_channels;
    for (int64_t k = 0; k < n; ++k) {
        const typename V::T* feature = edge_features_of<V>(t, work, k);
        for (int64_t h = 0; h < s.heads; ++h) {
            const typename V::T* vector = vectors.of(k, s.heads * D) + h * D;
            V sum = V::set(0);
            over_channels<V>(D, [&](int64_t d, auto access) SAGE_LAMBDA {
                sum = V::fma(access.load(feature + d), access.load(vector + d), sum);
            });
            flat[k * s.head_stride + h] += scale * V::total(sum);
        }
    }
}

// GATv2: work.shifted = rows + edge_weight edge_features; afterwards `rows` are those.
template <class V>
SAGE_NOINLINE void shift_rows(const AttentionTask& t, Work<V>& work, int64_t n, Rows<typename V::T>& rows) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const T* weight = static_cast<const T*>(t.edge_weight);
    for (int64_t k = 0; k < n; ++k) {
        const T* feature = edge_features_of<V>(t, work, k);
        T* to = work.shifted + k * s.width;
        over_channels<V>(s.width, [&](int64_t c, auto access) SAGE_LAMBDA {
            V x = access.load(rows[k] + c);
            for (int64_t d = 0; d < s.edge_channels; ++d) {
                x = V::fma(V::set(feature[d]), access.load(weight + d * s.width + c), x);
            }
            access.store(to + c, x);
        });
    }
    rows = Rows<T>{work.shifted, s.width, work.counting};
}

// sum[h, :] = sum[h, :] * factor[h] + sum over e of weight[e, h] * edge_features(e); factor null: 1.
template <class V>
SAGE_NOINLINE void edge_weighted_sum(const AttentionTask& t, const Work<V>& work, int64_t n,
                                     const typename V::T* weight, const typename V::T* factor, typename V::T* sum) {
    const Shape<V>& s = work.s;
    for (int64_t h = 0; h < s.heads; ++h) {
        over_channels<V>(s.edge_channels, [&](int64_t d, auto access) SAGE_LAMBDA {
            typename V::T* to = sum + h * s.edge_channels + d;
            V a = V::set(0);
            for (int64_t k = 0; k < n; ++k) {
                a = V::fma(V::set(weight[k * s.head_stride + h]), access.load(edge_features_of<V>(t, work, k) + d), a);
            }
            access.store(to, V::fma(access.load(to), V::set(factor ? factor[h] : 1), a));
        });
    }
}

// table[edge row, :] += sum over h of weight[e, h] * vectors[h, :]
template <class V>
SAGE_NOINLINE void add_to_edge_features(const Work<V>& work, int64_t n, const typename V::T* weight,
                                        const typename V::T* vectors, void* table) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t D = s.edge_channels;
    for (int64_t k = 0; k < n; ++k) {
        T* to = static_cast<T*>(table) + work.edge_rows[k] * D;
        over_channels<V>(D, [&](int64_t d, auto access) SAGE_LAMBDA {
            V x = access.load(to + d);
            for (int64_t h = 0; h < s.heads; ++h) {
                x = V::fma(V::set(weight[k * s.head_stride + h]), access.load(vectors + h * D + d), x);
            }
            access.store(to + d, x);
        });
    }
}

// GATv2: gradients of edge features and of edge_weight (transposed) from dS, per edge through
// dZ[c] = dS attention[c] LeakyReLU'(z[c]), z = shifted row + fixed.
template <class V>
SAGE_NOINLINE void edge_gradients_gatv2(const AttentionTask& t, Work<V>& work, int64_t n, const typename V::T* fixed,
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
            over_channels<V>(s.channels, [&](int64_t i, auto access) SAGE_LAMBDA {
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
            V sum = V::set(0);
            over_channels<V>(s.width, [&](int64_t c, auto access) SAGE_LAMBDA {
                const V x = access.load(of_z + c);
                sum = V::fma(x, access.load(weight + d * s.width + c), sum);
                if (grad_weight) {
                    T* to = grad_weight + d * s.width + c;
                    access.store(to, V::fma(x, f, access.load(to)));
                }
            });
            if (of_feature) of_feature[d] += V::total(sum);
        }
    }
}

}  // namespace sage
