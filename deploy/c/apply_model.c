/* Applies a model that `sage-attention train` saved, with no Python at all:
 *
 *   apply_model LIBRARY MODEL EDGES.csv FEATURES.json OUT.csv [THREADS]
 *
 * LIBRARY is sage_attention.dll or .so out of the wheel. OUT gets node, predicted, probability: what `sage-attention
 * predict` writes as Parquet. Exit code 0, or 2 after one line that says what was wrong. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "library.h"
#include "model.h"
#include "tables.h"

static int32_t threads;

/* values[n, w] = sum of weight[w, f] over the features f that node n has: a sparse times a dense matrix. */
static float *project_sparse(const features *f, const layer *l, int normalize_rows) {
    const int64_t width = l->heads * l->channels, entries = f->indptr[f->num_nodes];
    float *transposed = allocate((size_t)(l->columns * width), sizeof *transposed);
    float *values = allocate((size_t)(f->num_nodes * width), sizeof *values), *factors = NULL;
    sage_attention_graph graph;
    int64_t w, c, n, k;
    for (w = 0; w < width; ++w) {
        for (c = 0; c < l->columns; ++c) transposed[c * width + w] = l->weight[w * l->columns + c];
    }
    if (normalize_rows) {
        factors = allocate((size_t)entries, sizeof *factors);
        for (n = 0; n < f->num_nodes; ++n) {
            for (k = f->indptr[n]; k < f->indptr[n + 1]; ++k)
                factors[k] = 1.0f / (float)(f->indptr[n + 1] - f->indptr[n]);
        }
    }
    graph.indptr = f->indptr;
    graph.indices = f->indices;
    graph.num_targets = f->num_nodes;
    graph.num_sources = l->columns;
    graph.num_edges = entries;
    graph.index_type = SAGE_ATTENTION_INT32;
    graph.trusted = 0;
    check(sage_aggregate(&graph, SAGE_ATTENTION_FLOAT32, factors, transposed, SAGE_ATTENTION_PLAIN, NULL, width, values,
                         threads));
    free(transposed);
    free(factors);
    return values;
}

/* values[n, w] = weight[w, :] . x[n, :] */
static float *project_dense(const float *x, int64_t nodes, const layer *l) {
    const int64_t width = l->heads * l->channels;
    float *values = allocate((size_t)(nodes * width), sizeof *values);
    int64_t n, w, c;
    for (n = 0; n < nodes; ++n) {
        for (w = 0; w < width; ++w) {
            float sum = 0;
            for (c = 0; c < l->columns; ++c) sum += x[n * l->columns + c] * l->weight[w * l->columns + c];
            values[n * width + w] = sum;
        }
    }
    return values;
}

/* logits[n, h] = attention[h, :] . values[n, h, :] */
static float *logits_of(const float *values, const float *attention, int64_t nodes, const layer *l) {
    float *logits = allocate((size_t)(nodes * l->heads), sizeof *logits);
    int64_t n, h, c;
    for (n = 0; n < nodes; ++n) {
        for (h = 0; h < l->heads; ++h) {
            const float *value = values + (n * l->heads + h) * l->channels;
            float sum = 0;
            for (c = 0; c < l->channels; ++c) sum += value[c] * attention[h * l->channels + c];
            logits[n * l->heads + h] = sum;
        }
    }
    return logits;
}

/* The edges by target, each node's self loop last. */
static sage_attention_graph by_target(const edges *e, int64_t nodes) {
    const size_t all = (size_t)(e->num_edges + nodes);
    int32_t *sources = allocate(all, sizeof *sources), *targets = allocate(all, sizeof *targets);
    int64_t *indptr = allocate((size_t)nodes + 1, sizeof *indptr), *ids = allocate(all, sizeof *ids), n;
    int32_t *indices = allocate(all, sizeof *indices);
    sage_attention_graph graph;
    memcpy(sources, e->sources, (size_t)e->num_edges * sizeof *sources);
    memcpy(targets, e->targets, (size_t)e->num_edges * sizeof *targets);
    for (n = 0; n < nodes; ++n) sources[e->num_edges + n] = targets[e->num_edges + n] = (int32_t)n;
    check(sage_coo_to_csc(sources, targets, SAGE_ATTENTION_INT32, (int64_t)all, nodes, nodes, indptr, indices, ids));
    free(sources);
    free(targets);
    free(ids);
    graph.indptr = indptr;
    graph.indices = indices;
    graph.num_targets = graph.num_sources = nodes;
    graph.num_edges = (int64_t)all;
    graph.index_type = SAGE_ATTENTION_INT32;
    graph.trusted = 1;
    return graph;
}

