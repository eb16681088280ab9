// GAT over raw rows through the C ABI, against GAT over the same rows projected first, in double; guard bands; threads;
// what it refuses.
#include "attention_case.h"
#include "test_main.h"

namespace {

struct RawOptions {
    int32_t dtype = 0, index_type = 0;
    int64_t sources = 11, targets = 9, most_degree = 20, table_rows = 17;
    int64_t heads = 3, features = 7, channels = 5;
    bool row_ids = true, target_rows = true, target_logits = false, bias = true, edge_ids = false;
    double dropout = 0;
    uint64_t seed = 1;
};

enum { kTable, kTargetTable, kSource, kTarget, kLogits, kProjection, kRawBias, kGradOut, kArrays };
enum { kOut, kMax, kSum, kGradSource, kGradTarget, kGradLogits, kGradProjection, kResults };

struct Raw {
    RawOptions o;
    Guarded indptr, indices, edge_ids, row_ids, target_ids, arrays[kArrays], results[kResults];
    int64_t edges = 0, sizes[kArrays] = {}, result_sizes[kResults] = {};
    sage_attention_raw_problem problem = {};
    sage_attention_raw_gradients gradients = {};

    int64_t element() const { return o.dtype == SAGE_ATTENTION_FLOAT32 ? 4 : 8; }
    double get(const Guarded& a, int64_t i) const {
        return o.dtype == SAGE_ATTENTION_FLOAT32 ? static_cast<const float*>(a.data())[i] : static_cast<const double*>(a.data())[i];
    }
    int64_t index(int64_t e) const {
        return o.index_type == SAGE_ATTENTION_INT32 ? static_cast<const int32_t*>(indices.data())[e] : indices.ids()[e];
    }
    int64_t row_of(int64_t source) const { return o.row_ids ? row_ids.ids()[source] : source; }

