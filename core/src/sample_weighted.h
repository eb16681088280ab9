// In-edges drawn in proportion to their weights, from running sums of them: a binary search for each draw, and, without
// replacement, another draw where the in-edge is taken. A row whose weight lies almost wholly in what is taken would be
// drawn from for ever; after some attempts the rest is walked through instead. Both give the same distribution.
#pragma once

#include "sample.h"

namespace sage {

constexpr int64_t kWeightedAttempts = 8;

// In-edges first .. first + count - 1 of a row that begins at row_begin.
struct WeightedRow {
    const double* sums;
    int64_t row_begin, first, count;

    SAGE_INLINE double before(int64_t position) const { return position == row_begin ? 0 : sums[position - 1]; }
    SAGE_INLINE double weight(int64_t position) const { return sums[position] - before(position); }

    // The in-edge at `share` in [0, 1) of the whole weight.
    SAGE_INLINE int64_t at(double share) const {
        const double base = before(first);
        const double wanted = base + share * (sums[first + count - 1] - base);
        int64_t low = first, high = first + count - 1;  // what rounding leaves over belongs to the last one
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (sums[middle] > wanted) {
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
