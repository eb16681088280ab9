// Multi-hop sampling over several node and edge types, limited by time, in proportion to weights, in disjoint trees.
//
// A hop is one structure, whatever the number of relations: all rows of all relations are counted, then cut into chunks
// that are picked on all threads while the chunks before them are relabelled, in their order.
#include "sample_labor.h"
#include "sample_weighted.h"
#include "workspace.h"

using namespace sage;

namespace sage {
namespace {

// The seed of relation number `relation`.
uint64_t relation_seed(uint64_t seed, int32_t relation) { return split_seed(seed, static_cast<uint64_t>(relation)); }

// An array that grows.
struct Growing {
    Block block;
    int64_t* data;

    bool reserve(BlockPool* pool, int64_t used, int64_t count) { return block_grow(pool, block, &data, used, count); }
};

struct Tree {
    int64_t time;
    uint64_t key;  // what its draws differ by from those of other trees
    bool timed;
    uint64_t copies;  // of its seed, that come after it: counted where the seed comes first
};

// A node type while sampling.
struct TypeState {
    Growing nodes, trees;
    RelabelTable* table;
    int64_t slots;
    int64_t num_nodes, begin, end;  // the frontier is [begin, end)
    int64_t incoming;               // the most nodes that a hop can add
    bool dense;
};

// A relation while sampling: its rows of the hop at hand begin at `rows` and `indptr` of the scratch.
struct RelationState {
    Growing sources, targets, edge_ids;
    int64_t num_edges;
    int64_t num_rows;
    Row* rows;
    int64_t* indptr;
};

struct Chunk {
    int32_t relation;
    int64_t first, last;
};

// What sample_hetero returns is the first member of this.
struct OwnedHetero {
    sage_attention_hetero_sample sample;
    int64_t* counts;  // all num_sampled_nodes and num_sampled_edges
    Block* blocks;    // of the arrays
    int64_t num_blocks;
    BlockPool* pool;
};

bool is_labor(int32_t strategy) {
    return strategy == SAGE_ATTENTION_LABOR || strategy == SAGE_ATTENTION_LABOR_SEQUENTIAL;
}

class HeteroSampler {
  public:
    HeteroSampler(const sage_attention_node_type* types, int32_t num_types, const sage_attention_relation* relations,
                  int32_t num_relations, const sage_attention_hetero_sampling& options,
                  sage_attention_workspace& workspace, bool keeps_workspace)
        : types_(types),
          relations_(relations),
          options_(options),
          workspace_(workspace),
          pool_(workspace.pool),
          keeps_workspace_(keeps_workspace),
          num_types_(num_types),
          num_relations_(num_relations) {}
    HeteroSampler(const HeteroSampler&) = delete;
    HeteroSampler& operator=(const HeteroSampler&) = delete;
    ~HeteroSampler() {
        for (int32_t t = 0; t < num_types_ && type_; ++t) {
            block_give(pool_, type_[t].nodes.block);
            block_give(pool_, type_[t].trees.block);
        }
        for (int32_t r = 0; r < num_relations_ && relation_; ++r) {
            block_give(pool_, relation_[r].sources.block);
            block_give(pool_, relation_[r].targets.block);
            block_give(pool_, relation_[r].edge_ids.block);
        }
        free(type_);
        free(relation_);
    }

    int32_t run(OwnedHetero& owned) {
        SAGE_TRY(start(owned));
        for (int64_t hop = 0; hop < options_.num_hops; ++hop) SAGE_TRY(add_hop(hop, owned));
        hand_over(owned);
        return SAGE_ATTENTION_OK;
    }