    explicit Raw(const RawOptions& options) : o(options) {
        Random random{o.seed};
        indptr.allocate((o.targets + 1) * 8);
        indptr.ids()[0] = 0;
        for (int64_t i = 0; i < o.targets; ++i) {
            // Empty rows, one of several blocks, duplicate edges.
            const int64_t degree = o.sources == 0 || i % 4 == 1 ? 0 : i == 2 ? 5 * o.most_degree : 1 + random.below(o.most_degree);
            indptr.ids()[i + 1] = indptr.ids()[i] + degree;
        }
        edges = indptr.ids()[o.targets];
        indices.allocate(edges * (o.index_type == SAGE_ATTENTION_INT32 ? 4 : 8));
        edge_ids.allocate(o.edge_ids ? edges * 8 : 0);
        for (int64_t e = 0; e < edges; ++e) {
            const int64_t source = random.below(o.sources);
            if (o.index_type == SAGE_ATTENTION_INT32) static_cast<int32_t*>(indices.data())[e] = static_cast<int32_t>(source);
            if (o.index_type == SAGE_ATTENTION_INT64) indices.ids()[e] = source;
            if (o.edge_ids) edge_ids.ids()[e] = edges - 1 - e;
        }
        row_ids.allocate(o.sources * 8);
        for (int64_t j = 0; j < o.sources; ++j) row_ids.ids()[j] = random.below(o.table_rows);
        target_ids.allocate(o.targets * 8);
        for (int64_t i = 0; i < o.targets; ++i) target_ids.ids()[i] = random.below(o.table_rows);
        const int64_t H = o.heads, F = o.features, C = o.channels, R = o.targets;
        const int64_t wanted[kArrays] = {o.table_rows * F, o.target_rows ? o.table_rows * F : 0, H * F, o.target_rows ? H * F : 0,
                                         o.target_logits ? R * H : 0, H * C * F, o.bias ? H * C : 0, R * H * C};
        for (int a = 0; a < kArrays; ++a) {
            sizes[a] = wanted[a];
            arrays[a].allocate(sizes[a] * element());
            const double scale = a == kSource || a == kTarget ? 1.0 / sqrt(static_cast<double>(F)) : a == kProjection ? 0.5 : 1;
            for (int64_t i = 0; i < sizes[a]; ++i) {
                const double x = static_cast<float>(random.number() * scale);
                if (o.dtype == 0) static_cast<float*>(arrays[a].data())[i] = static_cast<float>(x);
                if (o.dtype == 1) static_cast<double*>(arrays[a].data())[i] = x;
            }
        }
        const int64_t made[kResults] = {R * H * C, R * H, R * H, H * F, o.target_rows ? H * F : 0, o.target_rows ? 0 : R * H, H * C * F};
        for (int r = 0; r < kResults; ++r) {
            result_sizes[r] = made[r];
            results[r].allocate(made[r] * element());
        }
        sage_attention_raw_problem& p = problem;
        p.struct_size = sizeof p;
        p.dtype = o.dtype;
        p.num_threads = 1;
        p.graph.indptr = indptr.ids();
        p.graph.indices = indices.data();
        p.graph.num_targets = o.targets;
        p.graph.num_sources = o.sources;
        p.graph.num_edges = edges;
        p.graph.index_type = o.index_type;
        p.edge_ids = o.edge_ids ? edge_ids.ids() : nullptr;
        p.heads = H;
        p.features = F;
        p.channels = C;
        p.table = arrays[kTable].data();
        p.num_table_rows = o.table_rows;
        p.row_ids = o.row_ids ? row_ids.ids() : nullptr;
        p.target_table = o.target_rows ? arrays[kTargetTable].data() : nullptr;
        p.num_target_table_rows = o.table_rows;
        p.target_row_ids = o.target_rows ? target_ids.ids() : nullptr;
        p.source_weight = arrays[kSource].data();
        p.target_weight = o.target_rows ? arrays[kTarget].data() : nullptr;
        p.target_logits = o.target_logits ? arrays[kLogits].data() : nullptr;
        p.projection = arrays[kProjection].data();
        p.bias = o.bias ? arrays[kRawBias].data() : nullptr;
        p.negative_slope = 0.2;
        p.dropout = o.dropout;
        p.dropout_seed = 77;
        gradients.out = arrays[kGradOut].data();
        gradients.row_max = results[kMax].data();
        gradients.row_sum = results[kSum].data();
        gradients.source_weight = results[kGradSource].data();
        gradients.target_weight = o.target_rows ? results[kGradTarget].data() : nullptr;
        gradients.target_logits = o.target_rows ? nullptr : results[kGradLogits].data();
        gradients.projection = results[kGradProjection].data();
    }
    int32_t run(int32_t num_threads = 1) {
        problem.num_threads = num_threads;
        const int32_t status = sage_attention_raw_forward(&problem, results[kOut].data(), results[kMax].data(), results[kSum].data());
        return status == SAGE_ATTENTION_OK ? sage_attention_raw_backward(&problem, &gradients) : status;
    }
    bool intact() const {
        bool ok = indptr.intact() && indices.intact() && edge_ids.intact() && row_ids.intact() && target_ids.intact();
        for (const Guarded& a : arrays) ok &= a.intact();
        for (const Guarded& r : results) ok &= r.intact();
        return ok;
    }
};

double* doubles(Guarded& a, int64_t count) {
    a.allocate(count * 8, 0);
    return static_cast<double*>(a.data());
}

// Largest difference from GAT over projected rows, relative to the largest element of each result.
double error(const Raw& raw) {
    const RawOptions& o = raw.o;
    const int64_t S = o.sources, R = o.targets, H = o.heads, F = o.features, C = o.channels;
    Guarded memory[10];
    double *values = doubles(memory[0], S * H * C), *logits = doubles(memory[1], S * H), *targets = doubles(memory[2], R * H);
    const auto row = [&](int64_t j, int64_t f) { return raw.get(raw.arrays[kTable], raw.row_of(j) * F + f); };
    const auto target_row = [&](int64_t i, int64_t f) { return raw.get(raw.arrays[kTargetTable], raw.target_ids.ids()[i] * F + f); };
    for (int64_t h = 0; h < H; ++h) {
        for (int64_t j = 0; j < S; ++j) {
            for (int64_t f = 0; f < F; ++f) {
                logits[j * H + h] += raw.get(raw.arrays[kSource], h * F + f) * row(j, f);
                for (int64_t c = 0; c < C; ++c) {
                    values[(j * H + h) * C + c] += raw.get(raw.arrays[kProjection], (h * C + c) * F + f) * row(j, f);
                }
            }
        }
        for (int64_t i = 0; i < R; ++i) {
            if (o.target_logits) targets[i * H + h] = raw.get(raw.arrays[kLogits], i * H + h);
            for (int64_t f = 0; f < F && o.target_rows; ++f) {
                targets[i * H + h] += raw.get(raw.arrays[kTarget], h * F + f) * target_row(i, f);
            }
        }
    }
    double *bias = doubles(memory[3], H * C), *grad = doubles(memory[4], R * H * C);
    for (int64_t i = 0; i < H * C && o.bias; ++i) bias[i] = raw.get(raw.arrays[kRawBias], i);
    for (int64_t i = 0; i < R * H * C; ++i) grad[i] = raw.get(raw.arrays[kGradOut], i);
    sage_attention_problem p = {};
    p.struct_size = sizeof p;
    p.score = SAGE_ATTENTION_GAT;
    p.dtype = SAGE_ATTENTION_FLOAT64;
    p.graph = raw.problem.graph;
    p.edge_ids = raw.problem.edge_ids;
    p.num_edge_rows = raw.edges;
    p.num_rows = R;
    p.sampling.fan_out = -1;
    p.heads = H;
    p.channels = C;
    p.negative_slope = 0.2;
    p.dropout = o.dropout;
    p.dropout_seed = 77;
    p.values = values;
    p.source_logits = logits;
    p.target_logits = targets;
    p.bias = bias;
    p.num_threads = 1;
    Guarded kept[4], made[3];
    sage_attention_result result = {};
    result.out = doubles(memory[5], R * H * C);
    result.row_max = doubles(kept[0], R * H);
    result.row_sum = doubles(kept[1], R * H);
    result.positive_out = doubles(kept[2], R * H * C);
    result.positive_sum = doubles(kept[3], R * H);
    CHECK_OK(sage_attention_forward(&p, &result));
    sage_attention_gradients g = {};
    double *of_values = doubles(made[0], S * H * C), *of_logits = doubles(made[1], S * H), *of_targets = doubles(made[2], R * H);
    g.out = grad;
    g.values = of_values;
    g.source_logits = of_logits;
    g.target_logits = of_targets;
    CHECK_OK(sage_attention_backward(&p, &result, nullptr, &g));
    double* wanted[kResults] = {static_cast<double*>(result.out), static_cast<double*>(result.row_max),
                                static_cast<double*>(result.row_sum), doubles(memory[6], H * F), doubles(memory[7], H * F), of_targets,
                                doubles(memory[8], H * C * F)};
    for (int64_t h = 0; h < H; ++h) {
        for (int64_t f = 0; f < F; ++f) {
            for (int64_t j = 0; j < S; ++j) {
                wanted[kGradSource][h * F + f] += of_logits[j * H + h] * row(j, f);
                for (int64_t c = 0; c < C; ++c) wanted[kGradProjection][(h * C + c) * F + f] += of_values[(j * H + h) * C + c] * row(j, f);
            }
            for (int64_t i = 0; i < R && o.target_rows; ++i) wanted[kGradTarget][h * F + f] += of_targets[i * H + h] * target_row(i, f);
        }
    }
    double worst = 0;
    for (int r = 0; r < kResults; ++r) {
        double size = 1e-2, difference = 0;
        for (int64_t i = 0; i < raw.result_sizes[r]; ++i) {
            size = fmax(size, fabs(wanted[r][i]));
            const double d = fabs(wanted[r][i] - raw.get(raw.results[r], i));
            difference = d <= HUGE_VAL ? fmax(difference, d) : HUGE_VAL;
        }
        worst = fmax(worst, difference / size);
    }
    return worst;
}

void matches_projecting_first() {
    const int64_t shapes[][3] = {{1, 1, 1}, {1, 8, 41}, {2, 3, 8}, {3, 7, 5}, {4, 16, 16}, {5, 33, 2}, {8, 128, 16}, {9, 12, 3}, {16, 5, 9}, {1, 600, 4}};
    for (int32_t level = 0; const char* name = sage_attention_available_cpu_level(level); ++level) {
        CHECK_OK(sage_attention_set_cpu_level(name));
        for (const auto& shape : shapes) {
            for (int variant = 0; variant < 16; ++variant) {
                RawOptions o;
                o.heads = shape[0];
                o.features = shape[1];
                o.channels = shape[2];
                o.dtype = variant & 1;
                o.index_type = variant >> 1 & 1;
                o.row_ids = variant >> 2 & 1;
                o.edge_ids = o.row_ids;
                o.dropout = variant >> 3 & 1 ? 0.4 : 0;
                o.target_rows = variant % 3 != 0;
                o.target_logits = variant % 3 == 0 && variant % 2 == 0;
                o.bias = variant % 5 != 0;
                o.targets = variant % 4 == 3 ? 75 : 9;
                o.seed = static_cast<uint64_t>(1 + variant + 100 * shape[1]);
                Raw raw(o);
                CHECK_OK(raw.run(1 + variant % 3));
                const double worst = error(raw);
                CHECK(worst <= (o.dtype == 0 ? 1e-4 : 1e-10));
                CHECK(raw.intact());
            }
        }
    }
}

void any_number_of_threads_gives_the_same_bytes() {
    RawOptions o;
    o.targets = 1500;
    o.sources = 300;
    o.table_rows = 400;
    o.dropout = 0.3;
    Raw one(o);
    CHECK_OK(one.run(1));
    for (int32_t threads = 0; threads < 6; ++threads) {
        Raw more(o);
        CHECK_OK(more.run(threads));
        for (int r = 0; r < kResults; ++r) CHECK(one.results[r].same_bytes(more.results[r]));
    }
}

void nothing_to_attend() {
    for (int64_t targets = 0; targets < 4; ++targets) {
        RawOptions o;
        o.sources = 0;
        o.targets = targets;
        o.bias = false;
        Raw raw(o);
        CHECK_OK(raw.run());
        for (const Guarded& result : raw.results) CHECK(result.holds_only(0) && result.intact());
    }
}

void only_what_is_asked_for() {
    RawOptions o;
    Raw whole(o);
    CHECK_OK(whole.run());
    for (int wanted = 0; wanted < 3; ++wanted) {
        Raw part(o);
        if (wanted != 0) part.gradients.source_weight = nullptr;
        if (wanted != 1) part.gradients.target_weight = nullptr;
        if (wanted != 2) part.gradients.projection = nullptr;
        CHECK_OK(part.run());
        const int places[] = {kGradSource, kGradTarget, kGradProjection};
        for (int k = 0; k < 3; ++k) {
            const Guarded& result = part.results[places[k]];
            CHECK(k == wanted ? result.same_bytes(whole.results[places[k]]) : result.holds_only(0xff));
        }
    }
}

template <class F>
void refuse(const F& change, const char* start) {
    Raw raw{RawOptions{}};
    change(raw);
    CHECK_REFUSED(sage_attention_raw_forward(&raw.problem, raw.results[kOut].data(), raw.results[kMax].data(), raw.results[kSum].data()), start);
    CHECK(raw.results[kOut].holds_only(0xff) && raw.intact());
    CHECK_REFUSED(sage_attention_raw_backward(&raw.problem, &raw.gradients), start);
}

void refuses() {
    const int64_t huge = INT64_MAX;
    refuse([](Raw& r) { r.problem.struct_size = 8; }, "struct_size");
    refuse([](Raw& r) { r.problem.dtype = 2; }, "dtype");
    refuse([](Raw& r) { r.problem.heads = 0; }, "heads");
    refuse([](Raw& r) { r.problem.features = 0; }, "features");
    refuse([](Raw& r) { r.problem.channels = -1; }, "channels");
    refuse([&](Raw& r) { r.problem.features = huge; }, "features");
    refuse([&](Raw& r) { r.problem.channels = huge; }, "channels");
    refuse([](Raw& r) { r.problem.num_threads = -1; }, "num_threads");
    refuse([](Raw& r) { r.problem.table = nullptr; }, "table");
    refuse([](Raw& r) { r.problem.source_weight = nullptr; }, "source_weight");
    refuse([](Raw& r) { r.problem.target_weight = nullptr; }, "target_weight");
    refuse([](Raw& r) { r.problem.projection = nullptr; }, "projection");
    refuse([](Raw& r) { r.problem.target_logits = r.problem.table; }, "target_logits");
    refuse([](Raw& r) { r.problem.dropout = 1; }, "dropout");
    refuse([](Raw& r) { r.problem.negative_slope = HUGE_VAL; }, "negative_slope");
    refuse([&](Raw& r) { r.problem.num_table_rows = huge; }, "num_table_rows");
    refuse([](Raw& r) { r.problem.num_target_table_rows = -1; }, "num_target_table_rows");
    refuse([](Raw& r) { r.row_ids.ids()[3] = 17; }, "row_ids[3]");
    refuse([](Raw& r) { r.row_ids.ids()[0] = -1; }, "row_ids[0]");
    refuse([](Raw& r) { r.target_ids.ids()[2] = 17; }, "target_row_ids[2]");
    refuse([](Raw& r) { r.problem.row_ids = nullptr; r.problem.num_table_rows = 10; }, "row_ids");
    refuse([](Raw& r) { r.indptr.ids()[3] = -1; }, "indptr");
    refuse([](Raw& r) { static_cast<int32_t*>(r.indices.data())[0] = 11; }, "indices");
    CHECK_REFUSED(sage_attention_raw_forward(nullptr, nullptr, nullptr, nullptr), "problem");
    Raw raw{RawOptions{}};
    CHECK_REFUSED(sage_attention_raw_forward(&raw.problem, nullptr, nullptr, nullptr), "out");
    CHECK_REFUSED(sage_attention_raw_backward(&raw.problem, nullptr), "gradients");
    raw.gradients.row_sum = nullptr;
    CHECK_REFUSED(sage_attention_raw_backward(&raw.problem, &raw.gradients), "gradients.row_sum");
    RawOptions without;
    without.target_rows = false;
    Raw plain(without);
    plain.gradients.target_weight = plain.results[kGradSource].data();
    CHECK_REFUSED(sage_attention_raw_backward(&plain.problem, &plain.gradients), "gradients.target_weight");
}

}  // namespace

int main() {
    RUN(matches_projecting_first);
    RUN(any_number_of_threads_gives_the_same_bytes);
    RUN(nothing_to_attend);
    RUN(only_what_is_asked_for);
    RUN(refuses);
    return test_result();
}
