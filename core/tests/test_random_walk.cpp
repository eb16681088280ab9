// Random walks: steps are edges, for any number of threads; ends; broken graphs and arguments are refused.
#include "test_main.h"

namespace {

constexpr int64_t kNodes = 300, kDegree = 5, kLength = 9, kWalks = 3;
int64_t indptr[kNodes + 1];
int64_t indices[kNodes * kDegree];
double sums[kNodes * kDegree];
int64_t seeds[kNodes];
int64_t nodes[2][kNodes * kWalks * (kLength + 1)];
int64_t edge_ids[2][kNodes * kWalks * kLength];

sage_attention_graph circle() {
    for (int64_t i = 0; i < kNodes; ++i) {
        seeds[i] = i;
        indptr[i + 1] = indptr[i] + (i == 7 ? 0 : kDegree);  // a dead end
        for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) {
            const int64_t place = e - indptr[i];
            // ascending, also where the circle closes
            indices[e] = i < kNodes - kDegree ? i + place + 1 : place;
            sums[e] = static_cast<double>((place + 1) * (place + 2));
        }
    }
    return sage_attention_graph{indptr, indices, kNodes, kNodes, indptr[kNodes], SAGE_ATTENTION_INT64, 1};
}

sage_attention_walking plain() {
    return sage_attention_walking{sizeof(sage_attention_walking), 5, kLength, kWalks, 0, 1, 1, 1, 0};
}

void steps_are_edges() {
    const sage_attention_graph graph = circle();
    const double factors[][2] = {{1, 1}, {0.25, 3}};
    for (const auto& pq : factors) {
        for (int weighted = 0; weighted < 2; ++weighted) {
            sage_attention_walking walking = plain();
            walking.p = pq[0];
            walking.q = pq[1];
            walking.restart = 0.125;
            for (int t = 0; t < 2; ++t) {
                walking.num_threads = t + 1;
                CHECK_OK(sage_attention_random_walk(&graph, weighted ? sums : nullptr, &walking, seeds, kNodes, nodes[t],
                                                    edge_ids[t]));
            }
            CHECK(memcmp(nodes[0], nodes[1], sizeof nodes[0]) == 0);
            CHECK(memcmp(edge_ids[0], edge_ids[1], sizeof edge_ids[0]) == 0);
            for (int64_t walk = 0; walk < kNodes * kWalks; ++walk) {
                const int64_t* at = nodes[0] + walk * (kLength + 1);
                CHECK_EQUAL(at[0], walk / kWalks);
                for (int64_t step = 0; step < kLength; ++step) {
                    const int64_t edge = edge_ids[0][walk * kLength + step];
                    if (edge < 0) {
                        CHECK(at[step + 1] == at[0] || (at[step + 1] == -1 && (at[step] == 7 || at[step] == -1)));
                        continue;
                    }
                    CHECK(at[step] >= 0 && indptr[at[step]] <= edge && edge < indptr[at[step] + 1]);
                    CHECK_EQUAL(at[step + 1], indices[edge]);
                }
            }
        }
    }
}

void broken_graphs_are_refused() {
    sage_attention_graph graph = circle();
    graph.trusted = 0;
    sage_attention_walking walking = plain();
    walking.p = 2;
    const int64_t kept = indices[indptr[50]];
    const int64_t bad[] = {-1, kNodes, INT64_MIN, INT64_MAX};
    for (int64_t wrong : bad) {
        for (int64_t e = indptr[50]; e < indptr[51]; ++e) indices[e] = wrong;
        CHECK_REFUSED(sage_attention_random_walk(&graph, nullptr, &walking, seeds, kNodes, nodes[0], nullptr), "indices");
    }
    circle();
    CHECK_EQUAL(indices[indptr[50]], kept);
    const int64_t end = indptr[51];
    indptr[51] = kNodes * kDegree + 1;
    CHECK_REFUSED(sage_attention_random_walk(&graph, nullptr, &walking, seeds, kNodes, nodes[0], nullptr), "indptr");
    indptr[51] = end;
    seeds[4] = kNodes;
    CHECK_REFUSED(sage_attention_random_walk(&graph, nullptr, &walking, seeds, kNodes, nodes[0], nullptr), "seeds");
}

void wrong_arguments_are_refused() {
    const sage_attention_graph graph = circle();
    sage_attention_walking walking = plain();
    walking.struct_size = 8;
    CHECK_REFUSED(sage_attention_random_walk(&graph, nullptr, &walking, seeds, 1, nodes[0], nullptr), "struct_size");
    walking = plain();
    walking.num_threads = -1;
    CHECK_REFUSED(sage_attention_random_walk(&graph, nullptr, &walking, seeds, 1, nodes[0], nullptr), "num_threads");
    walking = plain();
    CHECK_REFUSED(sage_attention_random_walk(&graph, nullptr, nullptr, seeds, 1, nodes[0], nullptr), "walking");
    CHECK_REFUSED(sage_attention_random_walk(&graph, nullptr, &walking, nullptr, 1, nodes[0], nullptr), "seeds");
    CHECK_REFUSED(sage_attention_random_walk(&graph, nullptr, &walking, seeds, 1, nullptr, nullptr), "out_nodes");
    CHECK_REFUSED(sage_attention_random_walk(&graph, nullptr, &walking, seeds, INT64_MAX, nodes[0], nullptr), "seeds");
    CHECK_OK(sage_attention_random_walk(&graph, nullptr, &walking, nullptr, 0, nullptr, nullptr));
}

}  // namespace

int main() {
    RUN(steps_are_edges);
    RUN(broken_graphs_are_refused);
    RUN(wrong_arguments_are_refused);
    return test_result();
}
