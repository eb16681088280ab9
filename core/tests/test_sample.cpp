// Picks against a naive Floyd; one hop and several against a naive walk; errors; broken graphs.
#include "sample.h"

#include "test_main.h"

using namespace sage;

namespace {

// Draw t of a row, one block at a time.
int64_t naive_draw(const PickRule& rule, int64_t node, int64_t degree, int64_t t, int64_t range) {
    uint32_t w[4];
    const uint64_t id = static_cast<uint64_t>(node), bound = static_cast<uint64_t>(range);
    if (degree < 65536) {
        philox<1>(rule.seed, rule.hop, id, static_cast<uint32_t>(t / 4), w);
        return static_cast<int64_t>((w[t % 4] * bound) >> 32);
    }
    philox<1>(rule.seed, rule.hop, id, static_cast<uint32_t>(t / 2), w);
    const uint64_t low = w[2 * (t % 2)], high = w[2 * (t % 2) + 1];
    // (high:low * bound) >> 64 without 128-bit numbers; bound < 2^32
    return static_cast<int64_t>((high * bound + ((low * bound) >> 32)) >> 32);
}

int64_t naive_pick(const PickRule& rule, int64_t begin, int64_t degree, int64_t node, int64_t* out) {
    if (rule.fan_out < 0 || (!rule.replace && rule.fan_out >= degree)) {
        for (int64_t t = 0; t < degree; ++t) out[t] = begin + t;
        return degree;
    }
    if (degree == 0) return 0;
    for (int64_t t = 0; t < rule.fan_out; ++t) {
        const int64_t last = degree - rule.fan_out + t;
        int64_t v = naive_draw(rule, node, degree, t, rule.replace ? degree : last + 1);
        for (int64_t i = 0; i < t && !rule.replace; ++i) {
            if (out[i] == begin + v) {
                v = last;
                break;
            }
        }
        out[t] = begin + v;
    }
    return rule.fan_out;
}

void picks_match_naive() {
    const int64_t degrees[] = {0, 1, 2, 7, 31, 63, 64, 65, 100, 511, 512, 513, 5000, 65535, 65536, 65537, 1000000};
    const int64_t fan_outs[] = {-1, 1, 2, 5, 10, 15, 16, 17, 30, 63, 64, 500, 2048, 2049, 4000};
    Buffer got_memory, want_memory;
    CHECK(got_memory.reserve<int64_t>(1000001) && want_memory.reserve<int64_t>(1000001));
    int64_t *got = got_memory.as<int64_t>(), *want = want_memory.as<int64_t>();
    for (int64_t degree : degrees) {
        for (int64_t fan_out : fan_outs) {
            for (int replace = 0; replace < 2; ++replace) {
                const PickRule rule{0xfedcba9876543210u, fan_out, 5, replace != 0};
                const int64_t count = pick_count(rule, degree);
                got[count] = -77;
                CHECK_EQUAL(pick_row(rule, 1000, degree, 123456789012345, got), count);
                CHECK_EQUAL(got[count], -77);
                CHECK_EQUAL(naive_pick(rule, 1000, degree, 123456789012345, want), count);
                CHECK(memcmp(got, want, static_cast<size_t>(count) * sizeof(int64_t)) == 0);
            }
        }
    }
}

// A square graph: node i has (i * i) % 97 in-edges from scattered nodes, node 0 has 3000; every seventh has none.
struct TestGraph {
    Buffer indptr_memory, indices_memory;
    sage_attention_graph graph;

    TestGraph(int64_t num_nodes, int32_t index_type) {
        CHECK(indptr_memory.reserve<int64_t>(num_nodes + 1));
        int64_t* indptr = indptr_memory.as<int64_t>();
        indptr[0] = 0;
        for (int64_t i = 0; i < num_nodes; ++i) {
            indptr[i + 1] = indptr[i] + (i == 0 ? 3000 : i % 7 == 0 ? 0 : ((i % 97) * (i % 97)) % 97);
        }
        const int64_t num_edges = indptr[num_nodes];
        CHECK(indices_memory.reserve<int64_t>(num_edges));
        for (int64_t e = 0; e < num_edges; ++e) {
            const int64_t source = static_cast<int64_t>((static_cast<uint64_t>(e) * 0x9E3779B97F4A7C15u >> 20) %
                                                        static_cast<uint64_t>(num_nodes));
            if (index_type == SAGE_ATTENTION_INT32) {
                indices_memory.as<int32_t>()[e] = static_cast<int32_t>(source);
            } else {
                indices_memory.as<int64_t>()[e] = source;
            }
        }
        graph = sage_attention_graph{indptr, indices_memory.data, num_nodes, num_nodes, num_edges, index_type, 1};
    }

