// Tables kept in fewer bytes through the C ABI: attention and sums over them against a naive loop in double over the
// numbers they stand for, at every CPU level; guard bands to the byte; what is refused.
#include "naive_attention.h"
#include "test_main.h"

namespace {

const int32_t kKinds[] = {SAGE_ATTENTION_FLOAT16, SAGE_ATTENTION_BFLOAT16, SAGE_ATTENTION_INT8};

// What sixteen bits, or a byte, stand for.
double number(int32_t kind, const void* data, int64_t i) {
    if (kind == SAGE_ATTENTION_INT8) return static_cast<const int8_t*>(data)[i];
    const uint32_t bits = static_cast<const uint16_t*>(data)[i];
    const int fraction_bits = kind == SAGE_ATTENTION_FLOAT16 ? 10 : 7, bias = kind == SAGE_ATTENTION_FLOAT16 ? 15 : 127;
    const int exponent = static_cast<int>((bits & 0x7fff) >> fraction_bits);
    const int fraction = static_cast<int>(bits & ((1u << fraction_bits) - 1)), whole = 1 << fraction_bits;
    const double size = exponent ? ldexp(fraction + whole, exponent - bias - fraction_bits) : ldexp(fraction, 1 - bias - fraction_bits);
    return bits & 0x8000 ? -size : size;
}

// A random table, and the floats it stands for in place of the case's.
struct Packed {
    Guarded data, scales;

