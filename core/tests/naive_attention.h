// Attention as its formulas are, in double: one row and head after the other, every edge's numbers written out.
#pragma once

#include "attention_case.h"

struct Naive {
    Doubles out, edge_out, weights, grads[kRoles];

    // scales [edge rows, heads]: what dropout multiplies weights with, or null for 1.
    Naive(const Case& c, const Doubles* scales) : c_(c), scales_(scales) {
        const CaseOptions& o = c.o;
        out.allocate(c.rows * o.heads * o.channels);
        edge_out.allocate(c.rows * o.heads * o.edge_channels);
        weights.allocate(c.edge_rows * o.heads);
        for (int role = 0; role < kRoles; ++role) grads[role].allocate(c.sizes[role]);
        pick();
        for (int64_t r = 0; r < c.rows; ++r) {
            for (int64_t h = 0; h < o.heads; ++h) row(r, h);
        }
    }

  private:
    const Case& c_;
    const Doubles* scales_;
    Guarded indptr_, sources_, positions_;

    void pick() {
        const Case& c = c_;
        Guarded nodes;
        nodes.allocate(c.rows * 8);
        for (int64_t r = 0; r < c.rows; ++r) nodes.ids()[r] = c.o.rows < 0 ? r : c.targets.ids()[r];
        indptr_.allocate((c.rows + 1) * 8);
        const auto sample = [&](int64_t* sources, int64_t* positions, int64_t capacity) {
            return sage_attention_sample_one_hop(&c.problem.graph, &c.problem.sampling, nodes.ids(), c.rows, indptr_.ids(),
                                                 sources, positions, capacity, 1);
        };
        if (sample(nullptr, nullptr, 0) != SAGE_ATTENTION_OK) abort();
        const int64_t count = indptr_.ids()[c.rows];
        sources_.allocate(count * 8);
        positions_.allocate(count * 8);
        if (sample(sources_.ids(), positions_.ids(), count) != SAGE_ATTENTION_OK) abort();
    }

    double leaky(double z) const { return z > 0 ? z : z * c_.problem.negative_slope; }
    double slope(double z) const { return z > 0 ? 1 : c_.problem.negative_slope; }
    // sum over d of matrix[at, d] * edge feature d
    double edge_part(Role matrix, int64_t at, int64_t m) const {
        double sum = 0;
        for (int64_t d = 0; d < c_.o.edge_channels; ++d) sum += c_.in(matrix, at * c_.o.edge_channels + d) * c_.in(kEdgeFeatures, m * c_.o.edge_channels + d);
        return sum;
    }
    // What LeakyReLU sees; GATV2 for channel x.
    double before_leaky(int64_t r, int64_t h, int64_t j, int64_t m, int64_t x) const {
        const int64_t H = c_.o.heads, C = c_.o.channels;
        if (c_.o.score == SAGE_ATTENTION_GAT) {
            return c_.in(kSourceLogits, j * H + h) + c_.in(kTargetLogits, r * H + h) + edge_part(kEdgeWeight, h, m);
        }
        return c_.in(kValues, (j * H + h) * C + x) + c_.in(kQueries, (r * H + h) * C + x) + edge_part(kEdgeWeight, h * C + x, m);
    }
    double score(int64_t r, int64_t h, int64_t j, int64_t m) const {
        const int64_t H = c_.o.heads, C = c_.o.channels;
        if (c_.o.score == SAGE_ATTENTION_GAT) return leaky(before_leaky(r, h, j, m, 0));
        double sum = 0;
        for (int64_t x = 0; x < C; ++x) {
            sum += c_.o.score == SAGE_ATTENTION_GATV2 ? c_.in(kAttention, h * C + x) * leaky(before_leaky(r, h, j, m, x))
                                                      : c_.in(kQueries, (r * H + h) * C + x) * c_.in(kKeys, (j * H + h) * C + x);
        }
        if (c_.o.score == SAGE_ATTENTION_GATV2) return sum;
        return c_.problem.scale * (sum + edge_part(kEdgeQueries, r * H + h, m));
    }
    void add_edge_part(Role matrix, int64_t at, int64_t m, double g) {
        const int64_t D = c_.o.edge_channels;
        for (int64_t d = 0; d < D; ++d) {
            grads[matrix][at * D + d] += g * c_.in(kEdgeFeatures, m * D + d);
            grads[kEdgeFeatures][m * D + d] += g * c_.in(matrix, at * D + d);
        }
    }

