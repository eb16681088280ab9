// Which in-edges of one target are sampled: a pure function of (seed, hop, node) and the node's degree.
// The sampler and the attention driver (which never stores its picks) both call pick_row.
#pragma once

#include "rng.h"

namespace sage {

struct PickRule {
    uint64_t seed;
    int64_t fan_out;  // -1: all in-edges
    uint32_t hop;
    bool replace;
};

// Draws beyond this would run out of counter; what asks for more is refused (sample.cpp, check_sampling).
constexpr int64_t kMaxDraws = int64_t{1} << 32;

SAGE_INLINE bool picks_all(const PickRule& rule, int64_t degree) {
    return rule.fan_out < 0 || (!rule.replace && rule.fan_out >= degree);
}

// Number of in-edges picked for a row of this degree.
SAGE_INLINE int64_t pick_count(const PickRule& rule, int64_t degree) {
    return picks_all(rule, degree) ? degree : (degree == 0 ? 0 : rule.fan_out);
}

// ---- What Floyd's algorithm has picked already. choose(drawn, last, t) is `drawn`, or `last` if `drawn` is taken, and
// takes it as pick number t. Whether a draw collides is a coin toss on short rows, so those are done without branches.

// Up to 64 in-edges: the set is a register.
struct SeenRegister {
    uint64_t bits = 0;
    SAGE_INLINE int64_t choose(int64_t drawn, int64_t last, int64_t) {
        const uint64_t drawn_bit = uint64_t{1} << drawn, last_bit = uint64_t{1} << last;
        const bool taken = (bits & drawn_bit) != 0;
        bits |= taken ? last_bit : drawn_bit;
        return taken ? last : drawn;
    }
};

// One bit an in-edge, in memory the caller has cleared.
struct SeenBitmap {
    uint64_t* words;
    SAGE_INLINE int64_t choose(int64_t drawn, int64_t last, int64_t) {
        const bool taken = (words[drawn >> 6] >> (drawn & 63)) & 1;
        const int64_t v = taken ? last : drawn;
        words[v >> 6] |= uint64_t{1} << (v & 63);
        return v;
    }
};

// Looks through the picks themselves: few picks from a long row. Collisions are rare there, and a Bloom filter of
// kFilterWords words, cleared by the caller, says so most of the time.
constexpr int64_t kFilterWords = 8;
struct SeenScan {
    uint64_t* filter;
    const int64_t* picks;  // begin + v
    int64_t begin;
    SAGE_INLINE int64_t choose(int64_t drawn, int64_t last, int64_t t) {
        if ((filter[word(drawn)] >> (drawn & 63)) & 1) {
            for (int64_t i = 0; i < t; ++i) {
                if (picks[i] == begin + drawn) {
                    drawn = last;
                    break;
                }
            }
        }
        filter[word(drawn)] |= uint64_t{1} << (drawn & 63);
        return drawn;
    }
    SAGE_INLINE static int64_t word(int64_t v) { return (v >> 6) & (kFilterWords - 1); }
};

// Open addressing, linear probing: slot = pick number + 1, 0 empty. The caller has cleared mask + 1 slots.
template <class Slot>
struct SeenHash {
    Slot* slots;
    uint64_t mask;
    const int64_t* picks;
    int64_t begin;
    SAGE_INLINE uint64_t find(int64_t v) const {
        uint64_t s = ((static_cast<uint64_t>(v) * 0x9E3779B97F4A7C15u) >> 20) & mask;
        while (slots[s] != 0 && picks[slots[s] - 1] != begin + v) s = (s + 1) & mask;
        return s;
    }
    SAGE_INLINE int64_t choose(int64_t drawn, int64_t last, int64_t t) {
        uint64_t s = find(drawn);
        if (slots[s] != 0) {
            drawn = last;
            s = find(drawn);
        }
        slots[s] = static_cast<Slot>(t + 1);
        return drawn;
    }
};

// Robert Floyd's algorithm: fan_out distinct values of [0, degree), in Floyd order.
template <class AnyDraws, class Seen>
SAGE_INLINE void pick_floyd_by(AnyDraws draws, const PickRule& rule, int64_t begin, int64_t degree, int64_t node,
                               int64_t* out, Seen seen) {
    const int64_t count = rule.fan_out;
    for (int64_t first = 0; first < count; first += AnyDraws::kPerFill) {
        draws.fill(rule.seed, rule.hop, node, first, count - first);
        const int64_t end = min<int64_t>(count, first + AnyDraws::kPerFill);
        for (int64_t t = first; t < end; ++t) {
            const int64_t last = degree - count + t;
            out[t] = begin + seen.choose(draws.bounded(t - first, last + 1), last, t);
        }
    }
}

template <bool Wide, class Seen>
SAGE_INLINE void pick_floyd(const PickRule& rule, int64_t begin, int64_t degree, int64_t node, int64_t* out, Seen seen) {
    pick_floyd_by(Draws<Wide>{}, rule, begin, degree, node, out, seen);
}

template <bool Wide>
SAGE_INLINE void pick_independent(const PickRule& rule, int64_t begin, int64_t degree, int64_t node, int64_t* out) {
    const int64_t count = rule.fan_out;
    Draws<Wide> draws;
    for (int64_t first = 0; first < count; first += Draws<Wide>::kPerFill) {
        draws.fill(rule.seed, rule.hop, node, first, count - first);
        const int64_t end = min(count, first + Draws<Wide>::kPerFill);
        for (int64_t t = first; t < end; ++t) out[t] = begin + draws.bounded(t - first, degree);
    }
}

// The rare rows: the set of picks needs memory that grows with the fan-out.
SAGE_NOINLINE void pick_floyd_large(const PickRule& rule, int64_t begin, int64_t degree, int64_t node, int64_t* out);

// Writes the CSC positions of the picks of one row (in-edges begin .. begin + degree - 1 of `node`) in pick order and
// returns their number, pick_count(rule, degree).
SAGE_INLINE int64_t pick_row(const PickRule& rule, int64_t begin, int64_t degree, int64_t node, int64_t* out) {
    if (picks_all(rule, degree)) {
        for (int64_t t = 0; t < degree; ++t) out[t] = begin + t;
        return degree;
    }
    if (degree == 0) return 0;
    if (rule.replace) {
        if (degree < kWideDegree) {
            pick_independent<false>(rule, begin, degree, node, out);
        } else {
            pick_independent<true>(rule, begin, degree, node, out);
        }
    } else if (degree <= 64) {
        pick_floyd<false>(rule, begin, degree, node, out, SeenRegister{});
    } else if (rule.fan_out <= 16 && degree < kWideDegree) {
        uint64_t words[kFilterWords] = {};
        if (degree <= 64 * kFilterWords) {
            pick_floyd<false>(rule, begin, degree, node, out, SeenBitmap{words});
        } else {
            pick_floyd<false>(rule, begin, degree, node, out, SeenScan{words, out, begin});
        }
    } else {
        pick_floyd_large(rule, begin, degree, node, out);
    }
    return rule.fan_out;
}

// ---- Short rows of many nodes: their draws are computed for two nodes at a time, which takes hardly longer than for one.

constexpr int64_t kFewDraws = 8;

// Whether the picks of a row take draws, and no more than FewDraws has.
SAGE_INLINE bool takes_few_draws(const PickRule& rule, int64_t degree) {
    return rule.fan_out <= kFewDraws && degree > 0 && degree < kWideDegree && !picks_all(rule, degree);
}

// The first draws of a narrow row, made by philox_two_nodes.
struct FewDraws {
    static constexpr int64_t kPerFill = kFewDraws;
    const uint32_t* words;
    SAGE_INLINE void fill(uint64_t, uint32_t, int64_t, int64_t, int64_t) const {}
    SAGE_INLINE int64_t bounded(int64_t i, int64_t range) const {
        return static_cast<int64_t>((static_cast<uint64_t>(words[i]) * static_cast<uint64_t>(range)) >> 32);
    }
};

// As pick_row, where takes_few_draws.
SAGE_INLINE int64_t pick_row_of_few(const PickRule& rule, int64_t begin, int64_t degree, const uint32_t* words, int64_t* out) {
    const FewDraws draws{words};
    if (rule.replace) {
        for (int64_t t = 0; t < rule.fan_out; ++t) out[t] = begin + draws.bounded(t, degree);
    } else if (degree <= 64) {
        pick_floyd_by(draws, rule, begin, degree, 0, out, SeenRegister{});
    } else {
        uint64_t filter[kFilterWords] = {};
        pick_floyd_by(draws, rule, begin, degree, 0, out, SeenScan{filter, out, begin});
    }
    return rule.fan_out;
}

}  // namespace sage
