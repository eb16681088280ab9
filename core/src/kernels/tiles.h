// Products of small matrices that stay in cache, by tiles of eight sums kept in registers: dot products of a block of
// rows with one vector per head, and weighted sums of rows, one per head.
#pragma once

#include "rows.h"

namespace sage {

constexpr int kTile = 8;  // sums in registers

// Fetches rows of a table that are needed later, a few cache lines at each step of the arithmetic: a processor waits for
// twenty or so lines at a time, and what is asked for in a burst beyond them holds it up. But not before it knows where
// the row lies: finding a page takes as long as a line, and goes on for several pages at once only where they are asked
// for together. So each row is touched first, many of them in a burst.
class Fetcher {
  public:
    static constexpr int64_t kTouched = 32;  // rows touched in a burst, so many before their lines are fetched

    SAGE_INLINE Fetcher(const void* table, int64_t row_bytes)
        : table_(reinterpret_cast<uintptr_t>(table)), row_bytes_(row_bytes) {
        const int64_t line = kCacheLine;
        lines_ = (row_bytes + line - 1) / line;
        if (row_bytes % line != 0 || table_ % kCacheLine != 0) ++lines_;
    }
    // Lines of a row.
    SAGE_INLINE int64_t lines() const { return lines_; }
    // Edge e is next in the arithmetic, its row and those of the edges after it are index[0], index[1], ...; rows of
    // edges up to `end` may be fetched, up to end + kTouched they may be touched, and those before `soon` are fetched
    // at once. None is fetched twice.
    SAGE_INLINE void edges(int64_t e, const int64_t* index, int64_t soon, int64_t end) {
        if (at_ < e) {
            at_ = e;
            line_ = 0;
        }
        index_ = index;
        first_ = e;
        end_ = end;
        if (touched_ < end) {
            for (touched_ = max(touched_, at_); touched_ < end + kTouched; ++touched_) prefetch(line_of(touched_, 0));
        }
        while (at_ < soon) fetch(lines_ - line_);
    }
    // Rows are walked once more, from that of edge e on.
    SAGE_INLINE void restart(int64_t e) {
        at_ = touched_ = e;
        line_ = 0;
    }
    // Lines that may still be fetched.
    SAGE_INLINE int64_t left() const { return (end_ - at_) * lines_ - line_; }
    // The steps that follow, so many of them, fetch `lines`.
    SAGE_INLINE void spread(int64_t lines, int64_t steps) { rate_ = (lines + steps - 1) / steps; }
    SAGE_INLINE void step() { fetch(rate_); }