    Packed(Case& c, Role role, int32_t kind, uint64_t seed) {
        Random random{seed};
        const int64_t count = c.sizes[role], sources = c.o.sources, width = c.o.heads * c.o.channels;
        data.allocate(count * (kind == SAGE_ATTENTION_INT8 ? 1 : 2));
        if (kind == SAGE_ATTENTION_INT8) scales.allocate(sources * 4);
        for (int64_t j = 0; j < sources && scales.data(); ++j) {
            static_cast<float*>(scales.data())[j] = static_cast<float>(random.below(1000)) * 1e-5f;
        }
        for (int64_t i = 0; i < count; ++i) {
            if (kind == SAGE_ATTENTION_INT8) {
                static_cast<int8_t*>(data.data())[i] = static_cast<int8_t>(random.below(256) - 128);
            } else {
                // Below 2 in magnitude, zeros and numbers below the smallest normal one among them.
                const int64_t magnitude = random.chance(4) ? random.below(0x400) : 0x3fff - random.below(0x800);
                static_cast<uint16_t*>(data.data())[i] = static_cast<uint16_t>(magnitude | (random.chance(2) ? 0x8000 : 0));
            }
            const double scale = scales.data() ? static_cast<const float*>(scales.data())[i / width] : 1;
            static_cast<float*>(c.inputs[role].data())[i] = static_cast<float>(number(kind, data.data(), i) * scale);
        }
    }
    const float* scale() const { return static_cast<const float*>(scales.data()); }
    bool intact() const { return data.intact() && scales.intact(); }
};

void use(Case& c, const Packed& values, int32_t kind) {
    c.problem.values = values.data.data();
    c.problem.values_kind = kind;
    c.problem.value_scales = values.scale();
    c.result.positive_out = c.result.positive_sum = nullptr;
}
void use_keys(Case& c, const Packed& keys, int32_t kind) {
    c.problem.keys = keys.data.data();
    c.problem.keys_kind = kind;
    c.problem.key_scales = keys.scale();
}

double difference(const Case& c, const Guarded& got, const Doubles& expected) {
    double largest = 0.01, worst = 0;
    for (int64_t i = 0; i < expected.count(); ++i) largest = fmax(largest, fabs(expected[i]));
    for (int64_t i = 0; i < expected.count(); ++i) {
        const double d = fabs(c.get(got, i) - expected[i]);
        worst = d <= HUGE_VAL ? fmax(worst, d / largest) : HUGE_VAL;  // also what is not a number
    }
    return worst;
}

template <class F>
void at_every_level(const F& f) {
    char before[16];
    snprintf(before, sizeof before, "%s", sage_attention_cpu_level());
    for (int32_t i = 0; const char* level = sage_attention_available_cpu_level(i); ++i) {
        CHECK_OK(sage_attention_set_cpu_level(level));
        f();
    }
    CHECK_OK(sage_attention_set_cpu_level(before));
}

CaseOptions options(int32_t score, int64_t heads, int64_t channels, int64_t edge_channels = 0) {
    CaseOptions o;
    o.score = score;
    o.heads = heads;
    o.channels = channels;
    o.edge_channels = edge_channels;
    o.seed = static_cast<uint64_t>(heads * 1000 + channels);
    return o;
}

// keys_kind: of DOT; PLAIN: they stay floats.
void check_case(const CaseOptions& o, int32_t kind, int32_t keys_kind) {
    Case c(o);
    const Packed values(c, kValues, kind, o.seed + 1);
    const bool packed_keys = o.score == SAGE_ATTENTION_DOT && keys_kind != SAGE_ATTENTION_PLAIN;
    const Packed keys(c, packed_keys ? kKeys : kValues, packed_keys ? keys_kind : kind, o.seed + (packed_keys ? 2 : 1));
    const Naive naive(c, nullptr);
    use(c, values, kind);
    if (packed_keys) use_keys(c, keys, keys_kind);
    CHECK_OK(c.forward());
    CHECK(difference(c, c.out, naive.out) <= 1e-5);
    if (c.result.edge_out) CHECK(difference(c, c.edge_out, naive.edge_out) <= 1e-5);
    CHECK(c.intact() && values.intact() && keys.intact());
}

void attention_matches_naive() {
    const int64_t shapes[][3] = {{1, 1, 0}, {1, 8, 3}, {2, 16, 0}, {3, 5, 2}, {8, 8, 1}, {8, 16, 0}, {3, 16, 0}, {2, 32, 0},
                                 {4, 32, 5}, {12, 7, 3}, {1, 64, 0}, {5, 33, 17}, {16, 3, 2}, {1, 100, 1}, {8, 64, 0}, {1, 4, 0}};
    at_every_level([&] {
        for (const auto& shape : shapes) {
            for (int32_t score = 0; score < 3; ++score) {
                for (const int32_t kind : kKinds) {
                    CaseOptions o = options(score, shape[0], shape[1], shape[2]);
                    check_case(o, kind, kind);
                    o.index_type = SAGE_ATTENTION_INT64;
                    o.edge_ids = true;
                    o.num_threads = 2;
                    o.most_degree = 90;
                    check_case(o, kind, SAGE_ATTENTION_PLAIN);
                    o.rows = 9;
                    o.fan_out = 5;
                    check_case(o, kind, kind % 3 + 1);
                }
            }
        }
    });
}

void sums_match_naive() {
    at_every_level([] {
        for (int64_t channels = 1; channels < 140; channels += channels < 20 ? 1 : 13) {
            for (const int32_t kind : kKinds) {
                CaseOptions o = options(SAGE_ATTENTION_GAT, 1, channels);
                o.targets = 30;
                Case c(o);
                const Packed values(c, kValues, kind, 3);
                Guarded out;
                out.allocate(o.targets * channels * 4);
                CHECK_OK(sage_attention_aggregate(&c.problem.graph, 0, nullptr, values.data.data(), kind, values.scale(), channels,
                                                  out.data(), 2));
                Doubles expected;
                expected.allocate(o.targets * channels);
                for (int64_t i = 0; i < o.targets; ++i) {
                    for (int64_t e = c.indptr.ids()[i]; e < c.indptr.ids()[i + 1]; ++e) {
                        const int64_t source = static_cast<const int32_t*>(c.indices.data())[e];
                        for (int64_t x = 0; x < channels; ++x) expected[i * channels + x] += c.in(kValues, source * channels + x);
                    }
                }
                CHECK(difference(c, out, expected) <= 1e-5);
                CHECK(c.intact() && out.intact() && values.intact());
            }
        }
    });
}

template <class F>
void refuse(const CaseOptions& o, const F& change, const char* start, bool forward = true) {
    Case c(o);
    const Packed values(c, kValues, SAGE_ATTENTION_INT8, 1);
    use(c, values, SAGE_ATTENTION_INT8);
    change(c);
    if (forward) CHECK_REFUSED(c.forward(), start);
    CHECK_REFUSED(c.backward(), start);
    CHECK(c.untouched());
}

void refuses() {
    for (int32_t score = 0; score < 3; ++score) {
        const CaseOptions o = options(score, 2, 5);
        refuse(o, [](Case& c) { c.problem.values_kind = 4; }, "values_kind");
        refuse(o, [](Case& c) { c.problem.values_kind = -1; }, "values_kind");
        refuse(o, [](Case& c) { c.problem.keys_kind = 4; }, "keys_kind");
        refuse(o, [](Case& c) { c.problem.value_scales = nullptr; }, "value_scales");
        refuse(o, [](Case& c) { c.problem.dtype = SAGE_ATTENTION_FLOAT64; }, "values_kind");
        refuse(o, [](Case&) {}, "values_kind", false);  // no gradients
        if (score == SAGE_ATTENTION_DOT) {
            refuse(o, [](Case& c) { c.problem.keys_kind = SAGE_ATTENTION_INT8; }, "key_scales");
            refuse(o, [](Case& c) { c.problem.values_kind = 0; c.problem.keys_kind = SAGE_ATTENTION_FLOAT16; }, "keys_kind", false);
        } else {
            refuse(o, [](Case& c) { c.problem.keys_kind = SAGE_ATTENTION_FLOAT16; }, "keys_kind");
        }
    }
    Case c(options(SAGE_ATTENTION_GAT, 2, 5));
    const Packed values(c, kValues, SAGE_ATTENTION_INT8, 1);
    use(c, values, SAGE_ATTENTION_INT8);
    c.result.positive_out = c.positive_out.data();
    c.result.positive_sum = c.positive_sum.data();
    CHECK_REFUSED(c.forward(), "positive_out");
    const auto sum = [&](int32_t dtype, int32_t kind, const float* scales) {
        return sage_attention_aggregate(&c.problem.graph, dtype, nullptr, values.data.data(), kind, scales, 5, c.out.data(), 1);
    };
    CHECK_REFUSED(sum(0, 4, values.scale()), "values_kind");
    CHECK_REFUSED(sum(0, -1, values.scale()), "values_kind");
    CHECK_REFUSED(sum(1, SAGE_ATTENTION_INT8, values.scale()), "values_kind");
    CHECK_REFUSED(sum(0, SAGE_ATTENTION_INT8, nullptr), "value_scales");
    CHECK(c.untouched());
}

}  // namespace

int main() {
    RUN(attention_matches_naive);
    RUN(sums_match_naive);
    RUN(refuses);
    return test_result();
}
