// Random walks: uniform or in proportion to weights, of first or second order (node2vec: Grover and Leskovec, KDD 2016),
// with restarts. A walk is a pure function of (seed, its first node, its number among the walks of that node).
//
// A step of second order is drawn as one of first order and kept with a chance that makes up for it (Yang et al.,
// "KnightKing", SOSP 2019). Where that fails time and again, the row is walked through: the distribution is the same.
#include "sample_rows.h"
#include "sample_weighted.h"

namespace sage {
namespace {

constexpr int64_t kWalkAttempts = 16;
constexpr int64_t kTogether = 64;  // walks that advance step by step side by side, so that their misses overlap

// Draws of a step: whether it restarts, then an in-edge and whether it is kept for each attempt, then one for the whole row.
constexpr int64_t kRestartDraw = 0;
constexpr int64_t edge_draw(int64_t attempt) { return 2 * attempt + 1; }
constexpr int64_t keep_draw(int64_t attempt) { return 2 * attempt + 2; }

template <class Index>
struct Walker {
    const sage_attention_graph& graph;
    const Index* indices;
    const double* sums;  // null: all in-edges alike
    const sage_attention_walking& options;
    const int64_t* seeds;
    int64_t* nodes;      // [num_walks, length + 1]
    int64_t* positions;  // [num_walks, length] or null
    Fault* fault;
    double back, near, far, most;  // what a step to the node before, to a neighbour of it, to another one is weighed by

    Walker(const sage_attention_graph& g, const Index* index, const double* weight_sums, const sage_attention_walking& o,
           const int64_t* first_nodes, int64_t* out_nodes, int64_t* out_positions, Fault* faults)
        : graph(g),
          indices(index),
          sums(weight_sums),
          options(o),
          seeds(first_nodes),
          nodes(out_nodes),
          positions(out_positions),
          fault(faults),
          back(1 / o.p),
          near(1),
          far(1 / o.q),
          most(max(max(back, near), far)) {}

    struct State {
        PickRule rule;
        int64_t first, before, at;  // before = -1: the next step is of first order; at = -1: the walk has ended
        int64_t position;           // of the edge it takes; -1: none
    };

    // Walks [begin, end), at most kTogether; false: the graph is broken.
    bool run(int64_t begin, int64_t end) const {
        State states[kTogether];
        const int64_t count = end - begin;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t walk = begin + i, first = seeds[walk / options.num_walks];
            if (first < 0 || first >= graph.num_targets) {
                fault->record(Fault::kNode, first, walk / options.num_walks);
                return false;
            }
            states[i].rule = PickRule{split_seed(options.seed, static_cast<uint64_t>(walk % options.num_walks)), 1, 0, true};
            states[i].first = states[i].at = first;
            states[i].before = -1;
            nodes[walk * (options.length + 1)] = first;
            prefetch(graph.indptr + first);
        }
        for (int64_t step = 0; step < options.length; ++step) {
            for (int64_t i = 0; i < count; ++i) {
                State& state = states[i];
                state.position = -1;
                if (state.at < 0) continue;
                state.rule.hop = static_cast<uint32_t>(step);
                if (restarts(state)) {
                    state.before = -1;
                    state.at = state.first;
                } else if (!choose(state)) {
                    return false;
                }
                if (state.position >= 0) prefetch(indices + state.position);
            }
            for (int64_t i = 0; i < count; ++i) {
                const int64_t walk = begin + i;
                if (!take(states[i])) return false;
                nodes[walk * (options.length + 1) + step + 1] = states[i].at;
                if (positions) positions[walk * options.length + step] = states[i].position;
                if (states[i].at >= 0) prefetch(graph.indptr + states[i].at);
            }
        }
        return true;
    }

    bool restarts(const State& state) const {
        return options.restart > 0 && draw_share(state.rule, state.first, kRestartDraw) < options.restart;
    }

    bool row_of(int64_t node, Row& row) const {
        const int64_t begin = graph.indptr[node], end = graph.indptr[node + 1];
        if (begin < 0 || end < begin || end > graph.num_edges) {
            fault->record(Fault::kRow, node, 0);
            return false;
        }
        row = Row{begin, end - begin};
        return true;
    }

    // The position of the next edge; the walk ends where there is none.
    bool choose(State& state) const {
        Row row;
        if (!row_of(state.at, row)) return false;
        if (row.degree == 0) {
            state.at = -1;
            return true;
        }
        if (state.before < 0 || (back == 1 && far == 1)) {
            state.position = draw(state, row, 0);
            return true;
        }
        Row known;
        if (!row_of(state.before, known)) return false;
        for (int64_t attempt = 0; attempt < kWalkAttempts; ++attempt) {
            const int64_t position = draw(state, row, attempt);
            const double share = draw_share(state.rule, state.first, keep_draw(attempt));
            if (share * most < chance(state, known, position)) {
                state.position = position;
                return true;
            }
        }
        double total = 0;
        for (int64_t p = row.begin; p < row.begin + row.degree; ++p) total += weight(row, p) * chance(state, known, p);
        const double wanted = draw_share(state.rule, state.first, edge_draw(kWalkAttempts)) * total;
        double sum = 0;
        for (int64_t p = row.begin; p < row.begin + row.degree; ++p) {
            sum += weight(row, p) * chance(state, known, p);
            state.position = p;  // what rounding leaves over belongs to the last one
            if (sum > wanted) break;
        }
        return true;
    }

