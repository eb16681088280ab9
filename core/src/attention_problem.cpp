#include "attention_problem.h"

#include "graph.h"
#include "parallel.h"
#include "status.h"

namespace sage {
namespace {

using ll = long long;

int32_t invalid(const char* name, const char* expected, int64_t got) {
    return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected %s, got %lld", name, expected, static_cast<ll>(got));
}

// a * b, or -1 where it would not fit.
int64_t product(int64_t a, int64_t b) {
    if (a < 0 || b < 0) return -1;
    return b != 0 && a > INT64_MAX / 16 / b ? -1 : a * b;
}

int32_t check_sizes(const sage_attention_problem& p) {
    if (p.score < SAGE_ATTENTION_GAT || p.score > SAGE_ATTENTION_DOT) return invalid("score", "0, 1 or 2", p.score);
    if (p.dtype != SAGE_ATTENTION_FLOAT32 && p.dtype != SAGE_ATTENTION_FLOAT64) {
        return invalid("dtype", "0 (float32) or 1 (float64)", p.dtype);
    }
    if (p.heads < 1) return invalid("heads", "at least 1", p.heads);
    if (p.channels < 1) return invalid("channels", "at least 1", p.channels);
    if (p.edge_channels < 0) return invalid("edge_channels", "0 or more", p.edge_channels);
    if (p.num_rows < 0) return invalid("num_rows", "0 or more", p.num_rows);
    if (p.num_edge_rows < 0) return invalid("num_edge_rows", "0 or more", p.num_edge_rows);
    if (p.num_threads < 0) return invalid("num_threads", "0 (one per core) or more", p.num_threads);
    const int64_t width = product(p.heads, max(p.channels, p.edge_channels));
    if (width < 0 || width > (int64_t{1} << 24)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "channels: expected heads * channels of at most 16777216, got %lld * %lld",
                    static_cast<ll>(p.heads), static_cast<ll>(max(p.channels, p.edge_channels)));
    }
    if (product(p.num_rows, width * 8) < 0) return invalid("num_rows", "rows that fit in memory", p.num_rows);
    if (product(p.graph.num_sources, width * 8) < 0) {
        return invalid("num_sources", "rows that fit in memory", p.graph.num_sources);
    }
    if (product(p.num_edge_rows, max(p.heads, p.edge_channels) * 8) < 0) {
        return invalid("num_edge_rows", "rows that fit in memory", p.num_edge_rows);
    }
    if (!(p.dropout >= 0 && p.dropout < 1)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "dropout: expected a number in [0, 1), got %g", p.dropout);
    }
    if (!is_finite(p.negative_slope)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "negative_slope: expected a finite number, got %g", p.negative_slope);
    }
    if (!is_finite(p.scale)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "scale: expected a finite number, got %g", p.scale);
    }
    if (p.weights_before_dropout != 0 && p.weights_before_dropout != 1) {
        return invalid("weights_before_dropout", "0 or 1", p.weights_before_dropout);
    }
    SAGE_TRY(check_table_kind("values_kind", p.values_kind, p.dtype));
    SAGE_TRY(check_table_kind("keys_kind", p.keys_kind, p.dtype));
    if (p.keys_kind != SAGE_ATTENTION_PLAIN && p.score != SAGE_ATTENTION_DOT) {
        return invalid("keys_kind", "0 (plain) but with score 2", p.keys_kind);
    }
    return SAGE_ATTENTION_OK;
}

