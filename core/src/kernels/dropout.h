// Attention dropout: a mask that is a pure function of (seed, edge row, head), the same at every CPU level.
#pragma once

#include "../rng.h"
#include "rows.h"

namespace sage {

// Sets dropout apart from sampling, whose hops are below 2^31, should both be given the same seed.
constexpr uint32_t kDropoutDomain = 0x80000000u;

// The counters of vectors as narrow as a WordPair.
struct CounterPair {
    using Words = WordPair;
    static constexpr int kLanes = 2;
    static SAGE_INLINE WordPair load(const uint32_t* p) { return word_pair(p[0], p[1]); }
    static SAGE_INLINE WordPair all(uint32_t x) { return word_pair(x, x); }
};

// `value` or 0, without a branch: which one it is nobody can predict.
SAGE_INLINE float value_if(bool condition, float value) {
    return bit_cast<float>(bit_cast<uint32_t>(value) & (0u - static_cast<uint32_t>(condition)));
}
SAGE_INLINE double value_if(bool condition, double value) {
    return bit_cast<double>(bit_cast<uint64_t>(value) & (uint64_t{0} - static_cast<uint64_t>(condition)));
}

// out[k * stride + h], k < count, h < heads: 0 with probability `dropout`, else 1 / (1 - dropout). Word h % 4 of the
// counter (h / 4, domain, edge row) decides. V::Counters says how several counters lie in a vector; two vectors at a
// time hide the latency of ten dependent rounds.
template <class V>
SAGE_NOINLINE void dropout_scales(uint64_t seed, double dropout, const int64_t* edge_rows, int64_t count,
                                  const Shape<V>& s, typename V::T* out) {
    using T = typename V::T;
    using Counters = typename V::Counters;
    using Words = typename Counters::Words;
    constexpr int kLanes = Counters::kLanes, kVectors = 2, kCounters = kLanes * kVectors;
    const T kept = static_cast<T>(1.0 / (1.0 - dropout));
    const uint32_t threshold = static_cast<uint32_t>(dropout * 4294967296.0);  // words below it are dropped
    const int64_t counters = (s.heads + 3) / 4;                                // of each edge
    int64_t edge = 0, counter = 0;
    while (edge < count) {
        uint32_t block[kCounters], low[kCounters], high_word[kCounters], words[4 * kCounters];
        T* to[kCounters];
        int filled = 0;
        for (int i = 0; i < kCounters; ++i) {
            const uint64_t row = static_cast<uint64_t>(edge_rows[min(edge, count - 1)]);
            block[i] = static_cast<uint32_t>(counter);
            low[i] = static_cast<uint32_t>(row);
            high_word[i] = static_cast<uint32_t>(row >> 32);
            to[i] = out + edge * s.head_stride + 4 * counter;
            if (edge < count) ++filled;
            if (++counter == counters) {
                counter = 0;
                ++edge;
            }
        }
        Words c0[kVectors], c1[kVectors], c2[kVectors], c3[kVectors];
        for (int v = 0; v < kVectors; ++v) {
            c0[v] = Counters::load(block + v * kLanes);
            c1[v] = Counters::all(kDropoutDomain);
            c2[v] = Counters::load(low + v * kLanes);
            c3[v] = Counters::load(high_word + v * kLanes);
        }
        philox_rounds(seed, c0, c1, c2, c3, [](uint32_t x) SAGE_LAMBDA { return Counters::all(x); });
        for (int v = 0; v < kVectors; ++v) store(c0[v], c1[v], c2[v], c3[v], words + 4 * kLanes * v);
        for (int i = 0; i < filled; ++i) {
            const int64_t heads = min(s.heads - 4 * static_cast<int64_t>(block[i]), int64_t{4});
            if (heads == 4) {
                for (int w = 0; w < 4; ++w) to[i][w] = value_if(words[4 * i + w] >= threshold, kept);
            } else {
                for (int64_t w = 0; w < heads; ++w) to[i][w] = value_if(words[4 * i + w] >= threshold, kept);
            }
        }
    }
}

}  // namespace sage