  private:
    SAGE_INLINE const void* line_of(int64_t e, int64_t line) const {
        const int64_t offset = min(line * static_cast<int64_t>(kCacheLine), row_bytes_ - 1);
        return reinterpret_cast<const void*>(table_ + static_cast<uintptr_t>(index_[e - first_] * row_bytes_ + offset));
    }
    SAGE_INLINE void fetch(int64_t lines) {
        for (; lines > 0 && at_ < end_; --lines) {
            prefetch(line_of(at_, line_));
            if (++line_ == lines_) {
                line_ = 0;
                ++at_;
            }
        }
    }
    uintptr_t table_;
    int64_t row_bytes_, lines_, line_ = 0, rate_ = 0;
    int64_t at_ = 0, touched_ = 0, first_ = 0, end_ = 0;
    const int64_t* index_ = nullptr;
};

// flat[e, h] = rows[e] . fixed[h], for n rows of `width`. kHeads: the head stride, or kTile where it is more. A step of
// `fetcher` for each tile.
template <class V, int kHeads>
SAGE_INLINE void dot_tiles(const Shape<V>& s, int64_t n, int64_t width, const Rows<typename V::T>& rows,
                           const typename V::T* fixed, typename V::T* flat, Fetcher& fetcher) {
    using T = typename V::T;
    constexpr int W = V::kWidth, kEdges = kTile / kHeads;
    for (int64_t e = 0; e < n; e += kEdges) {
        const T* row[kEdges];
        for (int i = 0; i < kEdges; ++i) row[i] = rows[min(e + i, n - 1)];
        for (int64_t h = 0; h < s.head_stride; h += kHeads) {
            const T* other[kHeads];
            fetcher.step();
            for (int j = 0; j < kHeads; ++j) other[j] = fixed + min(h + j, s.heads - 1) * width;
            V sum[kTile];
            unrolled<kTile>([&](int i) SAGE_LAMBDA { sum[i] = V::set(0); });
            over_channels<V>(width, [&](int64_t c, auto access) SAGE_LAMBDA {
                V x[kEdges], y[kHeads];
                unrolled<kEdges>([&](int i) SAGE_LAMBDA { x[i] = access.load(row[i] + c); });
                unrolled<kHeads>([&](int j) SAGE_LAMBDA { y[j] = access.load(other[j] + c); });
                unrolled<kTile>([&](int i) SAGE_LAMBDA { sum[i] = V::fma(x[i / kHeads], y[i % kHeads], sum[i]); });
            });
            // What lies beyond the last head, or the last edge, are copies of theirs, in lanes of padding.
            T* to = flat + e * s.head_stride + h;
            unrolled<kTile / W>([&](int g) SAGE_LAMBDA {
                if (kHeads < kTile || h + g * W < s.head_stride) V::reduce(sum + g * W).store(to + g * W);
            });
        }
    }
}

template <class V>
SAGE_NOINLINE void dot_rows(const Shape<V>& s, int64_t n, int64_t width, const Rows<typename V::T>& rows,
                            const typename V::T* fixed, typename V::T* flat, Fetcher& fetcher) {
    switch (s.head_stride) {
        case 1:
            return dot_tiles<V, 1>(s, n, width, rows, fixed, flat, fetcher);
        case 2:
            return dot_tiles<V, 2>(s, n, width, rows, fixed, flat, fetcher);
        case 4:
            return dot_tiles<V, 4>(s, n, width, rows, fixed, flat, fetcher);
        default:
            return dot_tiles<V, kTile>(s, n, width, rows, fixed, flat, fetcher);
    }
}
// Tiles of n rows.
template <class V>
SAGE_INLINE int64_t dot_steps(const Shape<V>& s, int64_t n) {
    return (n * min(s.head_stride, int64_t{kTile}) + kTile - 1) / kTile * ((s.head_stride + kTile - 1) / kTile);
}

// to[h * to_stride ...] = (from[h * from_stride ...] * from_factor[h] + sum over e of weight[e, h] * rows[e]) *
// to_factor[h], where weight[e, h] is weight[e * edge_step + h * head_step].
template <class T>
struct Combination {
    const T* weight;
    int64_t edge_step, head_step;
    const T* from;  // or null: zero; may be `to`
    int64_t from_stride;
    T* to;
    int64_t to_stride;
    const T* from_factor = nullptr;  // or null: 1
    const T* to_factor = nullptr;    // or null: 1
};

template <class V, int kHeads, int kVectors, class Access>
SAGE_INLINE void combine_tile(int64_t n, int64_t h, int64_t c, const Rows<typename V::T>& rows,
                              const Combination<typename V::T>& m, const Access& access) {
    using T = typename V::T;
    constexpr int W = V::kWidth;
    V sum[kHeads * kVectors];
    unrolled<kHeads * kVectors>([&](int i) SAGE_LAMBDA {
        sum[i] = V::set(0);
        if (!m.from) return;
        sum[i] = access.load(m.from + (h + i / kVectors) * m.from_stride + c + i % kVectors * W);
        if (m.from_factor) sum[i] = sum[i] * V::set(m.from_factor[h + i / kVectors]);
    });
    const T* weight = m.weight + h * m.head_step;
    for (int64_t e = 0; e < n; ++e) {
        const T* row = rows[e] + c;
        V x[kVectors];
        unrolled<kVectors>([&](int v) SAGE_LAMBDA { x[v] = access.load(row + v * W); });
        unrolled<kHeads>([&](int j) SAGE_LAMBDA {
            const V w = V::set(weight[j * m.head_step]);
            unrolled<kVectors>([&](int v) SAGE_LAMBDA {
                sum[j * kVectors + v] = V::fma(w, x[v], sum[j * kVectors + v]);
            });
        });
        weight += m.edge_step;
    }
    unrolled<kHeads * kVectors>([&](int i) SAGE_LAMBDA {
        const int64_t head = h + i / kVectors;
        const V total = m.to_factor ? sum[i] * V::set(m.to_factor[head]) : sum[i];
        access.store(m.to + head * m.to_stride + c + i % kVectors * W, total);
    });
}

// kVectors vectors at a time, then half of that, ..., then what is less than one.
template <class V, int kHeads, int kVectors>
SAGE_INLINE void combine_columns(int64_t n, int64_t h, int64_t c, int64_t width, const Rows<typename V::T>& rows,
                                 const Combination<typename V::T>& m, Fetcher& fetcher) {
    constexpr int64_t kStep = int64_t{kVectors} * V::kWidth;
    for (; c + kStep <= width; c += kStep) {
        fetcher.step();
        combine_tile<V, kHeads, kVectors>(n, h, c, rows, m, Whole<V>{});
    }
    if (c >= width) return;
    if constexpr (kVectors > 1) {
        combine_columns<V, kHeads, kVectors / 2>(n, h, c, width, rows, m, fetcher);
    } else {
        fetcher.step();
        combine_tile<V, kHeads, 1>(n, h, c, rows, m, Part<V>{width - c});
    }
}

// n rows, `heads` sums of `width`; a step of `fetcher` for each tile.
template <class V>
SAGE_NOINLINE void combine_rows(int64_t n, int64_t heads, int64_t width, const Rows<typename V::T>& rows,
                                const Combination<typename V::T>& m, Fetcher& fetcher) {
    int64_t h = 0;
    if constexpr (V::kWidth == 1) {  // the library stays small where speed matters less
        for (; h + 4 <= heads; h += 4) combine_columns<V, 4, 1>(n, h, 0, width, rows, m, fetcher);
        for (; h < heads; ++h) combine_columns<V, 1, 1>(n, h, 0, width, rows, m, fetcher);
    } else {
        for (; h + 4 <= heads; h += 4) combine_columns<V, 4, 2>(n, h, 0, width, rows, m, fetcher);
        if (heads - h >= 2) {
            combine_columns<V, 2, 4>(n, h, 0, width, rows, m, fetcher);
            h += 2;
        }
        if (heads - h == 1) combine_columns<V, 1, 8>(n, h, 0, width, rows, m, fetcher);
    }
}
// Tiles of it, about.
template <class V>
SAGE_INLINE int64_t combine_steps(int64_t heads, int64_t width) {
    return max(heads * width / (kTile * V::kWidth), int64_t{1});
}

}  // namespace sage