    int64_t draw(const State& state, const Row& row, int64_t attempt) const {
        if (sums) {
            return WeightedRow{sums, row.begin, row.begin, row.degree}.at(
                draw_share(state.rule, state.first, edge_draw(attempt)));
        }
        const uint64_t bits = draw_bits(state.rule, state.first, edge_draw(attempt));
        return row.begin + static_cast<int64_t>(multiply_high(bits, static_cast<uint64_t>(row.degree)));
    }

    double weight(const Row& row, int64_t position) const {
        return sums ? WeightedRow{sums, row.begin, row.begin, row.degree}.weight(position) : 1;
    }

    // `known` is the row of the node before, ascending.
    double chance(const State& state, const Row& known, int64_t position) const {
        const int64_t next = static_cast<int64_t>(indices[position]);
        if (next == state.before) return back;
        int64_t low = known.begin, high = known.begin + known.degree;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (static_cast<int64_t>(indices[middle]) < next) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low < known.begin + known.degree && static_cast<int64_t>(indices[low]) == next ? near : far;
    }

    bool take(State& state) const {
        if (state.position < 0) return true;
        const int64_t next = static_cast<int64_t>(indices[state.position]);
        if (next < 0 || next >= graph.num_sources) {
            fault->record(Fault::kIndex, next, state.position);
            return false;
        }
        state.before = state.at;
        state.at = next;
        return true;
    }
};

int32_t check_walking(const sage_attention_walking* o) {
    if (!o) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "walking: expected a structure, got null");
    if (o->struct_size != static_cast<int64_t>(sizeof(sage_attention_walking))) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "struct_size: expected %lld, got %lld",
                    ll(sizeof(sage_attention_walking)), ll(o->struct_size));
    }
    if (o->length < 0 || o->length > INT32_MAX) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "length: expected 0 to 2^31 - 1, got %lld", ll(o->length));
    }
    if (o->num_walks < 1 || o->num_walks > INT32_MAX) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "num_walks: expected 1 to 2^31 - 1, got %lld", ll(o->num_walks));
    }
    if (!(o->restart >= 0 && o->restart < 1)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "restart: expected a number in [0, 1), got %g", o->restart);
    }
    const struct {
        const char* name;
        double value;
    } factors[] = {{"p", o->p}, {"q", o->q}};
    for (const auto& factor : factors) {
        if (factor.value >= 1e-100 && factor.value <= 1e100) continue;
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected a number from 1e-100 to 1e100, got %g", factor.name,
                    factor.value);
    }
    return SAGE_ATTENTION_OK;
}

}  // namespace
}  // namespace sage

using namespace sage;

extern "C" int32_t sage_attention_random_walk(const sage_attention_graph* graph, const double* weight_sums,
                                              const sage_attention_walking* walking, const int64_t* seeds,
                                              int64_t num_seeds, int64_t* out_nodes, int64_t* out_edge_ids) {
    SAGE_TRY(check_graph_argument(graph));
    SAGE_TRY(check_walking(walking));
    if (graph->num_targets != graph->num_sources) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                    "graph: expected as many targets as sources, got %lld targets and %lld sources",
                    ll(graph->num_targets), ll(graph->num_sources));
    }
    if (walking->num_threads < 0) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "num_threads: expected at least 0, got %d", walking->num_threads);
    }
    const int64_t most = kMaxPicks / walking->num_walks / (walking->length + 1);
    if (num_seeds < 0 || num_seeds > most) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "seeds: expected 0 to %lld of them, got %lld", ll(most), ll(num_seeds));
    }
    if (num_seeds > 0 && (!seeds || !out_nodes)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected an array, got null", seeds ? "out_nodes" : "seeds");
    }
    const int64_t num_walks = num_seeds * walking->num_walks;
    Fault fault;
    with_index_type(*graph, [&](const auto* indices) {
        const Walker walker(*graph, indices, weight_sums, *walking, seeds, out_nodes, out_edge_ids, &fault);
        parallel_for(walking->num_threads, (num_walks + kTogether - 1) / kTogether, [&](int64_t group, int32_t) {
            if (atomic_load(&fault.claims)) return;
            walker.run(group * kTogether, min(num_walks, (group + 1) * kTogether));
        });
    });
    return report(fault, *graph, "seeds");
}
