// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
//
// A draw is a pure function of (seed, hop, node, draw): key = seed, counter = (draw block, hop, node low, node high).
// Nothing is carried from draw to draw, so the order in which rows are sampled does not matter.
#pragma once

#include "platform.h"

namespace sage {

// Blocks of four words computed together: ten dependent rounds each, so several at a time hide the latency.
constexpr int kPhiloxLanes = 4;
constexpr int kPhiloxWords = 4 * kPhiloxLanes;

// out[4 * i + w] = word w of Philox 4x32-10 at counter (block + i, hop, node low, node high), i < Lanes.
template <int Lanes>
SAGE_INLINE void philox(uint64_t seed, uint32_t hop, uint64_t node, uint32_t block, uint32_t* out) {
    uint32_t c0[Lanes], c1[Lanes], c2[Lanes], c3[Lanes];
    for (int i = 0; i < Lanes; ++i) {
        c0[i] = block + static_cast<uint32_t>(i);
        c1[i] = hop;
        c2[i] = static_cast<uint32_t>(node);
        c3[i] = static_cast<uint32_t>(node >> 32);
    }
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        for (int i = 0; i < Lanes; ++i) {
            const uint64_t p0 = uint64_t{0xD2511F53} * c0[i];
            const uint64_t p1 = uint64_t{0xCD9E8D57} * c2[i];
            c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
            c1[i] = static_cast<uint32_t>(p1);
            c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
            c3[i] = static_cast<uint32_t>(p0);
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < Lanes; ++i) {
        out[4 * i] = c0[i];
        out[4 * i + 1] = c1[i];
        out[4 * i + 2] = c2[i];
        out[4 * i + 3] = c3[i];
    }
}

// The bounded draws of one row. Multiply-shift maps b random bits to [0, range) with a relative bias of at most
// range / 2^b: 32 bits do for ranges below 2^16, wider rows take 64. Which of the two is decided by the row's degree,
// never by the single range, so that draw number t always sits at the same place of the stream.
constexpr int64_t kWideDegree = int64_t{1} << 16;

template <bool Wide>
struct Draws {
    static constexpr int64_t kPerBlock = Wide ? 2 : 4;
    static constexpr int64_t kPerFill = kPerBlock * kPhiloxLanes;
    uint32_t words[kPhiloxWords];

    // Makes draws first .. first + min(count, kPerFill) - 1 available; first is a multiple of kPerFill.
    SAGE_INLINE void fill(uint64_t seed, uint32_t hop, int64_t node, int64_t first, int64_t count) {
        const uint32_t block = static_cast<uint32_t>(first / kPerBlock);
        const uint64_t id = static_cast<uint64_t>(node);
        if (count > 2 * kPerBlock) {
            philox<kPhiloxLanes>(seed, hop, id, block, words);
        } else {
            philox<2>(seed, hop, id, block, words);
        }
    }

    // Draw number first + i in [0, range).
    SAGE_INLINE int64_t bounded(int64_t i, int64_t range) const {
        if constexpr (Wide) {
            const uint64_t bits = words[2 * i] | (static_cast<uint64_t>(words[2 * i + 1]) << 32);
            return static_cast<int64_t>(multiply_high(bits, static_cast<uint64_t>(range)));
        } else {
            return static_cast<int64_t>((static_cast<uint64_t>(words[i]) * static_cast<uint64_t>(range)) >> 32);
        }
    }
};

}  // namespace sage
