// A random attention problem with all its arrays, each between guard bands, and what a naive loop in double makes of it.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sage_attention.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)0)
#endif

// SplitMix64: the same numbers everywhere.
struct Random {
    uint64_t state;
    uint64_t next() {
        uint64_t z = state += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    int64_t below(int64_t bound) { return static_cast<int64_t>(next() % static_cast<uint64_t>(bound)); }
    bool chance(int64_t one_in) { return below(one_in) == 0; }
    // In (-2, 2), a float32 number: both element types hold the same problem.
    double number() { return static_cast<double>(static_cast<int64_t>(next() >> 42) - (1 << 21)) / (1 << 20); }
};

// Memory between bands that must stay as they are; the address sanitizer sees every touch of them.
class Guarded {
  public:
    Guarded() = default;
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;
    ~Guarded() { release(); }

    void allocate(int64_t bytes, unsigned char fill = 0xff) {
        release();
        bytes_ = static_cast<size_t>(bytes);
        memory_ = static_cast<unsigned char*>(malloc(bytes_ + 2 * kBand));
        memset(memory_, kMark, kBand);
        memset(memory_ + kBand, fill, bytes_);
        memset(memory_ + kBand + bytes_, kMark, kBand);
        ASAN_POISON_MEMORY_REGION(memory_, kBand);
        ASAN_POISON_MEMORY_REGION(memory_ + kBand + bytes_, kBand);
    }
    void fill(unsigned char byte) { memset(memory_ + kBand, byte, bytes_); }
    bool intact() const {
        if (!memory_) return true;
        bool ok = true;
        ASAN_UNPOISON_MEMORY_REGION(memory_, bytes_ + 2 * kBand);
        for (size_t i = 0; i < kBand; ++i) ok &= memory_[i] == kMark && memory_[kBand + bytes_ + i] == kMark;
        ASAN_POISON_MEMORY_REGION(memory_, kBand);
        ASAN_POISON_MEMORY_REGION(memory_ + kBand + bytes_, kBand);
        return ok;
    }
    bool holds_only(unsigned char byte) const {
        for (size_t i = 0; i < bytes_; ++i) {
            if (memory_[kBand + i] != byte) return false;
        }
        return true;
    }
    bool same_bytes(const Guarded& other) const {
        return bytes_ == other.bytes_ && (bytes_ == 0 || memcmp(data(), other.data(), bytes_) == 0);
    }
    void* data() const { return memory_ ? memory_ + kBand : nullptr; }
    int64_t* ids() const { return static_cast<int64_t*>(data()); }

  private:
    void release() {
        if (memory_) ASAN_UNPOISON_MEMORY_REGION(memory_, bytes_ + 2 * kBand);
        free(memory_);
        memory_ = nullptr;
        bytes_ = 0;
    }
    static constexpr size_t kBand = 64;
    static constexpr unsigned char kMark = 0xa5;
    unsigned char* memory_ = nullptr;
    size_t bytes_ = 0;
};

struct CaseOptions {
    int32_t score = 0, dtype = 0, index_type = 0;
    int64_t sources = 11, targets = 7, most_degree = 40;
    int64_t heads = 2, channels = 5, edge_channels = 0;
    int64_t rows = -1;  // -1: all targets; else that many chosen ones, with repetitions
    int64_t fan_out = -1;
    int32_t replace = 0;
    double dropout = 0;
    bool edge_ids = false;  // rows of edges in another order, and more of them than edges
    bool before_dropout = false;
    bool bias = true;
    int32_t num_threads = 1;
    uint64_t seed = 1;
};

enum Role { kValues, kKeys, kQueries, kSourceLogits, kTargetLogits, kAttention, kEdgeFeatures, kEdgeWeight, kEdgeQueries, kBias, kRoles };

struct Case {
    CaseOptions o;
    Guarded indptr, indices, edge_ids, targets;
    Guarded inputs[kRoles], grads[kRoles];
    int64_t sizes[kRoles] = {};  // elements; 0: the score has no such array
    Guarded out, edge_out, row_max, row_sum, positive_out, positive_sum, weights;
    Guarded grad_out, grad_edge_out, grad_weights;
    int64_t edges = 0, rows = 0, edge_rows = 0;
    sage_attention_problem problem = {};
    sage_attention_result result = {};
    sage_attention_gradients gradients = {};

