/* The two files a model is applied to, as `sage-attention predict` reads them: edges as CSV, features as JSON. */
#ifndef TABLES_H
#define TABLES_H

#include <stdint.h>

/* N nodes in ascending order of their ids, and which of F features each has: row i has indices[indptr[i] ..
 * indptr[i + 1]), ascending. */
typedef struct features {
    int64_t num_nodes;
    int64_t *ids;    /* [N] */
    int64_t *indptr; /* [N + 1] */
    int32_t *indices;
} features;

/* {"id": [indices of the features this node has], ...} with integers for ids, each index below num_features. */
features read_features(const char *path, int64_t num_features);

/* E edges as positions of nodes, self loops left out; sorted by source, each once, if undirected. */
typedef struct edges {
    int64_t num_edges;
    int32_t *sources, *targets;
} edges;

/* Two columns of integers, with or without a header line. */
edges read_edges(const char *path, const features *nodes, int undirected);

#endif
