// The plain weighted sum through the C ABI against a naive loop in double; guard bands; what it refuses.
#include "attention_case.h"
#include "test_main.h"

namespace {

struct Sum {
    CaseOptions o;
    Case c;
    Guarded factors, out;
    Sum(const CaseOptions& options, bool weighted) : o(options), c(options) {
        out.allocate(o.targets * o.channels * c.element());
        if (!weighted) return;
        Random random{5};
        factors.allocate(c.edges * c.element());
        for (int64_t e = 0; e < c.edges; ++e) {
            if (o.dtype == 0) static_cast<float*>(factors.data())[e] = static_cast<float>(random.number());
            if (o.dtype == 1) static_cast<double*>(factors.data())[e] = random.number();
        }
    }
    int32_t run(int32_t num_threads = 1) {
        return sage_attention_aggregate(&c.problem.graph, o.dtype, factors.data(), c.inputs[kValues].data(), 0, nullptr, o.channels, out.data(), num_threads);
    }
    int64_t source(int64_t e) const {
        return o.index_type == SAGE_ATTENTION_INT32 ? static_cast<const int32_t*>(c.indices.data())[e] : c.indices.ids()[e];
    }
};

CaseOptions options(int64_t channels, int32_t dtype = 0) {
    CaseOptions o;
    o.heads = 1;
    o.channels = channels;
    o.dtype = dtype;
    o.targets = 30;
    o.seed = static_cast<uint64_t>(channels);
    return o;
}

void matches_naive() {
    for (int32_t level = 0; const char* name = sage_attention_available_cpu_level(level); ++level) {
        CHECK_OK(sage_attention_set_cpu_level(name));
        for (int64_t channels = 1; channels < 140; channels += channels < 20 ? 1 : 13) {
            for (int variant = 0; variant < 8; ++variant) {
                CaseOptions o = options(channels, variant & 1);
                o.index_type = variant >> 1 & 1;
                Sum sum(o, variant >> 2 & 1);
                CHECK_OK(sum.run(1 + variant % 3));
                double worst = 0;
                for (int64_t i = 0; i < o.targets; ++i) {
                    for (int64_t x = 0; x < channels; ++x) {
                        double expected = 0;
                        for (int64_t e = sum.c.indptr.ids()[i]; e < sum.c.indptr.ids()[i + 1]; ++e) {
                            const double factor = sum.factors.data() ? sum.c.get(sum.factors, e) : 1;
                            expected += factor * sum.c.in(kValues, sum.source(e) * channels + x);
                        }
                        const double difference = fabs(expected - sum.c.get(sum.out, i * channels + x));
                        worst = difference <= HUGE_VAL ? fmax(worst, difference) : HUGE_VAL;
                    }
                }
                CHECK(worst <= (o.dtype == 0 ? 1e-4 : 1e-12));
                CHECK(sum.out.intact() && sum.factors.intact() && sum.c.intact());
            }
        }
    }
}

void any_number_of_threads_gives_the_same_bytes() {
    CaseOptions o = options(21);
    o.targets = 900;
    o.sources = 200;
    Sum one(o, true);
    CHECK_OK(one.run(1));
    for (int32_t threads = 0; threads < 6; ++threads) {
        Sum more(o, true);
        CHECK_OK(more.run(threads));
        CHECK(one.out.same_bytes(more.out));
    }
}

void nothing_to_sum() {
    for (int64_t targets = 0; targets < 4; ++targets) {
        CaseOptions o = options(5);
        o.sources = 0;
        o.targets = targets;
        Sum sum(o, true);
        CHECK_OK(sum.run());
        CHECK(sum.out.holds_only(0) && sum.out.intact());
        CHECK_OK(sage_attention_aggregate(&sum.c.problem.graph, 0, nullptr, nullptr, 0, nullptr, 5, targets ? sum.out.data() : nullptr, 1));
    }
}

template <class F>
void refuse(const F& call, const char* start) {
    Sum sum(options(5), true);
    CHECK_REFUSED(call(sum), start);
    CHECK(sum.out.holds_only(0xff) && sum.out.intact());
}

void refuses() {
    const auto with = [](Sum& s, int32_t dtype, const void* values, int64_t channels, void* out, int32_t threads) {
        return sage_attention_aggregate(&s.c.problem.graph, dtype, s.factors.data(), values, 0, nullptr, channels, out, threads);
    };
    const int64_t huge = INT64_MAX;
    refuse([](Sum& s) { return sage_attention_aggregate(nullptr, 0, nullptr, s.out.data(), 0, nullptr, 1, s.out.data(), 1); }, "graph");
    refuse([&](Sum& s) { return with(s, 2, s.out.data(), 5, s.out.data(), 1); }, "dtype");
    refuse([&](Sum& s) { return with(s, -1, s.out.data(), 5, s.out.data(), 1); }, "dtype");
    refuse([&](Sum& s) { return with(s, 0, nullptr, 5, s.out.data(), 1); }, "values");
    refuse([&](Sum& s) { return with(s, 0, s.c.inputs[kValues].data(), 5, nullptr, 1); }, "out");
    refuse([&](Sum& s) { return with(s, 0, s.out.data(), 0, s.out.data(), 1); }, "channels");
    refuse([&](Sum& s) { return with(s, 0, s.out.data(), -5, s.out.data(), 1); }, "channels");
    refuse([&](Sum& s) { return with(s, 0, s.out.data(), huge, s.out.data(), 1); }, "channels");
    refuse([&](Sum& s) { return with(s, 0, s.out.data(), 5, s.out.data(), -1); }, "num_threads");
    refuse([&](Sum& s) { s.c.problem.graph.num_edges = huge; return s.run(); }, "num_edges");
    refuse([&](Sum& s) { s.c.problem.graph.num_targets = huge; return s.run(); }, "num_targets");
    refuse([&](Sum& s) { s.c.problem.graph.num_targets = -1; return s.run(); }, "num_targets");
    refuse([&](Sum& s) { s.c.problem.graph.index_type = 9; return s.run(); }, "index_type");
    refuse([&](Sum& s) { s.c.problem.graph.indptr = nullptr; return s.run(); }, "indptr");
    refuse([&](Sum& s) { s.c.problem.graph.indices = nullptr; return s.run(); }, "indices");
    refuse([&](Sum& s) { s.c.indptr.ids()[3] = -1; return s.run(); }, "indptr");
    refuse([&](Sum& s) { s.c.indptr.ids()[30] += 1; return s.run(); }, "indptr");
    refuse([&](Sum& s) { static_cast<int32_t*>(s.c.indices.data())[0] = 11; return s.run(); }, "indices");
    refuse([&](Sum& s) { static_cast<int32_t*>(s.c.indices.data())[0] = -1; return s.run(); }, "indices");
}

}  // namespace

int main() {
    RUN(matches_naive);
    RUN(any_number_of_threads_gives_the_same_bytes);
    RUN(nothing_to_sum);
    RUN(refuses);
    return test_result();
}