    int64_t element() const { return o.dtype == SAGE_ATTENTION_FLOAT32 ? 4 : 8; }
    bool whole() const { return o.rows < 0 && o.fan_out < 0 && !o.replace; }
    double get(const Guarded& a, int64_t i) const {
        return o.dtype == SAGE_ATTENTION_FLOAT32 ? static_cast<const float*>(a.data())[i] : static_cast<const double*>(a.data())[i];
    }
    double in(Role role, int64_t i) const { return get(inputs[role], i); }
    int64_t edge_row(int64_t position) const { return o.edge_ids ? edge_ids.ids()[position] : position; }

    explicit Case(const CaseOptions& options) : o(options) {
        Random random{o.seed};
        make_graph(random);
        const bool gat = o.score == SAGE_ATTENTION_GAT, v2 = o.score == SAGE_ATTENTION_GATV2, dot = o.score == SAGE_ATTENTION_DOT;
        const int64_t H = o.heads, C = o.channels, D = o.edge_channels, S = o.sources;
        sizes[kValues] = S * H * C;
        sizes[kKeys] = dot ? S * H * C : 0;
        sizes[kQueries] = gat ? 0 : rows * H * C;
        sizes[kSourceLogits] = gat ? S * H : 0;
        sizes[kTargetLogits] = gat ? rows * H : 0;
        sizes[kAttention] = v2 ? H * C : 0;
        sizes[kEdgeFeatures] = edge_rows * D;
        sizes[kEdgeWeight] = dot ? 0 : (v2 ? H * C : H) * D;
        sizes[kEdgeQueries] = dot ? rows * H * D : 0;
        sizes[kBias] = o.bias ? H * C : 0;
        for (int role = 0; role < kRoles; ++role) {
            fill_random(inputs[role], sizes[role], random, scale_of(role));
            grads[role].allocate(sizes[role] * element());
        }
        out.allocate(rows * H * C * element());
        edge_out.allocate(rows * H * D * element());
        row_max.allocate(rows * H * element());
        row_sum.allocate(rows * H * element());
        positive_out.allocate(rows * H * C * element());
        positive_sum.allocate(rows * H * element());
        weights.allocate(edge_rows * H * element());
        fill_random(grad_out, rows * H * C, random);
        fill_random(grad_edge_out, rows * H * D, random);
        fill_random(grad_weights, edge_rows * H, random);
        describe();
    }

    const Guarded* outputs(int i) const {
        const Guarded* all[] = {&out, &edge_out, &row_max, &row_sum, &positive_out, &positive_sum, &weights};
        return i < 7 ? all[i] : (i < 7 + kRoles ? &grads[i - 7] : nullptr);
    }
    bool intact() const {
        bool ok = indptr.intact() && indices.intact() && edge_ids.intact() && targets.intact();
        for (int i = 0; const Guarded* a = outputs(i); ++i) ok &= a->intact();
        for (const Guarded& a : inputs) ok &= a.intact();
        return ok;
    }
    bool untouched() const {
        bool ok = intact();
        for (int i = 0; const Guarded* a = outputs(i); ++i) ok &= a->holds_only(0xff);
        return ok;
    }
    int32_t forward() const { return sage_attention_forward(&problem, &result); }
    int32_t backward() const { return sage_attention_backward(&problem, &result, nullptr, &gradients); }

