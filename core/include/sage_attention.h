/* SageAttention for graphs: the whole ABI of the native core.
 *
 * Plain C: fixed-width integers, pointers, sizes. No C++ type, exception or allocation crosses, except the
 * objects with a matching *_free function. Every function that can fail returns a status; the reason is then in
 * sage_attention_last_error(), per thread, until that thread's next failing call.
 *
 * Layouts. All arrays are dense, row-major ("[a, b]" means a*b elements, b fastest). T is the element type named
 * by `dtype`. A graph is CSC by target: the in-edges of target i are the positions indptr[i] .. indptr[i+1]-1 of
 * `indices`, which holds their sources. Duplicate edges count twice, self loops are ordinary edges, and a target
 * without in-edges gets zeros.
 *
 * Threads. `num_threads` is per call: 1 runs on the caller, 0 means one per core. Results are bit-identical for any
 * number. All functions may be called from several threads at once.
 */
#ifndef SAGE_ATTENTION_H
#define SAGE_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#if defined(SAGE_ATTENTION_BUILD)
#define SAGE_ATTENTION_API __declspec(dllexport)
#else
#define SAGE_ATTENTION_API __declspec(dllimport)
#endif
#else
#define SAGE_ATTENTION_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised by every change of a structure or signature below; a caller compares it with what it was built for. */
#define SAGE_ATTENTION_ABI_VERSION 7

/* Status codes. */
enum {
    SAGE_ATTENTION_OK = 0,
    SAGE_ATTENTION_INVALID_ARGUMENT = 1, /* an argument is null, out of range or contradicts another */
    SAGE_ATTENTION_OUT_OF_MEMORY = 2,    /* scratch or result memory could not be had */
    SAGE_ATTENTION_UNSUPPORTED = 3       /* valid, but not available (a CPU level, a combination) */
};

/* Element types. */
enum { SAGE_ATTENTION_FLOAT32 = 0, SAGE_ATTENTION_FLOAT64 = 1 };

/* How a table of rows is kept. PLAIN: elements of `dtype`. The others take fewer bytes, need dtype = FLOAT32, and are made
 * float32 again where they are read; there are no gradients through them.
 *   FLOAT16   IEEE binary16
 *   BFLOAT16  the upper half of a float32
 *   INT8      a signed byte times the scale of its row: float32 scales, one for each source */
enum { SAGE_ATTENTION_PLAIN = 0, SAGE_ATTENTION_FLOAT16 = 1, SAGE_ATTENTION_BFLOAT16 = 2, SAGE_ATTENTION_INT8 = 3 };

/* Index types. */
enum { SAGE_ATTENTION_INT32 = 0, SAGE_ATTENTION_INT64 = 1 };

/* Scores of the edge source j -> target i, per head (before the softmax over the in-edges of i):
 *   GAT    LeakyReLU(source_logits_j + target_logits_i [+ edge_weight . e_ij])
 *   GATV2  attention . LeakyReLU(values_j + queries_i [+ edge_weight e_ij])
 *   DOT    scale * (queries_i . keys_j [+ edge_queries_i . e_ij])                                          */
enum { SAGE_ATTENTION_GAT = 0, SAGE_ATTENTION_GATV2 = 1, SAGE_ATTENTION_DOT = 2 };

/* ---------------------------------------------------------------- library */

/* Version of the library, "major.minor.patch". */
SAGE_ATTENTION_API const char *sage_attention_version(void);
SAGE_ATTENTION_API int32_t sage_attention_abi_version(void);

/* Why the calling thread's last failing call failed; never null. */
SAGE_ATTENTION_API const char *sage_attention_last_error(void);

/* The CPU level in use: "scalar", "avx2" or "neon". It is detected once; the environment variable SAGE_ATTENTION_CPU
 * or sage_attention_set_cpu_level lowers it (for tests and measurements). */
