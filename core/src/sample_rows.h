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

// A stretch of rows being picked. indptr places the picks of row i in sources and positions.
template <class Index>
struct Hop {
    const sage_attention_graph& graph;
    const Index* indices;
    PickRule rule;
    const int64_t* nodes;
    const Row* rows;
    const int64_t* indptr;
    int64_t* sources;
    int64_t* positions;
    Fault* fault;

    // Rows [begin, end): positions into `positions`, then, some rows behind, graph ids into `sources`.
    void run(int64_t begin, int64_t end) const {
        for (int64_t i = begin; i < end + kGatherAhead; ++i) {
            if (i < end) pick(i);
            const int64_t behind = i - kGatherAhead;
            if (behind >= begin && !gather(behind)) return;
        }
    }

    SAGE_INLINE void pick(int64_t i) const {
        int64_t* out = positions + indptr[i];
        const int64_t count = pick_row(rule, rows[i].begin, rows[i].degree, nodes[i], out);
        if (count == rows[i].degree && count > 0) {
            // A whole row is read in order: its ends suffice, the hardware fetches what is between.
            prefetch(indices + rows[i].begin);
            prefetch(indices + rows[i].begin + count - 1);
            return;
        }
        for (int64_t t = 0; t < count; ++t) prefetch(indices + out[t]);
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

template <class Index>
Hop<Index> make_hop(const sage_attention_graph& graph, const Index* indices, const PickRule& rule, const int64_t* nodes,
                    const Row* rows, const int64_t* indptr, int64_t* sources, int64_t* positions, Fault* fault) {
    return Hop<Index>{graph, indices, rule, nodes, rows, indptr, sources, positions, fault};
}

// Rows a chunk, for about kChunkPicks picks each.
inline int64_t rows_per_chunk(int64_t num_rows, int64_t num_picks) {
    const int64_t per_row = max<int64_t>(1, num_picks / max<int64_t>(1, num_rows));
    return max<int64_t>(1, min<int64_t>(1024, kChunkPicks / per_row));
}

}  // namespace sage
