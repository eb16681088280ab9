#include "sample_guided.h"

#include "sample_rows.h"
#include "sample_weighted.h"

namespace sage {
namespace {

// Lets heap[at] of a heap with its last candidate on top sink to its place.
void sink(Candidate* heap, int64_t count, int64_t at) {
    const Candidate sinking = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && ahead(heap[child], heap[child + 1])) ++child;
        if (!ahead(sinking, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = sinking;
}

void exchange(Candidate& a, Candidate& b) {
    const Candidate held = a;
    a = b;
    b = held;
}

}  // namespace

void order_first(Candidate* candidates, int64_t degree, int64_t count) {
    for (int64_t i = count / 2; i-- > 0;) sink(candidates, count, i);
    for (int64_t i = count; i < degree; ++i) {
        if (!ahead(candidates[i], candidates[0])) continue;
        exchange(candidates[i], candidates[0]);
        sink(candidates, count, 0);
    }
    for (int64_t end = count - 1; end > 0; --end) {
        exchange(candidates[0], candidates[end]);
        sink(candidates, end, 0);
    }
}

void pick_systematic(const double* weights, int64_t degree, int64_t count, double share, double* suffix,
                     int64_t* picked, double* probabilities) {
    suffix[degree] = 0;
    for (int64_t i = degree; i-- > 0;) suffix[i] = suffix[i + 1] + weights[i];  // from the smallest: little is lost
    int64_t found = 0;
    while (found < count && suffix[found] > 0 && weights[found] * static_cast<double>(count - found) >= suffix[found]) {
        picked[found] = found;
        probabilities[found++] = 1;
    }
    const int64_t certain = found;
    if (certain == count) return;
    const double wanted = static_cast<double>(count - certain), total = suffix[certain];
    const double even = wanted / static_cast<double>(degree - certain);  // nothing left weighs anything
    const auto probability = [&](int64_t i) { return total > 0 ? weights[i] / total * wanted : even; };
    double sum = 0;
    for (int64_t i = certain; i < degree && found < count; ++i) {
        const double chance = probability(i);
        sum += chance;
        if (!(sum > share + static_cast<double>(found - certain))) continue;
        picked[found] = i;
        probabilities[found++] = chance;
    }
    // What rounding left over belongs to the last ones that were not picked and could have been.
    for (int64_t i = degree - 1; found < count; --i) {
        int64_t at = found;
        while (at > certain && picked[at - 1] > i) --at;
        const double chance = probability(i);
        if ((at > certain && picked[at - 1] == i) || !(chance > 0)) continue;
        for (int64_t t = found++; t > at; --t) {
            picked[t] = picked[t - 1];
            probabilities[t] = probabilities[t - 1];
        }
        picked[at] = i;
        probabilities[at] = chance;
    }
}

namespace {

struct ScoreFault {
    volatile int64_t claims = 0;
    const char* name = "";
    double value = 0;
    int64_t row = 0, head = 0;
    bool memory = false;

    void record(const char* what, double v, int64_t r, int64_t h) {
        if (atomic_fetch_add(&claims, 1) != 0) return;
        name = what;
        value = v;
        row = r;
        head = h;
    }
    void record_memory() {
        if (atomic_fetch_add(&claims, 1) == 0) memory = true;
    }
};

// What one worker needs for a row; grows with the longest row it has met.
struct RowScratch {
    Buffer scores_memory, heads_memory, candidates_memory, weights_memory, suffix_memory, picked_memory, chances_memory;
    int64_t degree = 0;
    double *scores = nullptr;   // [degree, H]
    double *largest = nullptr;  // [H]
    double *sums = nullptr;     // [H]
    double *weights = nullptr;  // [degree]
    double *suffix = nullptr;   // [degree + 1]
    Candidate* candidates = nullptr;  // [degree]
    int64_t* picked = nullptr;        // [fan_out]
    double* chances = nullptr;        // [fan_out]