/* One layer's attention over projected values: [nodes, heads, channels]. */
static float *attend(const sage_attention_graph *graph, const model *m, const layer *l, const float *values,
                     int is_last) {
    const int64_t nodes = graph->num_targets;
    float *out = allocate((size_t)(nodes * l->heads * l->channels), sizeof *out);
    float *source_logits = logits_of(values, l->source_attention, nodes, l);
    float *target_logits = logits_of(values, l->target_attention, nodes, l);
    sage_attention_problem p;
    sage_attention_result result;
    memset(&p, 0, sizeof p);
    memset(&result, 0, sizeof result);
    p.struct_size = (int64_t)sizeof p;
    p.score = SAGE_ATTENTION_GAT;
    p.dtype = SAGE_ATTENTION_FLOAT32;
    p.graph = *graph;
    p.num_edge_rows = graph->num_edges;
    p.num_rows = nodes;
    p.sampling.fan_out = -1;
    p.heads = l->heads;
    p.channels = l->channels;
    p.negative_slope = m->negative_slope;
    p.values = values;
    p.source_logits = source_logits;
    p.target_logits = target_logits;
    p.bias = is_last ? NULL : l->bias;
    p.num_threads = threads;
    result.out = out;
    check(sage_forward(&p, &result));
    free(source_logits);
    free(target_logits);
    return out;
}

/* [nodes, classes] */
static float *apply(const model *m, const features *f, const sage_attention_graph *graph) {
    const int64_t nodes = f->num_nodes;
    float *x = NULL;
    int64_t i, n, h, c;
    for (i = 0; i < m->num_layers; ++i) {
        const layer *l = &m->layers[i];
        const int is_last = i == m->num_layers - 1;
        float *values = i == 0 ? project_sparse(f, l, m->normalize_rows) : project_dense(x, nodes, l);
        float *out = attend(graph, m, l, values, is_last);
        free(values);
        free(x);
        if (is_last) { /* the mean of the heads, and the bias */
            x = allocate((size_t)(nodes * l->channels), sizeof *x);
            for (n = 0; n < nodes; ++n) {
                for (c = 0; c < l->channels; ++c) {
                    float sum = 0;
                    for (h = 0; h < l->heads; ++h) sum += out[(n * l->heads + h) * l->channels + c];
                    x[n * l->channels + c] = sum / (float)l->heads + l->bias[c];
                }
            }
            free(out);
        } else { /* ELU */
            for (n = 0; n < nodes * l->heads * l->channels; ++n) out[n] = out[n] > 0 ? out[n] : expm1f(out[n]);
            x = out;
        }
    }
    return x;
}

static void write_predictions(const char *path, const model *m, const features *f, const float *logits) {
    FILE *file = begin_file(path);
    int64_t n, c;
    fputs("node,predicted,probability\n", file);
    for (n = 0; n < f->num_nodes; ++n) {
        const float *row = logits + n * m->num_classes;
        const char *name;
        int64_t best = 0;
        double sum = 0;
        for (c = 0; c < m->num_classes; ++c) {
            if (isfinite(row[c])) continue;
            fail("node %lld: the result is NaN or infinite; is the model the one for these features?",
                 (long long)f->ids[n]);
        }
        for (c = 1; c < m->num_classes; ++c) best = row[c] > row[best] ? c : best;
        for (c = 0; c < m->num_classes; ++c) sum += exp((double)row[c] - (double)row[best]);
        fprintf(file, "%lld,\"", (long long)f->ids[n]);
        for (name = m->class_names[best]; *name; ++name) fprintf(file, *name == '"' ? "\"\"" : "%c", *name);
        fprintf(file, "\",%.9g\n", 1 / sum);
    }
    finish_file();
}

int main(int count, char **given) {
    char **words = utf8_arguments(&count, given);
    model m;
    features f;
    edges e;
    sage_attention_graph graph;
    int i;
    if (count < 6 || count > 7) fail("usage: apply_model LIBRARY MODEL EDGES.csv FEATURES.json OUT.csv [THREADS]");
    for (i = 3; i < 5; ++i) {
        if (same_file(words[i], words[5])) fail("%s: expected another file than those that are read", words[5]);
    }
    if (count == 7) {
        char *end;
        const long wanted = strtol(words[6], &end, 10);
        if (end == words[6] || *end || wanted < 0 || wanted > 1024)
            fail("THREADS: expected 0 to 1024, got %s", words[6]);
        threads = (int32_t)wanted;
    }
    load_library(words[1]);
    m = load_model(words[2]);
    f = read_features(words[4], m.num_features);
    e = read_edges(words[3], &f, m.undirected);
    graph = by_target(&e, f.num_nodes);
    write_predictions(words[5], &m, &f, apply(&m, &f, &graph));
    printf("%lld nodes: %s\n", (long long)f.num_nodes, words[5]);
    return 0;
}
