// The steps of sampling one hop: count (where do a node's picks go), then pick and gather (positions, then sources).
// Rows and indices are checked as they are read, so that a broken graph costs an error, never a crash.
#pragma once

#include "graph.h"
#include "parallel.h"
#include "sample.h"
#include "status.h"

namespace sage {

constexpr int64_t kCountChunk = 4096;
constexpr int64_t kChunkPicks = 4096;      // of a chunk, about: its sources and positions stay in the second-level cache
constexpr int64_t kParallelPicks = 8192;   // less is not worth waking threads for
constexpr int64_t kRowAhead = 16;          // rows between asking for an indptr entry and reading it
constexpr int64_t kGatherAhead = 6;        // rows between picking and gathering
constexpr int64_t kNameAhead = 24;         // edges between asking for an edge id and reading it
constexpr int64_t kMaxPicks = int64_t{1} << 59;  // their bytes must fit 64 bits

inline long long ll(int64_t v) { return static_cast<long long>(v); }

// Arguments of every sampler (sample.cpp).
int32_t check_sampling(int64_t fan_out, int32_t replace, const char* fan_out_name);
int32_t check_nodes(const char* name, const int64_t* nodes, int64_t count, int32_t num_threads);

// What a worker found wrong. The first one counts; it is reported by the calling thread.
struct Fault {
    enum Kind { kNone, kNode, kRow, kIndex };
    volatile int64_t claims = 0;
    Kind kind = kNone;
    int64_t value = 0;
    int64_t place = 0;

    void record(Kind what, int64_t v, int64_t where) {
        if (atomic_fetch_add(&claims, 1) != 0) return;
        kind = what;
        value = v;
        place = where;
    }
};

inline int32_t report(const Fault& fault, const sage_attention_graph& graph, const char* nodes_name) {
    switch (fault.kind) {
        case Fault::kNone:
            return SAGE_ATTENTION_OK;
        case Fault::kNode:
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected values in [0, %lld), got %lld at position %lld",
                        nodes_name, ll(graph.num_targets), ll(fault.value), ll(fault.place));
        case Fault::kRow:
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                        "indptr: expected 0 <= indptr[i] <= indptr[i + 1] <= %lld, got %lld and %lld at i = %lld",
                        ll(graph.num_edges), ll(graph.indptr[fault.value]), ll(graph.indptr[fault.value + 1]),
                        ll(fault.value));
        case Fault::kIndex:
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                        "indices: expected values in [0, %lld), got %lld at position %lld", ll(graph.num_sources),
                        ll(fault.value), ll(fault.place));
    }
    return SAGE_ATTENTION_OK;
}

struct Row {
    int64_t begin;
    int64_t degree;
};

// Fills rows [num_nodes] and out_indptr [num_nodes + 1], which starts at `offset`.
inline int32_t count_picks(const sage_attention_graph& graph, const PickRule& rule, const int64_t* nodes, int64_t num_nodes,
                    const char* nodes_name, int32_t num_threads, int64_t offset, Row* rows, int64_t* out_indptr) {
    Fault fault;
    const int64_t chunks = (num_nodes + kCountChunk - 1) / kCountChunk;
    parallel_for(num_threads, chunks, [&](int64_t chunk, int32_t) {
        const int64_t begin = chunk * kCountChunk, end = min(num_nodes, begin + kCountChunk);
        for (int64_t i = begin; i < end; ++i) {
            if (i + kRowAhead < end) {
                const int64_t soon = nodes[i + kRowAhead];
                if (soon >= 0 && soon < graph.num_targets) prefetch(graph.indptr + soon);
            }
            const int64_t node = nodes[i];
            if (node < 0 || node >= graph.num_targets) {
                fault.record(Fault::kNode, node, i);
                return;
            }
            const int64_t row_begin = graph.indptr[node], row_end = graph.indptr[node + 1];
            if (row_begin < 0 || row_end < row_begin || row_end > graph.num_edges) {
                fault.record(Fault::kRow, node, i);
                return;
            }
            rows[i] = Row{row_begin, row_end - row_begin};
            out_indptr[i + 1] = pick_count(rule, row_end - row_begin);
        }
    });
    SAGE_TRY(report(fault, graph, nodes_name));
    out_indptr[0] = offset;
    for (int64_t i = 0; i < num_nodes; ++i) {
        if (out_indptr[i + 1] > kMaxPicks - out_indptr[i]) {
            return fail(SAGE_ATTENTION_OUT_OF_MEMORY, "not enough memory for more than %lld picks", ll(kMaxPicks));
        }
        out_indptr[i + 1] += out_indptr[i];
    }
    return SAGE_ATTENTION_OK;
}

// Positions become what the caller calls the edges.
inline void name_edges(const int64_t* edge_ids, int64_t* positions, int64_t count) {
    for (int64_t t = 0; t < count; ++t) {
        if (t + kNameAhead < count) prefetch(edge_ids + positions[t + kNameAhead]);
        positions[t] = edge_ids[positions[t]];
    }
}