SAGE_ATTENTION_API const char *sage_attention_cpu_level(void);
SAGE_ATTENTION_API int32_t sage_attention_set_cpu_level(const char *level);
/* The i-th level this machine can run, lowest first; null past the last. */
SAGE_ATTENTION_API const char *sage_attention_available_cpu_level(int32_t i);

/* Number of cores num_threads = 0 stands for. */
SAGE_ATTENTION_API int32_t sage_attention_default_num_threads(void);

/* ---------------------------------------------------------------- graph */

typedef struct sage_attention_graph {
    const int64_t *indptr; /* [num_targets + 1], indptr[0] = 0, never falling, last = num_edges */
    const void *indices;   /* [num_edges] of index_type, each in [0, num_sources) */
    int64_t num_targets;
    int64_t num_sources;
    int64_t num_edges;
    int32_t index_type;
    int32_t trusted; /* 1: the arrays were checked before (sage_attention_check_graph); 0: check in this call */
} sage_attention_graph;

/* Checks everything said above about a graph's arrays. */
SAGE_ATTENTION_API int32_t sage_attention_check_graph(const sage_attention_graph *graph, int32_t num_threads);

/* Edges in any order to CSC, stable: edges of one target keep their order.
 *   sources, targets [num_edges] of index_type; out_indptr [num_targets + 1];
 *   out_indices [num_edges] of index_type; out_edge_ids [num_edges]: position of each edge in the input. */
SAGE_ATTENTION_API int32_t sage_attention_coo_to_csc(const void *sources, const void *targets, int32_t index_type,
                                                     int64_t num_edges, int64_t num_sources, int64_t num_targets,
                                                     int64_t *out_indptr, void *out_indices, int64_t *out_edge_ids);

/* The same edges by source: out_indptr [num_sources + 1], out_indices [num_edges] the targets, ascending within a
 * source, out_positions [num_edges] each edge's position in `graph` (may be null). */
SAGE_ATTENTION_API int32_t sage_attention_transpose(const sage_attention_graph *graph, int64_t *out_indptr,
                                                    void *out_indices, int64_t *out_positions);

/* ---------------------------------------------------------------- sampling */

/* How in-edges are picked. The picks of (seed, hop, node) are a pure function: Philox 4x32-10 with key = seed and
 * counter = (draw, hop, node). */
typedef struct sage_attention_sampling {
    uint64_t seed;
    int64_t fan_out; /* in-edges per node; -1: all of them, in CSC order; 0 is refused */
    int32_t replace; /* 1: fan_out independent draws, also where the degree is smaller */
    uint32_t hop;    /* in [0, 2^31) */
} sage_attention_sampling;

/* One hop from `nodes` (in any order, duplicates allowed).
 *   out_indptr [num_nodes + 1]; out_sources, out_edge_ids [capacity]: source node and CSC position of each pick,
 *   grouped by node in pick order. With out_sources null only out_indptr is written: out_indptr[num_nodes] is then
 *   the capacity needed. out_edge_ids may be null. */
SAGE_ATTENTION_API int32_t sage_attention_sample_one_hop(const sage_attention_graph *graph,
                                                         const sage_attention_sampling *sampling,
                                                         const int64_t *nodes, int64_t num_nodes, int64_t *out_indptr,
                                                         int64_t *out_sources, int64_t *out_edge_ids, int64_t capacity,
                                                         int32_t num_threads);

/* A sampled subgraph. Nodes: the seeds as given (duplicates kept, each with its own, equal, in-edges), then new nodes
 * in order of discovery. Edges: grouped by hop, by target, in pick order. */
typedef struct sage_attention_sample {
    int64_t num_nodes;
    int64_t num_edges;
    int64_t num_hops;
    int64_t num_expanded;            /* nodes whose in-edges were sampled: the first num_expanded of `nodes` */
    int64_t *nodes;                  /* [num_nodes] ids in the graph */
    int64_t *indptr;                 /* [num_expanded + 1] in-edges of each expanded node */
    int64_t *sources;                /* [num_edges] positions in `nodes` */
    int64_t *edge_ids;               /* [num_edges] CSC positions in the graph */
    int64_t *num_sampled_nodes;      /* [num_hops + 1], [0] = number of seeds */
    int64_t *num_sampled_edges;      /* [num_hops] */
} sage_attention_sample;

