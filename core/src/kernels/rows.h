// The shape of a problem in vectors, and the neighbours of a block of edges.
//
// A block is up to kMaxBlock edges of one row. Numbers per edge and head lie in "flat" arrays, edge-major:
// flat[e * head_stride + h]. head_stride is the number of heads rounded up so that vectors of V::kWidth lanes and the
// pattern of heads fit one another; the lanes between are padding whose content never matters.
#pragma once

#include <stdint.h>

#include "../platform.h"
#include "kernels.h"

namespace sage {

constexpr int64_t kMaxBlock = 32;
constexpr int64_t kBlockBytes = 16384;  // rows of a block are read twice: the second time from the first-level cache
constexpr int64_t kAhead = 8;           // edges whose rows are prefetched before they are needed
constexpr int64_t kMostAhead = 32;      // the same, at most, of elements smaller than a float

// Edges whose rows of elements of that many bytes are prefetched before they are needed: the fewer bytes, the sooner a
// row is done with, and the more rows fit in what a processor can wait for.
SAGE_INLINE constexpr int64_t ahead_of(int64_t element) { return element >= 4 ? kAhead : kMostAhead / element; }

template <class V>
struct Shape {
    static constexpr int64_t kW = V::kWidth;
    int64_t heads, channels, edge_channels, width;  // width = heads * channels
    int64_t head_stride;                            // a power of two up to kW, or a multiple of kW
    int64_t pattern;                                // lanes after which the pattern of heads repeats in vectors
    int64_t block;                                  // edges per block

    SAGE_INLINE Shape(int64_t h, int64_t c, int64_t d) : heads(h), channels(c), edge_channels(d), width(h * c) {
        head_stride = 1;
        if (h >= kW) {
            head_stride = (h + kW - 1) / kW * kW;
        } else {
            while (head_stride < h) head_stride *= 2;
        }
        pattern = max(head_stride, kW);
        block = min(max(kBlockBytes / (width * static_cast<int64_t>(sizeof(typename V::T))), int64_t{4}), kMaxBlock);
    }
    // Elements of a flat array: a block of edges, up to a whole vector.
    SAGE_INLINE int64_t flat_size() const { return kMaxBlock * head_stride + kW; }
    // Elements used by n edges, up to a whole vector (and so, where one vector is not yet a pattern, to a pattern).
    SAGE_INLINE int64_t used(int64_t n) const { return (n * head_stride + kW - 1) & -kW; }
};

// The neighbours of edges, as int64 whatever the graph holds, and those kMostAhead further on. They are translated a
// window at a time: rows have seven edges on average, too few to do it for each. V only keeps copies of this code for
// different CPU levels apart.
template <class V>
class Neighbours {
  public:
    // index[k], k < n + kMostAhead, is the neighbour of edge e + k; past the last edge, some neighbour.
    SAGE_INLINE const int64_t* of(const AttentionTask& t, int64_t e, int64_t n) {
        if (e < first_ || e + n + kMostAhead > first_ + kWindow) fill(t, e);
        return index_ + (e - first_);
    }

  private:
    static constexpr int64_t kWindow = 256;
    SAGE_NOINLINE void fill(const AttentionTask& t, int64_t e) {
        first_ = e;
        const int64_t n = min(kWindow, t.num_edges - e);
        if (t.wide_indices) {
            memcpy(index_, static_cast<const int64_t*>(t.indices) + e, static_cast<size_t>(n) * sizeof(int64_t));
        } else {
            const int32_t* from = static_cast<const int32_t*>(t.indices) + e;
            for (int64_t k = 0; k < n; ++k) index_[k] = from[k];
        }
        for (int64_t k = n; k < kWindow; ++k) index_[k] = index_[n - 1];
    }
    int64_t first_ = INT64_MAX;
    int64_t index_[kWindow];
};

// Row k of a block is table[index[k] * stride ...]; index goes on for the rows to prefetch.
template <class T>
struct Rows {
    const T* table;
    int64_t stride;
    const int64_t* index;

    SAGE_INLINE const T* operator[](int64_t k) const { return table + index[k] * stride; }
};

// The same rows as bytes, whatever they hold: what prefetching needs to know. table null: none.
struct RowBytes {
    const unsigned char* table;
    int64_t stride;
    const int64_t* index;
    int64_t ahead;

