// What the kernels that attend raw rows are asked for: GAT whose rows are summed first and projected afterwards.
#pragma once

#include <stdint.h>

namespace sage {

// Pointers are to elements of the table's type T; H, F, C as in sage_attention.h.
struct RawTask {
    const int64_t* indptr = nullptr;
    const void* indices = nullptr;  // source of each edge
    bool wide_indices = false;      // int64, else int32
    const int64_t* edge_rows = nullptr;  // what dropout calls each edge, or null: its position
    int64_t num_edges = 0;               // end of `indices`, for looking ahead

    int64_t heads = 0, features = 0, channels = 0;
    double negative_slope = 0;
    uint64_t dropout_seed = 0;
    double dropout = 0;

    const void* table = nullptr;              // [.., F] rows of the sources
    const int64_t* row_ids = nullptr;         // [S] row of each source, or null: its number
    const void* target_table = nullptr;       // [.., F] rows of the targets, or null
    const int64_t* target_row_ids = nullptr;  // [R] or null
    const void* source_weight = nullptr;      // [H, F]
    const void* target_weight = nullptr;      // [H, F], with target_table
    const void* target_logits = nullptr;      // [R, H] or null, without
    const void* projection = nullptr;         // forward [H, F, C]; backward [H, C, F]
    const void* bias = nullptr;               // [H, C] or null

    void* out = nullptr;      // [R, H, C]
    void* row_max = nullptr;  // [R, H] or null; read by the backward pass
    void* row_sum = nullptr;  // [R, H] or null; read by the backward pass

    const void* grad_out = nullptr;      // [R, H, C]
    void* grad_target_logits = nullptr;  // [R, H] or null
};

// Sums over rows, for one chunk of them; zeroed by the driver, null where not wanted.
struct RawPartial {
    void* source_weight = nullptr;  // [H, F]
    void* target_weight = nullptr;  // [H, F]
    void* projection = nullptr;     // [H, C, F]
};

}  // namespace sage
