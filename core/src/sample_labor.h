// LABOR-0: layer-neighbour sampling (Balin and Catalyurek, "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in
// GNNs", NeurIPS 2023). All targets of a hop toss the same coin for a source, so that they agree on whom to pick and a
// sample has fewer distinct nodes; each in-edge is still picked with the probability fan_out / degree.
//
// The coin of a source is a whole number below 2^64. It is compared with fan_out / degree without a division or a
// rounding, so that the picks are the same everywhere.
#pragma once

#include "sage_attention.h"
#include "sample.h"

namespace sage {

enum class Labor {
    kPoisson,     // each in-edge whose source's coin is below fan_out / degree: about fan_out of them
    kSequential,  // the fan_out in-edges whose sources have the smallest coins; of equal ones the first
};

// Number of in-edges picked of begin .. begin + degree - 1. rule.seed names the coins; rule.replace is not looked at.
int64_t labor_count(const PickRule& rule, const sage_attention_graph& graph, Labor labor, int64_t begin, int64_t degree);

// Their positions, ascending.
void labor_pick(const PickRule& rule, const sage_attention_graph& graph, Labor labor, int64_t begin, int64_t degree,
                int64_t* out);

// As labor_pick, sequential, with no memory of its own: many times slower, for where there is none.
void labor_pick_without_memory(const PickRule& rule, const sage_attention_graph& graph, int64_t begin, int64_t degree,
                               int64_t* out);

}  // namespace sage