    SAGE_INLINE const unsigned char* operator[](int64_t k) const { return table + index[k] * stride; }
};
template <class T>
SAGE_INLINE RowBytes bytes_of(const Rows<T>& rows) {
    return {reinterpret_cast<const unsigned char*>(rows.table), rows.stride * static_cast<int64_t>(sizeof(T)), rows.index,
            ahead_of(sizeof(T))};
}

// Which part of the row kAhead further on an operation fetches while it works on a row: eighths [begin, end) of its
// channels. Operations over the same rows share them, so that fetching goes on evenly: a processor drops what exceeds
// the twenty or so lines it can wait for.
struct Prefetch {
    int begin = 0, end = 0;
};
constexpr Prefetch kPrefetchAll{0, 8};
constexpr int kGatScores = 1, kGatv2Scores = 4, kSoftmax = 3, kUnpacking = 4;

// The part of `prefetch` that belongs to channels [offset, offset + count) of a row of `width`.
struct PrefetchRange {
    int64_t begin, bytes;

    SAGE_INLINE PrefetchRange(Prefetch prefetch, int64_t width, int64_t offset, int64_t count, int64_t element) {
        const int64_t share = prefetch.end - prefetch.begin;
        begin = (prefetch.begin * width + share * offset) * element / 8;
        bytes = share * count * element / 8;
    }
    SAGE_INLINE void of(const void* row) const {
        if (bytes == 0) return;
        const uintptr_t line = kCacheLine, at = reinterpret_cast<uintptr_t>(row) + static_cast<uintptr_t>(begin);
        const uintptr_t end = at + static_cast<uintptr_t>(bytes);
        for (uintptr_t p = at & ~(line - 1); p < end; p += line) prefetch(reinterpret_cast<const void*>(p));
    }
};

// How to touch memory: all lanes, or the first `lanes` only (the rest read as zero).
template <class V>
struct Whole {
    template <class E>
    SAGE_INLINE V load(const E* p) const {
        return V::load(p);
    }
    SAGE_INLINE void store(typename V::T* p, V v) const { v.store(p); }
};
template <class V>
struct Part {
    int64_t lanes;
    template <class E>
    SAGE_INLINE V load(const E* p) const {
        return V::load_partial(p, lanes);
    }
    SAGE_INLINE void store(typename V::T* p, V v) const { v.store_partial(p, lanes); }
};

// How many vectors a head's channels are, VPH: a number of whole vectors, known when compiling; or one of these.
constexpr int kAny = 0;     // any number of channels
constexpr int kShort = -1;  // fewer channels than a vector has lanes

// Calls f(offset, access) over `n` channels: whole vectors, then what is left. Where VPH is known the loop unrolls.
template <class V, int VPH = kAny, class F>
SAGE_INLINE void over_channels(int64_t n, const F& f) {
    if constexpr (VPH > kMostUnrolled) {
        for (int v = 0; v < VPH; ++v) f(int64_t{v} * V::kWidth, Whole<V>{});
    } else if constexpr (VPH > 0) {
        unrolled<VPH>([&](int v) SAGE_LAMBDA { f(int64_t{v} * V::kWidth, Whole<V>{}); });
    } else if constexpr (VPH == kShort) {
        f(int64_t{0}, Part<V>{n});
    } else {
        int64_t c = 0;
        for (; c + V::kWidth <= n; c += V::kWidth) f(c, Whole<V>{});
        if (c < n) f(c, Part<V>{n - c});
    }
}

// f(x) for each vector-sized piece of the flat numbers of n edges.
template <class V, class F>
SAGE_INLINE void over_flat(const Shape<V>& s, int64_t n, const F& f) {
    const int64_t end = s.used(n);
    for (int64_t x = 0; x < end; x += V::kWidth) f(x);
}
// f(x, q): the same, with the place in the pattern of heads.
template <class V, class F>
SAGE_INLINE void over_flat_pattern(const Shape<V>& s, int64_t n, const F& f) {
    const int64_t end = s.used(n);
    for (int64_t q = 0; q < s.pattern; q += V::kWidth) {
        for (int64_t x = q; x < end; x += s.pattern) f(x, q);
    }
}

}  // namespace sage
