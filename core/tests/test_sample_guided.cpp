// Guided sampling: exp, the order of candidates, systematic sampling to its borders, refused arguments.
#include "sample_guided.h"

#include <math.h>

#include "test_main.h"

using namespace sage;

namespace {

void exponentials_are_close() {
    for (double x = 0; x > -699; x -= 0.137) {
        const double wanted = exp(x);
        CHECK(fabs(portable_exp(x) - wanted) <= 5e-16 * wanted);
    }
    CHECK(portable_exp(0) == 1);
    CHECK(portable_exp(-701) == 0);
    CHECK(portable_exp(-INFINITY) == 0);
}

void the_first_are_in_order() {
    constexpr int64_t kMany = 1000;
    static Candidate candidates[kMany];
    const int64_t counts[] = {1, 2, 3, 500, 999, 1000};
    for (int64_t count : counts) {
        for (int64_t i = 0; i < kMany; ++i) candidates[i] = Candidate{static_cast<double>(i * 7919 % 97), i};
        order_first(candidates, kMany, count);
        for (int64_t i = 1; i < count; ++i) CHECK(ahead(candidates[i - 1], candidates[i]));
        for (int64_t i = count; i < kMany; ++i) CHECK(ahead(candidates[count - 1], candidates[i]));
    }
}

void systematic_samples_are_whole() {
    double weights[40], suffix[41], probabilities[39];
    int64_t picked[40];
    const double falls[] = {1, 0.9, 0.5, 1e-3, 0};
    const double shares[] = {0, 0.3, 0x1.fffffffffffffp-1};
    for (double fall : falls) {
        for (double share : shares) {
            weights[0] = 3;
            for (int64_t i = 1; i < 40; ++i) weights[i] = weights[i - 1] * fall;
            for (int64_t count = 1; count < 40; ++count) {
                picked[count] = -77;
                pick_systematic(weights, 40, count, share, suffix, picked, probabilities);
                CHECK_EQUAL(picked[count], -77);
                for (int64_t t = 0; t < count; ++t) {
                    CHECK(picked[t] >= 0 && picked[t] < 40 && (t == 0 || picked[t] > picked[t - 1]));
                    CHECK(probabilities[t] > 0 && probabilities[t] <= 1);
                }
            }
        }
    }
}

void arguments_are_checked() {
    const int64_t indptr[] = {0, 3};
    const int32_t indices[] = {0, 1, 2};
    const sage_attention_graph graph{indptr, indices, 1, 3, 3, SAGE_ATTENTION_INT32, 1};
    const sage_attention_sampling sampling{0, 2, 0, 0};
    const float scores[] = {1, 3, 2};
    const int64_t nodes[] = {0}, bad_ids[] = {0, 5, 1};
    int64_t out_indptr[2], sources[2];
    sage_attention_guided_hop out{out_indptr, sources, nullptr, nullptr, nullptr, nullptr};
    sage_attention_guide guide{};
    const auto call = [&](int64_t capacity) {
        return sage_attention_sample_guided(&graph, &sampling, &guide, nodes, 1, &out, capacity, 1);
    };
    CHECK_REFUSED(call(2), "guide.struct_size: ");
    guide.struct_size = sizeof guide;
    guide.strategy = 2;
    CHECK_REFUSED(call(2), "guide.strategy: ");
    guide.strategy = SAGE_ATTENTION_TOP_ATTENTION;
    CHECK_REFUSED(call(2), "guide.heads: ");
    guide.heads = 1;
    CHECK_REFUSED(call(2), "guide: ");
    guide.edge_logits = scores;
    guide.target_logits = scores;
    CHECK_REFUSED(call(2), "guide.target_logits: ");
    guide.target_logits = nullptr;
    guide.dtype = 7;
    CHECK_REFUSED(call(2), "guide.dtype: ");
    guide.dtype = SAGE_ATTENTION_FLOAT32;
    CHECK_REFUSED(call(1), "capacity: ");
    CHECK_OK(call(2));
    CHECK(sources[0] == 1 && sources[1] == 2);
    guide.edge_ids = bad_ids;
    CHECK_REFUSED(call(2), "guide.edge_ids: ");
}

}  // namespace

int main() {
    RUN(exponentials_are_close);
    RUN(the_first_are_in_order);
    RUN(systematic_samples_are_whole);
    RUN(arguments_are_checked);
    return test_result();
}
