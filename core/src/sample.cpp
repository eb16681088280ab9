// Neighbour sampling: one hop, and several hops with relabelling.
//
// A hop is three steps over its frontier: count, pick and gather (sample_rows.h), relabel (relabel.h). The first two run
// in chunks on all threads; relabelling is sequential by nature and follows chunk by chunk behind them, done by
// whichever thread is free.
#include "workspace.h"

namespace sage {

void pick_floyd_large(const PickRule& rule, int64_t begin, int64_t degree, int64_t node, int64_t* out) {
    union {
        uint64_t bitmap[kWideDegree / 64];
        uint16_t hash[4096];
    } scratch;
    if (degree < kWideDegree) {
        memset(scratch.bitmap, 0, static_cast<size_t>((degree + 63) / 64) * sizeof(uint64_t));
        pick_floyd<false>(rule, begin, degree, node, out, SeenBitmap{scratch.bitmap});
    } else if (rule.fan_out <= 16) {
        memset(scratch.bitmap, 0, kFilterWords * sizeof(uint64_t));
        pick_floyd<true>(rule, begin, degree, node, out, SeenScan{scratch.bitmap, out, begin});
    } else if (rule.fan_out <= 2048) {
        memset(scratch.hash, 0, sizeof scratch.hash);
        pick_floyd<true>(rule, begin, degree, node, out, SeenHash<uint16_t>{scratch.hash, 4095, out, begin});
    } else {
        const int64_t slots = hash_slots(rule.fan_out);
        auto* hash = static_cast<int64_t*>(calloc(static_cast<size_t>(slots), sizeof(int64_t)));
        if (hash) {
            pick_floyd<true>(rule, begin, degree, node, out,
                             SeenHash<int64_t>{hash, static_cast<uint64_t>(slots) - 1, out, begin});
            free(hash);
        } else {
            memset(scratch.bitmap, 0, kFilterWords * sizeof(uint64_t));
            pick_floyd<true>(rule, begin, degree, node, out, SeenScan{scratch.bitmap, out, begin});  // slow, but right
        }
    }
}

int32_t check_sampling(int64_t fan_out, int32_t replace, const char* fan_out_name) {
    if (fan_out < -1 || fan_out == 0) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected -1 or at least 1, got %lld", fan_out_name,
                    ll(fan_out));
    }
    if (fan_out > kMaxDraws) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected at most %lld (or -1 for all), got %lld", fan_out_name,
                    ll(kMaxDraws), ll(fan_out));
    }
    if (replace != 0 && replace != 1) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "replace: expected 0 or 1, got %d", static_cast<int>(replace));
    }
    return SAGE_ATTENTION_OK;
}

int32_t check_nodes(const char* name, const int64_t* nodes, int64_t count, int32_t num_threads) {
    if (count < 0) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected at least 0 of them, got %lld", name, ll(count));
    }
    if (count > 0 && !nodes) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected an array, got null", name);
    if (num_threads < 0) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "num_threads: expected at least 0, got %d",
                    static_cast<int>(num_threads));
    }
    return SAGE_ATTENTION_OK;
}

}  // namespace sage

using namespace sage;

namespace sage {
namespace {

// Makes *p hold at least `count` elements; what it held is lost.
template <class T>
bool renew(T** p, int64_t* held, int64_t count) {
    if (count <= *held && *p) return true;
    deallocate(*p);
    *p = nullptr;
    *held = 0;
    const int64_t roomy = count + count / 4;  // the next call wants a little more, or a little less
    Buffer buffer;
    if (!buffer.reserve<T>(roomy)) return false;
    *p = static_cast<T*>(buffer.release());
    *held = roomy;
    return true;
}

// What sample_hops returns is the first member of this.
struct OwnedSample {
    sage_attention_sample sample;
    BlockPool* pool;  // null: memory comes from and goes to the system
    Block nodes;
    Block indptr;
    Block sources;
    Block edge_ids;

    bool grow(Block& block, int64_t** p, int64_t used, int64_t count) { return block_grow(pool, block, p, used, count); }

