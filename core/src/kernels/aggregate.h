// out_i = sum over the in-edges of i of edge_values * values_j: sums of a block of channels stay in registers.
#pragma once

#include "packed.h"

namespace sage {

SAGE_INLINE int64_t index_at(const void* indices, bool wide, int64_t e) {
    return wide ? static_cast<const int64_t*>(indices)[e] : static_cast<const int32_t*>(indices)[e];
}

constexpr int64_t kAggregateBlock = 128;

// Channels [offset, offset + N * kWidth), or, with access a Part, the last few.
template <class V, class E, int N, class Access>
SAGE_INLINE void aggregate_channels(const AggregateTask& t, int64_t r, int64_t offset, const Access& access) {
    using T = typename V::T;
    constexpr int64_t kLine = kCacheLine / sizeof(E);
    constexpr int kLines = static_cast<int>((N * V::kWidth + kLine - 1) / kLine);
    constexpr bool kScaled = sizeof(E) == 1;
    const E* table = static_cast<const E*>(t.values) + offset;
    const T* factors = static_cast<const T*>(t.edge_values);
    V total[N];
    for (int v = 0; v < N; ++v) total[v] = V::set(0);
    // In blocks: the rounding errors of a long row then grow with its blocks, not its edges.
    const int64_t last = t.indptr[r + 1];
    for (int64_t first = t.indptr[r]; first < last; first += kAggregateBlock) {
        V sum[N];
        for (int v = 0; v < N; ++v) sum[v] = V::set(0);
        for (int64_t e = first; e < min(first + kAggregateBlock, last); ++e) {
            const int64_t ahead = min(e + ahead_of(sizeof(E)), t.num_edges - 1);
            const int64_t next_source = index_at(t.indices, t.wide_indices, ahead);
            const E* next = table + next_source * t.channels;
            unrolled<kLines>([&](int line) SAGE_LAMBDA { prefetch(next + line * kLine); });
            const int64_t source = index_at(t.indices, t.wide_indices, e);
            const E* row = table + source * t.channels;
            T scale = factors ? factors[e] : T(1);
            if constexpr (kScaled) {
                prefetch(t.value_scales + next_source);
                scale *= t.value_scales[source];
            }
            const V factor = V::set(scale);
            for (int v = 0; v < N; ++v) sum[v] = V::fma(factor, access.load(row + v * V::kWidth), sum[v]);
        }
        for (int v = 0; v < N; ++v) total[v] = total[v] + sum[v];
    }
    T* out = static_cast<T*>(t.out) + r * t.channels + offset;
    for (int v = 0; v < N; ++v) access.store(out + v * V::kWidth, total[v]);
}

template <class V, class E>
SAGE_INLINE void aggregate_kept_rows(const AggregateTask& t, int64_t begin, int64_t end) {
    constexpr int64_t W = V::kWidth;
    for (int64_t r = begin; r < end; ++r) {
        int64_t c = 0;
        for (; c + 8 * W <= t.channels; c += 8 * W) aggregate_channels<V, E, 8>(t, r, c, Whole<V>{});
        for (; c + 2 * W <= t.channels; c += 2 * W) aggregate_channels<V, E, 2>(t, r, c, Whole<V>{});
        for (; c + W <= t.channels; c += W) aggregate_channels<V, E, 1>(t, r, c, Whole<V>{});
        if (c < t.channels) aggregate_channels<V, E, 1>(t, r, c, Part<V>{t.channels - c});
    }
}

template <class V>
void aggregate_rows(const AggregateTask& t, int64_t begin, int64_t end) {
    if constexpr (sizeof(typename V::T) == 4) {
        if (t.values_kind != SAGE_ATTENTION_PLAIN) {
            with_packed_type(t.values_kind, [&](auto element) SAGE_LAMBDA {
                aggregate_kept_rows<V, decltype(element)>(t, begin, end);
            });
            return;
        }
    }
    aggregate_kept_rows<V, typename V::T>(t, begin, end);
}

}  // namespace sage
