// Tables of rows kept in fewer bytes (packed_types.h): a block of their rows made float, or summed as they are. Only the
// forward passes of float have them; memory is what they save, so whatever reads a row twice makes it float once.
#pragma once

#include "block.h"
#include "packed_types.h"

namespace sage {

// f(Float16{}), f(BFloat16{}) or f(Int8{}), for a kind that is not SAGE_ATTENTION_PLAIN.
template <class F>
SAGE_INLINE void with_packed_type(int32_t kind, const F& f) {
    switch (kind) {
        case SAGE_ATTENTION_FLOAT16:
            return f(Float16{});
        case SAGE_ATTENTION_BFLOAT16:
            return f(BFloat16{});
        default:
            return f(Int8{});
    }
}

SAGE_INLINE int64_t packed_bytes(int32_t kind) { return kind == SAGE_ATTENTION_INT8 ? 1 : 2; }

// A table as the caller keeps it, and the rows of a block in it.
struct PackedRows {
    const void* table;
    int32_t kind;
    const float* scales;  // of INT8
    const int64_t* index;
};

// to[e, :] = the rows of a block, as floats.
template <class V>
SAGE_NOINLINE void unpack_rows(const Shape<V>& s, int64_t n, const PackedRows& packed, Prefetch prefetch_range,
                               float* to) {
    with_packed_type(packed.kind, [&](auto element) SAGE_LAMBDA {
        using E = decltype(element);
        const Rows<E> rows{static_cast<const E*>(packed.table), s.width, packed.index};
        const PrefetchRange range(prefetch_range, s.width, 0, s.width, sizeof(E));
        const bool scaled = sizeof(E) == 1;
        for (int64_t e = 0; e < n; ++e) {
            range.of(rows[e + ahead_of(sizeof(E))]);
            if (scaled) prefetch(packed.scales + packed.index[e + ahead_of(sizeof(E))]);
            const E* row = rows[e];
            float* into = to + e * s.width;
            const V scale = V::set(scaled ? packed.scales[packed.index[e]] : 1.0f);
            over_channels<V>(s.width, [&](int64_t c, auto access) SAGE_LAMBDA {
                const V x = access.load(row + c);
                access.store(into + c, scaled ? x * scale : x);
            });
        }
    });
}

template <class V>
using PackedSum = void (*)(const Shape<V>& s, int64_t n, const PackedRows& packed, const Sum<float>& sum, Prefetch prefetch);

template <class V, int VPH, class E>
void packed_sum(const Shape<V>& s, int64_t n, const PackedRows& packed, const Sum<float>& sum, Prefetch prefetch) {
    const Rows<E> rows{static_cast<const E*>(packed.table), s.width, packed.index};
    sum_rows<V, VPH, false>(s, n, rows, sum, sum, prefetch);
}

template <class V, int VPH>
SAGE_INLINE PackedSum<V> packed_sum_of(int32_t kind) {
    PackedSum<V> found = nullptr;
    with_packed_type(kind, [&](auto element) SAGE_LAMBDA { found = packed_sum<V, VPH, decltype(element)>; });
    return found;
}

// Sums without a detour, for the common numbers of channels; null for the others, whose rows are made float first.
template <class V>
PackedSum<V> packed_sum_for(const Shape<V>& s, int32_t kind) {
    if constexpr (V::kWidth > 1) {
        switch (s.channels) {
            case V::kWidth:
                return packed_sum_of<V, 1>(kind);
            case 2 * V::kWidth:
                return packed_sum_of<V, 2>(kind);
            case 4 * V::kWidth:
                return packed_sum_of<V, 4>(kind);
            case 8 * V::kWidth:
                return packed_sum_of<V, 8>(kind);
            default:
                break;
        }
    }
    return nullptr;
}

// weight[e, h] = from[e, h] * the scale of row e
template <class V>
SAGE_INLINE void scale_weights(const Shape<V>& s, int64_t n, const PackedRows& packed, const float* from, float* weight) {
    for (int64_t e = 0; e < n; ++e) {
        prefetch(packed.scales + packed.index[e + ahead_of(1)]);
        const float scale = packed.scales[packed.index[e]];
        const int64_t x = e * s.head_stride;
        over_channels<V>(s.head_stride, [&](int64_t h, auto access) SAGE_LAMBDA {
            access.store(weight + x + h, access.load(from + x + h) * V::set(scale));
        });
    }
}

// RowOperations::sum over rows that are packed.
template <class V>
SAGE_NOINLINE void sum_packed_rows(Work<V>& work, int64_t n, const PackedRows& packed, const Sum<float>& sum_in,
                                   Prefetch prefetch_range) {
    const Shape<V>& s = work.s;
    Sum<float> sum = sum_in;
    const PackedSum<V> direct = packed_sum_for(s, packed.kind);
    if (!direct) {
        unpack_rows<V>(s, n, packed, prefetch_range, work.unpacked);
        work.operations.sum(s, n, Rows<float>{work.unpacked, s.width, work.counting}, sum, Prefetch{});
        return;
    }
    if (packed.kind == SAGE_ATTENTION_INT8) {
        scale_weights<V>(s, n, packed, sum.weight, work.mean);  // an array of the backward passes
        sum.weight = work.mean;
    }
    direct(s, n, packed, sum, prefetch_range);
}

}  // namespace sage