/* Memory a sampler keeps between calls (the relabelling table). One call at a time may use it. */
typedef struct sage_attention_workspace sage_attention_workspace;
SAGE_ATTENTION_API sage_attention_workspace *sage_attention_workspace_create(void); /* null: out of memory */
SAGE_ATTENTION_API void sage_attention_workspace_free(sage_attention_workspace *workspace);

/* Multi-hop sampling with relabelling, square graphs only (num_targets = num_sources). fan_outs [num_hops], the first
 * for the seeds; hop h draws with sampling hop number h. workspace may be null. On success *out is a new sample,
 * to be freed with sage_attention_sample_free. */
SAGE_ATTENTION_API int32_t sage_attention_sample_hops(const sage_attention_graph *graph,
                                                      sage_attention_workspace *workspace, const int64_t *seeds,
                                                      int64_t num_seeds, const int64_t *fan_outs, int64_t num_hops,
                                                      int32_t replace, uint64_t seed, int32_t num_threads,
                                                      sage_attention_sample **out);
SAGE_ATTENTION_API void sage_attention_sample_free(sage_attention_sample *sample);

/* ---- sampling over several node and edge types, in time, by weight, in trees */

/* Which of the in-edges a tree's time allows are picked.
 *   UNIFORM           any fan_out of them
 *   LAST              the latest fan_out
 *   LABOR             each with the probability fan_out / degree, by one random number of each source, which all targets
 *                     of a hop share: fewer distinct nodes (LABOR-0 of Balin and Catalyurek, NeurIPS 2023). A source has
 *                     a number for each hop and, with disjoint = 1, each tree
 *   LABOR_SEQUENTIAL  the fan_out in-edges whose sources have the smallest of these numbers
 *   RECENCY           an in-edge in proportion to its weight * exp(-decay * its age)
 * LABOR picks are in CSC order; they take replace = 0 and no weights. */
enum {
    SAGE_ATTENTION_UNIFORM = 0,
    SAGE_ATTENTION_LAST = 1,
    SAGE_ATTENTION_LABOR = 2,
    SAGE_ATTENTION_LABOR_SEQUENTIAL = 3,
    SAGE_ATTENTION_RECENCY = 4
};

typedef struct sage_attention_node_type {
    int64_t num_nodes;
    const int64_t *seeds; /* [num_seeds] nodes of this type; may be null if there are none */
    int64_t num_seeds;
    const int64_t *seed_times; /* [num_seeds] or null: the trees of these seeds have no time */
} sage_attention_node_type;

typedef struct sage_attention_relation {
    sage_attention_graph graph; /* sources are nodes of source_type, targets of target_type */
    int32_t source_type;
    int32_t target_type;
    const int64_t *fan_outs;   /* [num_hops]; -1: all in-edges; 0: none */
    const int64_t *edge_times; /* [num_edges] by position, never falling within a target; or null: not limited by time */
    const double *weight_sums; /* [num_edges] or null: running sums within each target of weights above 0
                                * (sage_attention_weight_sums); an in-edge is drawn in proportion to its weight.
                                * RECENCY: sums with these times and this decay, wherever there are times */
    const int64_t *edge_ids;   /* [num_edges] by position, or null: what the sample's edge_ids call an edge */
} sage_attention_relation;

