// sage_attention_backward: scores are taken again, picks drawn again; nothing per edge and channel is ever stored.
#include "attention_problem.h"
#include "dispatch.h"
#include "graph.h"
#include "parallel.h"
#include "status.h"

namespace sage {
namespace {

constexpr int64_t kMostPartials = 256;

bool wants_targets(const sage_attention_problem& p, const sage_attention_gradients& g) {
    if (p.score == SAGE_ATTENTION_GAT) return false;
    return g.queries || g.attention || g.edge_features || g.edge_weight || g.edge_queries;
}

bool wants_sources(const sage_attention_problem& p, const sage_attention_gradients& g) {
    if (g.values) return true;
    if (p.score == SAGE_ATTENTION_GAT) return g.source_logits || g.edge_features || g.edge_weight;
    return p.score == SAGE_ATTENTION_DOT && g.keys;
}

int32_t check_gradients(const sage_attention_problem& p, const sage_attention_result* result,
                        const sage_attention_gradients* g) {
    if (!result) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "result: expected a structure, got null");
    if (!g) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "gradients: expected a structure, got null");
    SAGE_TRY(check_array("gradients.out", g->out, p.num_rows));
    SAGE_TRY(check_array("result.out", result->out, p.num_rows));
    SAGE_TRY(check_array("result.row_max", result->row_max, p.num_rows));
    SAGE_TRY(check_array("result.row_sum", result->row_sum, p.num_rows));
    if (g->edge_out) SAGE_TRY(check_array("result.edge_out", result->edge_out, p.num_rows));
    if (g->target_logits) {
        SAGE_TRY(check_array("result.positive_out", result->positive_out, p.num_rows));
        SAGE_TRY(check_array("result.positive_sum", result->positive_sum, p.num_rows));
    }
    if (g->weights) {
        SAGE_TRY(check_array("result.weights", result->weights, p.graph.num_edges));
        if (!attends_whole_graph(p)) {
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                        "gradients.weights: expected null where in-edges are sampled or targets chosen, got an array");
        }
    }
    return SAGE_ATTENTION_OK;
}

void set_gradients(AttentionTask& t, const sage_attention_problem& p, const sage_attention_result& result,
                   const sage_attention_gradients& g) {
    const bool gat = p.score == SAGE_ATTENTION_GAT, dot = p.score == SAGE_ATTENTION_DOT, edges = p.edge_channels > 0;
    t.out = result.out;
    t.edge_out = result.edge_out;
    t.row_max = result.row_max;
    t.row_sum = result.row_sum;
    t.positive_out = result.positive_out;
    t.positive_sum = result.positive_sum;
    t.weights = result.weights;
    t.grad_out = g.out;
    t.grad_edge_out = dot && edges ? g.edge_out : nullptr;
    t.grad_weights = g.weights;
    t.grad_values = g.values;
    t.grad_keys = dot ? g.keys : nullptr;
    t.grad_queries = gat ? nullptr : g.queries;
    t.grad_source_logits = gat ? g.source_logits : nullptr;
    t.grad_target_logits = gat ? g.target_logits : nullptr;
    t.grad_edge_features = edges ? g.edge_features : nullptr;
    t.grad_edge_queries = dot && edges ? g.edge_queries : nullptr;
}

// The attended edges as a graph of num_rows targets: what the forward pass drew, drawn again.
struct AttendedGraph {
    sage_attention_graph graph = {};
    const int64_t* edge_rows = nullptr;
    Buffer indptr, indices, rows;

    int32_t build(const sage_attention_problem& p) {
        graph = p.graph;
        edge_rows = p.edge_ids;
        if (attends_whole_graph(p)) return SAGE_ATTENTION_OK;
        const PickRule rule = pick_rule(p);
        const sage_attention_graph& g = p.graph;
        if (!indptr.reserve<int64_t>(p.num_rows + 1)) return out_of_memory();
        int64_t* to = indptr.as<int64_t>();
        to[0] = 0;
        for (int64_t r = 0; r < p.num_rows; ++r) {
            const int64_t target = target_of(p, r);
            to[r + 1] = to[r] + pick_count(rule, g.indptr[target + 1] - g.indptr[target]);
        }
        const int64_t count = to[p.num_rows];
        const int64_t index_size = g.index_type == SAGE_ATTENTION_INT32 ? 4 : 8;
        if (!indices.reserve<char>(count * index_size) || !rows.reserve<int64_t>(count)) return out_of_memory();
        int64_t* own = rows.as<int64_t>();
        constexpr int64_t kRows = 512;
        parallel_for(p.num_threads, (p.num_rows + kRows - 1) / kRows, [&](int64_t c, int32_t) {
            for (int64_t r = c * kRows; r < min(p.num_rows, (c + 1) * kRows); ++r) {
                const int64_t target = target_of(p, r), first = g.indptr[target];
                pick_row(rule, first, g.indptr[target + 1] - first, target, own + to[r]);
                with_index_type(g, [&](const auto* all) {
                    auto* out = const_cast<decltype(+*all)*>(static_cast<const decltype(+*all)*>(indices.data));
                    for (int64_t e = to[r]; e < to[r + 1]; ++e) {
                        out[e] = all[own[e]];
                        if (p.edge_ids) own[e] = p.edge_ids[own[e]];
                    }
                    return 0;
                });
            }
        });
        graph.indptr = to;
        graph.indices = indices.data;
        graph.num_targets = p.num_rows;
        graph.num_edges = count;
        graph.trusted = 1;
        edge_rows = own;
        return SAGE_ATTENTION_OK;
    }
};