  private:
    // As a layer starts: scores of a few units, whatever their number of terms (where one weight of a row takes all, only
    // the rounding of gradients is left), and a bias small beside what it is added to.
    double scale_of(int role) const {
        if (role == kAttention) return 1 / sqrt(static_cast<double>(o.channels * (2 + o.edge_channels)));
        return role == kBias ? 0.0625 : 1;
    }
    void make_graph(Random& random) {
        indptr.allocate((o.targets + 1) * 8);
        indptr.ids()[0] = 0;
        for (int64_t i = 0; i < o.targets; ++i) {
            const int64_t degree = random.chance(4) || o.sources == 0 ? 0 : random.below(o.most_degree + 1);
            indptr.ids()[i + 1] = indptr.ids()[i] + degree;
        }
        edges = indptr.ids()[o.targets];
        indices.allocate(edges * (o.index_type == SAGE_ATTENTION_INT32 ? 4 : 8));
        for (int64_t e = 0; e < edges; ++e) {
            const int64_t source = random.chance(3) ? 0 : random.below(o.sources);
            if (o.index_type == SAGE_ATTENTION_INT32) {
                static_cast<int32_t*>(indices.data())[e] = static_cast<int32_t>(source);
            } else {
                indices.ids()[e] = source;
            }
        }
        edge_rows = edges + (o.edge_ids ? 3 : 0);
        if (o.edge_ids) {
            // Positions backwards, every second end first: a permutation that leaves three rows out.
            edge_ids.allocate(edges * 8);
            for (int64_t e = 0; e < edges; ++e) edge_ids.ids()[e] = edge_rows - 1 - e;
            for (int64_t e = 0; e + 1 < edges; e += 2) {
                const int64_t other = e + random.below(edges - e), held = edge_ids.ids()[e];
                edge_ids.ids()[e] = edge_ids.ids()[other];
                edge_ids.ids()[other] = held;
            }
        }
        rows = o.rows < 0 ? o.targets : o.rows;
        if (o.rows >= 0) {
            targets.allocate(rows * 8);
            for (int64_t r = 0; r < rows; ++r) targets.ids()[r] = random.below(o.targets);
        }
    }
    void fill_random(Guarded& a, int64_t count, Random& random, double scale = 1) {
        a.allocate(count * element());
        for (int64_t i = 0; i < count; ++i) {
            if (o.dtype == SAGE_ATTENTION_FLOAT32) {
                static_cast<float*>(a.data())[i] = static_cast<float>(random.number() * scale);
            } else {
                static_cast<double*>(a.data())[i] = random.number() * scale;
            }
        }
    }
    void describe() {
        const auto given = [&](int role) { return sizes[role] > 0 ? inputs[role].data() : nullptr; };
        const auto wanted = [&](int role) { return sizes[role] > 0 ? grads[role].data() : nullptr; };
        const bool gat = o.score == SAGE_ATTENTION_GAT, with_edge_out = o.score == SAGE_ATTENTION_DOT && o.edge_channels > 0;
        problem.struct_size = sizeof problem;
        problem.score = o.score;
        problem.dtype = o.dtype;
        problem.graph = {indptr.ids(), indices.data(), o.targets, o.sources, edges, o.index_type, 0};
        problem.edge_ids = o.edge_ids ? edge_ids.ids() : nullptr;
        problem.num_edge_rows = edge_rows;
        problem.targets = o.rows >= 0 ? targets.ids() : nullptr;
        problem.num_rows = rows;
        problem.sampling = {o.seed, o.fan_out, o.replace, 2};
        problem.heads = o.heads;
        problem.channels = o.channels;
        problem.edge_channels = o.edge_channels;
        problem.negative_slope = 0.25;
        problem.scale = 0.5;
        problem.dropout = o.dropout;
        problem.dropout_seed = o.seed + 7;
        problem.values = given(kValues);
        problem.keys = given(kKeys);
        problem.queries = given(kQueries);
        problem.source_logits = given(kSourceLogits);
        problem.target_logits = given(kTargetLogits);
        problem.attention = given(kAttention);
        problem.edge_features = given(kEdgeFeatures);
        problem.edge_weight = given(kEdgeWeight);
        problem.edge_queries = given(kEdgeQueries);
        problem.bias = given(kBias);
        problem.num_threads = o.num_threads;
        problem.weights_before_dropout = o.before_dropout;
        result = {out.data(), with_edge_out ? edge_out.data() : nullptr, row_max.data(), row_sum.data(),
                  gat ? positive_out.data() : nullptr, gat ? positive_sum.data() : nullptr,
                  whole() ? weights.data() : nullptr};
        gradients.out = grad_out.data();
        gradients.edge_out = with_edge_out ? grad_edge_out.data() : nullptr;
        gradients.weights = whole() ? grad_weights.data() : nullptr;
        gradients.values = wanted(kValues);
        gradients.keys = wanted(kKeys);
        gradients.queries = wanted(kQueries);
        gradients.source_logits = wanted(kSourceLogits);
        gradients.target_logits = wanted(kTargetLogits);
        gradients.attention = wanted(kAttention);
        gradients.edge_features = wanted(kEdgeFeatures);
        gradients.edge_weight = wanted(kEdgeWeight);
        gradients.edge_queries = wanted(kEdgeQueries);
        gradients.bias = wanted(kBias);
    }
};

// Numbers, zero at first.
class Doubles {
  public:
    Doubles() = default;
    Doubles(const Doubles&) = delete;
    Doubles& operator=(const Doubles&) = delete;
    ~Doubles() { free(p_); }
    void allocate(int64_t count) {
        free(p_);
        p_ = static_cast<double*>(calloc(static_cast<size_t>(count) + 1, sizeof(double)));
        count_ = count;
    }
    double& operator[](int64_t i) { return p_[i]; }
    double operator[](int64_t i) const { return p_[i]; }
    int64_t count() const { return count_; }

  private:
    double* p_ = nullptr;
    int64_t count_ = 0;
};
