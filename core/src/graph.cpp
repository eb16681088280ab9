// Checking and rearranging topology: CSC check, COO to CSC, transpose.
#include "graph.h"

#include "parallel.h"
#include "status.h"

namespace sage {
namespace {

constexpr int64_t kCheckChunk = int64_t{1} << 16;
constexpr int64_t kMaxCount = int64_t{1} << 59;
constexpr int64_t kAhead = 16;  // counters and slots are hit at random: ask for them this many edges early

long long ll(int64_t v) { return static_cast<long long>(v); }

// The lowest i in [0, count) for which bad(i); -1 if there is none. Chunks are tried in parallel, the first bad one is
// then searched, so that the answer does not depend on the number of threads.
template <class F>
int64_t find_first(int64_t count, int32_t num_threads, const F& bad) {
    const int64_t chunks = (count + kCheckChunk - 1) / kCheckChunk;
    Mutex mutex;
    mutex_init(&mutex);
    int64_t first_chunk = chunks;
    parallel_for(num_threads, chunks, [&](int64_t chunk, int32_t) {
        const int64_t begin = chunk * kCheckChunk, end = min(count, begin + kCheckChunk);
        int64_t found = 0;
        for (int64_t i = begin; i < end; ++i) found |= static_cast<int64_t>(bad(i));
        if (found) {
            mutex_lock(&mutex);
            first_chunk = min(first_chunk, chunk);
            mutex_unlock(&mutex);
        }
    });
    for (int64_t i = first_chunk * kCheckChunk; i < count; ++i) {
        if (bad(i)) return i;
    }
    return -1;
}

template <class Index>
SAGE_INLINE bool outside(Index v, int64_t bound) {
    return static_cast<uint64_t>(static_cast<int64_t>(v)) >= static_cast<uint64_t>(bound);
}

template <class Index>
int32_t check_indices(const char* name, const Index* indices, int64_t count, int64_t bound, int32_t num_threads) {
    const int64_t at = find_first(count, num_threads, [&](int64_t i) { return outside(indices[i], bound); });
    if (at < 0) return SAGE_ATTENTION_OK;
    return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected values in [0, %lld), got %lld at position %lld", name,
                ll(bound), ll(indices[at]), ll(at));
}

int32_t check_indptr(const sage_attention_graph& graph, int32_t num_threads) {
    const int64_t* indptr = graph.indptr;
    if (indptr[0] != 0) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "indptr: expected 0 at position 0, got %lld", ll(indptr[0]));
    }
    const int64_t at = find_first(graph.num_targets, num_threads, [&](int64_t i) { return indptr[i + 1] < indptr[i]; });
    if (at >= 0) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                    "indptr: expected never to fall, got %lld after %lld at position %lld", ll(indptr[at + 1]),
                    ll(indptr[at]), ll(at + 1));
    }
    if (indptr[graph.num_targets] != graph.num_edges) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "indptr: expected %lld (the number of edges) at the end, got %lld",
                    ll(graph.num_edges), ll(indptr[graph.num_targets]));
    }
    return SAGE_ATTENTION_OK;
}

int32_t check_not_null(const char* name, const void* p) {
    if (p) return SAGE_ATTENTION_OK;
    return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected an array, got null", name);
}

int32_t check_not_negative(const char* name, int64_t v) {
    if (v >= 0) return SAGE_ATTENTION_OK;
    return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected at least 0, got %lld", name, ll(v));
}

// Of the elements of an array of 64-bit numbers: more bytes than addresses would wrap around.
int32_t check_count(const char* name, int64_t v) {
    SAGE_TRY(check_not_negative(name, v));
    if (v <= kMaxCount) return SAGE_ATTENTION_OK;
    return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected at most 2^59, got %lld", name, ll(v));
}

int32_t check_index_type(int32_t index_type) {
    if (index_type == SAGE_ATTENTION_INT32 || index_type == SAGE_ATTENTION_INT64) return SAGE_ATTENTION_OK;
    return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "index_type: expected 0 (int32) or 1 (int64), got %d",
                static_cast<int>(index_type));
}

// Turns counts, stored one place late (of row i in p[i + 1]), into row starts.
void accumulate(int64_t* p, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) p[i + 1] += p[i];
}

// Undoes the moving of row starts to row ends that filling rows has done.
void rewind(int64_t* p, int64_t rows) {
    memmove(p + 1, p, static_cast<size_t>(rows) * sizeof(int64_t));
    p[0] = 0;
}

template <class Index>
int32_t coo_to_csc(const Index* sources, const Index* targets, int64_t num_edges, int64_t num_sources,
                   int64_t num_targets, int64_t* out_indptr, Index* out_indices, int64_t* out_edge_ids) {
    SAGE_TRY(check_indices("sources", sources, num_edges, num_sources, 1));
    SAGE_TRY(check_indices("targets", targets, num_edges, num_targets, 1));
    memset(out_indptr, 0, static_cast<size_t>(num_targets + 1) * sizeof(int64_t));
    for (int64_t e = 0; e < num_edges; ++e) {
        if (e + kAhead < num_edges) prefetch(out_indptr + targets[e + kAhead] + 1);
        ++out_indptr[targets[e] + 1];
    }
    accumulate(out_indptr, num_targets);
    for (int64_t e = 0; e < num_edges; ++e) {
        if (e + 2 * kAhead < num_edges) prefetch(out_indptr + targets[e + 2 * kAhead]);
        if (e + kAhead < num_edges) {
            const int64_t soon = out_indptr[targets[e + kAhead]];  // about where that edge will go
            prefetch(out_indices + soon);
            prefetch(out_edge_ids + soon);
        }
        const int64_t position = out_indptr[targets[e]]++;
        out_indices[position] = sources[e];
        out_edge_ids[position] = e;
    }
    rewind(out_indptr, num_targets);
    return SAGE_ATTENTION_OK;
}