struct TransposedGraph {
    sage_attention_transposed arrays = {};
    Buffer indptr, indices, positions;

    int32_t build(const sage_attention_problem& p, const sage_attention_graph& attended,
                  const sage_attention_transposed* given) {
        if (given && given->indptr && attends_whole_graph(p)) {
            arrays = *given;
            if (attended.num_edges > 0) {
                SAGE_TRY(check_array("transposed.indices", arrays.indices, 1));
                SAGE_TRY(check_array("transposed.positions", arrays.positions, 1));
            }
            if (p.graph.trusted) return SAGE_ATTENTION_OK;
            sage_attention_graph by_source = p.graph;
            by_source.indptr = arrays.indptr;
            by_source.indices = arrays.indices;
            by_source.num_targets = p.graph.num_sources;
            by_source.num_sources = p.graph.num_targets;
            SAGE_TRY(sage_attention_check_graph(&by_source, p.num_threads));
            for (int64_t e = 0; e < p.graph.num_edges; ++e) {
                if (arrays.positions[e] < 0 || arrays.positions[e] >= p.graph.num_edges) {
                    return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                                "transposed.positions: expected positions of edges, got %lld",
                                static_cast<long long>(arrays.positions[e]));
                }
            }
            return SAGE_ATTENTION_OK;
        }
        const int64_t index_size = attended.index_type == SAGE_ATTENTION_INT32 ? 4 : 8;
        if (!indptr.reserve<int64_t>(attended.num_sources + 1) ||
            !indices.reserve<char>(attended.num_edges * index_size) ||
            !positions.reserve<int64_t>(attended.num_edges)) {
            return out_of_memory();
        }
        SAGE_TRY(sage_attention_transpose(&attended, indptr.as<int64_t>(), indices.data, positions.as<int64_t>()));
        arrays = sage_attention_transposed{indptr.as<int64_t>(), indices.data, positions.as<int64_t>()};
        return SAGE_ATTENTION_OK;
    }
};

template <class T>
void add_rows(const T* rows, int64_t count, int64_t width, int64_t stride, T* out) {
    for (int64_t c = 0; c < width; ++c) out[c] = 0;
    for (int64_t r = 0; r < count; ++r) {
        for (int64_t c = 0; c < width; ++c) out[c] += rows[r * stride + c];
    }
}

// Sums per chunk of rows, joined in the order of the chunks.
class Partials {
  public:
    int32_t reserve(int32_t dtype, int64_t chunks, int64_t attention, int64_t edge_weight, int64_t bias) {
        dtype_ = dtype;
        chunks_ = chunks;
        attention_ = attention;
        edge_weight_ = edge_weight;
        bias_ = bias;
        const int64_t bytes = chunks * width() * element_size(dtype);
        if (bytes == 0) return SAGE_ATTENTION_OK;
        if (!buffer_.reserve<char>(bytes)) return out_of_memory();
        memset(buffer_.data, 0, static_cast<size_t>(bytes));
        return SAGE_ATTENTION_OK;
    }
    PartialGradients of(int64_t chunk) const {
        const int64_t size = element_size(dtype_);
        char* base = buffer_.as<char>() + chunk * width() * size;
        PartialGradients partial;
        if (attention_ > 0) partial.attention = base;
        if (edge_weight_ > 0) partial.edge_weight = base + attention_ * size;
        if (bias_ > 0) partial.bias = base + (attention_ + edge_weight_) * size;
        return partial;
    }
    void join_attention(void* out) const { join(0, attention_, out); }
    void join_edge_weight(void* out) const { join(attention_, edge_weight_, out); }
    void join_bias(void* out) const { join(attention_ + edge_weight_, bias_, out); }

  private:
    int64_t width() const { return attention_ + edge_weight_ + bias_; }
    void join(int64_t offset, int64_t size, void* out) const {
        if (dtype_ == SAGE_ATTENTION_FLOAT32) {
            add_rows(buffer_.as<float>() + offset, chunks_, size, width(), static_cast<float*>(out));
        } else {
            add_rows(buffer_.as<double>() + offset, chunks_, size, width(), static_cast<double*>(out));
        }
    }
    Buffer buffer_;
    int32_t dtype_ = 0;
    int64_t chunks_ = 0, attention_ = 0, edge_weight_ = 0, bias_ = 0;
};

enum class Pass { kPrepare, kTargets, kSources };

