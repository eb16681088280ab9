#include "sample_labor.h"

#include "graph.h"

namespace sage {
namespace {

// Draws of rows end long before this block of the counter.
constexpr uint32_t kCoinBlock = 0xFFFFFFFFu;
constexpr int kCoins = 8;  // computed together: ten dependent rounds each, so several at a time hide the latency

// coins[i] is that of sources[i], or of sources[count - 1] beyond.
template <class Index>
SAGE_INLINE void toss(const PickRule& rule, const Index* sources, int64_t count, uint64_t (&coins)[kCoins]) {
    constexpr int kPairs = kCoins / 2;
    WordPair c0[kPairs], c1[kPairs], c2[kPairs], c3[kPairs];
    for (int i = 0; i < kPairs; ++i) {
        const uint64_t a = static_cast<uint64_t>(sources[min<int64_t>(2 * i, count - 1)]);
        const uint64_t b = static_cast<uint64_t>(sources[min<int64_t>(2 * i + 1, count - 1)]);
        c0[i] = word_pair(kCoinBlock, kCoinBlock);
        c1[i] = word_pair(rule.hop, rule.hop);
        c2[i] = word_pair(static_cast<uint32_t>(a), static_cast<uint32_t>(b));
        c3[i] = word_pair(static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b >> 32));
    }
    philox_rounds(rule.seed, c0, c1, c2, c3, [](uint32_t x) { return word_pair(x, x); });
    for (int i = 0; i < kPairs; ++i) {
        uint32_t words[8];
        store(c0[i], c1[i], c2[i], c3[i], words);
        coins[2 * i] = words[0] | (static_cast<uint64_t>(words[1]) << 32);
        coins[2 * i + 1] = words[4] | (static_cast<uint64_t>(words[5]) << 32);
    }
}

// f(position, coin) for the in-edges of a row, in their order.
template <class F>
void for_coins(const PickRule& rule, const sage_attention_graph& graph, int64_t begin, int64_t degree, const F& f) {
    with_index_type(graph, [&](const auto* indices) {
        uint64_t coins[kCoins];
        for (int64_t first = 0; first < degree; first += kCoins) {
            const int64_t count = min<int64_t>(kCoins, degree - first);
            toss(rule, indices + begin + first, count, coins);
            for (int64_t i = 0; i < count; ++i) f(begin + first + i, coins[i]);
        }
        return true;
    });
}

// coin / 2^64 < fan_out / degree
SAGE_INLINE bool falls(uint64_t coin, int64_t fan_out, int64_t degree) {
    return multiply_high(coin, static_cast<uint64_t>(degree)) < static_cast<uint64_t>(fan_out);
}

struct Candidate {
    uint64_t coin;
    int64_t position;
};

bool later(const Candidate& a, const Candidate& b) {
    return a.coin != b.coin ? a.coin > b.coin : a.position > b.position;
}

// Lets heap[at] of a heap with its largest on top sink to its place.
template <class T, class Larger>
void sink(T* heap, int64_t count, int64_t at, const Larger& larger) {
    const T sinking = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && larger(heap[child + 1], heap[child])) ++child;
        if (!larger(heap[child], sinking)) break;
        heap[at] = heap[child];
    }
    heap[at] = sinking;
}

void sort(int64_t* values, int64_t count) {
    const auto larger = [](int64_t a, int64_t b) { return a > b; };
    for (int64_t i = count / 2; i-- > 0;) sink(values, count, i, larger);
    for (int64_t end = count - 1; end > 0; --end) {
        const int64_t largest = values[0];
        values[0] = values[end];
        values[end] = largest;
        sink(values, end, 0, larger);
    }
}

// heap has room for rule.fan_out < degree candidates.
void pick_sequential(const PickRule& rule, const sage_attention_graph& graph, int64_t begin, int64_t degree,
                     Candidate* heap, int64_t* out) {
    const int64_t count = rule.fan_out;
    for_coins(rule, graph, begin, degree, [&](int64_t position, uint64_t coin) {
        const int64_t known = position - begin;
        const Candidate candidate{coin, position};
        if (known < count) {
            heap[known] = candidate;
            if (known < count - 1) return;
            for (int64_t i = count / 2; i-- > 0;) sink(heap, count, i, later);
        } else if (later(heap[0], candidate)) {
            heap[0] = candidate;
            sink(heap, count, 0, later);
        }
    });
    for (int64_t i = 0; i < count; ++i) out[i] = heap[i].position;
    sort(out, count);
}

}  // namespace

int64_t labor_count(const PickRule& rule, const sage_attention_graph& graph, Labor labor, int64_t begin, int64_t degree) {
    if (rule.fan_out < 0 || rule.fan_out >= degree) return degree;
    if (labor == Labor::kSequential) return rule.fan_out;
    int64_t count = 0;
    for_coins(rule, graph, begin, degree, [&](int64_t, uint64_t coin) { count += falls(coin, rule.fan_out, degree); });
    return count;
}

void labor_pick(const PickRule& rule, const sage_attention_graph& graph, Labor labor, int64_t begin, int64_t degree,
                int64_t* out) {
    if (rule.fan_out < 0 || rule.fan_out >= degree) {
        for (int64_t t = 0; t < degree; ++t) out[t] = begin + t;
        return;
    }
    if (labor == Labor::kPoisson) {
        int64_t count = 0;
        for_coins(rule, graph, begin, degree, [&](int64_t position, uint64_t coin) {
            if (falls(coin, rule.fan_out, degree)) out[count++] = position;
        });
        return;
    }
    constexpr int64_t kFew = 128;
    Candidate few[kFew];
    if (rule.fan_out <= kFew) return pick_sequential(rule, graph, begin, degree, few, out);
    auto* many = static_cast<Candidate*>(malloc(static_cast<size_t>(rule.fan_out) * sizeof(Candidate)));
    if (!many) return labor_pick_without_memory(rule, graph, begin, degree, out);
    pick_sequential(rule, graph, begin, degree, many, out);
    free(many);
}

void labor_pick_without_memory(const PickRule& rule, const sage_attention_graph& graph, int64_t begin, int64_t degree,
                               int64_t* out) {
    // The largest coin that is picked, bit by bit: the smallest one that fan_out in-edges do not exceed.
    uint64_t largest = 0;
    for (int bit = 63; bit >= 0; --bit) {
        const uint64_t below = largest + ((uint64_t{1} << bit) - 1);
        int64_t count = 0;
        for_coins(rule, graph, begin, degree, [&](int64_t, uint64_t coin) { count += coin <= below; });
        if (count < rule.fan_out) largest = below + 1;
    }
    int64_t smaller = 0;
    for_coins(rule, graph, begin, degree, [&](int64_t, uint64_t coin) { smaller += coin < largest; });
    int64_t equal_left = rule.fan_out - smaller, count = 0;
    for_coins(rule, graph, begin, degree, [&](int64_t position, uint64_t coin) {
        if (coin < largest || (coin == largest && equal_left-- > 0)) out[count++] = position;
    });
}

}  // namespace sage
