// sage_attention_raw_forward, sage_attention_raw_backward: GAT over raw rows, projected after aggregating.
#include "attention_problem.h"
#include "dispatch.h"
#include "graph.h"
#include "parallel.h"
#include "status.h"

namespace sage {
namespace {

using ll = long long;

constexpr int64_t kMostPartials = 64;
constexpr int64_t kPartialBytes = int64_t{64} << 20;  // of all partial sums together, unless each is larger

int32_t invalid(const char* name, const char* expected, int64_t got) {
    return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected %s, got %lld", name, expected, static_cast<ll>(got));
}

int32_t check_width(const char* name, int64_t heads, int64_t width) {
    constexpr int64_t kMost = int64_t{1} << 24;
    if (heads <= kMost && width <= kMost && heads * width <= kMost) return SAGE_ATTENTION_OK;
    return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected heads * %s of at most 16777216, got %lld * %lld", name, name,
                static_cast<ll>(heads), static_cast<ll>(width));
}

int32_t check_sizes(const sage_attention_raw_problem& p) {
    if (p.dtype != SAGE_ATTENTION_FLOAT32 && p.dtype != SAGE_ATTENTION_FLOAT64) {
        return invalid("dtype", "0 (float32) or 1 (float64)", p.dtype);
    }
    if (p.heads < 1) return invalid("heads", "at least 1", p.heads);
    if (p.features < 1) return invalid("features", "at least 1", p.features);
    if (p.channels < 1) return invalid("channels", "at least 1", p.channels);
    SAGE_TRY(check_width("features", p.heads, p.features));
    SAGE_TRY(check_width("channels", p.heads, p.channels));
    if (p.heads * p.features > (int64_t{1} << 30) / p.channels) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "channels: expected heads * features * channels of at most 2^30, got %lld * %lld * %lld",
                    static_cast<ll>(p.heads), static_cast<ll>(p.features), static_cast<ll>(p.channels));
    }
    if (p.num_threads < 0) return invalid("num_threads", "0 (one per core) or more", p.num_threads);
    const int64_t most = INT64_MAX / 16 / (p.heads * max(p.features, p.channels));
    if (p.num_table_rows < 0 || p.num_table_rows > most) {
        return invalid("num_table_rows", "rows that fit in memory", p.num_table_rows);
    }
    if (p.target_table && (p.num_target_table_rows < 0 || p.num_target_table_rows > most)) {
        return invalid("num_target_table_rows", "rows that fit in memory", p.num_target_table_rows);
    }
    if (p.graph.num_targets > most) return invalid("num_targets", "rows that fit in memory", p.graph.num_targets);
    if (!(p.dropout >= 0 && p.dropout < 1)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "dropout: expected a number in [0, 1), got %g", p.dropout);
    }
    if (!is_finite(p.negative_slope)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "negative_slope: expected a finite number, got %g", p.negative_slope);
    }
    return SAGE_ATTENTION_OK;
}

// Each of `count` rows is one of the table's `rows`.
int32_t check_row_ids(const char* name, const int64_t* ids, int64_t count, int64_t rows) {
    if (!ids) {
        if (count <= rows) return SAGE_ATTENTION_OK;
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected an array, where the table has %lld rows for %lld nodes, got null",
                    name, static_cast<ll>(rows), static_cast<ll>(count));
    }
    for (int64_t i = 0; i < count; ++i) {
        if (ids[i] < 0 || ids[i] >= rows) {
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s[%lld]: expected a row below %lld, got %lld", name,
                        static_cast<ll>(i), static_cast<ll>(rows), static_cast<ll>(ids[i]));
        }
    }
    return SAGE_ATTENTION_OK;
}