// One pass over rows in chunks, with the sums that belong to no row; those are written to the caller's gradients.
template <class F>
int32_t run_pass(const sage_attention_problem& p, const sage_attention_gradients& g, const AttentionTask& t,
                 Pass pass, int64_t rows, int32_t num_threads, const WorkerScratch& scratch, const F& kernel) {
    const int64_t width = p.heads * p.channels;
    const bool gatv2 = p.score == SAGE_ATTENTION_GATV2;
    // The pass that walks the edges for what belongs to none of them.
    const bool over_edges = pass == (p.score == SAGE_ATTENTION_GAT ? Pass::kSources : Pass::kTargets);
    const int64_t attention = over_edges && gatv2 && g.attention ? width : 0;
    const int64_t weight_size = (gatv2 ? width : p.heads) * p.edge_channels;
    const int64_t edge_weight = over_edges && p.score != SAGE_ATTENTION_DOT && g.edge_weight ? weight_size : 0;
    const int64_t bias = pass == Pass::kPrepare && p.bias && g.bias ? width : 0;
    const Chunks chunks(t.indptr, rows, attention + edge_weight + bias > 0 ? kMostPartials : INT64_MAX);
    Partials partials;
    SAGE_TRY(partials.reserve(p.dtype, chunks.count, attention, edge_weight, bias));
    parallel_for(num_threads, chunks.count, [&](int64_t c, int32_t worker) {
        kernel(t, partials.of(c), chunks.begin(c), chunks.begin(c + 1), scratch.of(worker));
    });
    if (attention > 0) partials.join_attention(g.attention);
    if (bias > 0) partials.join_bias(g.bias);
    if (edge_weight > 0 && !gatv2) partials.join_edge_weight(g.edge_weight);
    if (edge_weight > 0 && gatv2) {
        Buffer transposed;
        if (!transposed.reserve<char>(weight_size * element_size(p.dtype))) return out_of_memory();
        partials.join_edge_weight(transposed.data);
        transpose_matrix(p.dtype, transposed.data, p.edge_channels, width, g.edge_weight);
    }
    return SAGE_ATTENTION_OK;
}

}  // namespace
}  // namespace sage

using namespace sage;

extern "C" int32_t sage_attention_backward(const sage_attention_problem* problem, const sage_attention_result* result,
                                           const sage_attention_transposed* transposed,
                                           const sage_attention_gradients* gradients) {
    SAGE_TRY(check_problem(problem));
    if (problem->values_kind != SAGE_ATTENTION_PLAIN || problem->keys_kind != SAGE_ATTENTION_PLAIN) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected 0 (plain), as other kinds have no gradients, got %d",
                    problem->values_kind ? "values_kind" : "keys_kind",
                    problem->values_kind ? problem->values_kind : problem->keys_kind);
    }
    SAGE_TRY(check_gradients(*problem, result, gradients));
    const sage_attention_problem& p = *problem;
    const sage_attention_gradients& g = *gradients;

    AttentionTask t = base_task(p);
    set_gradients(t, p, *result, g);
    const int64_t width_bytes = p.heads * p.channels * element_size(p.dtype);
    prefer_huge_pages(t.grad_values, p.graph.num_sources * width_bytes);
    prefer_huge_pages(t.grad_keys, p.graph.num_sources * width_bytes);
    prefer_huge_pages(t.grad_queries, p.num_rows * width_bytes);
    Buffer edge_weight;
    SAGE_TRY(transposed_edge_weight(p, edge_weight, &t.edge_weight));
    AttendedGraph attended;
    SAGE_TRY(attended.build(p));
    t.indptr = attended.graph.indptr;
    t.indices = attended.graph.indices;
    t.edge_rows = attended.edge_rows;
    t.num_edges = attended.graph.num_edges;

    if (t.grad_edge_features && p.num_edge_rows > 0) {
        memset(t.grad_edge_features, 0, static_cast<size_t>(p.num_edge_rows * p.edge_channels * element_size(p.dtype)));
    }
    Buffer records;
    if (!records.reserve<char>(p.num_rows * 4 * p.heads * element_size(p.dtype))) return out_of_memory();
    t.records = records.data;

    const Kernels& k = kernels(p.dtype);
    WorkerScratch scratch;
    SAGE_TRY(scratch.reserve(p.num_threads, k.attention_scratch(t)));
    SAGE_TRY(run_pass(p, g, t, Pass::kPrepare, p.num_rows, p.num_threads, scratch, k.attention_prepare));
    if (wants_targets(p, g)) {
        // Rows of one target add to the same edges: where targets may repeat, one thread does it.
        const int32_t threads = p.targets && t.grad_edge_features ? 1 : p.num_threads;
        SAGE_TRY(run_pass(p, g, t, Pass::kTargets, p.num_rows, threads, scratch, k.attention_backward_targets));
    }
    if (!wants_sources(p, g)) return SAGE_ATTENTION_OK;

    TransposedGraph by_source;
    SAGE_TRY(by_source.build(p, attended.graph, transposed));
    t.indptr = by_source.arrays.indptr;
    t.indices = by_source.arrays.indices;
    t.positions = by_source.arrays.positions;
    if (p.edge_channels == 0 && p.dropout == 0 && !t.grad_weights) {
        t.positions = t.edge_rows = nullptr;  // no edge row is ever read: spare the traffic
    }
    return run_pass(p, g, t, Pass::kSources, p.graph.num_sources, p.num_threads, scratch,
                    k.attention_backward_sources);
}
