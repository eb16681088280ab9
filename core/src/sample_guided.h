// In-edges picked by the attention that their targets pay them, from scores alone: no row of values is read.
//
// Every decision is made of IEEE additions, multiplications, divisions and comparisons in a fixed order, with an exp of
// our own, so that picks and probabilities are the same on every machine: no library's exp or log takes part.
#pragma once

#include "platform.h"

namespace sage {

// exp(x) for x <= 0, within 2 units in the last place; 0 below -700. Without a branch, so that compilers take several at
// once in a loop.
SAGE_INLINE double portable_exp(double x) {
    constexpr double kRound = 0x1.8p52;  // adding it rounds to a whole number, which then is in the last bits
    const double shifted = x * 0x1.71547652b82fep+0 + kRound;
    const double n = shifted - kRound;
    const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;  // ln 2 in two parts, the first exact times n
    double sum = 1.0 / 6227020800;
    sum = sum * r + 1.0 / 479001600;
    sum = sum * r + 1.0 / 39916800;
    sum = sum * r + 1.0 / 3628800;
    sum = sum * r + 1.0 / 362880;
    sum = sum * r + 1.0 / 40320;
    sum = sum * r + 1.0 / 5040;
    sum = sum * r + 1.0 / 720;
    sum = sum * r + 1.0 / 120;
    sum = sum * r + 1.0 / 24;
    sum = sum * r + 1.0 / 6;
    sum = sum * r + 1.0 / 2;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    // times 2^n: n is added to the exponent, which stays that of a normal number
    const uint64_t bits = bit_cast<uint64_t>(sum) + (bit_cast<uint64_t>(shifted) << 52);
    // all ones where the size of x is at most 700: sizes compare as their bits do
    const uint64_t within = 0 - (((bit_cast<uint64_t>(x) & ~(uint64_t{1} << 63)) - (bit_cast<uint64_t>(700.0) + 1)) >> 63);
    return bit_cast<double>(bits & within);
}

struct Candidate {
    double key;
    int64_t place;
};

// Whether a is attended more than b; of equal ones the first is.
SAGE_INLINE bool ahead(const Candidate& a, const Candidate& b) {
    return a.key != b.key ? a.key > b.key : a.place < b.place;
}

// Puts the `count` candidates that are ahead of all others first, in that order; what follows is in no order.
void order_first(Candidate* candidates, int64_t degree, int64_t count);

// Systematic sampling of exactly `count` < degree candidates, sorted by key, with probabilities in proportion to
// weights (Madow 1949): those whose probability would be 1 or more are certain, the others lie end to end along a line
// that is looked at in steps of 1 from `share` in [0, 1). Sorted, a sample has some of each size.
//   weights [degree] in the order of the candidates, at least 0, never rising; suffix [degree + 1] scratch;
//   picked [count]: places in that order, ascending; probabilities [count].
void pick_systematic(const double* weights, int64_t degree, int64_t count, double share, double* suffix,
                     int64_t* picked, double* probabilities);

}  // namespace sage
