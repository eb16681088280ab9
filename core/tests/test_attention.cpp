// Attention through the C ABI against a naive loop in double, at every CPU level; what may be left out; guard bands.
#include "naive_attention.h"
#include "test_main.h"

namespace {

template <class F>
void at_every_level(const F& f) {
    char before[16];
    snprintf(before, sizeof before, "%s", sage_attention_cpu_level());
    for (int32_t i = 0; const char* level = sage_attention_available_cpu_level(i); ++i) {
        CHECK_OK(sage_attention_set_cpu_level(level));
        f();
    }
    CHECK_OK(sage_attention_set_cpu_level(before));
}

bool close(const Case& c, const Guarded& got, const Doubles& expected, double limit, const char* what) {
    double largest = 0.01, worst = 0;
    for (int64_t i = 0; i < expected.count(); ++i) largest = fmax(largest, fabs(expected[i]));
    for (int64_t i = 0; i < expected.count(); ++i) {
        const double difference = fabs(c.get(got, i) - expected[i]);
        if (!(difference <= limit * largest)) worst = HUGE_VAL;  // also what is not a number
        worst = fmax(worst, difference / largest);
    }
    if (worst <= limit) return true;
    const CaseOptions& o = c.o;
    fprintf(stderr, "%s at %s: error %g; score %d dtype %d heads %lld channels %lld edge_channels %lld rows %lld fan_out %lld dropout %g\n",
            what, sage_attention_cpu_level(), worst, o.score, o.dtype, static_cast<long long>(o.heads),
            static_cast<long long>(o.channels), static_cast<long long>(o.edge_channels), static_cast<long long>(o.rows),
            static_cast<long long>(o.fan_out), o.dropout);
    return false;
}

const char* const kNames[kRoles] = {"values", "keys", "queries", "source_logits", "target_logits", "attention",
                                    "edge_features", "edge_weight", "edge_queries", "bias"};

// The mask as the library has it: from weights before and after dropout.
void find_scales(const CaseOptions& options, Doubles& scales) {
    CaseOptions o = options;
    o.before_dropout = false;
    Case after(o);
    o.before_dropout = true;
    Case before(o);
    CHECK_OK(after.forward());
    CHECK_OK(before.forward());
    const int64_t count = after.edge_rows * o.heads;
    scales.allocate(count);
    const double kept = 1 / (1 - o.dropout);
    for (int64_t i = 0; i < count; ++i) {
        const double a = after.get(after.weights, i), b = before.get(before.weights, i);
        if (isnan(b)) continue;  // a row of edges no edge has
        scales[i] = a == 0 && b != 0 ? 0 : kept;
        CHECK(fabs(a - b * scales[i]) <= 1e-6 * kept);
    }
}

void check_case(const CaseOptions& o) {
    Case c(o);
    Doubles scales;
    if (o.dropout > 0) find_scales(o, scales);
    const Naive naive(c, o.dropout > 0 ? &scales : nullptr);
    const bool single = o.dtype == SAGE_ATTENTION_FLOAT32;
    const double forward_limit = single ? 1e-5 : 1e-12, gradient_limit = single ? 1e-4 : 1e-11;
    CHECK_OK(c.forward());
    CHECK(close(c, c.out, naive.out, forward_limit, "out"));
    if (c.result.edge_out) CHECK(close(c, c.edge_out, naive.edge_out, forward_limit, "edge_out"));
    for (int64_t m = 0; c.result.weights && m < c.edge_rows * o.heads; ++m) {
        // Rows of no edge are left as they were.
        if (naive.weights[m] != 0) CHECK(fabs(c.get(c.weights, m) - naive.weights[m]) <= forward_limit * 3);
    }
    CHECK_OK(c.backward());
    for (int role = 0; role < kRoles; ++role) {
        if (c.sizes[role] > 0) CHECK(close(c, c.grads[role], naive.grads[role], gradient_limit, kNames[role]));
    }
    CHECK(c.intact());
}

template <class F>
void over_shapes(const F& f) {
    const int64_t shapes[][3] = {{1, 1, 0}, {1, 8, 3}, {2, 16, 0}, {3, 5, 2}, {8, 8, 1}, {8, 16, 0},
                                 {4, 32, 5}, {12, 7, 3}, {1, 64, 0}, {5, 33, 17}, {16, 3, 2}, {1, 100, 1}};
    for (const auto& shape : shapes) {
        for (int32_t score = 0; score < 3; ++score) {
            for (int32_t dtype = 0; dtype < 2; ++dtype) {
                CaseOptions o;
                o.heads = shape[0];
                o.channels = shape[1];
                o.edge_channels = shape[2];
                o.score = score;
                o.dtype = dtype;
                o.seed = static_cast<uint64_t>(o.heads * 1000 + o.channels);
                f(o);
            }
        }
    }
}

void whole_graph_matches_naive() {
    at_every_level([] {
        over_shapes([](CaseOptions o) {
            check_case(o);
            o.index_type = SAGE_ATTENTION_INT64;
            o.edge_ids = true;
            o.num_threads = 2;
            check_case(o);
        });
    });
}

void dropout_matches_naive() {
    at_every_level([] {
        over_shapes([](CaseOptions o) {
            o.dropout = 0.4;
            o.edge_ids = true;
            check_case(o);
            o.before_dropout = true;
            check_case(o);
        });
    });
}

void chosen_and_sampled_rows_match_naive() {
    at_every_level([] {
        over_shapes([](CaseOptions o) {
            o.rows = 9;
            o.edge_ids = true;
            check_case(o);
            o.fan_out = 6;
            check_case(o);
            o.replace = 1;
            o.index_type = SAGE_ATTENTION_INT64;
            check_case(o);
            o.rows = -1;
            check_case(o);
        });
    });
}

void dropout_hits_as_many_as_it_should() {
    CaseOptions o;
    o.targets = 400;
    o.heads = 5;
    o.channels = 1;
    o.dropout = 0.3;
    Doubles scales;
    find_scales(o, scales);
    int64_t dropped = 0;
    for (int64_t i = 0; i < scales.count(); ++i) dropped += scales[i] == 0;
    const double share = static_cast<double>(dropped) / static_cast<double>(scales.count());
    CHECK(scales.count() > 20000);
    CHECK(fabs(share - 0.3) < 0.015);
}

CaseOptions many_rows(int32_t score) {
    CaseOptions o;
    o.score = score;
    o.targets = 700;  // several chunks
    o.sources = 300;
    o.edge_channels = 3;
    o.heads = 3;
    o.edge_ids = true;
    return o;
}

void any_number_of_threads_gives_the_same_bytes() {
    at_every_level([] {
        for (int32_t score = 0; score < 3; ++score) {
            for (int64_t fan_out = -1; fan_out < 6; fan_out += 6) {
                CaseOptions o = many_rows(score);
                o.fan_out = fan_out;
                o.dropout = 0.1;
                Case one(o);
                CHECK_OK(one.forward());
                CHECK_OK(one.backward());
                const int32_t counts[] = {2, 3, 7, 0};
                for (int32_t threads : counts) {
                    o.num_threads = threads;
                    Case more(o);
                    CHECK_OK(more.forward());
                    CHECK_OK(more.backward());
                    for (int i = 0; one.outputs(i); ++i) CHECK(one.outputs(i)->same_bytes(*more.outputs(i)));
                    CHECK(more.intact());
                }
            }
        }
    });
}

void a_given_transposed_graph_changes_nothing() {
    for (int32_t score = 0; score < 3; ++score) {
        Case built(many_rows(score)), given(many_rows(score));
        Guarded indptr, indices, positions;
        indptr.allocate((given.o.sources + 1) * 8);
        indices.allocate(given.edges * 4);
        positions.allocate(given.edges * 8);
        CHECK_OK(sage_attention_transpose(&given.problem.graph, indptr.ids(), indices.data(), positions.ids()));
        const sage_attention_transposed transposed = {indptr.ids(), indices.data(), positions.ids()};
        CHECK_OK(built.forward());
        CHECK_OK(built.backward());
        CHECK_OK(given.forward());
        CHECK_OK(sage_attention_backward(&given.problem, &given.result, &transposed, &given.gradients));
        for (int i = 0; built.outputs(i); ++i) CHECK(built.outputs(i)->same_bytes(*given.outputs(i)));
    }
}

void trusted_graphs_give_the_same() {
    for (int32_t score = 0; score < 3; ++score) {
        Case checked(many_rows(score)), trusted(many_rows(score));
        trusted.problem.graph.trusted = 1;
        CHECK_OK(checked.forward());
        CHECK_OK(checked.backward());
        CHECK_OK(trusted.forward());
        CHECK_OK(trusted.backward());
        for (int i = 0; checked.outputs(i); ++i) CHECK(checked.outputs(i)->same_bytes(*trusted.outputs(i)));
    }
}

// Each output alone, and all but one: the others come out as ever.
void gradients_may_be_left_out() {
    at_every_level([] {
        for (int32_t score = 0; score < 3; ++score) {
            CaseOptions o = many_rows(score);
            o.targets = 30;
            Case all(o);
            CHECK_OK(all.forward());
            CHECK_OK(all.backward());
            for (int chosen = 0; chosen < kRoles; ++chosen) {
                for (int only = 0; only < 2; ++only) {
                    Case part(o);
                    void** const wanted[kRoles] = {&part.gradients.values, &part.gradients.keys, &part.gradients.queries,
                                                   &part.gradients.source_logits, &part.gradients.target_logits,
                                                   &part.gradients.attention, &part.gradients.edge_features,
                                                   &part.gradients.edge_weight, &part.gradients.edge_queries,
                                                   &part.gradients.bias};
                    for (int role = 0; role < kRoles; ++role) {
                        if ((role == chosen) != (only == 1)) *wanted[role] = nullptr;
                    }
                    CHECK_OK(part.forward());
                    CHECK_OK(part.backward());
                    for (int role = 0; role < kRoles; ++role) {
                        const bool asked = (role == chosen) == (only == 1);
                        CHECK(asked ? part.grads[role].same_bytes(all.grads[role]) : part.grads[role].holds_only(0xff));
                    }
                    CHECK(part.intact());
                }
            }
        }
    });
}

void results_may_be_left_out() {
    for (int32_t score = 0; score < 3; ++score) {
        Case all(many_rows(score)), part(many_rows(score));
        part.result.row_max = part.result.row_sum = part.result.weights = nullptr;
        part.result.positive_out = part.result.positive_sum = nullptr;
        CHECK_OK(all.forward());
        CHECK_OK(part.forward());
        CHECK(part.out.same_bytes(all.out) && part.edge_out.same_bytes(all.edge_out));
        CHECK(part.row_max.holds_only(0xff) && part.weights.holds_only(0xff) && part.positive_out.holds_only(0xff));
        CHECK(part.intact());
    }
}

void nothing_to_attend() {
    const int64_t sizes[][3] = {{0, 0, -1}, {5, 0, -1}, {0, 5, -1}, {0, 5, 3}, {5, 4, 0}};
    at_every_level([&] {
        for (const auto& size : sizes) {
            for (int32_t score = 0; score < 3; ++score) {
                CaseOptions o;
                o.score = score;
                o.sources = size[0];
                o.targets = size[1];
                o.rows = size[2];
                o.edge_channels = 2;
                o.most_degree = size[2] < 0 ? 0 : 3;
                o.bias = false;
                Case c(o);
                CHECK_OK(c.forward());
                CHECK_OK(c.backward());
                CHECK(c.out.holds_only(0) && c.positive_out.holds_only(score == 0 ? 0 : 0xff));
                for (int role = 0; role < kRoles; ++role) CHECK(c.grads[role].holds_only(0));
                CHECK(c.intact());
            }
        }
    });
}

void large_scores_and_bad_numbers() {
    at_every_level([] {
        for (int32_t score = 0; score < 3; ++score) {
            for (int32_t dtype = 0; dtype < 2; ++dtype) {
                CaseOptions o;
                o.score = score;
                o.dtype = dtype;
                o.heads = 5;
                o.channels = 6;
                Case c(o);
                c.problem.scale = 3e4;
                const Role large = score == 0 ? kSourceLogits : (score == 1 ? kAttention : kKeys);
                const auto set = [&](const Guarded& a, int64_t i, double v) {
                    if (dtype == 0) static_cast<float*>(a.data())[i] = static_cast<float>(v);
                    if (dtype == 1) static_cast<double*>(a.data())[i] = v;
                };
                for (int64_t i = 0; i < c.sizes[large]; ++i) set(c.inputs[large], i, 3e4 * c.in(large, i));
                CHECK_OK(c.forward());
                CHECK_OK(c.backward());
                for (int64_t i = 0; i < c.rows * 30; ++i) CHECK(isfinite(c.get(c.out, i)));
                for (int64_t i = 0; i < c.sizes[kValues]; ++i) CHECK(isfinite(c.get(c.grads[kValues], i)));
                // Source 0, which most rows have: head 2, channel 4.
                set(c.inputs[kValues], 2 * 6 + 4, score % 2 ? HUGE_VAL : NAN);
                CHECK_OK(c.forward());
                int64_t bad = 0;
                for (int64_t i = 0; i < c.rows * 30; ++i) {
                    const bool here = score == 1 ? i / 6 % 5 == 2 : i % 30 == 2 * 6 + 4;
                    bad += !isfinite(c.get(c.out, i));
                    CHECK(here || isfinite(c.get(c.out, i)));
                }
                CHECK(bad > 0);
                CHECK(c.intact());
            }
        }
    });
}

}  // namespace

int main() {
#if !defined(_WIN32)
    setenv("SAGE_ATTENTION_POISON", "1", 1);  // scratch starts as not-a-number
#endif
    RUN(whole_graph_matches_naive);
    RUN(dropout_matches_naive);
    RUN(chosen_and_sampled_rows_match_naive);
    RUN(dropout_hits_as_many_as_it_should);
    RUN(any_number_of_threads_gives_the_same_bytes);
    RUN(a_given_transposed_graph_changes_nothing);
    RUN(trusted_graphs_give_the_same);
    RUN(gradients_may_be_left_out);
    RUN(results_may_be_left_out);
    RUN(nothing_to_attend);
    RUN(large_scores_and_bad_numbers);
    return test_result();
}
