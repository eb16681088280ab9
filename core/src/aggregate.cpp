#include "attention_problem.h"
#include "dispatch.h"
#include "graph.h"
#include "parallel.h"
#include "status.h"

using namespace sage;

extern "C" int32_t sage_attention_aggregate(const sage_attention_graph* graph, int32_t dtype, const void* edge_values,
                                            const void* values, int32_t values_kind, const float* value_scales,
                                            int64_t channels, void* out, int32_t num_threads) {
    SAGE_TRY(check_graph_argument(graph));
    if (dtype != SAGE_ATTENTION_FLOAT32 && dtype != SAGE_ATTENTION_FLOAT64) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "dtype: expected 0 (float32) or 1 (float64), got %d", dtype);
    }
    SAGE_TRY(check_table_kind("values_kind", values_kind, dtype));
    if (channels < 1 || channels > (int64_t{1} << 24)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "channels: expected from 1 to 16777216, got %lld",
                    static_cast<long long>(channels));
    }
    if (num_threads < 0) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "num_threads: expected 0 (one per core) or more, got %d", num_threads);
    }
    SAGE_TRY(check_array("values", values, graph->num_sources));
    if (values_kind == SAGE_ATTENTION_INT8) SAGE_TRY(check_array("value_scales", value_scales, graph->num_sources));
    SAGE_TRY(check_array("out", out, graph->num_targets));
    if (!graph->trusted) SAGE_TRY(sage_attention_check_graph(graph, num_threads));
    AggregateTask t;
    t.indptr = graph->indptr;
    t.indices = graph->indices;
    t.wide_indices = graph->index_type == SAGE_ATTENTION_INT64;
    t.num_edges = graph->num_edges;
    t.edge_values = edge_values;
    t.values = values;
    t.values_kind = values_kind;
    t.value_scales = value_scales;
    t.channels = channels;
    t.out = out;
    const Kernels& k = kernels(dtype);
    const Chunks chunks(t.indptr, graph->num_targets, INT64_MAX);
    parallel_for(num_threads, chunks.count,
                 [&](int64_t c, int32_t) { k.aggregate(t, chunks.begin(c), chunks.begin(c + 1)); });
    return SAGE_ATTENTION_OK;
}