  private:
    int32_t start(const OwnedHetero& owned) {
        type_ = static_cast<TypeState*>(calloc(static_cast<size_t>(num_types_) + 1, sizeof(TypeState)));
        relation_ = static_cast<RelationState*>(calloc(static_cast<size_t>(num_relations_) + 1, sizeof(RelationState)));
        if (!type_ || !relation_ || !reserve_tables()) return out_of_memory();
        int64_t num_trees = 0;
        for (int32_t t = 0; t < num_types_; ++t) num_trees += types_[t].num_seeds;
        if (options_.disjoint && !trees_.reserve<Tree>(num_trees)) return out_of_memory();
        num_trees_ = max<int64_t>(1, num_trees);
        int64_t tree = 0;
        for (int32_t t = 0; t < num_types_; ++t) {
            const sage_attention_node_type& type = types_[t];
            TypeState& state = type_[t];
            state.table = &workspace_.type_tables[t];
            if (!state.nodes.reserve(pool_, 0, type.num_seeds + 1)) return out_of_memory();
            if (options_.disjoint && !state.trees.reserve(pool_, 0, type.num_seeds + 1)) return out_of_memory();
            for (int64_t i = 0; i < type.num_seeds; ++i, ++tree) {
                const int64_t node = type.seeds[i];
                if (node < 0 || node >= type.num_nodes) {
                    return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                                "seeds of node type %d: expected values in [0, %lld), got %lld at position %lld", t,
                                ll(type.num_nodes), ll(node), ll(i));
                }
                state.nodes.data[i] = node;
                if (!options_.disjoint) continue;
                state.trees.data[i] = tree;
                const uint64_t name = static_cast<uint64_t>(node) * 64 + static_cast<uint64_t>(t) + 1;
                trees_.as<Tree>()[tree] =
                    Tree{type.seed_times ? type.seed_times[i] : 0, mix(name * 0x9E3779B97F4A7C15u), type.seed_times != nullptr, 0};
            }
            if (options_.disjoint && !tell_copies_apart(t, trees_.as<Tree>() + tree - type.num_seeds)) return out_of_memory();
            state.num_nodes = state.end = type.num_seeds;
            owned.sample.types[t].num_sampled_nodes[0] = type.num_seeds;
            if (options_.disjoint && type.num_nodes > (INT64_MAX / 2) / num_trees_) {
                return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                            "seeds: expected fewer than 2^62 / number of nodes in disjoint trees, got %lld", ll(num_trees_));
            }
        }
        return SAGE_ATTENTION_OK;
    }

    // A seed that comes again grows another tree. `trees` are those of the seeds of a type.
    bool tell_copies_apart(int32_t t, Tree* trees) {
        const TypeState& state = type_[t];
        const int64_t count = types_[t].num_seeds, slots = hash_slots(count);
        if (slots == 0 || !state.table->reserve_hash(slots)) return false;
        state.table->next_epoch();
        const HashRelabel first_of(*state.table, slots);
        for (int64_t i = 0; i < count; ++i) {
            if (i + kRelabelAhead < count) first_of.fetch(state.nodes.data[i + kRelabelAhead]);
            const int64_t first = first_of.put(state.nodes.data[i], i);
            if (first != i) trees[i].key = split_seed(trees[i].key, ++trees[first].copies);
        }
        return true;
    }

    bool reserve_tables() {
        if (num_types_ <= workspace_.num_type_tables) return true;
        void* larger = realloc(workspace_.type_tables, static_cast<size_t>(num_types_) * sizeof(RelabelTable));
        if (!larger) return false;
        workspace_.type_tables = static_cast<RelabelTable*>(larger);
        const size_t added = static_cast<size_t>(num_types_ - workspace_.num_type_tables);
        memset(static_cast<void*>(workspace_.type_tables + workspace_.num_type_tables), 0, added * sizeof(RelabelTable));
        workspace_.num_type_tables = num_types_;
        return true;
    }

    // The name of a node in the relabelling table of its type.
    SAGE_INLINE int64_t name_of(int32_t type, int64_t tree, int64_t node) const {
        return options_.disjoint ? tree * types_[type].num_nodes + node : node;
    }