template <class Index>
int32_t transpose(const sage_attention_graph& graph, const Index* indices, int64_t* out_indptr, Index* out_indices,
                  int64_t* out_positions) {
    if (!graph.trusted) {
        SAGE_TRY(check_indptr(graph, 1));
        SAGE_TRY(check_indices("indices", indices, graph.num_edges, graph.num_sources, 1));
    }
    memset(out_indptr, 0, static_cast<size_t>(graph.num_sources + 1) * sizeof(int64_t));
    for (int64_t e = 0; e < graph.num_edges; ++e) {
        if (e + kAhead < graph.num_edges) prefetch(out_indptr + indices[e + kAhead] + 1);
        ++out_indptr[indices[e] + 1];
    }
    accumulate(out_indptr, graph.num_sources);
    for (int64_t target = 0; target < graph.num_targets; ++target) {
        for (int64_t e = graph.indptr[target]; e < graph.indptr[target + 1]; ++e) {
            if (e + 2 * kAhead < graph.num_edges) prefetch(out_indptr + indices[e + 2 * kAhead]);
            if (e + kAhead < graph.num_edges) {
                const int64_t soon = out_indptr[indices[e + kAhead]];
                prefetch(out_indices + soon);
                if (out_positions) prefetch(out_positions + soon);
            }
            const int64_t position = out_indptr[indices[e]]++;
            out_indices[position] = static_cast<Index>(target);
            if (out_positions) out_positions[position] = e;
        }
    }
    rewind(out_indptr, graph.num_sources);
    return SAGE_ATTENTION_OK;
}

}  // namespace

int32_t check_graph_argument(const sage_attention_graph* graph) {
    if (!graph) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "graph: expected a graph, got null");
    SAGE_TRY(check_count("num_targets", graph->num_targets));
    SAGE_TRY(check_count("num_sources", graph->num_sources));
    SAGE_TRY(check_count("num_edges", graph->num_edges));
    SAGE_TRY(check_index_type(graph->index_type));
    SAGE_TRY(check_not_null("indptr", graph->indptr));
    if (graph->num_edges > 0) SAGE_TRY(check_not_null("indices", graph->indices));
    return SAGE_ATTENTION_OK;
}

}  // namespace sage

using namespace sage;

extern "C" int32_t sage_attention_check_graph(const sage_attention_graph* graph, int32_t num_threads) {
    SAGE_TRY(check_graph_argument(graph));
    SAGE_TRY(check_not_negative("num_threads", num_threads));
    SAGE_TRY(check_indptr(*graph, num_threads));
    return with_index_type(*graph, [&](const auto* indices) {
        return check_indices("indices", indices, graph->num_edges, graph->num_sources, num_threads);
    });
}

extern "C" int32_t sage_attention_coo_to_csc(const void* sources, const void* targets, int32_t index_type,
                                             int64_t num_edges, int64_t num_sources, int64_t num_targets,
                                             int64_t* out_indptr, void* out_indices, int64_t* out_edge_ids) {
    SAGE_TRY(check_index_type(index_type));
    SAGE_TRY(check_count("num_edges", num_edges));
    SAGE_TRY(check_count("num_sources", num_sources));
    SAGE_TRY(check_count("num_targets", num_targets));
    SAGE_TRY(check_not_null("out_indptr", out_indptr));
    if (num_edges > 0) {
        SAGE_TRY(check_not_null("sources", sources));
        SAGE_TRY(check_not_null("targets", targets));
        SAGE_TRY(check_not_null("out_indices", out_indices));
        SAGE_TRY(check_not_null("out_edge_ids", out_edge_ids));
    }
    if (index_type == SAGE_ATTENTION_INT32) {
        return coo_to_csc(static_cast<const int32_t*>(sources), static_cast<const int32_t*>(targets), num_edges,
                          num_sources, num_targets, out_indptr, static_cast<int32_t*>(out_indices), out_edge_ids);
    }
    return coo_to_csc(static_cast<const int64_t*>(sources), static_cast<const int64_t*>(targets), num_edges,
                      num_sources, num_targets, out_indptr, static_cast<int64_t*>(out_indices), out_edge_ids);
}

extern "C" int32_t sage_attention_transpose(const sage_attention_graph* graph, int64_t* out_indptr, void* out_indices,
                                            int64_t* out_positions) {
    SAGE_TRY(check_graph_argument(graph));
    SAGE_TRY(check_not_null("out_indptr", out_indptr));
    if (graph->num_edges > 0) SAGE_TRY(check_not_null("out_indices", out_indices));
    if (graph->index_type == SAGE_ATTENTION_INT32 && graph->num_targets > INT32_MAX) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                    "index_type: expected int64 for the transpose of a graph of %lld targets, got int32",
                    ll(graph->num_targets));
    }
    if (graph->index_type == SAGE_ATTENTION_INT32) {
        return transpose(*graph, static_cast<const int32_t*>(graph->indices), out_indptr,
                         static_cast<int32_t*>(out_indices), out_positions);
    }
    return transpose(*graph, static_cast<const int64_t*>(graph->indices), out_indptr,
                     static_cast<int64_t*>(out_indices), out_positions);
}
