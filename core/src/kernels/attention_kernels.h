// The table of one CPU level, made from its vector type.
#pragma once

#include "aggregate.h"
#include "backward.h"
#include "raw_rows.h"

namespace sage {

template <class V>
size_t attention_scratch(const AttentionTask& t) {
    return Work<V>(t, nullptr).bytes;
}

template <class V>
constexpr Kernels make_kernels() {
    Kernels k{};
    k.attention_scratch = sage::attention_scratch<V>;
    k.attention_forward = attention_forward_rows<V>;
    k.attention_prepare = attention_prepare_rows<V>;
    k.attention_backward_targets = attention_backward_target_rows<V>;
    k.attention_backward_sources = attention_backward_source_rows<V>;
    k.aggregate = aggregate_rows<V>;
    if constexpr (V::kWidth == 1 || sizeof(typename V::T) == 4) {
        k.raw_scratch = sage::raw_scratch<V>;
        k.raw_forward = raw_forward_rows<V>;
        k.raw_backward = raw_backward_rows<V>;
    }
    return k;
}

}  // namespace sage