    // Makes room in the table of a type for state.incoming more nodes; what is known is entered anew if that moves it.
    bool reserve_table(int32_t t) {
        TypeState& state = type_[t];
        if (state.dense) return true;
        const int64_t names = types_[t].num_nodes * (options_.disjoint ? num_trees_ : 1);
        const int64_t slots = hash_slots(min(state.num_nodes + state.incoming, names));
        if (slots == 0) return false;
        if (names <= (keeps_workspace_ ? kDenseNodesKept : kDenseNodesOnce) || slots >= names / 2) {
            if (!state.table->reserve_dense(names)) return false;
            state.dense = true;
            state.table->next_epoch();
            relabel_known(t, DenseRelabel(*state.table));
        } else if (slots > state.slots) {
            if (!state.table->reserve_hash(slots)) return false;
            state.slots = slots;
            state.table->next_epoch();
            relabel_known(t, HashRelabel(*state.table, slots));
        }
        return true;
    }

    template <class Table>
    void relabel_known(int32_t t, const Table& table) const {
        const TypeState& state = type_[t];
        for (int64_t i = 0; i < state.num_nodes; ++i) {
            table.put(name_of(t, options_.disjoint ? state.trees.data[i] : 0, state.nodes.data[i]), i);
        }
    }

    PickRule rule_of(int32_t r, int64_t hop, int64_t tree) const {
        const uint64_t seed = relation_seed(options_.seed, r);
        return PickRule{options_.disjoint ? mix(seed ^ trees_.as<Tree>()[tree].key) : seed, relations_[r].fan_outs[hop],
                        static_cast<uint32_t>(hop), options_.replace != 0};
    }

    // Layer-neighbour sampling: the coins belong to the nodes of a type, whatever relation leads to them.
    bool labor() const { return is_labor(options_.strategy); }
    Labor labor_kind() const {
        return options_.strategy == SAGE_ATTENTION_LABOR ? Labor::kPoisson : Labor::kSequential;
    }
    PickRule labor_rule(int32_t r, int64_t hop, int64_t tree) const {
        PickRule rule = rule_of(r, hop, tree);
        const uint64_t seed = relation_seed(options_.seed, relations_[r].source_type);
        rule.seed = options_.disjoint ? mix(seed ^ trees_.as<Tree>()[tree].key) : seed;
        return rule;
    }