    int64_t source(int64_t e) const {
        return graph.index_type == SAGE_ATTENTION_INT32 ? indices_memory.as<int32_t>()[e]
                                                        : indices_memory.as<int64_t>()[e];
    }
};

bool same(const int64_t* a, const int64_t* b, int64_t count) {
    return memcmp(a, b, static_cast<size_t>(count) * sizeof(int64_t)) == 0;
}

bool same_sample(const sage_attention_sample& a, const sage_attention_sample& b) {
    return a.num_nodes == b.num_nodes && a.num_edges == b.num_edges && a.num_hops == b.num_hops &&
           a.num_expanded == b.num_expanded && same(a.nodes, b.nodes, a.num_nodes) &&
           same(a.indptr, b.indptr, a.num_expanded + 1) && same(a.sources, b.sources, a.num_edges) &&
           same(a.edge_ids, b.edge_ids, a.num_edges) &&
           same(a.num_sampled_nodes, b.num_sampled_nodes, a.num_hops + 1) &&
           same(a.num_sampled_edges, b.num_sampled_edges, a.num_hops);
}

// Walks a sample: each expanded node has the picks one hop gives, sources are first occurrences in order of discovery.
void check_sample(const TestGraph& test, const sage_attention_sample& s, const int64_t* fan_outs, int replace,
                  uint64_t seed) {
    Buffer memory, first_memory;
    CHECK(memory.reserve<int64_t>(5000) && first_memory.reserve<int64_t>(test.graph.num_sources));
    int64_t* picks = memory.as<int64_t>();
    int64_t* first = first_memory.as<int64_t>();
    for (int64_t i = 0; i < test.graph.num_sources; ++i) first[i] = -1;
    int64_t known = s.num_sampled_nodes[0], row = 0, edge = 0;
    for (int64_t i = 0; i < known; ++i) {
        if (first[s.nodes[i]] < 0) first[s.nodes[i]] = i;
    }
    for (int64_t hop = 0; hop < s.num_hops; ++hop) {
        const int64_t end = known, edges_before = edge;
        const PickRule rule{seed, fan_outs[hop], static_cast<uint32_t>(hop), replace != 0};
        for (; row < end; ++row) {
            const int64_t node = s.nodes[row], begin = test.graph.indptr[node];
            const int64_t count = pick_row(rule, begin, test.graph.indptr[node + 1] - begin, node, picks);
            CHECK_EQUAL(s.indptr[row], edge);
            CHECK_EQUAL(s.indptr[row + 1], edge + count);
            CHECK(same(picks, s.edge_ids + edge, count));
            for (int64_t t = 0; t < count; ++t, ++edge) {
                const int64_t source = test.source(picks[t]);
                if (first[source] < 0) {
                    CHECK_EQUAL(s.nodes[known], source);
                    first[source] = known++;
                }
                CHECK_EQUAL(s.sources[edge], first[source]);
            }
        }
        CHECK_EQUAL(s.num_sampled_nodes[hop + 1], known - end);
        CHECK_EQUAL(s.num_sampled_edges[hop], edge - edges_before);
    }
    CHECK_EQUAL(row, s.num_expanded);
    CHECK_EQUAL(known, s.num_nodes);
    CHECK_EQUAL(edge, s.num_edges);
}

void hops_match_naive() {
    // Below 65,536 nodes the table is dense without a workspace, above it is a hash table: both meet both here.
    const int64_t sizes[] = {500, 70000};
    const int64_t fan_outs[][3] = {{5, 4, 3}, {15, 10, 5}, {-1, 2, -1}, {40, 20, 1}};
    const int64_t base[] = {0, 3, 499, 3, 7, 250, 0, 99};
    int64_t seeds[800];
    for (int64_t i = 0; i < 800; ++i) seeds[i] = i < 8 ? base[i] : (i * 37) % 500;
    sage_attention_workspace* workspace = sage_attention_workspace_create();
    CHECK(workspace);
    for (int64_t size : sizes) {
        for (int32_t type = 0; type < 2; ++type) {
            const TestGraph test(size, type);
            for (const auto& fans : fan_outs) {
                for (int32_t replace = 0; replace < 2; ++replace) {
                    sage_attention_sample *kept, *once, *threaded;
                    const int64_t num_seeds = fans[0] == -1 ? 8 : 800;
                    CHECK_OK(sage_attention_sample_hops(&test.graph, workspace, seeds, num_seeds, fans, 3, replace, 9, 1,
                                                        &kept));
                    CHECK_OK(sage_attention_sample_hops(&test.graph, nullptr, seeds, num_seeds, fans, 3, replace, 9, 1,
                                                        &once));
                    CHECK_OK(sage_attention_sample_hops(&test.graph, workspace, seeds, num_seeds, fans, 3, replace, 9, 4,
                                                        &threaded));
                    check_sample(test, *kept, fans, replace, 9);
                    CHECK(same_sample(*kept, *once));
                    CHECK(same_sample(*kept, *threaded));
                    sage_attention_sample_free(kept);
                    sage_attention_sample_free(once);
                    sage_attention_sample_free(threaded);
                }
            }
        }
    }
    sage_attention_workspace_free(workspace);
}

void samples_outlive_their_workspace() {
    const TestGraph test(500, SAGE_ATTENTION_INT32);
    const int64_t seeds[] = {0, 1, 2, 3, 4, 5}, fans[] = {-1, -1};
    sage_attention_sample* samples[6];
    sage_attention_workspace* workspace = sage_attention_workspace_create();
    for (auto& sample : samples) {
        CHECK_OK(sage_attention_sample_hops(&test.graph, workspace, seeds, 6, fans, 2, 0, 1, 2, &sample));
    }
    sage_attention_sample_free(samples[0]);
    CHECK_OK(sage_attention_sample_hops(&test.graph, workspace, seeds, 6, fans, 2, 0, 1, 2, &samples[0]));
    sage_attention_workspace_free(workspace);
    for (auto& sample : samples) check_sample(test, *sample, fans, 0, 1);
    for (auto& sample : samples) sage_attention_sample_free(sample);
    sage_attention_sample_free(nullptr);
    sage_attention_workspace_free(nullptr);
}

void one_hop() {
    const TestGraph test(500, SAGE_ATTENTION_INT64);
    int64_t nodes[3000];
    for (int64_t i = 0; i < 3000; ++i) nodes[i] = (i * 101) % 500;
    sage_attention_sampling rule{3, 12, 0, 6};
    int64_t indptr[3001], threaded_indptr[3001], picks[5000];
    CHECK_OK(sage_attention_sample_one_hop(&test.graph, &rule, nodes, 3000, indptr, nullptr, nullptr, 0, 2));
    const int64_t count = indptr[3000];
    Buffer a, b, c;
    CHECK(a.reserve<int64_t>(count) && b.reserve<int64_t>(count) && c.reserve<int64_t>(count));
    int64_t *sources = a.as<int64_t>(), *ids = b.as<int64_t>(), *threaded = c.as<int64_t>();
    CHECK_OK(sage_attention_sample_one_hop(&test.graph, &rule, nodes, 3000, indptr, sources, ids, count, 1));
    CHECK_OK(sage_attention_sample_one_hop(&test.graph, &rule, nodes, 3000, threaded_indptr, threaded, nullptr, count, 4));
    CHECK(same(indptr, threaded_indptr, 3001));
    CHECK(same(sources, threaded, count));
    const PickRule pick_rule{3, 12, 6, false};
    for (int64_t i = 0; i < 3000; ++i) {
        const int64_t begin = test.graph.indptr[nodes[i]], degree = test.graph.indptr[nodes[i] + 1] - begin;
        CHECK_EQUAL(pick_row(pick_rule, begin, degree, nodes[i], picks), indptr[i + 1] - indptr[i]);
        CHECK(same(picks, ids + indptr[i], indptr[i + 1] - indptr[i]));
        for (int64_t t = indptr[i]; t < indptr[i + 1]; ++t) CHECK_EQUAL(sources[t], test.source(ids[t]));
    }
    CHECK_REFUSED(sage_attention_sample_one_hop(&test.graph, &rule, nodes, 3000, indptr, sources, ids, count - 1, 1),
                  "capacity: ");
}

void one_hop_bad_arguments() {
    const TestGraph test(500, SAGE_ATTENTION_INT32);
    const int64_t nodes[] = {1, 500}, negative[] = {-1};
    int64_t indptr[3], out[100];
    const auto call = [&](sage_attention_sampling rule, const int64_t* from, int64_t count, int32_t threads) {
        return sage_attention_sample_one_hop(&test.graph, &rule, from, count, indptr, out, out, 100, threads);
    };
    CHECK_OK(call({1, 2, 0, 0}, nodes, 1, 1));
    CHECK_OK(call({1, 2, 0, 0}, nullptr, 0, 1));
    CHECK_REFUSED(call({1, 2, 0, 0}, nodes, 2, 1), "nodes: expected values in [0, 500), got 500 at position 1");
    CHECK_REFUSED(call({1, 2, 0, 0}, negative, 1, 1), "nodes: expected values in [0, 500), got -1 at position 0");
    CHECK_REFUSED(call({1, 2, 0, 0}, nullptr, 1, 1), "nodes: ");
    CHECK_REFUSED(call({1, 2, 0, 0}, nodes, -1, 1), "nodes: ");
    CHECK_REFUSED(call({1, 2, 0, 0}, nodes, 1, -1), "num_threads: ");
    CHECK_REFUSED(call({1, 0, 0, 0}, nodes, 1, 1), "fan_out: ");
    CHECK_REFUSED(call({1, -2, 0, 0}, nodes, 1, 1), "fan_out: ");
    CHECK_REFUSED(call({1, INT64_MAX, 1, 0}, nodes, 1, 1), "fan_out: ");
    CHECK_REFUSED(call({1, 2, 2, 0}, nodes, 1, 1), "replace: ");
    CHECK_REFUSED(call({1, 2, 0, 0x80000000u}, nodes, 1, 1), "hop: ");
    sage_attention_sampling rule{1, 2, 0, 0};
    CHECK_REFUSED(sage_attention_sample_one_hop(&test.graph, nullptr, nodes, 1, indptr, out, out, 100, 1), "sampling: ");
    CHECK_REFUSED(sage_attention_sample_one_hop(&test.graph, &rule, nodes, 1, nullptr, out, out, 100, 1), "out_indptr: ");
    CHECK_REFUSED(sage_attention_sample_one_hop(nullptr, &rule, nodes, 1, indptr, out, out, 100, 1), "graph: ");
}

void hops_bad_arguments() {
    TestGraph test(500, SAGE_ATTENTION_INT32);
    const int64_t seeds[] = {1, 2, 500}, fans[] = {2, 0}, negative[] = {2, -2};
    sage_attention_sample* out = nullptr;
    const auto call = [&](const int64_t* from, int64_t count, const int64_t* fan_outs, int64_t hops, int32_t replace) {
        return sage_attention_sample_hops(&test.graph, nullptr, from, count, fan_outs, hops, replace, 1, 1, &out);
    };
    CHECK_REFUSED(call(seeds, 3, fans, 1, 0), "seeds: expected values in [0, 500), got 500 at position 2");
    CHECK(!out);
    CHECK_REFUSED(call(nullptr, 1, fans, 1, 0), "seeds: ");
    CHECK_REFUSED(call(seeds, -1, fans, 1, 0), "seeds: ");
    CHECK_REFUSED(call(seeds, 1, fans, 2, 0), "fan_outs: expected -1 or at least 1, got 0");
    CHECK_REFUSED(call(seeds, 1, negative, 2, 0), "fan_outs: ");
    CHECK_REFUSED(call(seeds, 1, fans, 0, 0), "fan_outs: ");
    CHECK_REFUSED(call(seeds, 1, nullptr, 1, 0), "fan_outs: ");
    CHECK_REFUSED(call(seeds, 1, fans, 1, 3), "replace: ");
    CHECK_REFUSED(sage_attention_sample_hops(&test.graph, nullptr, seeds, 1, fans, 1, 0, 1, -1, &out), "num_threads: ");
    CHECK_REFUSED(sage_attention_sample_hops(&test.graph, nullptr, seeds, 1, fans, 1, 0, 1, 1, nullptr), "out: ");
    test.graph.num_sources = 501;
    CHECK_REFUSED(call(seeds, 1, fans, 1, 0), "graph: expected as many targets as sources");
}

void broken_graphs() {
    TestGraph test(70000, SAGE_ATTENTION_INT32);
    Buffer memory;
    CHECK(memory.reserve<int64_t>(20000));
    int64_t* seeds = memory.as<int64_t>();
    for (int64_t i = 0; i < 20000; ++i) seeds[i] = i;
    const int64_t fans[] = {5, 5};
    sage_attention_sample* out = nullptr;
    int64_t* indptr = test.indptr_memory.as<int64_t>();
    int32_t* indices = test.indices_memory.as<int32_t>();
    const int32_t bad_sources[] = {70000, -1, INT32_MAX, INT32_MIN};
    for (int32_t threads = 1; threads < 5; threads += 3) {
        for (int32_t bad : bad_sources) {
            const int64_t begin = indptr[15000], end = indptr[15001];
            CHECK(end > begin);
            int32_t kept[100];
            memcpy(kept, indices + begin, static_cast<size_t>(end - begin) * sizeof(int32_t));
            for (int64_t e = begin; e < end; ++e) indices[e] = bad;
            CHECK_REFUSED(sage_attention_sample_hops(&test.graph, nullptr, seeds, 20000, fans, 2, 0, 1, threads, &out),
                          "indices: expected values in [0, 70000), got ");
            memcpy(indices + begin, kept, static_cast<size_t>(end - begin) * sizeof(int32_t));
        }
        const int64_t bad_starts[] = {-1, INT64_MAX, INT64_MIN, test.graph.num_edges + 1};
        for (int64_t bad : bad_starts) {
            const int64_t kept = indptr[15000];
            indptr[15000] = bad;
            CHECK_REFUSED(sage_attention_sample_hops(&test.graph, nullptr, seeds, 20000, fans, 2, 0, 1, threads, &out),
                          "indptr: expected 0 <= indptr[i] <= indptr[i + 1] <= ");
            indptr[15000] = kept;
        }
        CHECK_OK(sage_attention_sample_hops(&test.graph, nullptr, seeds, 20000, fans, 2, 0, 1, threads, &out));
        sage_attention_sample_free(out);
    }
}

void too_much_memory() {
    // 10,000 nodes with 2^32 draws each: 344 TB.
    const TestGraph test(500, SAGE_ATTENTION_INT32);
    int64_t seeds[10000];
    for (int64_t& seed : seeds) seed = 1;
    const int64_t fans[] = {int64_t{1} << 32};
    sage_attention_sample* out = nullptr;
    CHECK_EQUAL(sage_attention_sample_hops(&test.graph, nullptr, seeds, 10000, fans, 1, 1, 1, 1, &out),
                SAGE_ATTENTION_OUT_OF_MEMORY);
    CHECK(!out);
    CHECK(strstr(sage_attention_last_error(), "not enough memory"));
}

void nothing() {
    const int64_t indptr[] = {0};
    const sage_attention_graph g{indptr, nullptr, 0, 0, 0, SAGE_ATTENTION_INT32, 0};
    const int64_t fans[] = {3, -1};
    sage_attention_sample* out = nullptr;
    CHECK_OK(sage_attention_sample_hops(&g, nullptr, nullptr, 0, fans, 2, 1, 1, 4, &out));
    CHECK_EQUAL(out->num_nodes, 0);
    CHECK_EQUAL(out->num_edges, 0);
    CHECK_EQUAL(out->num_expanded, 0);
    CHECK_EQUAL(out->indptr[0], 0);
    CHECK_EQUAL(out->num_sampled_nodes[2], 0);
    sage_attention_sample_free(out);
}

}  // namespace

int main() {
    RUN(picks_match_naive);
    RUN(hops_match_naive);
    RUN(samples_outlive_their_workspace);
    RUN(one_hop);
    RUN(one_hop_bad_arguments);
    RUN(hops_bad_arguments);
    RUN(broken_graphs);
    RUN(too_much_memory);
    RUN(nothing);
    return test_result();
}