int32_t check_raw_problem(const sage_attention_raw_problem* problem) {
    if (!problem) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "problem: expected a structure, got null");
    const sage_attention_raw_problem& p = *problem;
    if (p.struct_size != static_cast<int64_t>(sizeof(sage_attention_raw_problem))) {
        return invalid("struct_size", "sizeof(sage_attention_raw_problem) of this version", p.struct_size);
    }
    SAGE_TRY(check_graph_argument(&p.graph));
    SAGE_TRY(check_sizes(p));
    SAGE_TRY(check_array("table", p.table, p.num_table_rows));
    SAGE_TRY(check_array("source_weight", p.source_weight, 1));
    SAGE_TRY(check_array("projection", p.projection, 1));
    if (p.target_table) SAGE_TRY(check_array("target_weight", p.target_weight, 1));
    if (p.target_table && p.target_logits) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "target_logits: expected null with a target_table, got an array");
    }
    if (!p.graph.trusted) SAGE_TRY(sage_attention_check_graph(&p.graph, p.num_threads));
    SAGE_TRY(check_row_ids("row_ids", p.row_ids, p.graph.num_sources, p.num_table_rows));
    if (!p.target_table) return SAGE_ATTENTION_OK;
    return check_row_ids("target_row_ids", p.target_row_ids, p.graph.num_targets, p.num_target_table_rows);
}

RawTask raw_task(const sage_attention_raw_problem& p) {
    RawTask t;
    t.indptr = p.graph.indptr;
    t.indices = p.graph.indices;
    t.wide_indices = p.graph.index_type == SAGE_ATTENTION_INT64;
    t.edge_rows = p.edge_ids;
    t.num_edges = p.graph.num_edges;
    t.heads = p.heads;
    t.features = p.features;
    t.channels = p.channels;
    t.negative_slope = p.negative_slope;
    t.dropout_seed = p.dropout_seed;
    t.dropout = p.dropout;
    t.table = p.table;
    t.row_ids = p.row_ids;
    t.target_table = p.target_table;
    t.target_row_ids = p.target_row_ids;
    t.source_weight = p.source_weight;
    t.target_weight = p.target_weight;
    t.target_logits = p.target_logits;
    t.projection = p.projection;
    t.bias = p.bias;
    return t;
}

template <class T>
void add_partials(const T* partials, int64_t count, int64_t stride, int64_t size, T* out) {
    memcpy(out, partials, static_cast<size_t>(size) * sizeof(T));
    for (int64_t c = 1; c < count; ++c) {
        for (int64_t i = 0; i < size; ++i) out[i] += partials[c * stride + i];
    }
}

// The partial sums of each chunk, joined in the order of the chunks.
struct RawPartials {
    int64_t source_weight = 0, target_weight = 0, projection = 0;  // elements, 0 where not wanted
    int64_t element = 0;
    Buffer buffer;

    int64_t size() const { return source_weight + target_weight + projection; }
    bool reserve(int64_t chunks) {
        if (size() == 0) return true;
        if (!buffer.reserve<char>(chunks * size() * element)) return false;
        memset(buffer.data, 0, static_cast<size_t>(chunks * size() * element));
        return true;
    }
    RawPartial of(int64_t chunk) const {
        RawPartial partial;
        if (size() == 0) return partial;
        char* base = buffer.as<char>() + chunk * size() * element;
        if (source_weight > 0) partial.source_weight = base;
        if (target_weight > 0) partial.target_weight = base + source_weight * element;
        if (projection > 0) partial.projection = base + (source_weight + target_weight) * element;
        return partial;
    }
    void join(int64_t chunks, int64_t offset, int64_t count, void* out) const {
        if (count == 0) return;
        if (element == 4) {
            add_partials(buffer.as<float>() + offset, chunks, size(), count, static_cast<float*>(out));
        } else {
            add_partials(buffer.as<double>() + offset, chunks, size(), count, static_cast<double*>(out));
        }
    }
};

}  // namespace
}  // namespace sage

using namespace sage;