    void row(int64_t r, int64_t h) {
        const int64_t H = c_.o.heads, C = c_.o.channels, D = c_.o.edge_channels;
        const int64_t first = indptr_.ids()[r], n = indptr_.ids()[r + 1] - first, rh = r * H + h;
        for (int64_t x = 0; x < C && c_.o.bias; ++x) {
            out[rh * C + x] += c_.in(kBias, h * C + x);
            grads[kBias][h * C + x] += c_.get(c_.grad_out, rh * C + x);
        }
        Doubles p, of_weight;
        p.allocate(n);
        of_weight.allocate(n);
        double most = -HUGE_VAL, sum = 0, mean = 0;
        for (int64_t k = 0; k < n; ++k) {
            p[k] = score(r, h, source(first + k), edge(first + k));
            most = p[k] > most ? p[k] : most;
        }
        for (int64_t k = 0; k < n; ++k) sum += p[k] = exp(p[k] - most);
        for (int64_t k = 0; k < n; ++k) {
            const int64_t j = source(first + k), m = edge(first + k);
            const double scale = scales_ ? (*scales_)[m * H + h] : 1;
            p[k] /= sum;
            weights[m * H + h] = c_.o.before_dropout ? p[k] : p[k] * scale;
            for (int64_t x = 0; x < C; ++x) {
                out[rh * C + x] += p[k] * scale * c_.in(kValues, (j * H + h) * C + x);
                grads[kValues][(j * H + h) * C + x] += p[k] * scale * c_.get(c_.grad_out, rh * C + x);
                of_weight[k] += scale * c_.get(c_.grad_out, rh * C + x) * c_.in(kValues, (j * H + h) * C + x);
            }
            for (int64_t d = 0; d < D && c_.gradients.edge_out; ++d) {
                edge_out[rh * D + d] += p[k] * scale * c_.in(kEdgeFeatures, m * D + d);
                grads[kEdgeFeatures][m * D + d] += p[k] * scale * c_.get(c_.grad_edge_out, rh * D + d);
                of_weight[k] += scale * c_.get(c_.grad_edge_out, rh * D + d) * c_.in(kEdgeFeatures, m * D + d);
            }
            if (c_.gradients.weights) of_weight[k] += c_.get(c_.grad_weights, m * H + h) * (c_.o.before_dropout ? 1 : scale);
            mean += p[k] * of_weight[k];
        }
        for (int64_t k = 0; k < n; ++k) score_gradients(r, h, source(first + k), edge(first + k), p[k] * (of_weight[k] - mean));
    }

    void score_gradients(int64_t r, int64_t h, int64_t j, int64_t m, double g) {
        const int64_t H = c_.o.heads, C = c_.o.channels;
        if (c_.o.score == SAGE_ATTENTION_GAT) {
            g *= slope(before_leaky(r, h, j, m, 0));
            grads[kSourceLogits][j * H + h] += g;
            grads[kTargetLogits][r * H + h] += g;
            return add_edge_part(kEdgeWeight, h, m, g);
        }
        if (c_.o.score == SAGE_ATTENTION_DOT) {
            g *= c_.problem.scale;
            add_edge_part(kEdgeQueries, r * H + h, m, g);
        }
        for (int64_t x = 0; x < C; ++x) {
            const int64_t of_row = (r * H + h) * C + x, of_source = (j * H + h) * C + x;
            if (c_.o.score == SAGE_ATTENTION_DOT) {
                grads[kQueries][of_row] += g * c_.in(kKeys, of_source);
                grads[kKeys][of_source] += g * c_.in(kQueries, of_row);
                continue;
            }
            const double z = before_leaky(r, h, j, m, x), of_z = g * c_.in(kAttention, h * C + x) * slope(z);
            grads[kAttention][h * C + x] += g * leaky(z);
            grads[kValues][of_source] += of_z;
            grads[kQueries][of_row] += of_z;
            add_edge_part(kEdgeWeight, h * C + x, m, of_z);
        }
    }
    int64_t source(int64_t k) const { return sources_.ids()[k]; }
    int64_t edge(int64_t k) const { return c_.edge_row(positions_.ids()[k]); }
};