    bool reserve(int64_t wanted, int64_t heads, int64_t fan_out) {
        if (wanted <= degree) return true;
        degree = 0;
        const int64_t roomy = wanted + wanted / 4;
        if (heads > kMaxPicks / roomy || !scores_memory.reserve<double>(roomy * heads) ||
            !heads_memory.reserve<double>(2 * heads) || !candidates_memory.reserve<Candidate>(roomy) ||
            !weights_memory.reserve<double>(roomy) || !suffix_memory.reserve<double>(roomy + 1) ||
            !picked_memory.reserve<int64_t>(fan_out) || !chances_memory.reserve<double>(fan_out)) {
            return false;
        }
        scores = scores_memory.as<double>();
        largest = heads_memory.as<double>();
        sums = largest + heads;
        candidates = candidates_memory.as<Candidate>();
        weights = weights_memory.as<double>();
        suffix = suffix_memory.as<double>();
        picked = picked_memory.as<int64_t>();
        chances = chances_memory.as<double>();
        degree = roomy;
        return true;
    }
};

template <class Index, class Real>
struct GuidedHop {
    const sage_attention_graph& graph;
    const Index* indices;
    const sage_attention_guide& guide;
    PickRule rule;
    const int64_t* nodes;
    const Row* rows;
    const int64_t* indptr;
    int64_t* sources;
    int64_t* positions;
    double* probabilities;  // may be null
    double* row_max;        // [num_nodes, H] or null
    double* rest_sum;       // [num_nodes, H] or null
    Fault* fault;
    ScoreFault* score_fault;

    bool run(int64_t i, RowScratch& scratch) const {
        const int64_t begin = rows[i].begin, degree = rows[i].degree, count = indptr[i + 1] - indptr[i];
        int64_t* out = positions + indptr[i];
        if (picks_all(rule, degree)) {
            for (int64_t t = 0; t < count; ++t) out[t] = begin + t;
            for (int64_t t = 0; probabilities && t < count; ++t) probabilities[indptr[i] + t] = 1;
            store_nothing_left(i);
        } else {
            if (!scratch.reserve(degree, guide.heads, rule.fan_out)) {
                score_fault->record_memory();
                return false;
            }
            if (!take_scores(i, scratch)) return false;
            pick(i, count, scratch, out);
        }
        for (int64_t t = 0; t < count; ++t) {
            const auto source = static_cast<int64_t>(indices[out[t]]);
            if (source < 0 || source >= graph.num_sources) {
                fault->record(Fault::kIndex, source, out[t]);
                return false;
            }
            sources[indptr[i] + t] = source;
        }
        return true;
    }

  private:
    // scratch.scores, .largest
    bool take_scores(int64_t i, RowScratch& scratch) const {
        const int64_t begin = rows[i].begin, degree = rows[i].degree, H = guide.heads;
        double* scores = scratch.scores;
        if (guide.edge_logits) {
            for (int64_t t = 0; t < degree; ++t) {
                const int64_t row = guide.edge_ids ? guide.edge_ids[begin + t] : begin + t;
                if (row < 0 || row >= graph.num_edges) {
                    score_fault->record("edge_ids", static_cast<double>(row), begin + t, -1);
                    return false;
                }
                const Real* from = static_cast<const Real*>(guide.edge_logits) + row * H;
                for (int64_t h = 0; h < H; ++h) scores[t * H + h] = static_cast<double>(from[h]);
            }
        } else {
            const Real* source_logits = static_cast<const Real*>(guide.source_logits);
            const double slopes[2] = {guide.negative_slope, 1};  // looked up: the sign is a coin toss
            const Real* target = guide.target_logits ? static_cast<const Real*>(guide.target_logits) + nodes[i] * H : nullptr;
            for (int64_t h = 0; h < H; ++h) scratch.sums[h] = target ? static_cast<double>(target[h]) : 0.0;
            for (int64_t t = 0; t < degree; ++t) {
                const auto source = static_cast<int64_t>(indices[begin + t]);
                if (source < 0 || source >= graph.num_sources) {
                    fault->record(Fault::kIndex, source, begin + t);
                    return false;
                }
                if (t + kGatherAhead < degree) {
                    const auto soon = static_cast<int64_t>(indices[begin + t + kGatherAhead]);
                    if (soon >= 0 && soon < graph.num_sources) prefetch(source_logits + soon * H);
                }
                const Real* from = source_logits + source * H;
                for (int64_t h = 0; h < H; ++h) {
                    const double z = static_cast<double>(from[h]) + scratch.sums[h];
                    scores[t * H + h] = z * slopes[z > 0];
                }
            }
        }
        for (int64_t h = 0; h < H; ++h) scratch.largest[h] = scores[h];
        double check = 0;  // of numbers that are not finite nothing finite is left
        for (int64_t t = 0; t < degree; ++t) {
            for (int64_t h = 0; h < H; ++h) {
                const double score = scores[t * H + h];
                check += score - score;
                scratch.largest[h] = score > scratch.largest[h] ? score : scratch.largest[h];
            }
        }
        if (check == 0) return true;
        report_score(i, scratch);
        return false;
    }

