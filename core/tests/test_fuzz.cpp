// Random problems, well and ill formed, thrown at every function: whatever comes back, nothing is written outside its
// array, nothing crashes, and what is refused has a message. The sanitizers are what looks closest. The sequence is the
// same on every run; an argument names another one, a second argument how many rounds.
#include <stdio.h>

#include "attention_case.h"
#include "test_main.h"

namespace {

int64_t accepted = 0, refused = 0;

void note(int32_t status, const char* what) {
    if (status == SAGE_ATTENTION_OK) {
        ++accepted;
        return;
    }
    ++refused;
    // Out of memory is no answer to problems as small as these.
    const char* message = sage_attention_last_error();
    if (status != SAGE_ATTENTION_INVALID_ARGUMENT || !strstr(message, ": expected ") || !strstr(message, ", got ")) {
        ++test_failures();
        fprintf(stderr, "%s: status %d, message '%s'\n", what, status, message);
    }
}

// A number that code is often wrong about.
int64_t odd_number(Random& random) {
    const int64_t numbers[] = {0, -1, 1, -2, 2, 7, 31, 33, 64, 1 << 16, INT32_MAX, INT32_MIN, int64_t{1} << 32,
                               int64_t{1} << 40, int64_t{1} << 59, INT64_MAX, INT64_MIN, INT64_MAX - 1, -1000};
    return numbers[random.below(sizeof numbers / sizeof *numbers)];
}
int32_t odd_int32(Random& random) { return static_cast<int32_t>(odd_number(random)); }
double odd_double(Random& random) {
    const double numbers[] = {0, -0.0, 1, -1, 0.5, 1e-300, 1e300, 0.999999999, NAN, HUGE_VAL, -HUGE_VAL};
    return numbers[random.below(sizeof numbers / sizeof *numbers)];
}

CaseOptions random_options(Random& random) {
    CaseOptions o;
    o.score = static_cast<int32_t>(random.below(3));
    o.dtype = static_cast<int32_t>(random.below(2));
    o.index_type = static_cast<int32_t>(random.below(2));
    o.sources = random.below(20);
    o.targets = random.below(12);
    o.most_degree = random.below(3) == 0 ? 80 : 6;
    o.heads = 1 + random.below(random.chance(4) ? 20 : 5);
    o.channels = 1 + random.below(random.chance(4) ? 70 : 20);
    o.edge_channels = random.chance(2) ? 0 : random.below(19);
    o.rows = random.chance(2) || o.targets == 0 ? -1 : random.below(15);
    o.fan_out = random.chance(2) ? -1 : 1 + random.below(random.chance(4) ? 90 : 8);
    o.replace = o.fan_out > 0 && random.chance(2);
    o.dropout = random.chance(2) ? 0 : 0.01 * static_cast<double>(random.below(100));
    o.edge_ids = random.chance(2);
    o.before_dropout = random.chance(2);
    o.bias = random.chance(2);
    o.num_threads = random.chance(8) ? 3 : 1;
    o.seed = random.next();
    return o;
}

// Sizes may only be made such that the arrays still hold what they claim, or such that it can be seen.
void break_problem(Case& c, Random& random) {
    sage_attention_problem& p = c.problem;
    const int64_t v = odd_number(random);
    switch (random.below(24)) {
        case 0: p.struct_size = v; break;
        case 1: p.score = odd_int32(random); break;  // often: the arrays of another score are null
        case 2: p.dtype = random.chance(2) ? 2 : -1; break;
        case 3: p.graph.index_type = random.chance(2) ? 2 : -5; break;
        case 4: p.num_rows = p.targets ? -1 - random.below(5) : v; break;
        case 5: p.heads = v <= 0 || v > c.o.heads << 24 ? v : 0; break;
        case 6: p.channels = v <= 0 || v > int64_t{1} << 24 ? v : 0; break;
        case 7: p.edge_channels = v < 0 || v > int64_t{1} << 24 ? v : 0; break;
        case 8: p.num_edge_rows = p.edge_ids ? random.below(c.edge_rows + 1) : (v < c.edges ? v : 0); break;
        case 9: p.sampling.fan_out = v > 1000 && p.sampling.replace ? -7 : v; break;
        case 10: p.sampling.replace = random.chance(2) ? 2 : odd_int32(random); p.sampling.fan_out = 3; break;
        case 11: p.sampling.hop = static_cast<uint32_t>(odd_number(random)); break;
        case 12: p.negative_slope = odd_double(random); break;
        case 13: p.scale = odd_double(random); break;
        case 14: p.dropout = odd_double(random); break;
        case 15: p.num_threads = v > 3 ? 2 : odd_int32(random) & static_cast<int32_t>(0x80000001); break;
        case 16: p.weights_before_dropout = odd_int32(random); break;
        case 17: p.graph.num_sources = v < c.o.sources ? v : 0; break;
        case 18: p.graph.num_edges = v; break;
        case 19: if (c.rows > 0 && p.targets) c.targets.ids()[random.below(c.rows)] = v; break;
        case 20: if (c.edges > 0 && p.edge_ids) c.edge_ids.ids()[random.below(c.edges)] = v < 0 || v >= c.edge_rows ? v : -1; break;
        case 21: p.values_kind = odd_int32(random); break;
        case 22: p.keys_kind = odd_int32(random); break;
        default: break;
    }
}

void break_graph(Case& c, Random& random) {
    if (random.chance(2)) c.indptr.ids()[random.below(c.o.targets + 1)] = random.chance(2) ? odd_number(random) : random.below(c.edges + 2);
    if (c.edges == 0 || random.chance(2)) return;
    const int64_t at = random.below(c.edges), v = random.chance(2) ? odd_number(random) : random.below(c.o.sources + 2);
    if (c.o.index_type == SAGE_ATTENTION_INT64) c.indices.ids()[at] = v;
    if (c.o.index_type == SAGE_ATTENTION_INT32) static_cast<int32_t*>(c.indices.data())[at] = static_cast<int32_t>(v);
}

void break_pointers(Case& c, Random& random) {
    const void** const inputs[] = {&c.problem.values, &c.problem.keys, &c.problem.queries, &c.problem.source_logits,
                                   &c.problem.target_logits, &c.problem.attention, &c.problem.edge_features,
                                   &c.problem.edge_weight, &c.problem.edge_queries, &c.problem.bias, &c.problem.graph.indices,
                                   &c.gradients.out, &c.gradients.edge_out, &c.gradients.weights};
    void** const outputs[] = {&c.result.out, &c.result.edge_out, &c.result.row_max, &c.result.row_sum,
                              &c.result.positive_out, &c.result.positive_sum, &c.result.weights};
    void** const grads[] = {&c.gradients.values, &c.gradients.keys, &c.gradients.queries, &c.gradients.source_logits,
                            &c.gradients.target_logits, &c.gradients.attention, &c.gradients.edge_features,
                            &c.gradients.edge_weight, &c.gradients.edge_queries, &c.gradients.bias};
    if (random.chance(3)) *inputs[random.below(sizeof inputs / sizeof *inputs)] = nullptr;
    if (random.chance(3)) *outputs[random.below(sizeof outputs / sizeof *outputs)] = nullptr;
    if (random.chance(20)) c.problem.graph.indptr = nullptr;
    for (void** grad : grads) {
        if (random.chance(4)) *grad = nullptr;
    }
}

// Numbers of any kind in the features: the results are garbage, the control flow must not be.
void break_numbers(Case& c, Random& random) {
    for (int role = 0; role < kRoles; ++role) {
        if (c.sizes[role] == 0 || !random.chance(2)) continue;
        const int64_t at = random.below(c.sizes[role]);
        if (c.o.dtype == SAGE_ATTENTION_FLOAT32) static_cast<float*>(c.inputs[role].data())[at] = static_cast<float>(odd_double(random) / 1e270);
        if (c.o.dtype == SAGE_ATTENTION_FLOAT64) static_cast<double*>(c.inputs[role].data())[at] = odd_double(random);
    }
}

void attention(Random& random) {
    Case c(random_options(random));
    const bool fine = random.chance(3);
    if (!fine) {
        if (random.chance(2)) break_problem(c, random);
        if (random.chance(3)) break_graph(c, random);
        if (random.chance(2)) break_pointers(c, random);
        if (random.chance(2)) break_numbers(c, random);
    }
    const int32_t forward = c.forward();
    note(forward, "forward");
    CHECK(!fine || forward == SAGE_ATTENTION_OK);
    CHECK(forward == SAGE_ATTENTION_OK || c.untouched());
    const int32_t backward = c.backward();
    note(backward, "backward");
    CHECK(!fine || backward == SAGE_ATTENTION_OK);
    CHECK(c.intact());

    // A transposed graph of this graph, or nearly.
    if (!c.whole() || c.problem.graph.index_type != c.o.index_type) return;
    Guarded indptr, indices, positions;
    const int64_t index_size = c.o.index_type == SAGE_ATTENTION_INT32 ? 4 : 8;
    indptr.allocate((c.o.sources + 1) * 8, 0);
    indices.allocate(c.edges * index_size, 0);
    positions.allocate(c.edges * 8, 0);
    note(sage_attention_transpose(&c.problem.graph, indptr.ids(), indices.data(), positions.ids()), "transpose");
    if (random.chance(3)) indptr.ids()[random.below(c.o.sources + 1)] = odd_number(random);
    if (c.edges > 0 && random.chance(3)) positions.ids()[random.below(c.edges)] = odd_number(random);
    if (c.edges > 0 && random.chance(3)) memset(indices.data(), 0xfe, static_cast<size_t>(index_size));
    const sage_attention_transposed transposed = {indptr.ids(), random.chance(9) ? nullptr : indices.data(),
                                                  random.chance(9) ? nullptr : positions.ids()};
    note(sage_attention_backward(&c.problem, &c.result, &transposed, &c.gradients), "backward with transposed");
    CHECK(c.intact() && indptr.intact() && indices.intact() && positions.intact());
}

// Any bytes are a packed table.
void packed_attention(Random& random) {
    CaseOptions o = random_options(random);
    o.dtype = SAGE_ATTENTION_FLOAT32;
    Case c(o);
    Guarded scales;
    scales.allocate(o.sources * 4, 0);
    c.problem.values_kind = static_cast<int32_t>(random.below(4));
    c.problem.keys_kind = o.score == SAGE_ATTENTION_DOT ? static_cast<int32_t>(random.below(4)) : 0;
    c.problem.value_scales = c.problem.key_scales = static_cast<const float*>(scales.data());
    c.result.positive_out = c.result.positive_sum = nullptr;
    const bool fine = random.chance(2);
    if (!fine) {
        if (random.chance(2)) break_problem(c, random);
        if (random.chance(3)) break_graph(c, random);
        if (random.chance(2)) break_pointers(c, random);
        if (random.chance(9)) c.problem.value_scales = nullptr;
    }
    const int32_t forward = c.forward();
    note(forward, "packed forward");
    CHECK(!fine || forward == SAGE_ATTENTION_OK);
    CHECK(forward == SAGE_ATTENTION_OK || c.untouched());
    note(c.backward(), "packed backward");
    CHECK(c.intact() && scales.intact());
}

void aggregation(Random& random) {
    CaseOptions o = random_options(random);
    o.heads = 1;
    Case c(o);
    Guarded out, factors;
    out.allocate(o.targets * o.channels * c.element());
    factors.allocate(c.edges * c.element(), 0);
    if (random.chance(2)) break_graph(c, random);
    const int64_t channels = random.chance(9) ? -random.below(3) : o.channels;
    // Any bytes are a packed table, of fewer of them than there are.
    const int32_t kind = random.chance(2) ? 0 : random.chance(9) ? odd_int32(random) : static_cast<int32_t>(1 + random.below(3));
    Guarded scales;
    scales.allocate(o.sources * 4, 0);
    note(sage_attention_aggregate(&c.problem.graph, random.chance(9) ? odd_int32(random) | 2 : o.dtype,
                                  random.chance(2) ? factors.data() : nullptr, random.chance(9) ? nullptr : c.inputs[kValues].data(),
                                  kind, random.chance(9) ? nullptr : static_cast<const float*>(scales.data()), channels, random.chance(9) ? nullptr : out.data(),
                                  random.chance(9) ? -1 : o.num_threads),
         "aggregate");
    CHECK(scales.intact() && c.intact() && out.intact() && factors.intact());
}

void sampling(Random& random) {
    CaseOptions o = random_options(random);
    Case c(o);
    if (random.chance(2)) break_graph(c, random);
    Guarded nodes, indptr, sources, edge_ids;
    const int64_t count = random.below(12);
    nodes.allocate(count * 8);
    for (int64_t i = 0; i < count; ++i) {
        nodes.ids()[i] = random.chance(30) || o.targets == 0 ? odd_number(random) : random.below(o.targets);
    }
    indptr.allocate((count + 1) * 8);
    sage_attention_sampling rule = {random.next(), 1 + random.below(40), static_cast<int32_t>(random.below(2)), 1};
    if (random.chance(8)) rule.fan_out = random.chance(2) ? 0 : odd_number(random) | (int64_t{1} << 40);
    if (random.chance(8)) rule.replace = odd_int32(random);
    if (random.chance(8)) rule.hop = static_cast<uint32_t>(odd_number(random));
    if (rule.fan_out > 1000) rule.replace = 0;
    const int32_t status = sage_attention_sample_one_hop(&c.problem.graph, &rule, nodes.ids(), count, indptr.ids(), nullptr, nullptr, 0, o.num_threads);
    note(status, "sample_one_hop");
    if (status == SAGE_ATTENTION_OK) {
        int64_t room = indptr.ids()[count];
        if (room > 0 && random.chance(8)) room -= 1;
        sources.allocate(room * 8);
        edge_ids.allocate(room * 8);
        note(sage_attention_sample_one_hop(&c.problem.graph, &rule, nodes.ids(), count, indptr.ids(), sources.ids(),
                                           random.chance(4) ? nullptr : edge_ids.ids(), room, o.num_threads),
             "sample_one_hop");
    }
    CHECK(c.intact() && nodes.intact() && indptr.intact() && sources.intact() && edge_ids.intact());
}

void hops(Random& random) {
    CaseOptions o = random_options(random);
    o.targets = o.sources = random.below(20);
    o.rows = -1;
    Case c(o);
    if (random.chance(2)) break_graph(c, random);
    if (random.chance(9)) c.problem.graph.num_targets = odd_number(random) % (o.targets + 1);
    Guarded seeds;
    const int64_t count = random.below(9);
    seeds.allocate(count * 8);
    for (int64_t i = 0; i < count; ++i) {
        seeds.ids()[i] = random.chance(30) || o.targets == 0 ? odd_number(random) : random.below(o.targets);
    }
    int64_t fan_outs[4];
    for (int64_t& fan_out : fan_outs) fan_out = random.chance(5) ? -1 : 1 + random.below(6);
    if (random.chance(9)) fan_outs[random.below(4)] = -2 - random.below(9);
    static sage_attention_workspace* workspace = sage_attention_workspace_create();  // whatever failed calls leave in it
    sage_attention_sample* sample = nullptr;
    const int64_t num_hops = random.chance(9) ? random.below(2) - 1 : 1 + random.below(4);
    const int32_t status = sage_attention_sample_hops(&c.problem.graph, random.chance(2) ? workspace : nullptr, seeds.ids(), count, fan_outs, num_hops,
                                                      random.chance(9) ? odd_int32(random) : static_cast<int32_t>(random.below(2)), random.next(),
                                                      o.num_threads, &sample);
    note(status, "sample_hops");
    CHECK((status == SAGE_ATTENTION_OK) == (sample != nullptr));
    for (int64_t e = 0; sample && e < sample->num_edges; ++e) {
        CHECK(sample->sources[e] >= 0 && sample->sources[e] < sample->num_nodes);
        CHECK(sample->edge_ids[e] >= 0 && sample->edge_ids[e] < c.edges);
    }
    sage_attention_sample_free(sample);
    CHECK(c.intact() && seeds.intact());
}

void sorting(Random& random) {
    const int64_t edges = random.below(60), sources = 1 + random.below(9), targets = 1 + random.below(9);
    const int32_t type = static_cast<int32_t>(random.below(2));
    const int64_t index_size = type == SAGE_ATTENTION_INT32 ? 4 : 8;
    Guarded from, to, indptr, indices, ids;
    from.allocate(edges * index_size);
    to.allocate(edges * index_size);
    for (int64_t e = 0; e < edges; ++e) {
        const int64_t s = random.chance(200) ? odd_number(random) : random.below(sources);
        const int64_t t = random.chance(200) ? odd_number(random) : random.below(targets);
        if (type == SAGE_ATTENTION_INT32) {
            static_cast<int32_t*>(from.data())[e] = static_cast<int32_t>(s);
            static_cast<int32_t*>(to.data())[e] = static_cast<int32_t>(t);
        } else {
            from.ids()[e] = s;
            to.ids()[e] = t;
        }
    }
    indptr.allocate((targets + 1) * 8);
    indices.allocate(edges * index_size);
    ids.allocate(edges * 8);
    const auto maybe = [&](void* p) { return random.chance(30) ? nullptr : p; };
    const int64_t count = random.chance(20) ? -random.below(5) : edges;
    const int32_t status = sage_attention_coo_to_csc(maybe(from.data()), maybe(to.data()), random.chance(20) ? 2 : type, count, sources, targets,
                                                     static_cast<int64_t*>(maybe(indptr.data())), maybe(indices.data()),
                                                     static_cast<int64_t*>(maybe(ids.data())));
    note(status, "coo_to_csc");
    if (status == SAGE_ATTENTION_OK) {
        const sage_attention_graph graph = {indptr.ids(), indices.data(), targets, sources, count, type, 0};
        CHECK_OK(sage_attention_check_graph(&graph, 2));
    }
    CHECK(from.intact() && to.intact() && indptr.intact() && indices.intact() && ids.intact());
}

}  // namespace

int main(int argc, char** argv) {
    const uint64_t seed = argc > 1 ? strtoull(argv[1], nullptr, 10) : 20;
    const int64_t rounds = argc > 2 ? strtoll(argv[2], nullptr, 10) : 4000;
    for (int64_t round = 0; round < rounds && test_failures() < 20; ++round) {
        for (int32_t i = 0; const char* level = sage_attention_available_cpu_level(i); ++i) {
            if (round % 2 == i % 2) CHECK_OK(sage_attention_set_cpu_level(level));
        }
        Random random{seed * 1000003 + static_cast<uint64_t>(round)};
        const int before = test_failures();
        attention(random);
        packed_attention(random);
        aggregation(random);
        sampling(random);
        hops(random);
        sorting(random);
        if (test_failures() != before) fprintf(stderr, "in round %lld of seed %llu\n", static_cast<long long>(round), static_cast<unsigned long long>(seed));
    }
    printf("%lld calls accepted, %lld refused\n", static_cast<long long>(accepted), static_cast<long long>(refused));
    // Both must happen, or this tests nothing.
    CHECK(accepted > rounds && refused > rounds / 4);
    return test_result();
}