extern "C" int32_t sage_attention_raw_forward(const sage_attention_raw_problem* problem, void* out, void* row_max,
                                              void* row_sum) {
    SAGE_TRY(check_raw_problem(problem));
    const sage_attention_raw_problem& p = *problem;
    SAGE_TRY(check_array("out", out, p.graph.num_targets));
    RawTask t = raw_task(p);
    t.out = out;
    t.row_max = row_max;
    t.row_sum = row_sum;
    const int64_t element = element_size(p.dtype), matrix = p.channels * p.features;
    prefer_huge_pages(out, p.graph.num_targets * p.heads * p.channels * element);
    Buffer by_feature;
    if (!by_feature.reserve<char>(p.heads * matrix * element)) return out_of_memory();
    for (int64_t h = 0; h < p.heads; ++h) {
        const int64_t at = h * matrix * element;
        transpose_matrix(p.dtype, static_cast<const char*>(p.projection) + at, p.channels, p.features, by_feature.as<char>() + at);
    }
    t.projection = by_feature.data;
    const Kernels& k = raw_kernels(p.dtype);
    WorkerScratch scratch;
    SAGE_TRY(scratch.reserve(p.num_threads, k.raw_scratch(t)));
    const Chunks chunks(t.indptr, p.graph.num_targets, INT64_MAX);
    parallel_for(p.num_threads, chunks.count, [&](int64_t c, int32_t worker) {
        k.raw_forward(t, chunks.begin(c), chunks.begin(c + 1), scratch.of(worker));
    });
    return SAGE_ATTENTION_OK;
}

extern "C" int32_t sage_attention_raw_backward(const sage_attention_raw_problem* problem,
                                               const sage_attention_raw_gradients* gradients) {
    SAGE_TRY(check_raw_problem(problem));
    if (!gradients) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "gradients: expected a structure, got null");
    const sage_attention_raw_problem& p = *problem;
    const sage_attention_raw_gradients& g = *gradients;
    SAGE_TRY(check_array("gradients.out", g.out, p.graph.num_targets));
    SAGE_TRY(check_array("gradients.row_max", g.row_max, p.graph.num_targets));
    SAGE_TRY(check_array("gradients.row_sum", g.row_sum, p.graph.num_targets));
    if (g.target_weight && !p.target_table) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "gradients.target_weight: expected null without a target_table, got an array");
    }
    RawTask t = raw_task(p);
    t.grad_out = g.out;
    t.row_max = const_cast<void*>(g.row_max);
    t.row_sum = const_cast<void*>(g.row_sum);
    t.grad_target_logits = p.target_table ? nullptr : g.target_logits;
    RawPartials partials;
    partials.element = element_size(p.dtype);
    if (g.source_weight) partials.source_weight = p.heads * p.features;
    if (g.target_weight) partials.target_weight = p.heads * p.features;
    if (g.projection) partials.projection = p.heads * p.channels * p.features;
    // Never from the number of threads.
    const int64_t most = max(min(kPartialBytes / max(partials.size() * partials.element, int64_t{1}), kMostPartials), int64_t{8});
    const Chunks chunks(t.indptr, p.graph.num_targets, most);
    if (!partials.reserve(chunks.count)) return out_of_memory();
    const Kernels& k = raw_kernels(p.dtype);
    WorkerScratch scratch;
    SAGE_TRY(scratch.reserve(p.num_threads, k.raw_scratch(t)));
    parallel_for(p.num_threads, chunks.count, [&](int64_t c, int32_t worker) {
        k.raw_backward(t, partials.of(c), chunks.begin(c), chunks.begin(c + 1), scratch.of(worker));
    });
    partials.join(chunks.count, 0, partials.source_weight, g.source_weight);
    partials.join(chunks.count, partials.source_weight, partials.target_weight, g.target_weight);
    partials.join(chunks.count, partials.source_weight + partials.target_weight, partials.projection, g.projection);
    return SAGE_ATTENTION_OK;
}