typedef struct sage_attention_hetero_sampling {
    int64_t struct_size; /* sizeof(sage_attention_hetero_sampling) */
    uint64_t seed;
    int64_t num_hops;
    int64_t window;      /* with times: in-edges older than the tree's time by more are not picked; -1: any age */
    int32_t replace;
    int32_t disjoint;    /* 1: each seed grows a tree of its own, which shares no node with the others */
    int32_t strategy;    /* SAGE_ATTENTION_UNIFORM, ... */
    int32_t strict;      /* 1: in-edges as old as the tree's time are not picked either; younger ones never are */
    int32_t num_threads;
    int32_t reserved;    /* 0 */
    double decay;        /* RECENCY: of a weight in a unit of time */
} sage_attention_hetero_sampling;

typedef struct sage_attention_sampled_type {
    int64_t num_nodes;
    int64_t *nodes;             /* [num_nodes] ids in the graph: seeds as given, then in order of discovery */
    int64_t *trees;             /* [num_nodes] or null, if not disjoint: the seed's number, counted over all types */
    int64_t *num_sampled_nodes; /* [num_hops + 1] */
} sage_attention_sampled_type;

typedef struct sage_attention_sampled_relation {
    int64_t num_edges;
    int64_t *sources;           /* [num_edges] positions in the nodes of source_type */
    int64_t *targets;           /* [num_edges] positions in the nodes of target_type, never falling */
    int64_t *edge_ids;          /* [num_edges] relation.edge_ids, or positions in its graph */
    int64_t *num_sampled_edges; /* [num_hops] */
} sage_attention_sampled_relation;

typedef struct sage_attention_hetero_sample {
    int64_t num_types;
    int64_t num_relations;
    sage_attention_sampled_type *types;
    sage_attention_sampled_relation *relations;
} sage_attention_hetero_sample;

/* Multi-hop sampling. A hop expands, for each relation in turn, the nodes of its target type that the hop before found
 * first. Draws are a pure function of (seed, number of the relation, hop, node) and, in trees, of the
 * seed node and how often it came before among the seeds of its type: a repeated seed grows another tree each time.
 * With one type, one relation and no trees the picks are those of sage_attention_sample_hops. Times need disjoint = 1;
 * the time of a tree is that of its seed. workspace may be null. */
SAGE_ATTENTION_API int32_t sage_attention_sample_hetero(const sage_attention_node_type *types, int32_t num_types,
                                                        const sage_attention_relation *relations,
                                                        int32_t num_relations,
                                                        const sage_attention_hetero_sampling *sampling,
                                                        sage_attention_workspace *workspace,
                                                        sage_attention_hetero_sample **out);
SAGE_ATTENTION_API void sage_attention_hetero_sample_free(sage_attention_hetero_sample *sample);

/* Running sums of weights [num_edges] within each target, for sage_attention_relation. Weights are finite, above 0; null:
 * all are 1. With edge_times [num_edges], never falling within a target, or null, all that was summed fades by
 * exp(-decay) in a unit of time: a sum is what is left of it at the time of its in-edge. */
SAGE_ATTENTION_API int32_t sage_attention_weight_sums(const sage_attention_graph *graph, const double *weights,
                                                      const int64_t *edge_times, double decay, double *out,
                                                      int32_t num_threads);

/* ---- random walks */

typedef struct sage_attention_walking {
    int64_t struct_size; /* sizeof(sage_attention_walking) */
    uint64_t seed;
    int64_t length;      /* steps */
    int64_t num_walks;   /* from each seed */
    double restart;      /* in [0, 1): the chance, before each step, to be back at the seed instead */
    double p;            /* a step back to the node before is weighed by 1 / p, */
    double q;            /* one to a node that the node before has no edge to by 1 / q (node2vec); 1 and 1: plain walks */
    int32_t num_threads;
    int32_t reserved;    /* 0 */
} sage_attention_walking;

/* Walks from targets to the sources of their in-edges; those of the transposed graph go along the edges. Square graphs
 * only. Where p or q is not 1 the sources of each target must ascend. A walk is a pure function of (seed, its seed node,
 * its number among the walks from there).
 *   weight_sums [num_edges] (sage_attention_weight_sums) or null: in-edges are taken in proportion to their weights
 *   out_nodes [num_seeds, num_walks, length + 1], the seed first; -1 after a node without in-edges
 *   out_edge_ids [num_seeds, num_walks, length] or null: CSC positions; -1 for a restart, and after the end */
