// What attention refuses: each with the right status and a message that names the argument, and nothing written.
#include "attention_case.h"
#include "test_main.h"

namespace {

constexpr int64_t kHuge = INT64_MAX;

CaseOptions options(int32_t score) {
    CaseOptions o;
    o.score = score;
    o.edge_channels = 2;
    o.rows = 5;
    o.edge_ids = true;
    return o;
}

CaseOptions whole_options(int32_t score) {
    CaseOptions o = options(score);
    o.rows = -1;
    return o;
}

using Change = void (*)(Case&);

// A small problem in which only one thing is wrong: forward and backward refuse it with that name.
void refuse(const CaseOptions& o, Change change, const char* start, bool forward = true, bool backward = true) {
    Case good(o);
    CHECK_OK(good.forward());
    Case c(o);
    change(c);
    if (forward) CHECK_REFUSED(c.forward(), start);
    if (backward) {
        CHECK_REFUSED(c.backward(), start);
    }
    CHECK(c.untouched());
}

void all_scores(Change change, const char* start) {
    for (int32_t score = 0; score < 3; ++score) {
        refuse(options(score), change, start);
        refuse(whole_options(score), change, start);
    }
}

#define WITH(...) [](Case& c) { __VA_ARGS__; }

void null_structures() {
    for (int32_t score = 0; score < 3; ++score) {
        Case c(whole_options(score));
        CHECK_REFUSED(sage_attention_forward(nullptr, &c.result), "problem");
        CHECK_REFUSED(sage_attention_forward(&c.problem, nullptr), "result");
        CHECK_REFUSED(sage_attention_backward(nullptr, &c.result, nullptr, &c.gradients), "problem");
        CHECK_REFUSED(sage_attention_backward(&c.problem, nullptr, nullptr, &c.gradients), "result");
        CHECK_REFUSED(sage_attention_backward(&c.problem, &c.result, nullptr, nullptr), "gradients");
        CHECK(c.untouched());
    }
}

void structure_of_another_version() {
    all_scores(WITH(c.problem.struct_size = 0), "struct_size");
    all_scores(WITH(c.problem.struct_size -= 8), "struct_size");
    all_scores(WITH(c.problem.struct_size += 8), "struct_size");
    all_scores(WITH(c.problem.struct_size = -1), "struct_size");
}

void kinds() {
    all_scores(WITH(c.problem.score = 3), "score");
    all_scores(WITH(c.problem.score = -1), "score");
    all_scores(WITH(c.problem.score = INT32_MAX), "score");
    all_scores(WITH(c.problem.dtype = 2), "dtype");
    all_scores(WITH(c.problem.dtype = -1), "dtype");
    all_scores(WITH(c.problem.graph.index_type = 2), "index_type");
    all_scores(WITH(c.problem.graph.index_type = -1), "index_type");
    all_scores(WITH(c.problem.weights_before_dropout = 2), "weights_before_dropout");
    all_scores(WITH(c.problem.sampling.replace = 2), "replace");
    all_scores(WITH(c.problem.sampling.replace = -1), "replace");
}

void sizes() {
    all_scores(WITH(c.problem.heads = 0), "heads");
    all_scores(WITH(c.problem.heads = -1), "heads");
    all_scores(WITH(c.problem.heads = INT64_MIN), "heads");
    all_scores(WITH(c.problem.channels = 0), "channels");
    all_scores(WITH(c.problem.channels = -3), "channels");
    all_scores(WITH(c.problem.edge_channels = -1), "edge_channels");
    all_scores(WITH(c.problem.num_rows = -1), "num_rows");
    all_scores(WITH(c.problem.num_edge_rows = -1), "num_edge_rows");
    all_scores(WITH(c.problem.num_threads = -1), "num_threads");
    all_scores(WITH(c.problem.num_threads = INT32_MIN), "num_threads");
    all_scores(WITH(c.problem.graph.num_targets = -1), "num_targets");
    all_scores(WITH(c.problem.graph.num_sources = -1), "num_sources");
    all_scores(WITH(c.problem.graph.num_edges = -1), "num_edges");
}

void huge_sizes() {
    all_scores(WITH(c.problem.heads = kHuge), "channels");
    all_scores(WITH(c.problem.channels = kHuge), "channels");
    all_scores(WITH(c.problem.channels = int64_t{1} << 32), "channels");
    all_scores(WITH(c.problem.edge_channels = kHuge), "channels");
    all_scores(WITH(c.problem.heads = c.problem.channels = int64_t{1} << 13), "channels");
    all_scores(WITH(c.problem.heads = c.problem.channels = int64_t{1} << 32), "channels");
    all_scores(WITH(c.problem.num_rows = kHuge), "num_rows");
    all_scores(WITH(c.problem.num_rows = int64_t{1} << 58), "num_rows");
    all_scores(WITH(c.problem.graph.num_sources = kHuge), "num_sources");
    all_scores(WITH(c.problem.num_edge_rows = kHuge), "num_edge_rows");
    all_scores(WITH(c.problem.graph.num_targets = kHuge), "num_targets");
    all_scores(WITH(c.problem.graph.num_edges = kHuge), "num_edges");
    // Not more than memory could hold, but not what the arrays say.
    all_scores(WITH(c.problem.graph.num_edges = c.edges + 1), "indptr");
    all_scores(WITH(c.problem.graph.num_edges = int64_t{1} << 40), "indptr");
    all_scores(WITH(c.problem.graph.num_edges = c.edges - 1), "indptr");
}

void numbers() {
    all_scores(WITH(c.problem.negative_slope = NAN), "negative_slope");
    all_scores(WITH(c.problem.negative_slope = HUGE_VAL), "negative_slope");
    all_scores(WITH(c.problem.scale = NAN), "scale");
    all_scores(WITH(c.problem.scale = -HUGE_VAL), "scale");
    all_scores(WITH(c.problem.dropout = NAN), "dropout");
    all_scores(WITH(c.problem.dropout = 1), "dropout");
    all_scores(WITH(c.problem.dropout = -1e-9), "dropout");
    all_scores(WITH(c.problem.dropout = HUGE_VAL), "dropout");
}

void sampling() {
    all_scores(WITH(c.problem.sampling.fan_out = 0), "fan_out");
    all_scores(WITH(c.problem.sampling.fan_out = -2), "fan_out");
    all_scores(WITH(c.problem.sampling.fan_out = INT64_MIN), "fan_out");
    all_scores(WITH(c.problem.sampling.fan_out = (int64_t{1} << 32) + 1), "fan_out");
    all_scores(WITH(c.problem.sampling.fan_out = kHuge), "fan_out");
    all_scores(WITH(c.problem.sampling.hop = 0x80000000u), "hop");
    all_scores(WITH(c.problem.sampling.hop = 0xffffffffu), "hop");
}

void a_fan_out_of_four_thousand_million_is_all_edges() {
    Case all(options(SAGE_ATTENTION_DOT)), most(options(SAGE_ATTENTION_DOT));
    most.problem.sampling.fan_out = int64_t{1} << 32;
    CHECK_OK(all.forward());
    CHECK_OK(most.forward());
    CHECK(all.out.same_bytes(most.out));
}

void null_inputs() {
    all_scores(WITH(c.problem.values = nullptr), "values");
    all_scores(WITH(c.problem.edge_features = nullptr), "edge_features");
    all_scores(WITH(c.problem.graph.indptr = nullptr), "indptr");
    all_scores(WITH(c.problem.graph.indices = nullptr), "indices");
    refuse(options(SAGE_ATTENTION_GAT), WITH(c.problem.source_logits = nullptr), "source_logits");
    refuse(options(SAGE_ATTENTION_GAT), WITH(c.problem.edge_weight = nullptr), "edge_weight");
    refuse(options(SAGE_ATTENTION_GATV2), WITH(c.problem.queries = nullptr), "queries");
    refuse(options(SAGE_ATTENTION_GATV2), WITH(c.problem.attention = nullptr), "attention");
    refuse(options(SAGE_ATTENTION_GATV2), WITH(c.problem.edge_weight = nullptr), "edge_weight");
    refuse(options(SAGE_ATTENTION_DOT), WITH(c.problem.queries = nullptr), "queries");
    refuse(options(SAGE_ATTENTION_DOT), WITH(c.problem.keys = nullptr), "keys");
    refuse(options(SAGE_ATTENTION_DOT), WITH(c.problem.edge_queries = nullptr), "edge_queries");
}

void null_results() {
    for (int32_t score = 0; score < 3; ++score) {
        refuse(options(score), WITH(c.result.out = nullptr), "out", true, false);
        refuse(options(score), WITH(c.result.out = nullptr), "result.out", false, true);
        refuse(options(score), WITH(c.result.row_max = nullptr), "result.row_max", false, true);
        refuse(options(score), WITH(c.result.row_sum = nullptr), "result.row_sum", false, true);
        refuse(options(score), WITH(c.gradients.out = nullptr), "gradients.out", false, true);
        refuse(whole_options(score), WITH(c.result.weights = nullptr), "result.weights", false, true);
    }
    refuse(options(SAGE_ATTENTION_DOT), WITH(c.result.edge_out = nullptr), "edge_out", true, false);
    refuse(options(SAGE_ATTENTION_DOT), WITH(c.result.edge_out = nullptr), "result.edge_out", false, true);
    refuse(options(SAGE_ATTENTION_GAT), WITH(c.result.positive_sum = nullptr), "positive_sum", true, false);
    refuse(options(SAGE_ATTENTION_GAT), WITH(c.result.positive_out = nullptr), "positive_sum", true, false);
    refuse(options(SAGE_ATTENTION_GAT), WITH(c.result.positive_sum = nullptr), "result.positive_sum", false, true);
    refuse(options(SAGE_ATTENTION_GAT), WITH(c.result.positive_out = nullptr), "result.positive_out", false, true);
}

void weights_of_a_sample() {
    for (int32_t score = 0; score < 3; ++score) {
        refuse(options(score), WITH(c.result.weights = c.weights.data()), "weights", true, false);
        refuse(options(score), WITH(c.result.weights = c.weights.data(); c.gradients.weights = c.grad_weights.data()),
               "gradients.weights", false, true);
        CaseOptions o = whole_options(score);
        o.fan_out = 3;
        refuse(o, WITH(c.result.weights = c.weights.data()), "weights", true, false);
    }
}

// The backward pass reads these; for a score that has none they must not be believed.
void gradients_of_what_there_is_not() {
    Case c(options(SAGE_ATTENTION_DOT));
    c.gradients.target_logits = c.grads[kQueries].data();
    CHECK_OK(c.forward());
    const int32_t status = c.backward();
    CHECK(status == SAGE_ATTENTION_OK || status == SAGE_ATTENTION_INVALID_ARGUMENT);
    CHECK(c.intact());
}

void rows_that_do_not_fit_the_graph() {
    for (int32_t score = 0; score < 3; ++score) {
        refuse(whole_options(score), WITH(c.problem.num_rows -= 1), "num_rows");
        refuse(whole_options(score), WITH(c.problem.num_rows += 1), "num_rows");
        refuse(whole_options(score), WITH(c.problem.num_rows = 0), "num_rows");
        // Found before indptr is read where such a graph would have its end.
        refuse(whole_options(score), WITH(c.problem.graph.num_targets = int64_t{1} << 40), "num_rows");
        refuse(options(score), WITH(c.targets.ids()[3] = c.o.targets), "targets[3]");
        refuse(options(score), WITH(c.targets.ids()[0] = -1), "targets[0]");
        refuse(options(score), WITH(c.targets.ids()[4] = INT64_MIN), "targets[4]");
        refuse(options(score), WITH(c.targets.ids()[4] = kHuge), "targets[4]");
    }
}

void edge_ids() {
    all_scores(WITH(c.edge_ids.ids()[2] = c.edge_rows), "edge_ids[2]");
    all_scores(WITH(c.edge_ids.ids()[c.edges - 1] = -1), "edge_ids[");
    all_scores(WITH(c.edge_ids.ids()[0] = INT64_MIN), "edge_ids[0]");
    all_scores(WITH(c.problem.edge_ids = nullptr; c.problem.num_edge_rows = c.edges - 1), "num_edge_rows");
    all_scores(WITH(c.problem.num_edge_rows = 2), "edge_ids[");
}

void graphs() {
    all_scores(WITH(c.indptr.ids()[0] = 1), "indptr");
    all_scores(WITH(c.indptr.ids()[0] = -1), "indptr");
    all_scores(WITH(c.indptr.ids()[2] = c.edges + 5), "indptr");
    all_scores(WITH(c.indptr.ids()[2] = -5), "indptr");
    all_scores(WITH(c.indptr.ids()[3] = INT64_MIN), "indptr");
    all_scores(WITH(c.indptr.ids()[3] = kHuge), "indptr");
    all_scores(WITH(c.indptr.ids()[c.o.targets] += 1), "indptr");
    all_scores(WITH(c.indptr.ids()[c.o.targets] = kHuge), "indptr");
    all_scores(WITH(static_cast<int32_t*>(c.indices.data())[1] = 11), "indices");
    all_scores(WITH(static_cast<int32_t*>(c.indices.data())[c.edges - 1] = -1), "indices");
    all_scores(WITH(static_cast<int32_t*>(c.indices.data())[0] = INT32_MIN), "indices");
    for (int32_t score = 0; score < 3; ++score) {
        CaseOptions o = options(score);
        o.index_type = SAGE_ATTENTION_INT64;
        refuse(o, WITH(c.indices.ids()[3] = (int64_t{1} << 32) + 1), "indices");
        refuse(o, WITH(c.indices.ids()[3] = INT64_MIN), "indices");
    }
}

// A case with its transposed graph, in which `change` breaks something.
template <class F>
void refuse_transposed(const F& change, const char* start) {
    for (int32_t score = 0; score < 3; ++score) {
        Case c(whole_options(score));
        Guarded indptr, indices, positions;
        indptr.allocate((c.o.sources + 1) * 8);
        indices.allocate(c.edges * 4);
        positions.allocate(c.edges * 8);
        CHECK_OK(sage_attention_transpose(&c.problem.graph, indptr.ids(), indices.data(), positions.ids()));
        sage_attention_transposed transposed = {indptr.ids(), indices.data(), positions.ids()};
        CHECK_OK(c.forward());
        CHECK_OK(sage_attention_backward(&c.problem, &c.result, &transposed, &c.gradients));
        change(indptr.ids(), static_cast<int32_t*>(indices.data()), positions.ids(), transposed, c);
        CHECK_REFUSED(sage_attention_backward(&c.problem, &c.result, &transposed, &c.gradients), start);
        CHECK(c.intact() && indptr.intact() && indices.intact() && positions.intact());
    }
}

void transposed_graphs() {
    using T = sage_attention_transposed;
    refuse_transposed([](int64_t*, int32_t*, int64_t*, T& t, Case&) { t.indices = nullptr; }, "transposed.indices");
    refuse_transposed([](int64_t*, int32_t*, int64_t*, T& t, Case&) { t.positions = nullptr; }, "transposed.positions");
    refuse_transposed([](int64_t*, int32_t*, int64_t* p, T&, Case&) { p[2] = -1; }, "transposed.positions");
    refuse_transposed([](int64_t*, int32_t*, int64_t* p, T&, Case& c) { p[0] = c.edges; }, "transposed.positions");
    refuse_transposed([](int64_t*, int32_t* i, int64_t*, T&, Case& c) { i[0] = static_cast<int32_t>(c.o.targets); }, "indices");
    refuse_transposed([](int64_t*, int32_t* i, int64_t*, T&, Case&) { i[1] = -7; }, "indices");
    refuse_transposed([](int64_t* s, int32_t*, int64_t*, T&, Case&) { s[0] = 1; }, "indptr");
    refuse_transposed([](int64_t* s, int32_t*, int64_t*, T&, Case& c) { s[c.o.sources] += 1; }, "indptr");
    refuse_transposed([](int64_t* s, int32_t*, int64_t*, T&, Case&) { s[2] = -9; }, "indptr");
}

void many_threads_are_no_error() {
    CaseOptions o = whole_options(SAGE_ATTENTION_GAT);
    Case one(o);
    o.num_threads = INT32_MAX;
    o.targets = 7;
    Case many(o);
    CHECK_OK(one.forward());
    CHECK_OK(many.forward());
    CHECK(one.out.same_bytes(many.out));
}

}  // namespace

int main() {
    RUN(null_structures);
    RUN(structure_of_another_version);
    RUN(kinds);
    RUN(sizes);
    RUN(huge_sizes);
    RUN(numbers);
    RUN(sampling);
    RUN(a_fan_out_of_four_thousand_million_is_all_edges);
    RUN(null_inputs);
    RUN(null_results);
    RUN(weights_of_a_sample);
    RUN(gradients_of_what_there_is_not);
    RUN(rows_that_do_not_fit_the_graph);
    RUN(edge_ids);
    RUN(graphs);
    RUN(transposed_graphs);
    RUN(many_threads_are_no_error);
    return test_result();
}
