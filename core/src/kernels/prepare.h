// Before the backward passes, per target: D_i and the gradients of target_logits and bias, from what the forward pass
// kept.
//   D_i = sum of p dA = sum of p m (g . v) + [...] = g . (out - bias) + [sum of p times the returned weight's gradient]
#pragma once

#include "forward.h"

namespace sage {

// records [R, 4, H]
enum { kRecordLogits = 0, kRecordMax = 1, kRecordInverse = 2, kRecordMean = 3, kRecordFields = 4 };

// Adds what returned weights contribute to D, and to its part over positive scores.
template <class V>
SAGE_NOINLINE void prepare_returned_weights(const AttentionTask& t, Work<V>& work, int64_t r, typename V::T* mean,
                                            typename V::T* positive) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t row = r + t.row_offset, last = t.indptr[r + 1];
    const T* fixed = positive ? target_share<V>(t, work, row) : nullptr;
    for (int64_t e = t.indptr[r]; e < last; e += s.block) {
        const int64_t n = min(s.block, last - e);
        find_edge_rows<V>(t, work, e, n);
        if (positive) {
            Rows<T> keys{nullptr, s.width, work.neighbours.of(t, e, n)};
            target_scores<V>(t, work, fixed, e, n, keys, RowBytes{});
        }
        gather_edge_heads<V>(work, n, t.weights, work.weight);
        gather_edge_heads<V>(work, n, t.grad_weights, work.applied);
        for (int64_t k = 0; k < n; ++k) {
            for (int64_t h = 0; h < s.heads; ++h) {
                const int64_t x = k * s.head_stride + h;
                const T product = work.weight[x] * work.applied[x];
                mean[h] += product;
                if (positive && work.z[x] > 0) positive[h] += product;
            }
        }
    }
}

// mean -= grads . bias, and grad_bias += the sum of grads, over a block of rows.
template <class V>
SAGE_NOINLINE void prepare_bias(const AttentionTask& t, Work<V>& work, int64_t n, const Rows<typename V::T>& grads,
                                typename V::T* grad_bias) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    work.operations.dot(s, n, grads, Fixed<T>{static_cast<const T*>(t.bias), 0}, work.score, Prefetch{});
    over_flat<V>(s, n, [&](int64_t x) SAGE_LAMBDA { (V::load(work.gated + x) - V::load(work.score + x)).store(work.gated + x); });
    if (!grad_bias) return;
    for (int64_t k = 0; k < n; ++k) {
        const T* grad = grads[k];
        over_channels<V>(s.width, [&](int64_t c, auto access) SAGE_LAMBDA {
            access.store(grad_bias + c, access.load(grad_bias + c) + access.load(grad + c));
        });
    }
}

// Rows r .. r + n - 1 at once: their dot products are those of a block's rows.
template <class V>
SAGE_INLINE void prepare_block(const AttentionTask& t, const PartialGradients& partial, Work<V>& work, int64_t r,
                               int64_t n) {
    using T = typename V::T;
    const Shape<V>& s = work.s;
    const int64_t row = r + t.row_offset, H = s.heads, D = s.edge_channels;
    const auto at = [&](const void* table, int64_t width) SAGE_LAMBDA { return static_cast<const T*>(table) + row * width; };
    const Rows<T> grads{at(t.grad_out, s.width), s.width, work.counting};
    work.operations.dot(s, n, grads, Fixed<T>{at(t.out, s.width), s.width}, work.gated, Prefetch{});
    if (t.bias) prepare_bias<V>(t, work, n, grads, static_cast<T*>(partial.bias));
    // the part of D over edges with a positive score
    const bool positives = t.grad_target_logits != nullptr;
    if (positives) {
        work.operations.dot(s, n, grads, Fixed<T>{at(t.positive_out, s.width), s.width}, work.slope, Prefetch{});
    }
    for (int64_t k = 0; k < n; ++k) {
        const int64_t own = row + k;
        T* mean = work.gated + k * s.head_stride;
        T* positive = positives ? work.slope + k * s.head_stride : nullptr;
        if (t.grad_edge_out) {
            const T* grad = static_cast<const T*>(t.grad_edge_out) + own * H * D;
            const T* out = static_cast<const T*>(t.edge_out) + own * H * D;
            for (int64_t h = 0; h < H; ++h) {
                for (int64_t d = 0; d < D; ++d) mean[h] += grad[h * D + d] * out[h * D + d];
            }
        }
        if (t.grad_weights) prepare_returned_weights<V>(t, work, r + k, mean, positive);
        T* record = static_cast<T*>(t.records) + own * kRecordFields * H;
        const bool empty = t.indptr[r + k] == t.indptr[r + k + 1];
        const T* sums = static_cast<const T*>(t.row_sum) + own * H;
        store_row<V>(record, kRecordMean, H, mean);
        store_row<V>(record, kRecordMax, H, static_cast<const T*>(t.row_max) + own * H);
        if (t.target_logits) {
            store_row<V>(record, kRecordLogits, H, static_cast<const T*>(t.target_logits) + own * H);
        } else {
            fill<V>(record, kRecordLogits, H, 0);
        }
        over_channels<V>(H, [&](int64_t h, auto access) SAGE_LAMBDA {
            const V inverse = empty ? V::set(0) : V::set(1) / access.load(sums + h);
            access.store(record + kRecordInverse * H + h, inverse);
        });
        if (!positives) continue;
        // The sum of dS is 0, so the sum of dS LeakyReLU' is (1 - slope) times the sum over positive scores.
        T* to = static_cast<T*>(t.grad_target_logits) + own * H;
        const T* positive_sum = static_cast<const T*>(t.positive_sum) + own * H;
        const V rest = V::set(T(1) - static_cast<T>(t.negative_slope));
        over_channels<V>(H, [&](int64_t h, auto access) SAGE_LAMBDA {
            const V of_positive = access.load(positive + h) - access.load(mean + h) * access.load(positive_sum + h);
            access.store(to + h, of_positive * rest);
        });
    }
}

template <class V>
void attention_prepare_rows(const AttentionTask& t, const PartialGradients& partial, int64_t begin, int64_t end,
                            void* scratch) {
    Work<V> work(t, scratch);
    for (int64_t r = begin; r < end; r += work.s.block) prepare_block<V>(t, partial, work, r, min(work.s.block, end - r));
}

}  // namespace sage