SAGE_ATTENTION_API int32_t sage_attention_random_walk(const sage_attention_graph *graph, const double *weight_sums,
                                                      const sage_attention_walking *walking, const int64_t *seeds,
                                                      int64_t num_seeds, int64_t *out_nodes, int64_t *out_edge_ids);

/* ---- sampling guided by attention: from scores alone, without replacement
 *   TOP_ATTENTION  the fan_out in-edges with the highest attention, highest first; of equal ones the first
 *   IMPORTANCE     fan_out in-edges by chance, each with a probability in proportion to its attention, at most 1:
 *                  systematic sampling in the order of the attention, one random number a node
 * The attention of an edge is the largest, over the heads, of its softmax weight among all in-edges of its target. Rows
 * with no more than fan_out in-edges give all of them, in CSC order, and their scores are not read. Picks, probabilities
 * and sums are the same to the bit on every machine; a score that is read and not finite is refused. */
enum { SAGE_ATTENTION_TOP_ATTENTION = 0, SAGE_ATTENTION_IMPORTANCE = 1 };

typedef struct sage_attention_guide {
    int64_t struct_size; /* sizeof(sage_attention_guide) */
    int32_t strategy;
    int32_t dtype;             /* of the logits */
    int64_t heads;             /* H */
    const void *source_logits; /* [num_sources, H]; an edge's score is LeakyReLU(source + target) */
    const void *target_logits; /* [num_targets, H] or null, with source_logits */
    const void *edge_logits;   /* [num_edges, H] the scores themselves, in place of the two */
    const int64_t *edge_ids;   /* [num_edges] row of edge_logits by CSC position; null: the position */
    double negative_slope;     /* of the LeakyReLU */
} sage_attention_guide;

/* What is written; all but indptr may be null. With sources null only indptr is: its last entry is the capacity needed. */
typedef struct sage_attention_guided_hop {
    int64_t *indptr;       /* [num_nodes + 1] */
    int64_t *sources;      /* [capacity] */
    int64_t *edge_ids;     /* [capacity] CSC positions */
    double *probabilities; /* [capacity] with which each was picked; 1 by TOP_ATTENTION */
    double *row_max;       /* [num_nodes, H] largest score of the row; 0 where all in-edges were picked */
    double *rest_sum;      /* [num_nodes, H] sum of exp(score - row_max) over those not picked */
} sage_attention_guided_hop;

SAGE_ATTENTION_API int32_t sage_attention_sample_guided(const sage_attention_graph *graph,
                                                        const sage_attention_sampling *sampling,
                                                        const sage_attention_guide *guide, const int64_t *nodes,
                                                        int64_t num_nodes, const sage_attention_guided_hop *out,
                                                        int64_t capacity, int32_t num_threads);

/* ---------------------------------------------------------------- attention */

/* One attention problem. Rows: num_rows targets are attended; row r is target targets[r] of the graph, or r itself
 * where targets is null (then num_rows = graph.num_targets). With sampling.fan_out = -1 and replace = 0 all in-edges
 * are attended, otherwise those picked for the target, which are never stored: forward and backward draw them anew.
 *
 * "Edge row" of an edge: edge_ids[position], or the position itself where edge_ids is null. It selects the row of
 * edge_features, weights and their gradients, and the dropout mask. Edge rows are distinct, in [0, num_edge_rows).
 *
 * H = heads, C = channels (per head), D = edge_channels; S = graph.num_sources, R = num_rows, M = num_edge_rows. */
