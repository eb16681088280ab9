#include "sample_weighted.h"

#include "graph.h"
#include "parallel.h"
#include "status.h"

namespace sage {
namespace {

// Which of the picks so far are taken: few are looked through, many are hashed.
class Taken {
  public:
    Taken(const int64_t* picks, int64_t most) : picks_(picks) {
        if (most <= 32) return;
        int64_t slots = 64;
        while (slots < 2 * most) slots *= 2;
        slots_ = static_cast<int64_t*>(calloc(static_cast<size_t>(slots), sizeof(int64_t)));  // none: looked through
        mask_ = static_cast<uint64_t>(slots) - 1;
    }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    ~Taken() { free(slots_); }

    bool holds(int64_t position) const {
        if (slots_) return slots_[find(position)] != 0;
        for (int64_t t = 0; t < count_; ++t) {
            if (picks_[t] == position) return true;
        }
        return false;
    }
    void add(int64_t position) {
        if (slots_) slots_[find(position)] = position + 1;
        ++count_;
    }

  private:
    uint64_t find(int64_t position) const {
        uint64_t s = ((static_cast<uint64_t>(position) * 0x9E3779B97F4A7C15u) >> 20) & mask_;
        while (slots_[s] != 0 && slots_[s] != position + 1) s = (s + 1) & mask_;
        return s;
    }
    const int64_t* picks_;
    int64_t count_ = 0;
    int64_t* slots_ = nullptr;
    uint64_t mask_ = 0;
};

// The in-edge at `share` of the weight of those that are not taken.
int64_t pick_among_rest(const WeightedRow& row, const Taken& taken, double share) {
    // Seen from the last one that is left, the others may have faded away, but never all of them.
    int64_t last = row.first + row.count - 1;
    while (taken.holds(last)) --last;
    double rest = 0;
    for (int64_t p = row.first; p <= last; ++p) {
        if (!taken.holds(p)) rest += row.weight(p, last);
    }
    const double wanted = share * rest;
    double sum = 0;
    for (int64_t p = row.first; p < last; ++p) {
        if (taken.holds(p)) continue;
        sum += row.weight(p, last);
        if (sum > wanted) return p;
    }
    return last;
}

}  // namespace

void pick_weighted(const PickRule& rule, const WeightedRow& row, int64_t node, int64_t* out) {
    if (picks_all(rule, row.count)) {
        for (int64_t t = 0; t < row.count; ++t) out[t] = row.first + t;
        return;
    }
    if (row.count == 0) return;
    if (rule.replace) {
        for (int64_t t = 0; t < rule.fan_out; ++t) out[t] = row.at(draw_share(rule, node, t));
        return;
    }
    Taken taken(out, rule.fan_out);
    for (int64_t t = 0; t < rule.fan_out; ++t) {
        const int64_t number = t * (kWeightedAttempts + 1);
        int64_t picked = -1;
        for (int64_t attempt = 0; attempt < kWeightedAttempts && picked < 0; ++attempt) {
            const int64_t drawn = row.at(draw_share(rule, node, number + attempt));
            if (!taken.holds(drawn)) picked = drawn;
        }
        if (picked < 0) picked = pick_among_rest(row, taken, draw_share(rule, node, number + kWeightedAttempts));
        out[t] = picked;
        taken.add(picked);
    }
}

}  // namespace sage

using namespace sage;

extern "C" int32_t sage_attention_weight_sums(const sage_attention_graph* graph, const double* weights,
                                              const int64_t* edge_times, double decay, double* out,
                                              int32_t num_threads) {
    SAGE_TRY(check_graph_argument(graph));
    if (num_threads < 0) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "num_threads: expected at least 0, got %d", num_threads);
    }
    if (graph->num_edges > 0 && !out) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "out: expected an array, got null");
    }
    if (!(decay >= 0 && decay <= kMostDecay)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "decay: expected a number from 0 to %g, got %g", kMostDecay, decay);
    }
    if (!graph->trusted) SAGE_TRY(sage_attention_check_graph(graph, num_threads));
    volatile int64_t wrong = 0, falling = 0;
    const double rate = decay * kHalvings;
    constexpr int64_t kRows = 1024;
    parallel_for(num_threads, (graph->num_targets + kRows - 1) / kRows, [&](int64_t chunk, int32_t) {
        const int64_t last_row = min(graph->num_targets, (chunk + 1) * kRows);
        for (int64_t row = chunk * kRows; row < last_row; ++row) {
            double sum = 0;
            for (int64_t p = graph->indptr[row]; p < graph->indptr[row + 1]; ++p) {
                const double weight = weights ? weights[p] : 1;
                if (!is_finite(weight) || weight <= 0) atomic_fetch_add(&wrong, 1);
                if (edge_times && p > graph->indptr[row]) {
                    if (edge_times[p] < edge_times[p - 1]) atomic_fetch_add(&falling, 1);
                    sum = faded(sum, rate, edge_times[p - 1], edge_times[p]);
                }
                out[p] = sum += weight;
            }
            if (!is_finite(sum)) atomic_fetch_add(&wrong, 1);
        }
    });
    if (wrong) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                    "weights: expected finite numbers above 0 with finite sums, got %lld others",
                    static_cast<long long>(wrong));
    }
    if (falling) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "edge_times: expected to never fall within a target, got %lld falls",
                    static_cast<long long>(falling));
    }
    return SAGE_ATTENTION_OK;
}
