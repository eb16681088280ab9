// Edges beyond position 2^32, on Linux, in memory that is reserved but for the pages in use: a node with 2^32 + 123
// in-edges comes before the rows of a small graph. What is picked there depends on nodes and degrees alone, so that every
// sampler has to find what it finds in the small graph, so many positions further on.
#include <sys/mman.h>

#include "platform.h"
#include "sample.h"
#include "test_main.h"

using namespace sage;

namespace {

constexpr int64_t kNodes = 500, kMost = 40, kShift = (int64_t{1} << 32) + 123;
constexpr int64_t kEdges = kNodes * kMost;  // at most

int64_t near_indptr[kNodes + 1], far_indptr[kNodes + 1];
int32_t near32[kEdges];
int64_t near64[kEdges], near_times[kEdges], near_ids[kEdges];
double near_sums[kEdges];
void *far32, *far64, *far_times, *far_ids, *far_sums;

void* reserve(int64_t size) {
    void* memory = mmap(nullptr, static_cast<size_t>((kShift + kEdges) * size), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

template <class T>
void copy_far(void* far, const T* near) {
    memcpy(static_cast<T*>(far) + kShift, near, static_cast<size_t>(near_indptr[kNodes]) * sizeof(T));
}

// Node 0 has no in-edges nearby and kShift of them far away; none comes from it.
bool make_graphs() {
    far32 = reserve(4);
    far64 = reserve(8);
    far_times = reserve(8);
    far_ids = reserve(8);
    far_sums = reserve(8);
    if (!far32 || !far64 || !far_times || !far_ids || !far_sums) return false;
    far_indptr[1] = kShift;
    for (int64_t i = 1; i < kNodes; ++i) {
        const int64_t degree = i * i % kMost;
        near_indptr[i + 1] = near_indptr[i] + degree;
        far_indptr[i + 1] = near_indptr[i + 1] + kShift;
        double sum = 0;
        for (int64_t p = near_indptr[i]; p < near_indptr[i + 1]; ++p) {
            const int64_t place = p - near_indptr[i];
            near64[p] = 1 + place * (kNodes - 1) / kMost + i % 12;  // ascending
            near32[p] = static_cast<int32_t>(near64[p]);
            near_times[p] = place / 3;
            near_ids[p] = near_indptr[kNodes] + 7 * kShift - 3 * p;
            sum += static_cast<double>(1 + place % 4);
            near_sums[p] = sum;
        }
    }
    copy_far(far32, near32);
    copy_far(far64, near64);
    copy_far(far_times, near_times);
    copy_far(far_ids, near_ids);
    copy_far(far_sums, near_sums);
    return true;
}

sage_attention_graph graph_of(bool far, bool wide) {
    const int64_t* indptr = far ? far_indptr : near_indptr;
    const void* indices = far ? (wide ? far64 : far32) : wide ? static_cast<const void*>(near64) : near32;
    return sage_attention_graph{indptr, indices, kNodes, kNodes, indptr[kNodes],
                                wide ? SAGE_ATTENTION_INT64 : SAGE_ATTENTION_INT32, 1};
}

bool equal(const int64_t* a, const int64_t* b, int64_t count, int64_t shift = 0) {
    for (int64_t i = 0; i < count; ++i) {
        if (a[i] + shift != b[i]) return false;
    }
    return true;
}

// The upper 64 bits of a product, 32 bits at a time.
uint64_t upper_half(uint64_t a, uint64_t b) {
    const uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + ((a0 * b0) >> 32), other = a0 * b1 + (middle & 0xFFFFFFFFu);
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

// Draw t of a row with more than 2^16 in-edges.
int64_t wide_draw(const sage_attention_sampling& sampling, uint64_t node, int64_t t, int64_t range) {
    uint32_t w[4];
    philox<1>(sampling.seed, sampling.hop, node, static_cast<uint32_t>(t / 2), w);
    const uint64_t bits = w[2 * (t % 2)] | (static_cast<uint64_t>(w[2 * (t % 2) + 1]) << 32);
    return static_cast<int64_t>(upper_half(bits, static_cast<uint64_t>(range)));
}

void a_row_longer_than_2_to_32() {
    constexpr int64_t kFanOuts[] = {1, 15, 100, 3000};
    static int64_t sources[3000], positions[3000], wanted[3000];
    for (int wide = 0; wide < 2; ++wide) {
        const sage_attention_graph graph = graph_of(true, wide);
        for (int64_t fan_out : kFanOuts) {
            for (int32_t replace = 0; replace < 2; ++replace) {
                const sage_attention_sampling sampling{99, fan_out, replace, 2};
                const int64_t node = 0;
                int64_t indptr[2], beyond = 0;
                CHECK_OK(sage_attention_sample_one_hop(&graph, &sampling, &node, 1, indptr, sources, positions, 3000, 1));
                CHECK_EQUAL(indptr[1], fan_out);
                for (int64_t t = 0; t < fan_out; ++t) {
                    const int64_t last = kShift - fan_out + t;
                    wanted[t] = wide_draw(sampling, 0, t, replace ? kShift : last + 1);
                    for (int64_t i = 0; i < t && !replace; ++i) {
                        if (wanted[i] == wanted[t]) wanted[t] = last;
                    }
                    CHECK_EQUAL(sources[t], 0);
                    beyond += positions[t] > INT32_MAX;
                }
                CHECK(equal(positions, wanted, fan_out));
                CHECK(fan_out < 100 || (beyond > fan_out / 4 && beyond < fan_out * 3 / 4));
            }
        }
    }
}

void one_hop_far_away() {
    static int64_t nodes[kNodes - 1], indptr[2][kNodes], sources[2][kEdges], positions[2][kEdges];
    for (int64_t i = 0; i < kNodes - 1; ++i) nodes[i] = 1 + i * 7 % (kNodes - 1);
    const int64_t fan_outs[] = {-1, 1, 5, 12, 100};
    for (int64_t fan_out : fan_outs) {
        for (int32_t variant = 0; variant < 8; ++variant) {
            const sage_attention_sampling sampling{7, fan_out, variant & 1, 1};
            if (fan_out == 100 && sampling.replace) continue;  // more than there is room for
            for (int far = 0; far < 2; ++far) {
                const sage_attention_graph graph = graph_of(far, variant & 2);
                CHECK_OK(sage_attention_sample_one_hop(&graph, &sampling, nodes, kNodes - 1, indptr[far], sources[far],
                                                       positions[far], kEdges, variant & 4 ? 2 : 1));
            }
            CHECK(memcmp(indptr[0], indptr[1], sizeof indptr[0]) == 0);
            CHECK(equal(sources[0], sources[1], indptr[0][kNodes - 1]));
            CHECK(equal(positions[0], positions[1], indptr[0][kNodes - 1], kShift));
        }
    }
}

void several_hops_far_away() {
    const int64_t seeds[] = {3, 77, 499, 3}, fan_outs[] = {6, 12, -1};
    for (int32_t variant = 0; variant < 8; ++variant) {
        sage_attention_sample* samples[2] = {};
        for (int far = 0; far < 2; ++far) {
            const sage_attention_graph graph = graph_of(far, variant & 2);
            CHECK_OK(sage_attention_sample_hops(&graph, nullptr, seeds, 4, fan_outs, 3, variant & 1, 5, variant & 4 ? 2 : 1,
                                                &samples[far]));
            if (!samples[far]) return;
        }
        CHECK(samples[0]->num_edges > 500);
        CHECK_EQUAL(samples[0]->num_nodes, samples[1]->num_nodes);
        CHECK_EQUAL(samples[0]->num_edges, samples[1]->num_edges);
        CHECK(equal(samples[0]->nodes, samples[1]->nodes, samples[0]->num_nodes));
        CHECK(equal(samples[0]->sources, samples[1]->sources, samples[0]->num_edges));
        CHECK(equal(samples[0]->edge_ids, samples[1]->edge_ids, samples[0]->num_edges, kShift));
        for (int far = 0; far < 2; ++far) sage_attention_sample_free(samples[far]);
    }
}

struct Typed {
    int32_t strategy;
    bool times, weights, ids, disjoint, wide;
};

sage_attention_hetero_sample* sample_typed(const Typed& how, bool far) {
    static const int64_t kSeeds[] = {3, 77, 499, 3}, kSeedTimes[] = {9, 4, 13, 2}, kFanOuts[] = {6, 3, -1};
    const sage_attention_node_type type{kNodes, kSeeds, 4, how.times ? kSeedTimes : nullptr};
    sage_attention_relation relation{graph_of(far, how.wide), 0, 0, kFanOuts, nullptr, nullptr, nullptr};
    if (how.times) relation.edge_times = far ? static_cast<const int64_t*>(far_times) : near_times;
    if (how.weights) relation.weight_sums = far ? static_cast<const double*>(far_sums) : near_sums;
    if (how.ids) relation.edge_ids = far ? static_cast<const int64_t*>(far_ids) : near_ids;
    const sage_attention_hetero_sampling options{sizeof options, 31, 3, -1, 0, how.disjoint, how.strategy, 0, 2, 0, 0};
    sage_attention_hetero_sample* sample = nullptr;
    CHECK_OK(sage_attention_sample_hetero(&type, 1, &relation, 1, &options, nullptr, &sample));
    return sample;
}

void typed_samples_far_away() {
    const Typed ways[] = {
        {SAGE_ATTENTION_UNIFORM, false, false, false, false, false},
        {SAGE_ATTENTION_UNIFORM, false, false, true, false, true},
        {SAGE_ATTENTION_UNIFORM, false, false, true, true, false},
        {SAGE_ATTENTION_UNIFORM, true, false, false, true, true},
        {SAGE_ATTENTION_LAST, true, false, true, true, false},
        {SAGE_ATTENTION_UNIFORM, false, true, true, false, false},
        {SAGE_ATTENTION_UNIFORM, true, true, true, true, true},
        {SAGE_ATTENTION_RECENCY, true, true, true, true, false},
        {SAGE_ATTENTION_LABOR, false, false, true, false, true},
        {SAGE_ATTENTION_LABOR_SEQUENTIAL, false, false, false, true, false},
    };
    for (const Typed& how : ways) {
        sage_attention_hetero_sample *near = sample_typed(how, false), *far = sample_typed(how, true);
        if (!near || !far) return;
        const sage_attention_sampled_relation &a = near->relations[0], &b = far->relations[0];
        CHECK(a.num_edges > 50);
        CHECK_EQUAL(a.num_edges, b.num_edges);
        CHECK_EQUAL(near->types[0].num_nodes, far->types[0].num_nodes);
        CHECK(equal(near->types[0].nodes, far->types[0].nodes, near->types[0].num_nodes));
        CHECK(equal(a.sources, b.sources, a.num_edges));
        CHECK(equal(a.targets, b.targets, a.num_edges));
        CHECK(equal(a.edge_ids, b.edge_ids, a.num_edges, how.ids ? 0 : kShift));
        sage_attention_hetero_sample_free(near);
        sage_attention_hetero_sample_free(far);
    }
}

void walks_far_away() {
    constexpr int64_t kLength = 6, kWalks = 4, kSeeds = kNodes - 1;
    static int64_t seeds[kSeeds], nodes[2][kSeeds * kWalks * (kLength + 1)], edge_ids[2][kSeeds * kWalks * kLength];
    for (int64_t i = 0; i < kSeeds; ++i) seeds[i] = i + 1;
    for (int32_t variant = 0; variant < 8; ++variant) {
        const double q = variant & 1 ? 3 : 1;
        const sage_attention_walking walking{sizeof walking, 5, kLength, kWalks, 0.125, 1, q, 2, 0};
        for (int far = 0; far < 2; ++far) {
            const sage_attention_graph graph = graph_of(far, variant & 2);
            const double* sums = far ? static_cast<const double*>(far_sums) : near_sums;
            CHECK_OK(sage_attention_random_walk(&graph, variant & 4 ? sums : nullptr, &walking, seeds, kSeeds, nodes[far],
                                                edge_ids[far]));
        }
        CHECK(memcmp(nodes[0], nodes[1], sizeof nodes[0]) == 0);
        int64_t edges = 0;
        for (int64_t i = 0; i < kSeeds * kWalks * kLength; ++i) {
            edges += edge_ids[0][i] >= 0;
            CHECK_EQUAL(edge_ids[1][i], edge_ids[0][i] < 0 ? edge_ids[0][i] : edge_ids[0][i] + kShift);
        }
        CHECK(edges > kSeeds * kWalks);
    }
}

}  // namespace

int main() {
    if (!make_graphs()) {
        printf("skipped: no 160 GB of addresses\n");
        return 77;
    }
    RUN(a_row_longer_than_2_to_32);
    RUN(one_hop_far_away);
    RUN(several_hops_far_away);
    RUN(typed_samples_far_away);
    RUN(walks_far_away);
    return test_result();
}
