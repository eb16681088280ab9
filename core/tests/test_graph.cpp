// Checking, sorting and transposing topology, at both index types.
#include "graph.h"

#include "test_main.h"

using namespace sage;

namespace {

template <class Index>
constexpr int32_t kType = sizeof(Index) == 4 ? SAGE_ATTENTION_INT32 : SAGE_ATTENTION_INT64;

template <class Index>
sage_attention_graph make(const int64_t* indptr, const Index* indices, int64_t targets, int64_t sources, int64_t edges) {
    return sage_attention_graph{indptr, indices, targets, sources, edges, kType<Index>, 0};
}

template <class Index>
void check_valid_and_invalid() {
    int64_t indptr[] = {0, 2, 2, 5};
    Index indices[] = {0, 3, 3, 3, 1};
    sage_attention_graph g = make(indptr, indices, 3, 4, 5);
    for (int32_t threads = 0; threads < 3; ++threads) CHECK_OK(sage_attention_check_graph(&g, threads));
    indices[3] = 4;
    CHECK_REFUSED(sage_attention_check_graph(&g, 1), "indices: expected values in [0, 4), got 4 at position 3");
    indices[3] = -1;
    CHECK_REFUSED(sage_attention_check_graph(&g, 2), "indices: expected values in [0, 4), got -1 at position 3");
    indices[3] = 3;
    indptr[2] = 1;
    CHECK_REFUSED(sage_attention_check_graph(&g, 1), "indptr: expected never to fall, got 1 after 2 at position 2");
    indptr[2] = 2;
    indptr[0] = 1;
    CHECK_REFUSED(sage_attention_check_graph(&g, 1), "indptr: expected 0 at position 0, got 1");
    indptr[0] = 0;
    indptr[3] = 6;
    CHECK_REFUSED(sage_attention_check_graph(&g, 1), "indptr: expected 5 (the number of edges) at the end, got 6");
}

void valid_and_invalid() {
    check_valid_and_invalid<int32_t>();
    check_valid_and_invalid<int64_t>();
}

void first_of_several_faults() {
    // The lowest position is reported, whichever thread finds whatever first.
    const int64_t count = 300000;
    Buffer memory;
    CHECK(memory.reserve<int32_t>(count));
    int32_t* indices = memory.as<int32_t>();
    memset(indices, 0, count * sizeof(int32_t));
    indices[299999] = 5;
    indices[140001] = 6;
    indices[140002] = 7;
    const int64_t indptr[] = {0, count};
    const sage_attention_graph g = make(indptr, indices, 1, 1, count);
    for (int32_t threads = 1; threads < 5; ++threads) {
        CHECK_REFUSED(sage_attention_check_graph(&g, threads), "indices: expected values in [0, 1), got 6 at position 140001");
    }
}

void bad_arguments() {
    const int64_t indptr[] = {0, 1};
    const int32_t indices[] = {0};
    sage_attention_graph g = make(indptr, indices, 1, 1, 1);
    CHECK_REFUSED(sage_attention_check_graph(nullptr, 1), "graph: ");
    CHECK_REFUSED(sage_attention_check_graph(&g, -1), "num_threads: ");
    g.indptr = nullptr;
    CHECK_REFUSED(sage_attention_check_graph(&g, 1), "indptr: ");
    g = make<int32_t>(indptr, nullptr, 1, 1, 1);
    CHECK_REFUSED(sage_attention_check_graph(&g, 1), "indices: ");
    g = make(indptr, indices, -1, 1, 1);
    CHECK_REFUSED(sage_attention_check_graph(&g, 1), "num_targets: ");
    g = make(indptr, indices, 1, -1, 1);
    CHECK_REFUSED(sage_attention_check_graph(&g, 1), "num_sources: ");
    g = make(indptr, indices, 1, 1, -1);
    CHECK_REFUSED(sage_attention_check_graph(&g, 1), "num_edges: ");
    g = make(indptr, indices, 1, 1, 1);
    g.index_type = 2;
    CHECK_REFUSED(sage_attention_check_graph(&g, 1), "index_type: ");
    int64_t out[2];
    int32_t out_indices[1];
    CHECK_REFUSED(sage_attention_transpose(&g, out, out_indices, nullptr), "index_type: ");
    g.index_type = SAGE_ATTENTION_INT32;
    CHECK_REFUSED(sage_attention_transpose(&g, nullptr, out_indices, nullptr), "out_indptr: ");
    CHECK_REFUSED(sage_attention_transpose(&g, out, nullptr, nullptr), "out_indices: ");
    g.num_sources = 0;
    CHECK_REFUSED(sage_attention_transpose(&g, out, out_indices, nullptr), "indices: ");
}

template <class Index>
void check_sort_and_transpose() {
    const Index sources[] = {4, 0, 2, 2, 1, 0, 4};
    const Index targets[] = {2, 0, 2, 0, 2, 0, 2};
    int64_t indptr[4], ids[7];
    Index indices[7];
    CHECK_OK(sage_attention_coo_to_csc(sources, targets, kType<Index>, 7, 5, 3, indptr, indices, ids));
    const int64_t want_indptr[] = {0, 3, 3, 7}, want_ids[] = {1, 3, 5, 0, 2, 4, 6};
    for (int i = 0; i < 4; ++i) CHECK_EQUAL(indptr[i], want_indptr[i]);
    for (int e = 0; e < 7; ++e) {
        CHECK_EQUAL(ids[e], want_ids[e]);
        CHECK_EQUAL(indices[e], sources[want_ids[e]]);
    }
    const sage_attention_graph g = make(indptr, indices, 3, 5, 7);
    int64_t by_source[6], positions[7];
    Index found[7];
    CHECK_OK(sage_attention_transpose(&g, by_source, found, positions));
    CHECK_OK(sage_attention_transpose(&g, by_source, found, nullptr));
    const int64_t want_by_source[] = {0, 2, 3, 5, 5, 7}, want_found[] = {0, 0, 2, 0, 2, 2, 2};
    for (int i = 0; i < 6; ++i) CHECK_EQUAL(by_source[i], want_by_source[i]);
    for (int e = 0; e < 7; ++e) CHECK_EQUAL(found[e], want_found[e]);
    for (int s = 0; s < 5; ++s) {
        for (int64_t e = by_source[s]; e < by_source[s + 1]; ++e) CHECK_EQUAL(indices[positions[e]], s);
    }
    const Index bad[] = {0, 5}, fine[] = {0, 1}, negative[] = {0, -1};
    CHECK_REFUSED(sage_attention_coo_to_csc(bad, fine, kType<Index>, 2, 5, 3, indptr, indices, ids), "sources: ");
    CHECK_REFUSED(sage_attention_coo_to_csc(fine, bad, kType<Index>, 2, 5, 3, indptr, indices, ids), "targets: ");
    CHECK_REFUSED(sage_attention_coo_to_csc(fine, negative, kType<Index>, 2, 5, 3, indptr, indices, ids), "targets: ");
}

void sort_and_transpose() {
    check_sort_and_transpose<int32_t>();
    check_sort_and_transpose<int64_t>();
}

void sort_bad_arguments() {
    const int32_t ids[] = {0};
    int64_t indptr[2], edge_ids[1];
    int32_t indices[1];
    CHECK_REFUSED(sage_attention_coo_to_csc(ids, ids, 9, 1, 1, 1, indptr, indices, edge_ids), "index_type: ");
    CHECK_REFUSED(sage_attention_coo_to_csc(ids, ids, 0, -1, 1, 1, indptr, indices, edge_ids), "num_edges: ");
    CHECK_REFUSED(sage_attention_coo_to_csc(ids, ids, 0, 1, -1, 1, indptr, indices, edge_ids), "num_sources: ");
    CHECK_REFUSED(sage_attention_coo_to_csc(ids, ids, 0, 1, 1, -1, indptr, indices, edge_ids), "num_targets: ");
    CHECK_REFUSED(sage_attention_coo_to_csc(nullptr, ids, 0, 1, 1, 1, indptr, indices, edge_ids), "sources: ");
    CHECK_REFUSED(sage_attention_coo_to_csc(ids, nullptr, 0, 1, 1, 1, indptr, indices, edge_ids), "targets: ");
    CHECK_REFUSED(sage_attention_coo_to_csc(ids, ids, 0, 1, 1, 1, nullptr, indices, edge_ids), "out_indptr: ");
    CHECK_REFUSED(sage_attention_coo_to_csc(ids, ids, 0, 1, 1, 1, indptr, nullptr, edge_ids), "out_indices: ");
    CHECK_REFUSED(sage_attention_coo_to_csc(ids, ids, 0, 1, 1, 1, indptr, indices, nullptr), "out_edge_ids: ");
}

void nothing() {
    int64_t indptr[] = {7};
    CHECK_OK(sage_attention_coo_to_csc(nullptr, nullptr, SAGE_ATTENTION_INT64, 0, 0, 0, indptr, nullptr, nullptr));
    CHECK_EQUAL(indptr[0], 0);
    const sage_attention_graph g = make<int32_t>(indptr, nullptr, 0, 0, 0);
    CHECK_OK(sage_attention_check_graph(&g, 0));
    int64_t transposed[] = {7};
    CHECK_OK(sage_attention_transpose(&g, transposed, nullptr, nullptr));
    CHECK_EQUAL(transposed[0], 0);
}

}  // namespace

int main() {
    RUN(valid_and_invalid);
    RUN(first_of_several_faults);
    RUN(bad_arguments);
    RUN(sort_and_transpose);
    RUN(sort_bad_arguments);
    RUN(nothing);
    return test_result();
}