    SAGE_NOINLINE void report_score(int64_t i, const RowScratch& scratch) const {
        const int64_t begin = rows[i].begin, H = guide.heads;
        for (int64_t x = 0; x < rows[i].degree * H; ++x) {
            if (is_finite(scratch.scores[x])) continue;
            const int64_t position = begin + x / H, head = x % H;
            if (guide.edge_logits) {
                const int64_t row = guide.edge_ids ? guide.edge_ids[position] : position;
                return score_fault->record("edge_logits", scratch.scores[x], row, head);
            }
            if (guide.target_logits && !is_finite(scratch.sums[head])) {
                return score_fault->record("target_logits", scratch.sums[head], nodes[i], head);
            }
            return score_fault->record("source_logits", scratch.scores[x], static_cast<int64_t>(indices[position]), head);
        }
    }

    // scratch.scores become exp(score - largest), .sums those of them
    void take_powers(int64_t degree, RowScratch& scratch) const {
        const int64_t H = guide.heads;
        double *scores = scratch.scores, *sums = scratch.sums;
        for (int64_t h = 0; h < H; ++h) sums[h] = 0;
        for (int64_t t = 0; t < degree; ++t) {
            for (int64_t h = 0; h < H; ++h) scores[t * H + h] -= scratch.largest[h];
        }
        for (int64_t x = 0; x < degree * H; ++x) scores[x] = portable_exp(scores[x]);
        for (int64_t t = 0; t < degree; ++t) {
            for (int64_t h = 0; h < H; ++h) sums[h] += scores[t * H + h];
        }
    }

    void pick(int64_t i, int64_t count, RowScratch& scratch, int64_t* out) const {
        const int64_t begin = rows[i].begin, degree = rows[i].degree, H = guide.heads;
        const bool by_chance = guide.strategy == SAGE_ATTENTION_IMPORTANCE;
        double* weights = scratch.weights;
        // One head: the order of the scores is that of their exponentials, without what those round away.
        for (int64_t t = 0; H == 1 && t < degree; ++t) scratch.candidates[t] = Candidate{scratch.scores[t], t};
        if (H > 1 || by_chance || rest_sum) take_powers(degree, scratch);
        if (H > 1 || by_chance) {
            for (int64_t h = 0; h < H; ++h) scratch.sums[h] = 1 / scratch.sums[h];
            for (int64_t t = 0; t < degree; ++t) {
                double most = 0;
                for (int64_t h = 0; h < H; ++h) {
                    const double weight = scratch.scores[t * H + h] * scratch.sums[h];
                    most = weight > most ? weight : most;
                }
                weights[t] = most;
            }
            for (int64_t t = 0; H > 1 && t < degree; ++t) scratch.candidates[t] = Candidate{weights[t], t};
        }
        order_first(scratch.candidates, degree, by_chance ? degree : count);
        if (by_chance) {
            // The weights in sorted order; suffix is free until then.
            for (int64_t t = 0; t < degree; ++t) scratch.suffix[t] = weights[scratch.candidates[t].place];
            memcpy(weights, scratch.suffix, static_cast<size_t>(degree) * sizeof(double));
            pick_systematic(weights, degree, count, draw_share(rule, nodes[i], 0), scratch.suffix, scratch.picked,
                            scratch.chances);
        } else {
            for (int64_t t = 0; t < count; ++t) {
                scratch.picked[t] = t;
                scratch.chances[t] = 1;
            }
        }
        for (int64_t t = 0; t < count; ++t) {
            const int64_t place = scratch.candidates[scratch.picked[t]].place;
            out[t] = begin + place;
            if (probabilities) probabilities[indptr[i] + t] = scratch.chances[t];
            // picked: weighs nothing in what is left
            for (int64_t h = 0; h < H; ++h) scratch.scores[place * H + h] = 0;
        }
        if (row_max) memcpy(row_max + i * H, scratch.largest, static_cast<size_t>(H) * sizeof(double));
        if (!rest_sum) return;
        double* rest = rest_sum + i * H;
        for (int64_t h = 0; h < H; ++h) rest[h] = 0;
        for (int64_t t = 0; t < degree; ++t) {
            for (int64_t h = 0; h < H; ++h) rest[h] += scratch.scores[t * H + h];
        }
    }