int32_t check_inputs(const sage_attention_problem& p) {
    const int64_t sources = p.graph.num_sources, rows = p.num_rows, width = p.heads * p.channels;
    SAGE_TRY(check_array("values", p.values, sources * width));
    if (p.values_kind == SAGE_ATTENTION_INT8) SAGE_TRY(check_array("value_scales", p.value_scales, sources));
    if (p.keys_kind == SAGE_ATTENTION_INT8) SAGE_TRY(check_array("key_scales", p.key_scales, sources));
    if (p.score == SAGE_ATTENTION_GAT) {
        SAGE_TRY(check_array("source_logits", p.source_logits, sources * p.heads));
    } else {
        SAGE_TRY(check_array("queries", p.queries, rows * width));
    }
    if (p.score == SAGE_ATTENTION_GATV2) SAGE_TRY(check_array("attention", p.attention, width));
    if (p.score == SAGE_ATTENTION_DOT) SAGE_TRY(check_array("keys", p.keys, sources * width));
    if (p.edge_channels > 0) {
        SAGE_TRY(check_array("edge_features", p.edge_features, p.num_edge_rows));
        if (p.score == SAGE_ATTENTION_DOT) {
            SAGE_TRY(check_array("edge_queries", p.edge_queries, rows));
        } else {
            SAGE_TRY(check_array("edge_weight", p.edge_weight, 1));
        }
    }
    return SAGE_ATTENTION_OK;
}

// First index i < count for which bad(i), or -1; in parallel.
template <class F>
int64_t find_first(int32_t num_threads, int64_t count, const F& bad) {
    constexpr int64_t kPiece = 1 << 16;
    volatile int64_t found = -1;
    parallel_for(num_threads, (count + kPiece - 1) / kPiece, [&](int64_t piece, int32_t) {
        for (int64_t i = piece * kPiece; i < min(count, (piece + 1) * kPiece); ++i) {
            if (bad(i)) {
                atomic_store(&found, i);
                return;
            }
        }
    });
    return found;
}

int32_t check_rows(const sage_attention_problem& p) {
    const sage_attention_graph& g = p.graph;
    if (p.targets) {
        const int64_t r = find_first(p.num_threads, p.num_rows,
                                     [&](int64_t i) { return p.targets[i] < 0 || p.targets[i] >= g.num_targets; });
        if (r >= 0) {
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "targets[%lld]: expected a target below %lld, got %lld",
                        static_cast<ll>(r), static_cast<ll>(g.num_targets), static_cast<ll>(p.targets[r]));
        }
    }
    if (p.sampling.fan_out == 0 || p.sampling.fan_out < -1 || p.sampling.fan_out > kMaxDraws) {
        return invalid("fan_out", "-1 (all) or from 1 to 2^32", p.sampling.fan_out);
    }
    if (p.sampling.replace != 0 && p.sampling.replace != 1) return invalid("replace", "0 or 1", p.sampling.replace);
    if (p.sampling.hop > INT32_MAX) return invalid("hop", "below 2^31", p.sampling.hop);
    if (!p.edge_ids) {
        if (p.num_edge_rows < g.num_edges) {
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "num_edge_rows: expected at least the graph's %lld edges, got %lld",
                        static_cast<ll>(g.num_edges), static_cast<ll>(p.num_edge_rows));
        }
    } else if (!g.trusted) {
        const int64_t e = find_first(p.num_threads, g.num_edges,
                                     [&](int64_t i) { return p.edge_ids[i] < 0 || p.edge_ids[i] >= p.num_edge_rows; });
        if (e >= 0) {
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "edge_ids[%lld]: expected an edge row below %lld, got %lld",
                        static_cast<ll>(e), static_cast<ll>(p.num_edge_rows), static_cast<ll>(p.edge_ids[e]));
        }
    }
    return SAGE_ATTENTION_OK;
}

template <class T>
void transpose_typed(const T* in, int64_t rows, int64_t columns, T* out) {
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) out[c * rows + r] = in[r * columns + c];
    }
}

}  // namespace

int32_t check_array(const char* name, const void* p, int64_t elements) {
    if (p || elements <= 0) return SAGE_ATTENTION_OK;
    return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected an array, got null", name);
}

int32_t check_table_kind(const char* name, int32_t kind, int32_t dtype) {
    if (kind < SAGE_ATTENTION_PLAIN || kind > SAGE_ATTENTION_INT8) return invalid(name, "0, 1, 2 or 3", kind);
    if (kind != SAGE_ATTENTION_PLAIN && dtype != SAGE_ATTENTION_FLOAT32) {
        return invalid(name, "0 (plain) with dtype 1 (float64)", kind);
    }
    return SAGE_ATTENTION_OK;
}