    void release() {
        block_give(pool, nodes);
        block_give(pool, indptr);
        block_give(pool, sources);
        block_give(pool, edge_ids);
        deallocate(sample.num_sampled_nodes);
        deallocate(sample.num_sampled_edges);
        block_pool_release(pool);
    }
};

// One call of sample_hops: grows `owned` hop by hop.
struct HopSampler {
    const sage_attention_graph& graph;
    sage_attention_workspace& workspace;
    OwnedSample& owned;
    sage_attention_sample& sample;
    int32_t num_threads;
    bool keeps_workspace;
    int64_t hash_slots_used = 0;
    bool dense = false;

    int32_t start(const int64_t* seeds, int64_t num_seeds) {
        if (!owned.grow(owned.nodes, &sample.nodes, 0, num_seeds + 1)) return out_of_memory();
        if (!owned.grow(owned.indptr, &sample.indptr, 0, 1)) return out_of_memory();
        sample.indptr[0] = 0;
        for (int64_t i = 0; i < num_seeds; ++i) {
            if (seeds[i] < 0 || seeds[i] >= graph.num_targets) {
                return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                            "seeds: expected values in [0, %lld), got %lld at position %lld", ll(graph.num_targets),
                            ll(seeds[i]), ll(i));
            }
            sample.nodes[i] = seeds[i];
        }
        sample.num_nodes = num_seeds;
        sample.num_sampled_nodes[0] = num_seeds;
        return SAGE_ATTENTION_OK;
    }

    // Makes room in the relabelling table for `extra` more nodes. A change of table relabels the nodes known so far.
    bool reserve_table(int64_t extra) {
        RelabelTable& table = workspace.table;
        if (dense) return true;
        const int64_t slots = hash_slots(min(sample.num_nodes + extra, graph.num_sources));
        if (slots == 0) return false;
        const int64_t dense_limit = keeps_workspace ? kDenseNodesKept : kDenseNodesOnce;
        if (graph.num_sources <= dense_limit || slots >= graph.num_sources / 2) {
            if (!table.reserve_dense(graph.num_sources)) return false;
            table.next_epoch();
            dense = true;
            relabel_known(DenseRelabel(table));
        } else if (slots > hash_slots_used) {
            if (!table.reserve_hash(slots)) return false;
            table.next_epoch();
            hash_slots_used = slots;
            relabel_known(HashRelabel(table, slots));
        }
        return true;
    }

    // First occurrence wins: a repeated seed keeps its own node, edges lead to the first one.
    template <class Table>
    void relabel_known(const Table& table) const {
        for (int64_t i = 0; i < sample.num_nodes; ++i) {
            if (i + kRelabelAhead < sample.num_nodes) table.fetch(sample.nodes[i + kRelabelAhead]);
            table.put(sample.nodes[i], i);
        }
    }

    // Row scratch of one huge sample shall not be held for ever either.
    void trim() {
        if (workspace.num_rows * static_cast<int64_t>(sizeof(Row)) <= static_cast<int64_t>(kLargestBlock)) return;
        deallocate(workspace.rows);
        workspace.rows = nullptr;
        workspace.num_rows = 0;
    }

    int32_t add_hop(int64_t hop, const PickRule& rule) {
        const int64_t begin = sample.num_expanded, end = sample.num_nodes, num_rows = end - begin;
        if (!owned.grow(owned.indptr, &sample.indptr, begin + 1, end + 1)) return out_of_memory();
        if (!renew(&workspace.rows, &workspace.num_rows, num_rows)) return out_of_memory();
        int64_t* indptr = sample.indptr + begin;
        SAGE_TRY(count_picks(graph, rule, sample.nodes + begin, num_rows, "seeds", num_threads, sample.num_edges,
                             workspace.rows, indptr));
        const int64_t num_edges = indptr[num_rows], added = num_edges - sample.num_edges;
        const int64_t most_nodes = end + min(added, graph.num_sources) + 1;
        if (!owned.grow(owned.sources, &sample.sources, sample.num_edges, num_edges) ||
            !owned.grow(owned.edge_ids, &sample.edge_ids, sample.num_edges, num_edges) ||
            !owned.grow(owned.nodes, &sample.nodes, end, most_nodes) || !reserve_table(added)) {
            return out_of_memory();
        }
        SAGE_TRY(with_index_type(graph, [&](const auto* indices) {
            return dense ? fill_hop(indices, rule, DenseRelabel(workspace.table), begin, num_rows, added)
                         : fill_hop(indices, rule, HashRelabel(workspace.table, hash_slots_used), begin, num_rows, added);
        }));
        sample.num_expanded = end;
        sample.num_edges = num_edges;
        sample.num_sampled_nodes[hop + 1] = sample.num_nodes - end;
        sample.num_sampled_edges[hop] = added;
        return SAGE_ATTENTION_OK;
    }

