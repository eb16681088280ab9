// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
//
// A draw is a pure function of (seed, hop, node, draw): key = seed, counter = (draw block, hop, node low, node high).
// Nothing is carried from draw to draw, so the order in which rows are sampled does not matter.
#pragma once

#include "platform.h"

// Every 64-bit x86 and ARM processor multiplies two pairs of words at once. Compilers do not find that by themselves in
// ten dependent rounds, and scalar code takes four times as long, so it is written out.
#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define SAGE_PHILOX_SSE2 1
#elif defined(__ARM_NEON) || defined(_M_ARM64)
#include <arm_neon.h>
#define SAGE_PHILOX_NEON 1
#endif

namespace sage {

// Two counters side by side, a word in the low half of each 64-bit lane; the high halves may hold anything.
#if SAGE_PHILOX_SSE2
struct WordPair {
    __m128i v;
};
SAGE_INLINE WordPair word_pair(uint32_t a, uint32_t b) {
    return {_mm_set_epi32(0, static_cast<int>(b), 0, static_cast<int>(a))};
}
SAGE_INLINE WordPair multiply(WordPair a, WordPair b) { return {_mm_mul_epu32(a.v, b.v)}; }  // whole 64-bit products
SAGE_INLINE WordPair high(WordPair a) { return {_mm_srli_epi64(a.v, 32)}; }
SAGE_INLINE WordPair add(WordPair a, WordPair b) { return {_mm_add_epi32(a.v, b.v)}; }
SAGE_INLINE WordPair exclusive_or(WordPair a, WordPair b) { return {_mm_xor_si128(a.v, b.v)}; }
// out[0..3]: the words of the first counter, out[4..7]: of the second.
SAGE_INLINE void store(WordPair c0, WordPair c1, WordPair c2, WordPair c3, uint32_t* out) {
    const __m128i low = _mm_set_epi32(0, -1, 0, -1);
    const __m128i c01 = _mm_or_si128(_mm_and_si128(c0.v, low), _mm_slli_epi64(c1.v, 32));
    const __m128i c23 = _mm_or_si128(_mm_and_si128(c2.v, low), _mm_slli_epi64(c3.v, 32));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_unpacklo_epi64(c01, c23));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 4), _mm_unpackhi_epi64(c01, c23));
}
#elif SAGE_PHILOX_NEON
struct WordPair {
    uint64x2_t v;
};
SAGE_INLINE WordPair word_pair(uint32_t a, uint32_t b) {
    return {vcombine_u64(vcreate_u64(a), vcreate_u64(b))};
}
SAGE_INLINE WordPair multiply(WordPair a, WordPair b) { return {vmull_u32(vmovn_u64(a.v), vmovn_u64(b.v))}; }
SAGE_INLINE WordPair high(WordPair a) { return {vshrq_n_u64(a.v, 32)}; }
SAGE_INLINE WordPair add(WordPair a, WordPair b) { return {vaddq_u64(a.v, b.v)}; }
SAGE_INLINE WordPair exclusive_or(WordPair a, WordPair b) { return {veorq_u64(a.v, b.v)}; }
SAGE_INLINE void store(WordPair c0, WordPair c1, WordPair c2, WordPair c3, uint32_t* out) {
    uint32x2x4_t words;
    words.val[0] = vmovn_u64(c0.v);
    words.val[1] = vmovn_u64(c1.v);
    words.val[2] = vmovn_u64(c2.v);
    words.val[3] = vmovn_u64(c3.v);
    vst4_u32(out, words);
}
#else
struct WordPair {
    uint64_t a, b;
};
SAGE_INLINE WordPair word_pair(uint32_t a, uint32_t b) { return {a, b}; }
SAGE_INLINE WordPair multiply(WordPair x, WordPair y) {
    return {(x.a & 0xFFFFFFFFu) * (y.a & 0xFFFFFFFFu), (x.b & 0xFFFFFFFFu) * (y.b & 0xFFFFFFFFu)};
}
SAGE_INLINE WordPair high(WordPair x) { return {x.a >> 32, x.b >> 32}; }
SAGE_INLINE WordPair add(WordPair x, WordPair y) { return {x.a + y.a, x.b + y.b}; }
SAGE_INLINE WordPair exclusive_or(WordPair x, WordPair y) { return {x.a ^ y.a, x.b ^ y.b}; }
SAGE_INLINE void store(WordPair c0, WordPair c1, WordPair c2, WordPair c3, uint32_t* out) {
    const WordPair c[4] = {c0, c1, c2, c3};
    for (int w = 0; w < 4; ++w) {
        out[w] = static_cast<uint32_t>(c[w].a);
        out[4 + w] = static_cast<uint32_t>(c[w].b);
    }
}
#endif

// The finaliser of SplitMix64 (Steele et al., OOPSLA 2014; constants of Stafford's variant 13).
inline uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// A seed for each of many streams; the first one's is the caller's own.
inline uint64_t split_seed(uint64_t seed, uint64_t stream) {
    return stream == 0 ? seed : mix(seed + stream * 0x9E3779B97F4A7C15u);
}

// Blocks of four words computed together: ten dependent rounds each, so several at a time hide the latency.
constexpr int kPhiloxBlocks = 4;
constexpr int kPhiloxWords = 4 * kPhiloxBlocks;

