// LABOR: the picks of a row three ways; exact at the borders; the probability of an in-edge.
#include "sample_labor.h"

#include "test_main.h"

using namespace sage;

namespace {

constexpr int64_t kEdges = 5000;
int64_t indptr[2] = {0, kEdges};
int32_t sources[kEdges];

sage_attention_graph one_row() {
    for (int64_t i = 0; i < kEdges; ++i) sources[i] = static_cast<int32_t>(i % 4000);  // the last ones repeat
    return sage_attention_graph{indptr, sources, 1, 4000, kEdges, SAGE_ATTENTION_INT32, 1};
}

// The number of a source, from one block of Philox.
uint64_t naive_number(const PickRule& rule, int64_t source) {
    uint32_t w[4];
    philox<1>(rule.seed, rule.hop, static_cast<uint64_t>(source), 0xFFFFFFFFu, w);
    return w[0] | (static_cast<uint64_t>(w[1]) << 32);
}

void sequential_picks_are_the_smallest() {
    const sage_attention_graph graph = one_row();
    static int64_t got[kEdges + 1], slow[kEdges];
    const int64_t fan_outs[] = {1, 2, 127, 128, 129, 3000, 4999};
    for (int64_t fan_out : fan_outs) {
        const PickRule rule{0xfedcba9876543210u, fan_out, 3, false};
        CHECK_EQUAL(labor_count(rule, graph, Labor::kSequential, 0, kEdges), fan_out);
        got[fan_out] = -77;
        labor_pick(rule, graph, Labor::kSequential, 0, kEdges, got);
        labor_pick_without_memory(rule, graph, 0, kEdges, slow);
        CHECK_EQUAL(got[fan_out], -77);
        CHECK(memcmp(got, slow, static_cast<size_t>(fan_out) * sizeof(int64_t)) == 0);
        uint64_t largest = 0;
        for (int64_t t = 0; t < fan_out; ++t) largest = max(largest, naive_number(rule, sources[got[t]]));
        int64_t below = 0, up_to = 0;
        for (int64_t i = 0; i < kEdges; ++i) {
            below += naive_number(rule, sources[i]) < largest;
            up_to += naive_number(rule, sources[i]) <= largest;
        }
        CHECK(below < fan_out && fan_out <= up_to);
    }
}

void poisson_picks_are_below_the_share() {
    const sage_attention_graph graph = one_row();
    static int64_t got[kEdges + 1];
    const int64_t degrees[] = {1, 7, 8, 9, 4999, 5000};
    for (int64_t degree : degrees) {
        const int64_t fan_outs[] = {1, 3, 8, 2500, 4999};
        for (int64_t fan_out : fan_outs) {
            const PickRule rule{99, fan_out, 0, false};
            const int64_t count = labor_count(rule, graph, Labor::kPoisson, 0, degree);
            got[count] = -77;
            labor_pick(rule, graph, Labor::kPoisson, 0, degree, got);
            CHECK_EQUAL(got[count], -77);
            int64_t t = 0;
            for (int64_t i = 0; i < degree; ++i) {
                const uint64_t number = naive_number(rule, sources[i]);
                // number * degree < fan_out * 2^64, in pieces of 32 bits
                const uint64_t bound = static_cast<uint64_t>(degree);
                const uint64_t high = ((number >> 32) * bound + (((number & 0xFFFFFFFFu) * bound) >> 32)) >> 32;
                if (fan_out < degree && high >= static_cast<uint64_t>(fan_out)) continue;
                CHECK(t < count && got[t] == i);
                ++t;
            }
            CHECK_EQUAL(t, count);
        }
    }
}

void all_where_there_are_no_more() {
    const sage_attention_graph graph = one_row();
    int64_t got[20];
    const Labor labors[] = {Labor::kPoisson, Labor::kSequential};
    for (Labor labor : labors) {
        const int64_t fan_outs[] = {-1, 20, 21};
        for (int64_t fan_out : fan_outs) {
            const PickRule rule{5, fan_out, 0, false};
            CHECK_EQUAL(labor_count(rule, graph, labor, 100, 20), 20);
            labor_pick(rule, graph, labor, 100, 20, got);
            for (int64_t t = 0; t < 20; ++t) CHECK_EQUAL(got[t], 100 + t);
        }
        CHECK_EQUAL(labor_count(PickRule{5, 3, 0, false}, graph, labor, 100, 0), 0);
    }
}

}  // namespace

int main() {
    RUN(sequential_picks_are_the_smallest);
    RUN(poisson_picks_are_below_the_share);
    RUN(all_where_there_are_no_more);
    return test_result();
}