    void store_nothing_left(int64_t i) const {
        for (int64_t h = 0; row_max && h < guide.heads; ++h) row_max[i * guide.heads + h] = 0;
        for (int64_t h = 0; rest_sum && h < guide.heads; ++h) rest_sum[i * guide.heads + h] = 0;
    }
};

template <class Real, class Index>
GuidedHop<Index, Real> make_guided_hop(const sage_attention_graph& graph, const Index* indices,
                                       const sage_attention_guide& guide, const PickRule& rule, const int64_t* nodes,
                                       const Row* rows, const int64_t* indptr, const sage_attention_guided_hop& out,
                                       int64_t* positions, Fault* fault, ScoreFault* score_fault) {
    return {graph,     indices,           guide,       rule,         nodes, rows,       indptr, out.sources,
            positions, out.probabilities, out.row_max, out.rest_sum, fault, score_fault};
}

int32_t check_guide(const sage_attention_graph& graph, const sage_attention_guide* guide) {
    if (!guide) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "guide: expected a structure, got null");
    if (guide->struct_size != static_cast<int64_t>(sizeof(sage_attention_guide))) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "guide.struct_size: expected %lld, got %lld",
                    ll(sizeof(sage_attention_guide)), ll(guide->struct_size));
    }
    if (guide->strategy != SAGE_ATTENTION_TOP_ATTENTION && guide->strategy != SAGE_ATTENTION_IMPORTANCE) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "guide.strategy: expected %d or %d, got %d",
                    SAGE_ATTENTION_TOP_ATTENTION, SAGE_ATTENTION_IMPORTANCE, guide->strategy);
    }
    if (guide->dtype != SAGE_ATTENTION_FLOAT32 && guide->dtype != SAGE_ATTENTION_FLOAT64) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "guide.dtype: expected %d or %d, got %d", SAGE_ATTENTION_FLOAT32,
                    SAGE_ATTENTION_FLOAT64, guide->dtype);
    }
    if (guide->heads < 1 || guide->heads > INT32_MAX) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "guide.heads: expected 1 to 2^31 - 1, got %lld", ll(guide->heads));
    }
    if (!is_finite(guide->negative_slope)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "guide.negative_slope: expected a finite number, got %g",
                    guide->negative_slope);
    }
    const bool of_nodes = guide->source_logits != nullptr, of_edges = guide->edge_logits != nullptr;
    if (graph.num_edges > 0 && of_nodes == of_edges) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "guide: expected source_logits or edge_logits, got %s",
                    of_nodes ? "both" : "neither");
    }
    if (!of_nodes && guide->target_logits) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "guide.target_logits: expected null without source_logits, got an array");
    }
    return SAGE_ATTENTION_OK;
}

