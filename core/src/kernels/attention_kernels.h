// The table of one CPU level, made from its vector type.
#pragma once

#include "aggregate.h"
#include "backward.h"

namespace sage {

template <class V, int VPH>
struct Specialised {
    static void forward(const AttentionTask& t, int64_t begin, int64_t end, void* scratch) {
        attention_forward_rows<V, VPH>(t, begin, end, scratch);
    }
    static void prepare(const AttentionTask& t, int64_t begin, int64_t end, void* scratch) {
        attention_prepare_rows<V, VPH>(t, begin, end, scratch);
    }
    static void targets(const AttentionTask& t, const PartialGradients& p, int64_t begin, int64_t end, void* scratch) {
        attention_backward_target_rows<V, VPH>(t, p, begin, end, scratch);
    }
    static void sources(const AttentionTask& t, const PartialGradients& p, int64_t begin, int64_t end, void* scratch) {
        attention_backward_source_rows<V, VPH>(t, p, begin, end, scratch);
    }
};

// Common numbers of channels get loops of fixed length; only for float, to keep the library small.
template <class V, class F>
SAGE_INLINE void specialise(int64_t channels, const F& f) {
    if constexpr (V::kWidth > 1 && sizeof(typename V::T) == 4) {
        switch (channels) {
            case V::kWidth:
                return f(Specialised<V, 1>{});
            case 2 * V::kWidth:
                return f(Specialised<V, 2>{});
            case 4 * V::kWidth:
                return f(Specialised<V, 4>{});
            default:
                break;
        }
    }
    f(Specialised<V, 0>{});
}

template <class V>
constexpr Kernels make_kernels() {
    Kernels k{};
    k.attention_scratch = [](const AttentionTask& t) { return Work<V>(t, nullptr).bytes; };
    k.attention_forward = [](const AttentionTask& t, int64_t begin, int64_t end, void* scratch) {
        specialise<V>(t.channels, [&](auto kernel) { kernel.forward(t, begin, end, scratch); });
    };
    k.attention_prepare = [](const AttentionTask& t, int64_t begin, int64_t end, void* scratch) {
        Specialised<V, 0>::prepare(t, begin, end, scratch);
    };
    k.attention_backward_targets = [](const AttentionTask& t, const PartialGradients& p, int64_t begin, int64_t end,
                                      void* scratch) {
        specialise<V>(t.channels, [&](auto kernel) { kernel.targets(t, p, begin, end, scratch); });
    };
    k.attention_backward_sources = [](const AttentionTask& t, const PartialGradients& p, int64_t begin, int64_t end,
                                      void* scratch) {
        specialise<V>(t.channels, [&](auto kernel) { kernel.sources(t, p, begin, end, scratch); });
    };
    k.aggregate = aggregate_rows<V>;
    return k;
}

}  // namespace sage