// The ten rounds on N vectors of counters, a word of each counter in each array. W is WordPair or a wider type with the
// same operations; all(x) is the word x in every lane. `seeds` has one seed for all vectors, or one for each.
template <class W, int N, int Seeds, class All>
SAGE_INLINE void philox_rounds(const uint64_t (&seeds)[Seeds], W (&c0)[N], W (&c1)[N], W (&c2)[N], W (&c3)[N],
                               const All& all) {
    static_assert(Seeds == 1 || Seeds == N);
    const W m0 = all(0xD2511F53u), m1 = all(0xCD9E8D57u);
    W key0[Seeds], key1[Seeds];
    for (int s = 0; s < Seeds; ++s) {
        key0[s] = all(static_cast<uint32_t>(seeds[s]));
        key1[s] = all(static_cast<uint32_t>(seeds[s] >> 32));
    }
    const W step0 = all(0x9E3779B9u), step1 = all(0xBB67AE85u);
    for (int round = 0; round < 10; ++round) {
        for (int i = 0; i < N; ++i) {
            const W p0 = multiply(m0, c0[i]), p1 = multiply(m1, c2[i]);
            c0[i] = exclusive_or(exclusive_or(high(p1), c1[i]), key0[i % Seeds]);
            c1[i] = p1;  // its low half; what is above never matters
            c2[i] = exclusive_or(exclusive_or(high(p0), c3[i]), key1[i % Seeds]);
            c3[i] = p0;
        }
        for (int s = 0; s < Seeds; ++s) {
            key0[s] = add(key0[s], step0);
            key1[s] = add(key1[s], step1);
        }
    }
}

template <class W, int N, class All>
SAGE_INLINE void philox_rounds(uint64_t seed, W (&c0)[N], W (&c1)[N], W (&c2)[N], W (&c3)[N], const All& all) {
    const uint64_t seeds[1] = {seed};
    philox_rounds(seeds, c0, c1, c2, c3, all);
}

// Blocks 0 and 1 of two nodes: out[0..7] as philox<2>(seeds[0], hop, nodes[0], 0, out), out[8..15] of the other. One seed
// is that of both.
template <int Seeds>
SAGE_INLINE void philox_two_nodes(const uint64_t (&seeds)[Seeds], uint32_t hop, const int64_t (&nodes)[2], uint32_t* out) {
    WordPair c0[2], c1[2], c2[2], c3[2];
    for (int i = 0; i < 2; ++i) {
        const uint32_t low = static_cast<uint32_t>(nodes[i]), high = static_cast<uint32_t>(static_cast<uint64_t>(nodes[i]) >> 32);
        c0[i] = word_pair(0, 1);
        c1[i] = word_pair(hop, hop);
        c2[i] = word_pair(low, low);
        c3[i] = word_pair(high, high);
    }
    philox_rounds(seeds, c0, c1, c2, c3, [](uint32_t x) { return word_pair(x, x); });
    for (int i = 0; i < 2; ++i) store(c0[i], c1[i], c2[i], c3[i], out + 8 * i);
}

// out[4 * i + w] = word w of Philox 4x32-10 at counter (block + i, hop, node low, node high), i < Blocks: 1 or even.
template <int Blocks>
SAGE_INLINE void philox(uint64_t seed, uint32_t hop, uint64_t node, uint32_t block, uint32_t* out) {
    static_assert(Blocks == 1 || Blocks % 2 == 0);
    constexpr int kPairs = (Blocks + 1) / 2;
    const uint32_t node_low = static_cast<uint32_t>(node), node_high = static_cast<uint32_t>(node >> 32);
    WordPair c0[kPairs], c1[kPairs], c2[kPairs], c3[kPairs];
    for (int i = 0; i < kPairs; ++i) {
        const uint32_t first = block + static_cast<uint32_t>(2 * i);
        c0[i] = word_pair(first, first + 1);
        c1[i] = word_pair(hop, hop);
        c2[i] = word_pair(node_low, node_low);
        c3[i] = word_pair(node_high, node_high);
    }
    philox_rounds(seed, c0, c1, c2, c3, [](uint32_t x) { return word_pair(x, x); });
    if constexpr (Blocks == 1) {
        uint32_t two[8];
        store(c0[0], c1[0], c2[0], c3[0], two);
        memcpy(out, two, 4 * sizeof(uint32_t));
    } else {
        for (int i = 0; i < kPairs; ++i) store(c0[i], c1[i], c2[i], c3[i], out + 8 * i);
    }
}

// The bounded draws of one row. Multiply-shift maps b random bits to [0, range) with a relative bias of at most
// range / 2^b: 32 bits do for ranges below 2^16, wider rows take 64. Which of the two is decided by the row's degree,
// never by the single range, so that draw number t always sits at the same place of the stream.
constexpr int64_t kWideDegree = int64_t{1} << 16;

template <bool Wide>
struct Draws {
    static constexpr int64_t kPerBlock = Wide ? 2 : 4;
    static constexpr int64_t kPerFill = kPerBlock * kPhiloxBlocks;
    uint32_t words[kPhiloxWords];

    // Makes draws first .. first + min(count, kPerFill) - 1 available; first is a multiple of kPerFill.
    SAGE_INLINE void fill(uint64_t seed, uint32_t hop, int64_t node, int64_t first, int64_t count) {
        const uint32_t block = static_cast<uint32_t>(first / kPerBlock);
        const uint64_t id = static_cast<uint64_t>(node);
        if (count > 2 * kPerBlock) {
            philox<kPhiloxBlocks>(seed, hop, id, block, words);
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