int32_t report_scores(const ScoreFault& fault) {
    if (!fault.claims) return SAGE_ATTENTION_OK;
    if (fault.memory) return out_of_memory();
    if (fault.head < 0) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "guide.edge_ids: expected rows of edge_logits, got %.0f at position %lld",
                    fault.value, ll(fault.row));
    }
    return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected finite numbers, got %g in row %lld, head %lld", fault.name,
                fault.value, ll(fault.row), ll(fault.head));
}

template <class Real>
int32_t guided_hop(const sage_attention_graph& graph, const sage_attention_guide& guide, const PickRule& rule,
                   const int64_t* nodes, int64_t num_nodes, const Row* rows, const int64_t* indptr,
                   const sage_attention_guided_hop& out, int64_t* positions, int32_t num_threads) {
    Fault fault;
    ScoreFault score_fault;
    int64_t looked_at = 0;
    for (int64_t i = 0; i < num_nodes; ++i) looked_at += min(rows[i].degree, kParallelPicks);
    constexpr int64_t kRows = 64;
    with_index_type(graph, [&](const auto* indices) {
        const auto hop = make_guided_hop<Real>(graph, indices, guide, rule, nodes, rows, indptr, out, positions, &fault,
                                               &score_fault);
        parallel_for(looked_at < kParallelPicks ? 1 : num_threads, (num_nodes + kRows - 1) / kRows,
                     [&](int64_t chunk, int32_t) {
                         RowScratch scratch;
                         const int64_t end = min(num_nodes, (chunk + 1) * kRows);
                         for (int64_t i = chunk * kRows; i < end && hop.run(i, scratch); ++i) {}
                     });
        return true;
    });
    SAGE_TRY(report(fault, graph, "nodes"));
    return report_scores(score_fault);
}

}  // namespace
}  // namespace sage

using namespace sage;

extern "C" int32_t sage_attention_sample_guided(const sage_attention_graph* graph,
                                                const sage_attention_sampling* sampling,
                                                const sage_attention_guide* guide, const int64_t* nodes,
                                                int64_t num_nodes, const sage_attention_guided_hop* out,
                                                int64_t capacity, int32_t num_threads) {
    SAGE_TRY(check_graph_argument(graph));
    if (!sampling) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "sampling: expected a structure, got null");
    SAGE_TRY(check_sampling(sampling->fan_out, sampling->replace, "fan_out"));
    if (sampling->replace) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "replace: expected 0, got 1");
    if (sampling->hop > INT32_MAX) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "hop: expected a value in [0, 2^31), got %u", sampling->hop);
    }
    SAGE_TRY(check_nodes("nodes", nodes, num_nodes, num_threads));
    SAGE_TRY(check_guide(*graph, guide));
    if (!out || !out->indptr) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "out.indptr: expected an array, got null");
    const PickRule rule{sampling->seed, sampling->fan_out, sampling->hop, false};
    Buffer rows_memory;
    if (!rows_memory.reserve<Row>(num_nodes)) return out_of_memory();
    Row* rows = rows_memory.as<Row>();
    SAGE_TRY(count_picks(*graph, rule, nodes, num_nodes, "nodes", num_threads, 0, rows, out->indptr));
    if (!out->sources) return SAGE_ATTENTION_OK;
    const int64_t num_picks = out->indptr[num_nodes];
    if (capacity < num_picks) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "capacity: expected at least %lld, got %lld", ll(num_picks),
                    ll(capacity));
    }
    Buffer positions_memory;
    int64_t* positions = out->edge_ids;
    if (!positions) {
        if (!positions_memory.reserve<int64_t>(num_picks)) return out_of_memory();
        positions = positions_memory.as<int64_t>();
    }
    const auto hop = guide->dtype == SAGE_ATTENTION_FLOAT32 ? guided_hop<float> : guided_hop<double>;
    return hop(*graph, *guide, rule, nodes, num_nodes, rows, out->indptr, *out, positions, num_threads);
}