    // The in-edges of a row that its tree's time allows.
    Row limited(const sage_attention_relation& relation, Row row, int64_t tree, int64_t fan_out) const {
        if (!relation.edge_times || !options_.disjoint || !trees_.as<Tree>()[tree].timed) return row;
        const int64_t time = trees_.as<Tree>()[tree].time;
        const int64_t* times = relation.edge_times + row.begin;
        // younger than `limit` or, with `equal`, as old: how many come before
        const auto count_before = [&](int64_t limit, bool equal) {
            int64_t low = 0, high = row.degree;
            while (low < high) {
                const int64_t middle = low + (high - low) / 2;
                if (times[middle] < limit || (equal && times[middle] == limit)) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            return low;
        };
        const int64_t last = count_before(time, options_.strict == 0);
        int64_t first = 0;
        if (options_.window >= 0) {
            const int64_t oldest = time < INT64_MIN + options_.window ? INT64_MIN : time - options_.window;
            first = min(count_before(oldest, false), last);
        }
        if (options_.strategy == SAGE_ATTENTION_LAST && fan_out >= 0) first = max(first, last - fan_out);
        return Row{row.begin + first, last - first};
    }

    int32_t count_rows(int32_t r, int64_t hop) {
        const sage_attention_relation& relation = relations_[r];
        RelationState& state = relation_[r];
        const TypeState& target = type_[relation.target_type];
        const int64_t* nodes = target.nodes.data + target.begin;
        Fault fault;
        parallel_for(options_.num_threads, (state.num_rows + kCountChunk - 1) / kCountChunk, [&](int64_t chunk, int32_t) {
            const int64_t end = min(state.num_rows, (chunk + 1) * kCountChunk);
            for (int64_t i = chunk * kCountChunk; i < end; ++i) {
                if (i + kRowAhead < end) prefetch(relation.graph.indptr + nodes[i + kRowAhead]);
                const int64_t begin = relation.graph.indptr[nodes[i]], stop = relation.graph.indptr[nodes[i] + 1];
                if (begin < 0 || stop < begin || stop > relation.graph.num_edges) {
                    fault.record(Fault::kRow, nodes[i], i);
                    return;
                }
                const int64_t tree = options_.disjoint ? target.trees.data[target.begin + i] : 0;
                state.rows[i] = limited(relation, Row{begin, stop - begin}, tree, relation.fan_outs[hop]);
                const Row& row = state.rows[i];
                state.indptr[i + 1] = labor() ? labor_count(labor_rule(r, hop, tree), relation.graph, labor_kind(),
                                                            row.begin, row.degree)
                                              : pick_count(rule_of(r, hop, tree), row.degree);
            }
        });
        SAGE_TRY(report(fault, relation.graph, "seeds"));
        state.indptr[0] = state.num_edges;
        for (int64_t i = 0; i < state.num_rows; ++i) {
            if (state.indptr[i + 1] > kMaxPicks - state.indptr[i]) return out_of_memory();
            state.indptr[i + 1] += state.indptr[i];
        }
        return SAGE_ATTENTION_OK;
    }

    int32_t add_hop(int64_t hop, const OwnedHetero& owned) {
        int64_t num_rows = 0, num_chunks = 0, added = 0;
        for (int32_t r = 0; r < num_relations_; ++r) {
            const TypeState& target = type_[relations_[r].target_type];
            relation_[r].num_rows = relations_[r].fan_outs[hop] == 0 ? 0 : target.end - target.begin;
            num_rows += relation_[r].num_rows;
        }
        PooledBuffer row_memory(pool_), indptr_memory(pool_), chunk_memory(pool_), done_memory(pool_);
        Row* next_row = row_memory.take<Row>(num_rows);
        int64_t* next_indptr = indptr_memory.take<int64_t>(num_rows + num_relations_);
        if (!next_row || !next_indptr) return out_of_memory();
        for (int32_t t = 0; t < num_types_; ++t) type_[t].incoming = 0;
        for (int32_t r = 0; r < num_relations_; ++r) {
            RelationState& state = relation_[r];
            state.rows = next_row;
            state.indptr = next_indptr;
            next_row += state.num_rows;
            next_indptr += state.num_rows + 1;
            SAGE_TRY(count_rows(r, hop));
            const int64_t picks = state.indptr[state.num_rows] - state.num_edges;
            type_[relations_[r].source_type].incoming += picks;
            added += picks;
            const int64_t count = state.num_edges + picks;
            if (!state.sources.reserve(pool_, state.num_edges, count) || !state.targets.reserve(pool_, state.num_edges, count) ||
                !state.edge_ids.reserve(pool_, state.num_edges, count)) {
                return out_of_memory();
            }
            const int64_t size = rows_per_chunk(state.num_rows, picks);
            num_chunks += (state.num_rows + size - 1) / size;
        }
        for (int32_t t = 0; t < num_types_; ++t) {
            TypeState& state = type_[t];
            const int64_t count = state.num_nodes + state.incoming + 1;
            if (state.incoming == 0) continue;
            if (!state.nodes.reserve(pool_, state.num_nodes, count) || !reserve_table(t) ||
                (options_.disjoint && !state.trees.reserve(pool_, state.num_nodes, count))) {
                return out_of_memory();
            }
        }
        Chunk* chunks = chunk_memory.take<Chunk>(num_chunks);
        int64_t* done = done_memory.take<int64_t>(num_chunks);
        if (!chunks || !done) return out_of_memory();
        memset(done, 0, static_cast<size_t>(num_chunks) * sizeof(int64_t));
        Chunk* next_chunk = chunks;
        for (int32_t r = 0; r < num_relations_; ++r) {
            const RelationState& state = relation_[r];
            const int64_t size = rows_per_chunk(state.num_rows, state.indptr[state.num_rows] - state.num_edges);
            for (int64_t first = 0; first < state.num_rows; first += size) {
                *next_chunk++ = Chunk{r, first, min(state.num_rows, first + size)};
            }
        }
        SAGE_TRY(fill(hop, chunks, num_chunks, done, added));
        for (int32_t r = 0; r < num_relations_; ++r) {
            RelationState& state = relation_[r];
            owned.sample.relations[r].num_sampled_edges[hop] = state.indptr[state.num_rows] - state.num_edges;
            state.num_edges = state.indptr[state.num_rows];
        }
        for (int32_t t = 0; t < num_types_; ++t) {
            TypeState& state = type_[t];
            state.begin = state.end;
            state.end = state.num_nodes;
            owned.sample.types[t].num_sampled_nodes[hop + 1] = state.end - state.begin;
        }
        return SAGE_ATTENTION_OK;
    }

    int32_t fill(int64_t hop, const Chunk* chunks, int64_t num_chunks, volatile int64_t* done, int64_t added) {
        Fault fault;
        volatile int64_t fault_relation = 0;
        InOrder in_order(done, num_chunks);
        parallel_for(added < kParallelPicks ? 1 : options_.num_threads, num_chunks, [&](int64_t c, int32_t) {
            if (!pick(chunks[c], hop, fault)) {
                if (fault.claims == 1) fault_relation = chunks[c].relation;
                return;
            }
            if (atomic_load(&fault.claims)) return;  // what a bad index would address is not there
            in_order.finish(c, [&](int64_t ready) { relabel(chunks[ready]); });
        });
        return report(fault, relations_[fault_relation].graph, "seeds");
    }

    bool pick(const Chunk& chunk, int64_t hop, Fault& fault) {
        const sage_attention_graph& graph = relations_[chunk.relation].graph;
        return with_index_type(graph, [&](const auto* indices) { return pick_from(indices, chunk, hop, fault); });
    }

    // How the rows of a frontier are picked in trees.
    struct TreeRules {
        static constexpr bool kSame = false;
        const HeteroSampler& sampler;
        int32_t relation;
        int64_t hop;
        const int64_t* trees;
        SAGE_INLINE PickRule operator()(int64_t i) const { return sampler.rule_of(relation, hop, trees[i]); }
    };

    template <class Index, class Rules>
    bool pick_plain(const Index* indices, const Rules& rules, const Chunk& chunk, Fault& fault) {
        const sage_attention_relation& relation = relations_[chunk.relation];
        const RelationState& state = relation_[chunk.relation];
        const TypeState& target = type_[relation.target_type];
        const Hop<Index, Rules> picker{relation.graph, indices, rules, target.nodes.data + target.begin, state.rows, state.indptr,
                                       state.sources.data, state.edge_ids.data, &fault, state.targets.data, target.begin,
                                       relation.edge_ids};
        return picker.run(chunk.first, chunk.last);
    }

    // Positions of a row, then, some rows behind, its sources: they have arrived by then.
    template <class Index>
    bool pick_from(const Index* indices, const Chunk& chunk, int64_t hop, Fault& fault) {
        const sage_attention_relation& relation = relations_[chunk.relation];
        RelationState& state = relation_[chunk.relation];
        const TypeState& target = type_[relation.target_type];
        if (!labor() && !relation.weight_sums) {
            return options_.disjoint
                       ? pick_plain(indices, TreeRules{*this, chunk.relation, hop, target.trees.data + target.begin}, chunk, fault)
                       : pick_plain(indices, SameRule{rule_of(chunk.relation, hop, 0)}, chunk, fault);
        }
        for (int64_t i = chunk.first; i < chunk.last + kGatherAhead; ++i) {
            if (i < chunk.last) {
                const int64_t at = target.begin + i, node = target.nodes.data[at];
                const int64_t tree = options_.disjoint ? target.trees.data[at] : 0;
                const PickRule rule = rule_of(chunk.relation, hop, tree);
                int64_t* out = state.edge_ids.data + state.indptr[i];
                const Row& row = state.rows[i];
                if (labor()) {
                    labor_pick(labor_rule(chunk.relation, hop, tree), relation.graph, labor_kind(), row.begin, row.degree,
                               out);
                } else {
                    const bool fades = relation.edge_times && options_.strategy == SAGE_ATTENTION_RECENCY;
                    pick_weighted(rule,
                                  WeightedRow{relation.weight_sums, relation.graph.indptr[node], row.begin, row.degree,
                                              fades ? relation.edge_times : nullptr, options_.decay * kHalvings},
                                  node, out);
                }
                const int64_t count = state.indptr[i + 1] - state.indptr[i];
                for (int64_t t = 0; t < count; ++t) {
                    prefetch(indices + out[t]);
                    state.targets.data[state.indptr[i] + t] = at;
                }
            }
            const int64_t behind = i - kGatherAhead;
            if (behind < chunk.first) continue;
            for (int64_t t = state.indptr[behind]; t < state.indptr[behind + 1]; ++t) {
                const int64_t source = static_cast<int64_t>(indices[state.edge_ids.data[t]]);
                if (source < 0 || source >= relation.graph.num_sources) {
                    fault.record(Fault::kIndex, source, state.edge_ids.data[t]);
                    return false;
                }
                state.sources.data[t] = source;
            }
        }
        if (relation.edge_ids) {
            const int64_t begin = state.indptr[chunk.first];
            name_edges(relation.edge_ids, state.edge_ids.data + begin, state.indptr[chunk.last] - begin);
        }
        return true;
    }

    void relabel(const Chunk& chunk) {
        const TypeState& source = type_[relations_[chunk.relation].source_type];
        if (source.dense) {
            relabel_by(chunk, DenseRelabel(*source.table));
        } else {
            relabel_by(chunk, HashRelabel(*source.table, source.slots));
        }
    }

    template <class Table>
    void relabel_by(const Chunk& chunk, const Table& table) {
        const sage_attention_relation& relation = relations_[chunk.relation];
        const RelationState& state = relation_[chunk.relation];
        TypeState& source = type_[relation.source_type];
        const int64_t begin = state.indptr[chunk.first], end = state.indptr[chunk.last];
        if (!options_.disjoint) {
            Relabelling<Table> relabelling{table, state.sources.data, source.nodes.data, source.num_nodes};
            relabelling.relabel(begin, end);
            source.num_nodes = relabelling.num_nodes;
            return;
        }
        const int64_t num_names = types_[relation.source_type].num_nodes;
        const int64_t* target_trees = type_[relation.target_type].trees.data;
        const int64_t* targets = state.targets.data;
        int64_t* sources = state.sources.data;
        int64_t* nodes = source.nodes.data;
        int64_t* trees = source.trees.data;
        int64_t count = source.num_nodes;
        for (int64_t t = begin; t < end; ++t) {
            const int64_t soon = t + kRelabelAhead;
            if (soon < end) table.fetch(target_trees[targets[soon]] * num_names + sources[soon]);
            const int64_t node = sources[t], tree = target_trees[targets[t]];
            const int64_t position = table.put(tree * num_names + node, count);
            sources[t] = position;
            nodes[count] = node;  // stays only if it was new
            trees[count] = tree;
            count += position == count;
        }
        source.num_nodes = count;
    }

    // The array is the sample's from now on.
    static int64_t* hand_over(Growing& array, OwnedHetero& owned) {
        int64_t* data = array.data;
        owned.blocks[owned.num_blocks++] = array.block;
        array = {};
        return data;
    }

    void hand_over(OwnedHetero& owned) {
        for (int32_t t = 0; t < num_types_; ++t) {
            owned.sample.types[t].num_nodes = type_[t].num_nodes;
            owned.sample.types[t].nodes = hand_over(type_[t].nodes, owned);
            owned.sample.types[t].trees = hand_over(type_[t].trees, owned);
        }
        for (int32_t r = 0; r < num_relations_; ++r) {
            owned.sample.relations[r].num_edges = relation_[r].num_edges;
            owned.sample.relations[r].sources = hand_over(relation_[r].sources, owned);
            owned.sample.relations[r].targets = hand_over(relation_[r].targets, owned);
            owned.sample.relations[r].edge_ids = hand_over(relation_[r].edge_ids, owned);
        }
    }

    const sage_attention_node_type* types_;
    const sage_attention_relation* relations_;
    const sage_attention_hetero_sampling& options_;
    sage_attention_workspace& workspace_;
    BlockPool* pool_;
    bool keeps_workspace_;
    int32_t num_types_, num_relations_;
    int64_t num_trees_ = 1;
    Buffer trees_;
    TypeState* type_ = nullptr;
    RelationState* relation_ = nullptr;
};

int32_t check_options(const sage_attention_hetero_sampling* o) {
    if (!o) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "sampling: expected a structure, got null");
    if (o->struct_size != static_cast<int64_t>(sizeof(sage_attention_hetero_sampling))) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "struct_size: expected %lld, got %lld",
                    ll(sizeof(sage_attention_hetero_sampling)), ll(o->struct_size));
    }
    if (o->num_hops < 0 || o->num_hops > INT32_MAX) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "num_hops: expected 0 to 2^31 - 1, got %lld", ll(o->num_hops));
    }
    const struct {
        const char* name;
        int32_t value, most;
    } flags[] = {{"replace", o->replace, 1},
                 {"disjoint", o->disjoint, 1},
                 {"strategy", o->strategy, SAGE_ATTENTION_RECENCY},
                 {"strict", o->strict, 1},
                 {"num_threads", o->num_threads, INT32_MAX}};
    for (const auto& flag : flags) {
        if (flag.value >= 0 && flag.value <= flag.most) continue;
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "%s: expected 0 to %d, got %d", flag.name, flag.most, flag.value);
    }
    if (is_labor(o->strategy) && o->replace) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "replace: expected 0 with LABOR, got 1");
    }
    if (!(o->decay >= 0 && o->decay <= kMostDecay)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "decay: expected a number from 0 to %g, got %g", kMostDecay, o->decay);
    }
    if (o->window < -1) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "window: expected -1 (any age) or at least 0, got %lld", ll(o->window));
    }
    return SAGE_ATTENTION_OK;
}

