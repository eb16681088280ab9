// Attention dropout: a mask that is a pure function of (seed, edge row, head).
#pragma once

#include <stdint.h>

namespace sage {

// out[i * stride + h], i < count, h < heads: 0 with probability `dropout`, else 1 / (1 - dropout).
// edge_rows [count]. Compiled at the baseline: kernels of any level call it, so all draw the same mask.
void dropout_scales(uint64_t seed, double dropout, const int64_t* edge_rows, int64_t count, int64_t heads,
                    int64_t stride, float* out);
void dropout_scales(uint64_t seed, double dropout, const int64_t* edge_rows, int64_t count, int64_t heads,
                    int64_t stride, double* out);

}  // namespace sage
