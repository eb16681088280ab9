#include "dropout.h"

#include "rng.h"

namespace sage {
namespace {

// Sets dropout apart from sampling, whose hops are below 2^31, should both be given the same seed.
constexpr uint32_t kDropoutDomain = 0x80000000u;

template <class T>
void scales(uint64_t seed, double dropout, const int64_t* edge_rows, int64_t count, int64_t heads, int64_t stride,
            T* out) {
    const T kept = static_cast<T>(1.0 / (1.0 - dropout));
    const uint64_t threshold = static_cast<uint64_t>(dropout * 4294967296.0);  // words below it are dropped
    uint32_t words[8];
    for (int64_t k = 0; k < count; ++k) {
        T* to = out + k * stride;
        for (int64_t h = 0; h < heads; h += 8) {
            const uint64_t edge = static_cast<uint64_t>(edge_rows[k]);
            if (heads - h <= 4) {
                philox<1>(seed, kDropoutDomain, edge, static_cast<uint32_t>(h / 4), words);
            } else {
                philox<2>(seed, kDropoutDomain, edge, static_cast<uint32_t>(h / 4), words);
            }
            for (int64_t i = 0; i < min(heads - h, int64_t{8}); ++i) to[h + i] = words[i] < threshold ? T(0) : kept;
        }
    }
}

}  // namespace

void dropout_scales(uint64_t seed, double dropout, const int64_t* edge_rows, int64_t count, int64_t heads,
                    int64_t stride, float* out) {
    scales(seed, dropout, edge_rows, count, heads, stride, out);
}
void dropout_scales(uint64_t seed, double dropout, const int64_t* edge_rows, int64_t count, int64_t heads,
                    int64_t stride, double* out) {
    scales(seed, dropout, edge_rows, count, heads, stride, out);
}

}  // namespace sage