int32_t check_types(const sage_attention_node_type* types, int32_t num_types, const sage_attention_hetero_sampling& o) {
    if (num_types < 1 || num_types > 63 || !types) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "types: expected 1 to 63 node types, got %d", types ? num_types : 0);
    }
    for (int32_t t = 0; t < num_types; ++t) {
        const sage_attention_node_type& type = types[t];
        if (type.num_nodes < 0 || type.num_seeds < 0 || (type.num_seeds > 0 && !type.seeds)) {
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                        "node type %d: expected at least 0 nodes and an array of seeds, got %lld nodes and %lld seeds%s", t,
                        ll(type.num_nodes), ll(type.num_seeds), type.seeds ? "" : " at null");
        }
        if (type.seed_times && !o.disjoint) {
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "disjoint: expected 1 where seeds have times, got 0");
        }
    }
    return SAGE_ATTENTION_OK;
}

int32_t check_relations(const sage_attention_relation* relations, int32_t num_relations,
                        const sage_attention_node_type* types, int32_t num_types, const sage_attention_hetero_sampling& o) {
    if (num_relations < 0 || (num_relations > 0 && !relations)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "relations: expected an array, got %d at null", num_relations);
    }
    for (int32_t r = 0; r < num_relations; ++r) {
        const sage_attention_relation& relation = relations[r];
        SAGE_TRY(check_graph_argument(&relation.graph));
        if (relation.source_type < 0 || relation.source_type >= num_types || relation.target_type < 0 ||
            relation.target_type >= num_types) {
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "relation %d: expected node types in [0, %d), got %d and %d", r,
                        num_types, relation.source_type, relation.target_type);
        }
        if (relation.graph.num_sources != types[relation.source_type].num_nodes ||
            relation.graph.num_targets != types[relation.target_type].num_nodes) {
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT,
                        "relation %d: expected as many sources and targets as its node types have, got %lld and %lld", r,
                        ll(relation.graph.num_sources), ll(relation.graph.num_targets));
        }
        if (relation.weight_sums && is_labor(o.strategy)) {
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "weights of relation %d: expected none with LABOR, got some", r);
        }
        if (o.strategy == SAGE_ATTENTION_RECENCY && relation.edge_times && !relation.weight_sums) {
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "weights of relation %d: expected sums with RECENCY, got null", r);
        }
        if (!relation.fan_outs && o.num_hops > 0) {
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "fan_outs of relation %d: expected an array, got null", r);
        }
        for (int64_t hop = 0; hop < o.num_hops; ++hop) {
            const int64_t fan_out = relation.fan_outs[hop];
            // a draw with weights and without replacement has several attempts
            const int64_t most = relation.weight_sums ? kMaxDraws / (kWeightedAttempts + 1) : kMaxDraws;
            if (fan_out >= -1 && fan_out <= most) continue;
            return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "fan_outs of relation %d: expected -1 (all) to %lld, got %lld", r,
                        ll(most), ll(fan_out));
        }
    }
    return SAGE_ATTENTION_OK;
}

