// sage_attention_forward: over the given edges, or over picks drawn chunk by chunk and forgotten again.
#include "attention_problem.h"
#include "dispatch.h"
#include "graph.h"
#include "parallel.h"
#include "status.h"

namespace sage {
namespace {

int32_t check_result(const sage_attention_problem& p, const sage_attention_result* result) {
    if (!result) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "result: expected a structure, got null");
    SAGE_TRY(check_array("out", result->out, p.num_rows));
    if (p.score == SAGE_ATTENTION_DOT && p.edge_channels > 0) SAGE_TRY(check_array("edge_out", result->edge_out, p.num_rows));
    if ((result->positive_out == nullptr) != (result->positive_sum == nullptr)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "positive_sum: expected both or neither of positive_out and positive_sum, got one");
    }
    if (result->positive_out && p.values_kind != SAGE_ATTENTION_PLAIN) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "positive_out: expected null with values_kind %d, got an array",
                    p.values_kind);
    }
    if (result->weights && !attends_whole_graph(p)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                    "weights: expected null where in-edges are sampled or targets chosen, got an array");
    }
    return SAGE_ATTENTION_OK;
}

void set_results(AttentionTask& t, const sage_attention_problem& p, const sage_attention_result& result) {
    t.out = result.out;
    t.edge_out = p.score == SAGE_ATTENTION_DOT && p.edge_channels > 0 ? result.edge_out : nullptr;
    t.row_max = result.row_max;
    t.row_sum = result.row_sum;
    t.positive_out = p.score == SAGE_ATTENTION_GAT ? result.positive_out : nullptr;
    t.positive_sum = p.score == SAGE_ATTENTION_GAT ? result.positive_sum : nullptr;
    t.weights = result.weights;
}

// The picks of a chunk of rows as a small graph of its own.
struct Picks {
    Buffer indptr, indices, edge_rows;
    int64_t capacity = -1;
};

constexpr int64_t kRowsPerChunk = 128;

int32_t forward_picked(const sage_attention_problem& p, const AttentionTask& base, const Kernels& k,
                       const WorkerScratch& scratch) {
    const PickRule rule = pick_rule(p);
    const sage_attention_graph& g = p.graph;
    const int32_t workers = worker_count(p.num_threads);
    Buffer memory;
    if (!memory.reserve<Picks>(workers)) return out_of_memory();
    Picks* picks = memory.as<Picks>();
    for (int32_t w = 0; w < workers; ++w) {
        picks[w].indptr.data = picks[w].indices.data = picks[w].edge_rows.data = nullptr;
        picks[w].capacity = -1;
    }
    volatile int64_t failed = 0;
    parallel_for(p.num_threads, (p.num_rows + kRowsPerChunk - 1) / kRowsPerChunk, [&](int64_t c, int32_t worker) {
        Picks& own = picks[worker];
        const int64_t begin = c * kRowsPerChunk, rows = min(kRowsPerChunk, p.num_rows - begin);
        if (!own.indptr.data && !own.indptr.reserve<int64_t>(kRowsPerChunk + 1)) {
            atomic_store(&failed, 1);
            return;
        }
        int64_t* indptr = own.indptr.as<int64_t>();
        indptr[0] = 0;
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t target = target_of(p, begin + r);
            indptr[r + 1] = indptr[r] + pick_count(rule, g.indptr[target + 1] - g.indptr[target]);
        }
        const int64_t count = indptr[rows];
        if (count > own.capacity) {
            const int64_t wanted = count + count / 2;
            if (!own.indices.reserve<int64_t>(wanted) || !own.edge_rows.reserve<int64_t>(wanted)) {
                own.capacity = -1;
                atomic_store(&failed, 1);
                return;
            }
            own.capacity = wanted;
        }
        int64_t* indices = own.indices.as<int64_t>();
        int64_t* edge_rows = own.edge_rows.as<int64_t>();
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t target = target_of(p, begin + r), first = g.indptr[target];
            pick_row(rule, first, g.indptr[target + 1] - first, target, edge_rows + indptr[r]);
        }
        with_index_type(g, [&](const auto* all) {
            for (int64_t e = 0; e < count; ++e) indices[e] = all[edge_rows[e]];
            return 0;
        });
        if (p.edge_ids) {
            for (int64_t e = 0; e < count; ++e) edge_rows[e] = p.edge_ids[edge_rows[e]];
        }
        AttentionTask t = base;
        t.indptr = indptr;
        t.indices = indices;
        t.wide_indices = true;
        t.edge_rows = edge_rows;
        t.num_edges = count;
        t.row_offset = begin;
        k.attention_forward(t, 0, rows, scratch.of(worker));
    });
    for (int32_t w = 0; w < workers; ++w) {
        deallocate(picks[w].indptr.release());
        deallocate(picks[w].indices.release());
        deallocate(picks[w].edge_rows.release());
    }
    return failed ? out_of_memory() : SAGE_ATTENTION_OK;
}

}  // namespace
}  // namespace sage

using namespace sage;

extern "C" int32_t sage_attention_forward(const sage_attention_problem* problem, const sage_attention_result* result) {
    SAGE_TRY(check_problem(problem));
    SAGE_TRY(check_result(*problem, result));
    AttentionTask t = base_task(*problem);
    set_results(t, *problem, *result);
    const int64_t row_bytes = problem->num_rows * problem->heads * problem->channels * element_size(problem->dtype);
    prefer_huge_pages(t.out, row_bytes);
    prefer_huge_pages(t.positive_out, row_bytes);
    Buffer edge_weight;
    SAGE_TRY(transposed_edge_weight(*problem, edge_weight, &t.edge_weight));
    const Kernels& k = kernels(problem->dtype);
    WorkerScratch scratch;
    SAGE_TRY(scratch.reserve(problem->num_threads, k.attention_scratch(t)));
    if (!attends_whole_graph(*problem)) return forward_picked(*problem, t, k, scratch);
    const Chunks chunks(t.indptr, problem->num_rows, INT64_MAX);
    parallel_for(problem->num_threads, chunks.count, [&](int64_t c, int32_t worker) {
        k.attention_forward(t, chunks.begin(c), chunks.begin(c + 1), scratch.of(worker));
    });
    return SAGE_ATTENTION_OK;
}