    template <class Index, class Table>
    int32_t fill_hop(const Index* indices, const PickRule& rule, const Table& table, int64_t begin, int64_t num_rows,
                     int64_t added) {
        const int64_t* indptr = sample.indptr + begin;
        const int64_t chunk_rows = rows_per_chunk(num_rows, added);
        const int64_t num_chunks = (num_rows + chunk_rows - 1) / chunk_rows;
        if (!renew(&workspace.done, &workspace.num_done, num_chunks)) return out_of_memory();
        memset(workspace.done, 0, static_cast<size_t>(num_chunks) * sizeof(int64_t));
        Fault fault;
        const auto picker = make_hop(graph, indices, rule, sample.nodes + begin, workspace.rows, indptr, sample.sources,
                                     sample.edge_ids, &fault);
        Relabelling<Table> relabelling{table, sample.sources, sample.nodes, sample.num_nodes};
        InOrder in_order(workspace.done, num_chunks);
        parallel_for(added < kParallelPicks ? 1 : num_threads, num_chunks, [&](int64_t chunk, int32_t) {
            const int64_t first = chunk * chunk_rows;
            picker.run(first, min(num_rows, first + chunk_rows));
            if (atomic_load(&fault.claims)) return;  // what a bad index would address is not there
            in_order.finish(chunk, [&](int64_t ready) {
                const int64_t row = ready * chunk_rows;
                relabelling.relabel(indptr[row], indptr[min(num_rows, row + chunk_rows)]);
            });
        });
        SAGE_TRY(report(fault, graph, "seeds"));
        sample.num_nodes = relabelling.num_nodes;
        return SAGE_ATTENTION_OK;
    }
};

int32_t sample_hops(const sage_attention_graph& graph, sage_attention_workspace& workspace, bool keeps_workspace,
                    const int64_t* seeds, int64_t num_seeds, const int64_t* fan_outs, int64_t num_hops, bool replace,
                    uint64_t seed, int32_t num_threads, OwnedSample& owned) {
    sage_attention_sample& sample = owned.sample;
    Buffer nodes_per_hop, edges_per_hop;
    if (!nodes_per_hop.reserve<int64_t>(num_hops + 1) || !edges_per_hop.reserve<int64_t>(num_hops)) {
        return out_of_memory();
    }
    sample.num_hops = num_hops;
    sample.num_sampled_nodes = static_cast<int64_t*>(nodes_per_hop.release());
    sample.num_sampled_edges = static_cast<int64_t*>(edges_per_hop.release());
    HopSampler sampler{graph, workspace, owned, sample, num_threads, keeps_workspace};
    SAGE_TRY(sampler.start(seeds, num_seeds));
    for (int64_t hop = 0; hop < num_hops; ++hop) {
        SAGE_TRY(sampler.add_hop(hop, PickRule{seed, fan_outs[hop], static_cast<uint32_t>(hop), replace}));
    }
    sampler.trim();
    return SAGE_ATTENTION_OK;
}

}  // namespace
}  // namespace sage