typedef struct sage_attention_problem {
    int64_t struct_size; /* sizeof(sage_attention_problem): guards against a caller built for another layout */
    int32_t score;
    int32_t dtype;
    sage_attention_graph graph;
    const int64_t *edge_ids; /* [num_edges] or null */
    int64_t num_edge_rows;
    const int64_t *targets; /* [R] or null */
    int64_t num_rows;
    sage_attention_sampling sampling;
    int64_t heads;
    int64_t channels;
    int64_t edge_channels;     /* 0: no edge features */
    double negative_slope;     /* GAT, GATV2 */
    double scale;              /* DOT, usually 1/sqrt(C) */
    double dropout;            /* in [0, 1): chance that a weight is set to zero; others are divided by 1 - dropout */
    uint64_t dropout_seed;     /* mask = f(dropout_seed, edge row, head) */
    const void *values;        /* [S, H, C]; GATV2: also the keys */
    const void *keys;          /* [S, H, C]      DOT */
    const void *queries;       /* [R, H, C]      GATV2, DOT */
    const void *source_logits; /* [S, H]         GAT */
    const void *target_logits; /* [R, H] or null GAT */
    const void *attention;     /* [H, C]         GATV2 */
    const void *edge_features; /* [M, D] or null */
    const void *edge_weight;   /* with edge features: GAT [H, D]; GATV2 [H * C, D]; DOT: null */
    const void *edge_queries;  /* with edge features: DOT [R, H, D] */
    const void *bias;          /* [H, C] or null: added to `out`, also in rows without edges; it costs
                                * gradients of scores the digits by which it exceeds what it is added to */
    int32_t num_threads;
    int32_t weights_before_dropout; /* 1: `weights` are those before dropout */
    int32_t values_kind;       /* SAGE_ATTENTION_PLAIN, ...; GATV2: also of the keys */
    int32_t keys_kind;         /* DOT */
    const float *value_scales; /* [S] with values_kind INT8; else not read */
    const float *key_scales;   /* [S] with keys_kind INT8; else not read */
} sage_attention_problem;

/* What a forward pass writes. Those after `out` may be null; backward needs what is marked. */
typedef struct sage_attention_result {
    void *out;          /* [R, H, C]  sum of weight * values over the in-edges, plus the bias        (backward) */
    void *edge_out;     /* [R, H, D]  DOT with edge features: sum of weight * edge_features          (backward) */
    void *row_max;      /* [R, H]     largest score of the row                                       (backward) */
    void *row_sum;      /* [R, H]     sum of exp(score - row_max)                                    (backward) */
    void *positive_out; /* [R, H, C]  GAT: that sum over edges whose score is positive  (backward to target_logits);
                                      only of PLAIN values */
    void *positive_sum; /* [R, H]     GAT: sum of weights before dropout over those     (backward to target_logits) */
    void *weights;      /* [M, H]     softmax weights by edge row; rows of edges not attended are left as they are;
                                      only where all in-edges are attended */
} sage_attention_result;

SAGE_ATTENTION_API int32_t sage_attention_forward(const sage_attention_problem *problem,
                                                  const sage_attention_result *result);

/* The transposed graph (sage_attention_transpose), if the caller keeps one; used where all in-edges of all targets
 * are attended. Null arrays: it is built for the call. */
typedef struct sage_attention_transposed {
    const int64_t *indptr;    /* [S + 1] */
    const void *indices;      /* [num_edges] of the graph's index_type */
    const int64_t *positions; /* [num_edges] */
} sage_attention_transposed;

/* Gradients in, gradients out. Null outputs are not computed; the others are overwritten whole. */
typedef struct sage_attention_gradients {
    const void *out;           /* [R, H, C] */
    const void *edge_out;      /* [R, H, D] or null */
    const void *weights;       /* [M, H] or null: gradient of result.weights */
    void *values;              /* [S, H, C]; where S = R it may be the result's positive_out, which is then lost */
    void *keys;                /* [S, H, C] */
    void *queries;             /* [R, H, C] */
    void *source_logits;       /* [S, H] */
    void *target_logits;       /* [R, H] */
    void *attention;           /* [H, C] */
    void *edge_features;       /* [M, D] */
    void *edge_weight;         /* as problem.edge_weight */
    void *edge_queries;        /* [R, H, D] */
    void *bias;                /* [H, C] */
} sage_attention_gradients;

