// An attention problem, checked and put in the kernels' terms; what forward and backward drivers share.
#pragma once

#include "kernels/kernels.h"
#include "platform.h"
#include "sage_attention.h"
#include "sample.h"

namespace sage {

// Everything a caller can get wrong about a problem. Names the argument, what was expected and what came.
int32_t check_problem(const sage_attention_problem* problem);

// `p` may be null only where it would hold no element.
int32_t check_array(const char* name, const void* p, int64_t elements);

// SAGE_ATTENTION_PLAIN, or another kind where dtype is float32.
int32_t check_table_kind(const char* name, int32_t kind, int32_t dtype);

// The part of a task that is the same for every pass over the problem. GATV2's edge_weight is left to the drivers,
// which hold its transpose.
AttentionTask base_task(const sage_attention_problem& problem);

inline int64_t element_size(int32_t dtype) { return dtype == SAGE_ATTENTION_FLOAT32 ? 4 : 8; }

// Are all in-edges of all targets attended, in order?
inline bool attends_whole_graph(const sage_attention_problem& p) {
    return p.targets == nullptr && p.sampling.fan_out < 0 && !p.sampling.replace;
}
inline PickRule pick_rule(const sage_attention_problem& p) {
    return PickRule{p.sampling.seed, p.sampling.fan_out, p.sampling.hop, p.sampling.replace != 0};
}
// The graph's target of row r.
inline int64_t target_of(const sage_attention_problem& p, int64_t r) { return p.targets ? p.targets[r] : r; }

// edge_weight [H * C, D] as [D, H * C] for GATV2, with `buffer` as its memory; any other score: as it is.
int32_t transposed_edge_weight(const sage_attention_problem& problem, Buffer& buffer, const void** out);

// out [columns, rows] = in [rows, columns]
void transpose_matrix(int32_t dtype, const void* in, int64_t rows, int64_t columns, void* out);

// Cuts rows into chunks of about equal work, from the graph alone: never from the number of threads, so that partial
// sums over chunks are the same for any.
struct Chunks {
    const int64_t* indptr;
    int64_t rows;
    int64_t count;

    Chunks(const int64_t* row_indptr, int64_t num_rows, int64_t most) : indptr(row_indptr), rows(num_rows) {
        count = max(min(min(work(rows) / kWorkPerChunk, most), rows), int64_t{1});
    }
    // First row of chunk c; c = count gives the end.
    int64_t begin(int64_t c) const {
        if (c >= count) return rows;
        const int64_t wanted = work(rows) / count * c;
        int64_t low = 0, high = rows;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (work(middle) < wanted) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

  private:
    static constexpr int64_t kWorkPerChunk = 2048;  // edges; a row counts as kRowWork more
    static constexpr int64_t kRowWork = 4;
    int64_t work(int64_t row) const { return indptr[row] - indptr[0] + row * kRowWork; }
};

// Scratch for every worker of a call.
class WorkerScratch {
  public:
    int32_t reserve(int32_t num_threads, size_t bytes_each);
    void* of(int32_t worker) const { return buffer_.as<char>() + static_cast<size_t>(worker) * stride_; }

  private:
    Buffer buffer_;
    size_t stride_ = 0;
};

}  // namespace sage