extern "C" int32_t sage_attention_sample_one_hop(const sage_attention_graph* graph,
                                                 const sage_attention_sampling* sampling, const int64_t* nodes,
                                                 int64_t num_nodes, int64_t* out_indptr, int64_t* out_sources,
                                                 int64_t* out_edge_ids, int64_t capacity, int32_t num_threads) {
    SAGE_TRY(check_graph_argument(graph));
    if (!sampling) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "sampling: expected a structure, got null");
    SAGE_TRY(check_sampling(sampling->fan_out, sampling->replace, "fan_out"));
    if (sampling->hop > INT32_MAX) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "hop: expected a value in [0, 2^31), got %u", sampling->hop);
    }
    SAGE_TRY(check_nodes("nodes", nodes, num_nodes, num_threads));
    if (!out_indptr) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "out_indptr: expected an array, got null");
    const PickRule rule{sampling->seed, sampling->fan_out, sampling->hop, sampling->replace != 0};
    Buffer rows_memory;
    if (!rows_memory.reserve<Row>(num_nodes)) return out_of_memory();
    Row* rows = rows_memory.as<Row>();
    SAGE_TRY(count_picks(*graph, rule, nodes, num_nodes, "nodes", num_threads, 0, rows, out_indptr));
    if (!out_sources) return SAGE_ATTENTION_OK;
    const int64_t num_picks = out_indptr[num_nodes];
    if (capacity < num_picks) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "capacity: expected at least %lld, got %lld", ll(num_picks),
                    ll(capacity));
    }
    Buffer positions_memory;
    if (!out_edge_ids) {
        if (!positions_memory.reserve<int64_t>(num_picks)) return out_of_memory();
        out_edge_ids = positions_memory.as<int64_t>();
    }
    Fault fault;
    const int64_t chunk_rows = rows_per_chunk(num_nodes, num_picks);
    with_index_type(*graph, [&](const auto* indices) {
        const auto picker = make_hop(*graph, indices, rule, nodes, rows, out_indptr, out_sources, out_edge_ids, &fault);
        parallel_for(num_picks < kParallelPicks ? 1 : num_threads, (num_nodes + chunk_rows - 1) / chunk_rows,
                     [&](int64_t chunk, int32_t) {
                         picker.run(chunk * chunk_rows, min(num_nodes, (chunk + 1) * chunk_rows));
                     });
    });
    return report(fault, *graph, "nodes");
}

extern "C" sage_attention_workspace* sage_attention_workspace_create(void) {
    auto* workspace = static_cast<sage_attention_workspace*>(calloc(1, sizeof(sage_attention_workspace)));
    if (!workspace) return nullptr;
    workspace->pool = block_pool_create();
    if (!workspace->pool) {
        free(workspace);
        return nullptr;
    }
    return workspace;
}

extern "C" void sage_attention_workspace_free(sage_attention_workspace* workspace) {
    if (!workspace) return;
    workspace->table.release();
    for (int32_t t = 0; t < workspace->num_type_tables; ++t) workspace->type_tables[t].release();
    free(workspace->type_tables);
    deallocate(workspace->rows);
    deallocate(workspace->done);
    block_pool_release(workspace->pool);
    free(workspace);
}

extern "C" int32_t sage_attention_sample_hops(const sage_attention_graph* graph, sage_attention_workspace* workspace,
                                              const int64_t* seeds, int64_t num_seeds, const int64_t* fan_outs,
                                              int64_t num_hops, int32_t replace, uint64_t seed, int32_t num_threads,
                                              sage_attention_sample** out) {
    if (!out) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "out: expected a pointer, got null");
    *out = nullptr;
    SAGE_TRY(check_graph_argument(graph));
    if (graph->num_targets != graph->num_sources) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                    "graph: expected as many targets as sources, got %lld targets and %lld sources",
                    ll(graph->num_targets), ll(graph->num_sources));
    }
    SAGE_TRY(check_nodes("seeds", seeds, num_seeds, num_threads));
    if (num_hops < 1 || num_hops > INT32_MAX) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "fan_outs: expected 1 to 2^31 - 1 of them, got %lld", ll(num_hops));
    }
    if (!fan_outs) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "fan_outs: expected an array, got null");
    for (int64_t hop = 0; hop < num_hops; ++hop) SAGE_TRY(check_sampling(fan_outs[hop], replace, "fan_outs"));

    sage_attention_workspace* used = workspace ? workspace : sage_attention_workspace_create();
    auto* owned = static_cast<OwnedSample*>(calloc(1, sizeof(OwnedSample)));
    int32_t status = SAGE_ATTENTION_OUT_OF_MEMORY;
    if (used && owned) {
        if (workspace) {
            owned->pool = workspace->pool;
            atomic_fetch_add(&owned->pool->references, 1);
        }
        status = sample_hops(*graph, *used, workspace != nullptr, seeds, num_seeds, fan_outs, num_hops, replace != 0, seed,
                             num_threads, *owned);
    } else {
        out_of_memory();
    }
    if (!workspace) sage_attention_workspace_free(used);
    if (status == SAGE_ATTENTION_OK) {
        *out = &owned->sample;
    } else if (owned) {
        sage_attention_sample_free(&owned->sample);
    }
    return status;
}

extern "C" void sage_attention_sample_free(sage_attention_sample* sample) {
    if (!sample) return;
    auto* owned = reinterpret_cast<OwnedSample*>(sample);
    owned->release();
    free(owned);
}
