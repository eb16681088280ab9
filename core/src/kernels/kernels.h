// What the drivers ask of the kernels, one table per CPU level and element type.
//
// A kernel works on a range of rows of one task, on the calling thread, in scratch it is given. It checks nothing:
// the drivers have. Everything it includes is either forced inline or a template on its own vector type, so that no
// instruction above the baseline can leak into code shared by the linker.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "raw_task.h"

namespace sage {

// One attention pass over rows. Pointers are to elements of the table's type T; H, C, D as in sage_attention.h.
struct AttentionTask {
    // the rows: in-edges of targets, or, in backward_sources, out-edges of sources
    const int64_t* indptr = nullptr;
    const void* indices = nullptr;  // neighbour of each edge
    bool wide_indices = false;      // int64, else int32
    const int64_t* edge_rows = nullptr;      // edge row of each edge, or null: its position
    const int64_t* positions = nullptr;      // backward_sources: position in the target-major graph, or null
    int64_t num_edges = 0;          // end of `indices`, for looking ahead
    int64_t row_offset = 0;         // row r of `indptr` is row r + row_offset of queries, out, ...

    int32_t score = 0;
    int64_t heads = 0, channels = 0, edge_channels = 0;
    double negative_slope = 0, scale = 1;

    uint64_t dropout_seed = 0;
    double dropout = 0;

    const void* values = nullptr;         // [S, H, C]
    const void* keys = nullptr;           // [S, H, C]; GATV2: = values
    const void* queries = nullptr;        // [R, H, C]
    const void* source_logits = nullptr;  // [S, H]
    const void* target_logits = nullptr;  // [R, H] or null
    const void* attention = nullptr;      // [H, C]
    const void* edge_features = nullptr;  // [M, D] or null
    const void* edge_weight = nullptr;    // GAT [H, D]; GATV2 transposed, [D, H * C]
    const void* edge_queries = nullptr;   // [R, H, D]
    const void* bias = nullptr;           // [H, C] or null

    // How values and keys are kept (SAGE_ATTENTION_PLAIN, ...): the forward pass of float alone takes other kinds
    int32_t values_kind = 0, keys_kind = 0;
    const float* value_scales = nullptr;  // [S], kind INT8
    const float* key_scales = nullptr;    // [S], kind INT8; GATV2: = value_scales

    // results of the forward pass: written by it, read by the backward ones
    void* out = nullptr;           // [R, H, C]
    void* edge_out = nullptr;      // [R, H, D] or null
    void* row_max = nullptr;       // [R, H] or null
    void* row_sum = nullptr;       // [R, H] or null
    void* positive_out = nullptr;  // [R, H, C] or null
    void* positive_sum = nullptr;  // [R, H] or null
    void* weights = nullptr;       // [M, H] or null
    bool weights_before_dropout = false;

    // backward
    const void* grad_out = nullptr;       // [R, H, C]
    const void* grad_edge_out = nullptr;  // [R, H, D] or null
    const void* grad_weights = nullptr;   // [M, H] or null
    void* records = nullptr;              // [R, 4, H] target_logits, row_max, 1 / row_sum, D: filled by prepare
    void* grad_values = nullptr;
    void* grad_keys = nullptr;
    void* grad_queries = nullptr;
    void* grad_source_logits = nullptr;
    void* grad_target_logits = nullptr;
    void* grad_edge_features = nullptr;   // zeroed by the driver
    void* grad_edge_queries = nullptr;
};

// Sums over rows or edges that belong to no row, for one chunk of rows; zeroed by the driver, null where not wanted.
struct PartialGradients {
    void* attention = nullptr;    // [H, C]
    void* edge_weight = nullptr;  // as task.edge_weight
    void* bias = nullptr;         // [H, C]
};

struct AggregateTask {
    const int64_t* indptr = nullptr;
    const void* indices = nullptr;
    bool wide_indices = false;
    int64_t num_edges = 0;
    const void* edge_values = nullptr;  // [num_edges] or null
    const void* values = nullptr;       // [S, C]
    int32_t values_kind = 0;              // as in AttentionTask
    const float* value_scales = nullptr;  // [S], kind INT8
    int64_t channels = 0;
    void* out = nullptr;  // [R, C]
};

struct Kernels {
    // Bytes of scratch, aligned to a cache line, that each of the following needs per thread.
    size_t (*attention_scratch)(const AttentionTask& task);
    void (*attention_forward)(const AttentionTask& task, int64_t begin, int64_t end, void* scratch);
    // Per target: records, and the gradients of target_logits and bias.
    void (*attention_prepare)(const AttentionTask& task, const PartialGradients& partial, int64_t begin, int64_t end,
                              void* scratch);
    // Per target: gradients of queries, edge_queries, attention, and (GATV2, DOT) of what belongs to edges.
    void (*attention_backward_targets)(const AttentionTask& task, const PartialGradients& partial, int64_t begin,
                                       int64_t end, void* scratch);
    // Per source, over the transposed graph: gradients of values, keys, source_logits, and (GAT) of edges.
    void (*attention_backward_sources)(const AttentionTask& task, const PartialGradients& partial, int64_t begin,
                                       int64_t end, void* scratch);
    void (*aggregate)(const AggregateTask& task, int64_t begin, int64_t end);
    // GAT over raw rows, projected after aggregating. Null for double but in the baseline.
    size_t (*raw_scratch)(const RawTask& task);
    void (*raw_forward)(const RawTask& task, int64_t begin, int64_t end, void* scratch);
    void (*raw_backward)(const RawTask& task, const RawPartial& partial, int64_t begin, int64_t end, void* scratch);
};

// Indexed by element type (SAGE_ATTENTION_FLOAT32, SAGE_ATTENTION_FLOAT64).
extern const Kernels kScalarKernels[2];
extern const Kernels kAvx2Kernels[2];
extern const Kernels kNeonKernels[2];

}  // namespace sage