// A stretch of rows being picked. indptr places the picks of row i in sources and positions. Rules says how a row is
// picked: rules(i), which are all one where Rules::kSame.
template <class Index, class Rules>
struct Hop {
    const sage_attention_graph& graph;
    const Index* indices;
    Rules rules;
    const int64_t* nodes;
    const Row* rows;
    const int64_t* indptr;
    int64_t* sources;
    int64_t* positions;
    Fault* fault;
    int64_t* targets = nullptr;  // null, or filled with first_target + i
    int64_t first_target = 0;
    const int64_t* edge_ids = nullptr;  // null, or what takes the place of the positions in the end

    // Rows [begin, end): positions into `positions`, then, some rows behind, graph ids into `sources`.
    bool run(int64_t begin, int64_t end) const {
        for (int64_t i = begin; i < end; i += 2) {
            const int64_t last = min(i + 2, end);
            pick(i, last);
            for (int64_t behind = max(begin, i - kGatherAhead); behind < last - kGatherAhead; ++behind) {
                if (!gather(behind)) return false;
            }
        }
        for (int64_t i = max(begin, end - kGatherAhead); i < end; ++i) {
            if (!gather(i)) return false;
        }
        if (edge_ids) name_edges(edge_ids, positions + indptr[begin], indptr[end] - indptr[begin]);
        return true;
    }

    // Row i and, if last = i + 2, the next one.
    SAGE_INLINE void pick(int64_t i, int64_t last) const {
        const PickRule rule[2] = {rules(i), rules(last - 1)};
        const bool few[2] = {takes_few_draws(rule[0], rows[i].degree), takes_few_draws(rule[1], rows[last - 1].degree)};
        uint32_t words[2 * kFewDraws];
        if (few[0] | few[1]) {
            const int64_t two[2] = {nodes[i], nodes[last - 1]};
            if constexpr (Rules::kSame) {
                philox_two_nodes({rule[0].seed}, rule[0].hop, two, words);
            } else {
                philox_two_nodes({rule[0].seed, rule[1].seed}, rule[0].hop, two, words);
            }
        }
        for (int64_t r = i; r < last; ++r) {
            const Row row = rows[r];
            int64_t* out = positions + indptr[r];
            const int64_t count = few[r - i] ? pick_row_of_few(rule[r - i], row.begin, row.degree, words + kFewDraws * (r - i), out)
                                             : pick_row(rule[r - i], row.begin, row.degree, nodes[r], out);
            fetch(row, out, count);
            if (targets) {
                for (int64_t t = 0; t < count; ++t) targets[indptr[r] + t] = first_target + r;
            }
        }
    }

    SAGE_INLINE void fetch(const Row& row, const int64_t* picked, int64_t count) const {
        if (count == row.degree && count > 0) {
            // A whole row is read in order: its ends suffice, the hardware fetches what is between.
            prefetch(indices + row.begin);
            prefetch(indices + row.begin + count - 1);
            return;
        }
        for (int64_t t = 0; t < count; ++t) prefetch(indices + picked[t]);
    }

    SAGE_INLINE bool gather(int64_t i) const {
        bool ok = true;
        for (int64_t t = indptr[i]; t < indptr[i + 1]; ++t) {
            const int64_t source = static_cast<int64_t>(indices[positions[t]]);
            ok &= static_cast<uint64_t>(source) < static_cast<uint64_t>(graph.num_sources);
            sources[t] = source;
        }
        if (!ok) report_index(i);
        return ok;
    }

    SAGE_NOINLINE void report_index(int64_t i) const {
        for (int64_t t = indptr[i]; t < indptr[i + 1]; ++t) {
            if (sources[t] < 0 || sources[t] >= graph.num_sources) {
                fault->record(Fault::kIndex, sources[t], positions[t]);
                return;
            }
        }
    }
};

// All rows are picked alike.
struct SameRule {
    static constexpr bool kSame = true;
    PickRule rule;
    SAGE_INLINE const PickRule& operator()(int64_t) const { return rule; }
};

template <class Index>
Hop<Index, SameRule> make_hop(const sage_attention_graph& graph, const Index* indices, const PickRule& rule,
                              const int64_t* nodes, const Row* rows, const int64_t* indptr, int64_t* sources,
                              int64_t* positions, Fault* fault) {
    return {graph, indices, SameRule{rule}, nodes, rows, indptr, sources, positions, fault};
}

// Rows a chunk, for about kChunkPicks picks each.
inline int64_t rows_per_chunk(int64_t num_rows, int64_t num_picks) {
    const int64_t per_row = max<int64_t>(1, num_picks / max<int64_t>(1, num_rows));
    return max<int64_t>(1, min<int64_t>(1024, kChunkPicks / per_row));
}

}  // namespace sage
