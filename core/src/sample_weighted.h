// In-edges drawn in proportion to their weights, which may fade with age, from running sums of them: a binary search for
// each draw, and, without replacement, another draw where the in-edge is taken. A row whose weight lies almost wholly in
// what is taken would be drawn from for ever; after some attempts the rest is walked through instead. Both give the same
// distribution.
#pragma once

#include "sample.h"

namespace sage {

constexpr int64_t kWeightedAttempts = 8;

// 2^-x for x >= 0, to a relative error of 1e-15; 0 from 1000 on. Additions and multiplications alone, in this order, so
// that the result is the same on every machine: the C library's exp is not.
inline double half_to(double x) {
    if (!(x < 1000)) return 0;
    const int64_t whole = static_cast<int64_t>(x + 0.5);
    const double y = (x - static_cast<double>(whole)) * -0.6931471805599453;  // 2^-x = 2^-whole e^y, |y| < 0.35
    constexpr double kOneOverFactorial[] = {1.0,           1.0,           1.0 / 2,       1.0 / 6,        1.0 / 24,
                                            1.0 / 120,     1.0 / 720,     1.0 / 5040,    1.0 / 40320,    1.0 / 362880,
                                            1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600};
    double power = kOneOverFactorial[12];
    for (int k = 11; k >= 0; --k) power = power * y + kOneOverFactorial[k];
    return power * bit_cast<double>(static_cast<uint64_t>(1023 - whole) << 52);
}

// What a weight has become that has faded from `from` to the time `to`, not before it, at `rate` halvings a unit of time.
inline double faded(double weight, double rate, int64_t from, int64_t to) {
    const uint64_t age = static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
    // rounded once, whatever the compiler makes of large unsigned numbers
    const double units = static_cast<double>(age >> 32) * 0x1p32 + static_cast<double>(age & 0xFFFFFFFFu);
    return age == 0 ? weight : weight * half_to(rate * units);
}

constexpr double kMostDecay = 1e100;
constexpr double kHalvings = 1.4426950408889634;  // e^-decay = 2^-(decay * kHalvings)

// In-edges first .. first + count - 1 of a row that begins at row_begin. With times, each running sum is that of weights
// which have faded until the time of its in-edge: no power of a time is ever too large or too small, and a draw at any
// later time needs one power for each sum it looks at.
struct WeightedRow {
    const double* sums;
    int64_t row_begin, first, count;
    const int64_t* times = nullptr;  // null: weights do not fade
    double rate = 0;

    // The sum up to an in-edge, and the weight of an in-edge, as they have become at the time of another one.
    SAGE_INLINE double sum(int64_t position, int64_t then) const {
        return times ? faded(sums[position], rate, times[position], times[then]) : sums[position];
    }
    SAGE_INLINE double before(int64_t position, int64_t then) const {
        return position == row_begin ? 0 : sum(position - 1, then);
    }
    SAGE_INLINE double weight(int64_t position) const { return sums[position] - before(position, position); }
    SAGE_INLINE double weight(int64_t position, int64_t then) const {
        return times ? faded(weight(position), rate, times[position], times[then]) : weight(position);
    }

    // The in-edge at `share` in [0, 1) of the whole weight.
    SAGE_INLINE int64_t at(double share) const {
        int64_t low = first, high = first + count - 1;  // what rounding leaves over belongs to the last one
        const int64_t last = high;
        const double base = before(first, last);
        const double wanted = base + share * (sums[last] - base);
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (sum(middle, last) > wanted) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return low;
    }
};

// 64 random bits, a function of (seed, hop, node, number).
SAGE_INLINE uint64_t draw_bits(const PickRule& rule, int64_t node, int64_t number) {
    uint32_t words[4];
    philox<1>(rule.seed, rule.hop, static_cast<uint64_t>(node), static_cast<uint32_t>(number / 2), words);
    const int64_t place = number % 2 * 2;
    return words[place] | (static_cast<uint64_t>(words[place + 1]) << 32);
}

// The same as a number in [0, 1).
SAGE_INLINE double draw_share(const PickRule& rule, int64_t node, int64_t number) {
    return static_cast<double>(draw_bits(rule, node, number) >> 11) * 0x1p-53;
}

// As pick_row: the positions of pick_count(rule, row.count) in-edges, in the order they were drawn.
void pick_weighted(const PickRule& rule, const WeightedRow& row, int64_t node, int64_t* out);

}  // namespace sage