SAGE_ATTENTION_API int32_t sage_attention_backward(const sage_attention_problem *problem,
                                                   const sage_attention_result *result,
                                                   const sage_attention_transposed *transposed,
                                                   const sage_attention_gradients *gradients);

/* out_i = sum over the in-edges of i of edge_values * values_j, the plain weighted sum (a sparse times a dense matrix).
 *   edge_values [num_edges] of dtype or null (all 1); values [num_sources, channels], kept as values_kind says;
 *   value_scales [num_sources] with INT8, else not read; out [num_targets, channels] of dtype. */
SAGE_ATTENTION_API int32_t sage_attention_aggregate(const sage_attention_graph *graph, int32_t dtype,
                                                    const void *edge_values, const void *values, int32_t values_kind,
                                                    const float *value_scales, int64_t channels, void *out,
                                                    int32_t num_threads);

/* ---- GAT over raw rows, projected after aggregating
 *
 * The heads of a GAT layer weigh the same rows x_j, and projecting them is linear: for each target the sums of x_j over
 * its in-edges are taken, one per head, and only these are projected. With rows attended seldom (sampled mini-batches)
 * that is less work than projecting each row first, and rows are read where they lie: no batch is ever gathered.
 *   score  LeakyReLU(source_weight_h . x_j + target_weight_h . x_i)      (or + target_logits_ih)
 *   out    projection_h (sum of weight * x_j) + bias_h
 * All in-edges of all targets are attended. H = heads, F = features, C = channels, S = graph.num_sources,
 * R = graph.num_targets. */
typedef struct sage_attention_raw_problem {
    int64_t struct_size; /* sizeof(sage_attention_raw_problem) */
    int32_t dtype;
    int32_t num_threads;
    sage_attention_graph graph;
    const int64_t *edge_ids; /* [num_edges] what the dropout mask calls an edge; null: its position */
    int64_t heads;
    int64_t features;
    int64_t channels;
    const void *table;              /* [num_table_rows, F] */
    int64_t num_table_rows;
    const int64_t *row_ids;         /* [S] the table's row of each source; null: its number */
    const void *target_table;       /* [num_target_table_rows, F] or null; may be `table` */
    int64_t num_target_table_rows;
    const int64_t *target_row_ids;  /* [R], with target_table; null: its number */
    const void *source_weight;      /* [H, F] */
    const void *target_weight;      /* [H, F], with target_table */
    const void *target_logits;      /* [R, H] or null, without target_table */
    const void *projection;         /* [H, C, F] */
    const void *bias;               /* [H, C] or null */
    double negative_slope;
    double dropout;                 /* as sage_attention_problem has it */
    uint64_t dropout_seed;
} sage_attention_raw_problem;

/* out [R, H, C]; row_max, row_sum [R, H] or null: what the backward pass needs. */
SAGE_ATTENTION_API int32_t sage_attention_raw_forward(const sage_attention_raw_problem *problem, void *out,
                                                      void *row_max, void *row_sum);

/* Gradients of what is learned; null: not computed. The rows themselves have none. */
typedef struct sage_attention_raw_gradients {
    const void *out;     /* [R, H, C], given */
    const void *row_max; /* [R, H], of the forward pass */
    const void *row_sum; /* [R, H], of the forward pass */
    void *source_weight; /* [H, F] */
    void *target_weight; /* [H, F], with target_table */
    void *target_logits; /* [R, H], without target_table */
    void *projection;    /* [H, C, F] */
} sage_attention_raw_gradients;

SAGE_ATTENTION_API int32_t sage_attention_raw_backward(const sage_attention_raw_problem *problem,
                                                       const sage_attention_raw_gradients *gradients);

#ifdef __cplusplus
}
#endif

#endif