int32_t check_problem(const sage_attention_problem* problem) {
    if (!problem) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "problem: expected a structure, got null");
    if (problem->struct_size != static_cast<int64_t>(sizeof(sage_attention_problem))) {
        return invalid("struct_size", "sizeof(sage_attention_problem) of this version", problem->struct_size);
    }
    SAGE_TRY(check_graph_argument(&problem->graph));
    SAGE_TRY(check_sizes(*problem));
    SAGE_TRY(check_inputs(*problem));
    // Before any array is read: a wrong num_targets would lead past the end of indptr.
    if (!problem->targets && problem->num_rows != problem->graph.num_targets) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "num_rows: expected the graph's %lld targets, got %lld",
                    static_cast<ll>(problem->graph.num_targets), static_cast<ll>(problem->num_rows));
    }
    if (!problem->graph.trusted) SAGE_TRY(sage_attention_check_graph(&problem->graph, problem->num_threads));
    return check_rows(*problem);
}

AttentionTask base_task(const sage_attention_problem& p) {
    AttentionTask t;
    t.indptr = p.graph.indptr;
    t.indices = p.graph.indices;
    t.wide_indices = p.graph.index_type == SAGE_ATTENTION_INT64;
    t.edge_rows = p.edge_ids;
    t.num_edges = p.graph.num_edges;
    t.score = p.score;
    t.heads = p.heads;
    t.channels = p.channels;
    t.edge_channels = p.edge_channels;
    t.negative_slope = p.negative_slope;
    t.scale = p.scale;
    t.dropout_seed = p.dropout_seed;
    t.dropout = p.dropout;
    t.values = p.values;
    t.keys = p.score == SAGE_ATTENTION_GATV2 ? p.values : p.keys;
    t.values_kind = p.values_kind;
    t.value_scales = p.value_scales;
    t.keys_kind = p.score == SAGE_ATTENTION_GATV2 ? p.values_kind : p.keys_kind;
    t.key_scales = p.score == SAGE_ATTENTION_GATV2 ? p.value_scales : p.key_scales;
    t.queries = p.queries;
    t.source_logits = p.source_logits;
    t.target_logits = p.target_logits;
    t.attention = p.attention;
    t.edge_features = p.edge_features;
    t.edge_weight = p.edge_weight;
    t.edge_queries = p.edge_queries;
    t.bias = p.bias;
    t.weights_before_dropout = p.weights_before_dropout != 0;
    return t;
}

void transpose_matrix(int32_t dtype, const void* in, int64_t rows, int64_t columns, void* out) {
    if (dtype == SAGE_ATTENTION_FLOAT32) {
        transpose_typed(static_cast<const float*>(in), rows, columns, static_cast<float*>(out));
    } else {
        transpose_typed(static_cast<const double*>(in), rows, columns, static_cast<double*>(out));
    }
}

int32_t transposed_edge_weight(const sage_attention_problem& p, Buffer& buffer, const void** out) {
    *out = p.edge_weight;
    if (p.score != SAGE_ATTENTION_GATV2 || p.edge_channels == 0) return SAGE_ATTENTION_OK;
    const int64_t width = p.heads * p.channels;
    if (!buffer.reserve<char>(width * p.edge_channels * element_size(p.dtype))) return out_of_memory();
    transpose_matrix(p.dtype, p.edge_weight, width, p.edge_channels, buffer.data);
    *out = buffer.data;
    return SAGE_ATTENTION_OK;
}

int32_t WorkerScratch::reserve(int32_t num_threads, size_t bytes_each) {
    stride_ = (bytes_each + kCacheLine - 1) / kCacheLine * kCacheLine;
    const size_t bytes = stride_ * static_cast<size_t>(worker_count(num_threads));
    if (!buffer_.reserve<char>(static_cast<int64_t>(bytes))) return out_of_memory();
    // For tests: what is read before it is written shows as not-a-number.
    if (getenv("SAGE_ATTENTION_POISON")) memset(buffer_.data, 0xff, bytes);
    return SAGE_ATTENTION_OK;
}

}  // namespace sage