// The arrays of the sample that do not grow.
bool prepare(OwnedHetero& owned, int32_t num_types, int32_t num_relations, int64_t num_hops) {
    sage_attention_hetero_sample& sample = owned.sample;
    sample.num_types = num_types;
    sample.num_relations = num_relations;
    sample.types = static_cast<sage_attention_sampled_type*>(
        calloc(static_cast<size_t>(num_types) + 1, sizeof(sage_attention_sampled_type)));
    sample.relations = static_cast<sage_attention_sampled_relation*>(
        calloc(static_cast<size_t>(num_relations) + 1, sizeof(sage_attention_sampled_relation)));
    owned.blocks = static_cast<Block*>(calloc(static_cast<size_t>(2 * num_types + 3 * num_relations), sizeof(Block)));
    Buffer counts;
    const int64_t size = num_types * (num_hops + 1) + num_relations * num_hops;
    if (!sample.types || !sample.relations || !owned.blocks || !counts.reserve<int64_t>(size)) return false;
    memset(counts.data, 0, static_cast<size_t>(size) * sizeof(int64_t));
    owned.counts = static_cast<int64_t*>(counts.release());
    int64_t* next = owned.counts;
    for (int32_t t = 0; t < num_types; ++t, next += num_hops + 1) sample.types[t].num_sampled_nodes = next;
    for (int32_t r = 0; r < num_relations; ++r, next += num_hops) sample.relations[r].num_sampled_edges = next;
    return true;
}

}  // namespace
}  // namespace sage

