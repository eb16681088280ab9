// Philox against the known answers of Random123; bounded draws at both widths.
#include "rng.h"

#include "test_main.h"

using namespace sage;

namespace {

struct KnownAnswer {
    uint32_t counter[4];
    uint32_t key[2];
    uint32_t words[4];
};

// Random123, tests/kat_vectors, philox4x32 10
const KnownAnswer kAnswers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

uint64_t join(uint32_t low, uint32_t high) { return low | (static_cast<uint64_t>(high) << 32); }

template <int Blocks>
void check_known_answers() {
    for (const KnownAnswer& answer : kAnswers) {
        for (int place = 0; place < Blocks; ++place) {
            uint32_t words[4 * Blocks + 1];
            words[4 * Blocks] = 0x5eed;
            philox<Blocks>(join(answer.key[0], answer.key[1]), answer.counter[1],
                           join(answer.counter[2], answer.counter[3]),
                           answer.counter[0] - static_cast<uint32_t>(place), words);
            for (int w = 0; w < 4; ++w) CHECK_EQUAL(words[4 * place + w], answer.words[w]);
            CHECK_EQUAL(words[4 * Blocks], 0x5eed);
        }
    }
}

void known_answers() {
    check_known_answers<1>();
    check_known_answers<2>();
    check_known_answers<4>();
}

void draws_stay_at_their_place() {
    // Draw t is the same whether it is asked for among few or among many.
    Draws<false> many, few;
    many.fill(7, 3, 11, 0, 16);
    few.fill(7, 3, 11, 0, 5);
    for (int64_t t = 0; t < 5; ++t) CHECK_EQUAL(many.bounded(t, 1000), few.bounded(t, 1000));
    Draws<true> wide, next;
    wide.fill(7, 3, 11, 0, 8);
    next.fill(7, 3, 11, 8, 8);
    uint32_t words[32];
    philox<8>(7, 3, 11, 0, words);
    for (int64_t t = 0; t < 8; ++t) {
        CHECK_EQUAL(wide.bounded(t, 1 << 20), join(words[2 * t], words[2 * t + 1]) >> 44);
        CHECK_EQUAL(next.bounded(t, 1 << 20), join(words[16 + 2 * t], words[17 + 2 * t]) >> 44);
    }
}

void draws_stay_in_range() {
    Draws<false> narrow;
    Draws<true> wide;
    for (uint32_t& word : narrow.words) word = 0xffffffffu;
    for (uint32_t& word : wide.words) word = 0xffffffffu;
    const int64_t ranges[] = {1, 2, 3, 1000, 65535};
    for (int64_t range : ranges) CHECK_EQUAL(narrow.bounded(0, range), range - 1);
    const int64_t wide_ranges[] = {1, 65536, int64_t{1} << 40, INT64_MAX};
    for (int64_t range : wide_ranges) CHECK_EQUAL(wide.bounded(0, range), range - 1);
    for (uint32_t& word : wide.words) word = 0;
    CHECK_EQUAL(wide.bounded(7, INT64_MAX), 0);
}

}  // namespace

int main() {
    RUN(known_answers);
    RUN(draws_stay_at_their_place);
    RUN(draws_stay_in_range);
    return test_result();
}
