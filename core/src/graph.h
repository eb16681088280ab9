// What every driver needs to know about a graph argument before it touches the arrays.
#pragma once

#include "platform.h"
#include "sage_attention.h"

namespace sage {

// The structure itself: pointers, sizes, index type. Reads no array element.
int32_t check_graph_argument(const sage_attention_graph* graph);

// Calls f with a pointer of the graph's index type: with_index_type(g, [&](const auto* indices) { return ...; }).
template <class F>
SAGE_INLINE auto with_index_type(const sage_attention_graph& graph, const F& f) {
    return graph.index_type == SAGE_ATTENTION_INT32 ? f(static_cast<const int32_t*>(graph.indices))
                                                    : f(static_cast<const int64_t*>(graph.indices));
}

}  // namespace sage