extern "C" int32_t sage_attention_sample_hetero(const sage_attention_node_type* types, int32_t num_types,
                                                const sage_attention_relation* relations, int32_t num_relations,
                                                const sage_attention_hetero_sampling* sampling,
                                                sage_attention_workspace* workspace,
                                                sage_attention_hetero_sample** out) {
    if (!out) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "out: expected a pointer, got null");
    *out = nullptr;
    SAGE_TRY(check_options(sampling));
    SAGE_TRY(check_types(types, num_types, *sampling));
    SAGE_TRY(check_relations(relations, num_relations, types, num_types, *sampling));
    sage_attention_workspace* used = workspace ? workspace : sage_attention_workspace_create();
    auto* owned = static_cast<OwnedHetero*>(calloc(1, sizeof(OwnedHetero)));
    int32_t status = SAGE_ATTENTION_OUT_OF_MEMORY;
    if (used && owned && prepare(*owned, num_types, num_relations, sampling->num_hops)) {
        owned->pool = used->pool;
        atomic_fetch_add(&owned->pool->references, 1);
        HeteroSampler sampler(types, num_types, relations, num_relations, *sampling, *used, workspace != nullptr);
        status = sampler.run(*owned);
    } else {
        out_of_memory();
    }
    if (!workspace) sage_attention_workspace_free(used);
    if (status == SAGE_ATTENTION_OK) {
        *out = &owned->sample;
    } else if (owned) {
        sage_attention_hetero_sample_free(&owned->sample);
    }
    return status;
}

extern "C" void sage_attention_hetero_sample_free(sage_attention_hetero_sample* sample) {
    if (!sample) return;
    auto* owned = reinterpret_cast<OwnedHetero*>(sample);
    for (int64_t b = 0; b < owned->num_blocks; ++b) block_give(owned->pool, owned->blocks[b]);
    free(owned->blocks);
    free(sample->types);
    free(sample->relations);
    deallocate(owned->counts);
    block_pool_release(owned->pool);
    free(owned);
}
