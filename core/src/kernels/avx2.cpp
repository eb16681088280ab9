// AVX2, FMA and F16C: 8 floats or 4 doubles. Haswell and Zen on: load 1/cycle x2, fma 4-5 cycles x2; masked loads cost no
// more than plain ones. Memory bandwidth, not arithmetic, is the wall for rows that are not in cache.
#include <immintrin.h>
#include <math.h>

#include "../platform.h"

// Wide instructions get a section of their own, so that what is shipped can be searched for others elsewhere. Only
// Clang can say so for all functions at once, templates and lambdas included; shipped libraries are built with it.
#if defined(__clang__)
#if defined(__MACH__)
#define SAGE_WIDE_CODE "__TEXT,__avx2,regular,pure_instructions"
#else
#define SAGE_WIDE_CODE ".avx2"
#endif
#pragma clang attribute push(__attribute__((section(SAGE_WIDE_CODE))), apply_to = function)
#endif

#include "attention_kernels.h"

namespace sage {
namespace {

alignas(32) constexpr int32_t kMask32[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
alignas(32) constexpr int64_t kMask64[8] = {-1, -1, -1, -1, 0, 0, 0, 0};

// Words of four Philox counters, each in the low half of a 64-bit lane; the high halves may hold anything.
struct Words4 {
    __m256i x;
};
struct Counters4 {
    using Words = Words4;
    static constexpr int kLanes = 4;
    static SAGE_INLINE Words4 load(const uint32_t* p) {
        return {_mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
    }
    static SAGE_INLINE Words4 all(uint32_t v) { return {_mm256_set1_epi64x(v)}; }
};
SAGE_INLINE Words4 multiply(Words4 a, Words4 b) { return {_mm256_mul_epu32(a.x, b.x)}; }  // whole 64-bit products
SAGE_INLINE Words4 high(Words4 a) { return {_mm256_srli_epi64(a.x, 32)}; }
SAGE_INLINE Words4 add(Words4 a, Words4 b) { return {_mm256_add_epi32(a.x, b.x)}; }
SAGE_INLINE Words4 exclusive_or(Words4 a, Words4 b) { return {_mm256_xor_si256(a.x, b.x)}; }
// out[4 * lane + w] = word w of the counter of that lane
SAGE_INLINE void store(Words4 c0, Words4 c1, Words4 c2, Words4 c3, uint32_t* out) {
    const __m256i c01 = _mm256_blend_epi32(c0.x, _mm256_slli_epi64(c1.x, 32), 0xAA);
    const __m256i c23 = _mm256_blend_epi32(c2.x, _mm256_slli_epi64(c3.x, 32), 0xAA);
    const __m256i even = _mm256_unpacklo_epi64(c01, c23), odd = _mm256_unpackhi_epi64(c01, c23);
    __m128i* to = reinterpret_cast<__m128i*>(out);
    _mm_storeu_si128(to, _mm256_castsi256_si128(even));
    _mm_storeu_si128(to + 1, _mm256_castsi256_si128(odd));
    _mm_storeu_si128(to + 2, _mm256_extracti128_si256(even, 1));
    _mm_storeu_si128(to + 3, _mm256_extracti128_si256(odd, 1));
}

struct F32x8 {
    using T = float;
    using Counters = Counters4;
    static constexpr int kWidth = 8;
    __m256 x;

    static SAGE_INLINE float lowest() { return -3.4028234663852886e38f; }
    static SAGE_INLINE __m256i mask(int64_t n) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask32 + 8 - n));
    }
    static SAGE_INLINE F32x8 load(const float* p) { return {_mm256_loadu_ps(p)}; }
    static SAGE_INLINE F32x8 load_partial(const float* p, int64_t n) { return {_mm256_maskload_ps(p, mask(n))}; }
    template <class Packed>
    static SAGE_INLINE F32x8 load(const Packed* p) {
        if constexpr (sizeof(Packed) == 2) return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), p);
        return widen(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), p);
    }
    template <class Packed>
    static SAGE_INLINE F32x8 load_partial(const Packed* p, int64_t n) {  // n < kWidth
        const int64_t bytes = n * static_cast<int64_t>(sizeof(Packed));
        if (bytes < 8) return widen(_mm_cvtsi64_si128(static_cast<int64_t>(load_few(p, bytes))), p);
        const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
        const __m128i high = _mm_cvtsi64_si128(static_cast<int64_t>(load_few(p + 8 / sizeof(Packed), bytes - 8)));
        return widen(_mm_unpacklo_epi64(low, high), p);
    }
    // The lowest eight elements; the pointer only says of which type.
    static SAGE_INLINE F32x8 widen(__m128i x, const Float16*) { return {_mm256_cvtph_ps(x)}; }
    static SAGE_INLINE F32x8 widen(__m128i x, const BFloat16*) {
        return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16))};
    }
    static SAGE_INLINE F32x8 widen(__m128i x, const Int8*) { return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x))}; }
    static SAGE_INLINE F32x8 set(float v) { return {_mm256_set1_ps(v)}; }
    SAGE_INLINE void store(float* p) const { _mm256_storeu_ps(p, x); }
    SAGE_INLINE void store_partial(float* p, int64_t n) const { _mm256_maskstore_ps(p, mask(n), x); }
    static SAGE_INLINE F32x8 fma(F32x8 a, F32x8 b, F32x8 c) { return {_mm256_fmadd_ps(a.x, b.x, c.x)}; }
    static SAGE_INLINE F32x8 maximum(F32x8 a, F32x8 b) { return {_mm256_max_ps(a.x, b.x)}; }
    static SAGE_INLINE F32x8 if_positive(F32x8 z, F32x8 a, F32x8 b) {
        return {_mm256_blendv_ps(b.x, a.x, _mm256_cmp_ps(z.x, _mm256_setzero_ps(), _CMP_GT_OQ))};
    }
    static SAGE_INLINE F32x8 if_less(F32x8 z, F32x8 limit, F32x8 a, F32x8 b) {
        return {_mm256_blendv_ps(b.x, a.x, _mm256_cmp_ps(z.x, limit.x, _CMP_LT_OQ))};
    }
    // Lane l is the sum of part[l]'s lanes. Written without horizontal adds, which are slow on many processors.
    static SAGE_INLINE F32x8 reduce(const F32x8* part) {
        const auto add_pairs = [](__m256 a, __m256 b) SAGE_LAMBDA {  // a0+a2 b0+b2 a1+a3 b1+b3, and so for the upper half
            return _mm256_castps_pd(_mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)));
        };
        const auto add_four = [&](const F32x8* p) SAGE_LAMBDA {
            const __m256d ab = add_pairs(p[0].x, p[1].x), cd = add_pairs(p[2].x, p[3].x);
            const __m256 sum = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd)),
                                             _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd)));
            return _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
        };
        return {_mm256_insertf128_ps(_mm256_castps128_ps256(add_four(part)), add_four(part + 4), 1)};
    }
    static SAGE_INLINE float total(F32x8 a) {
        __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.x), _mm256_extractf128_ps(a.x, 1));
        x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
    }
    // Lane l is lane l ^ kDistance.
    template <int kDistance>
    static SAGE_INLINE F32x8 swap(F32x8 a) {
        if constexpr (kDistance == 4) return {_mm256_permute2f128_ps(a.x, a.x, 1)};
        return {_mm256_permute_ps(a.x, kDistance == 2 ? 0x4E : 0xB1)};
    }
    static SAGE_INLINE F32x8 round(F32x8 a) {
        return {_mm256_round_ps(a.x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
    }
    // a * b - c
    static SAGE_INLINE F32x8 fms(F32x8 a, F32x8 b, F32x8 c) { return {_mm256_fmsub_ps(a.x, b.x, c.x)}; }
    // x * 2^n for whole n; x and the result normal numbers, or x not a number.
    static SAGE_INLINE F32x8 times_power_of_two(F32x8 x, F32x8 n) {
        const __m256i shifted = _mm256_slli_epi32(_mm256_cvtps_epi32(n.x), 23);
        return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.x), shifted))};
    }
    friend SAGE_INLINE F32x8 operator+(F32x8 a, F32x8 b) { return {_mm256_add_ps(a.x, b.x)}; }
    friend SAGE_INLINE F32x8 operator-(F32x8 a, F32x8 b) { return {_mm256_sub_ps(a.x, b.x)}; }
    friend SAGE_INLINE F32x8 operator*(F32x8 a, F32x8 b) { return {_mm256_mul_ps(a.x, b.x)}; }
    friend SAGE_INLINE F32x8 operator/(F32x8 a, F32x8 b) { return {_mm256_div_ps(a.x, b.x)}; }
};

struct F64x4 {
    using T = double;
    using Counters = Counters4;
    static constexpr int kWidth = 4;
    __m256d x;

    static SAGE_INLINE double lowest() { return -1.7976931348623157e308; }
    static SAGE_INLINE __m256i mask(int64_t n) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask64 + 4 - n));
    }
    static SAGE_INLINE F64x4 load(const double* p) { return {_mm256_loadu_pd(p)}; }
    static SAGE_INLINE F64x4 load_partial(const double* p, int64_t n) { return {_mm256_maskload_pd(p, mask(n))}; }
    static SAGE_INLINE F64x4 set(double v) { return {_mm256_set1_pd(v)}; }
    SAGE_INLINE void store(double* p) const { _mm256_storeu_pd(p, x); }
    SAGE_INLINE void store_partial(double* p, int64_t n) const { _mm256_maskstore_pd(p, mask(n), x); }
    static SAGE_INLINE F64x4 fma(F64x4 a, F64x4 b, F64x4 c) { return {_mm256_fmadd_pd(a.x, b.x, c.x)}; }
    static SAGE_INLINE F64x4 maximum(F64x4 a, F64x4 b) { return {_mm256_max_pd(a.x, b.x)}; }
    static SAGE_INLINE F64x4 if_positive(F64x4 z, F64x4 a, F64x4 b) {
        return {_mm256_blendv_pd(b.x, a.x, _mm256_cmp_pd(z.x, _mm256_setzero_pd(), _CMP_GT_OQ))};
    }
    static SAGE_INLINE F64x4 if_less(F64x4 z, F64x4 limit, F64x4 a, F64x4 b) {
        return {_mm256_blendv_pd(b.x, a.x, _mm256_cmp_pd(z.x, limit.x, _CMP_LT_OQ))};
    }
    static SAGE_INLINE F64x4 reduce(const F64x4* part) {
        const auto add_two = [](const F64x4* p) SAGE_LAMBDA {
            const __m256d sum =
                _mm256_add_pd(_mm256_unpacklo_pd(p[0].x, p[1].x), _mm256_unpackhi_pd(p[0].x, p[1].x));
            return _mm_add_pd(_mm256_castpd256_pd128(sum), _mm256_extractf128_pd(sum, 1));
        };
        return {_mm256_insertf128_pd(_mm256_castpd128_pd256(add_two(part)), add_two(part + 2), 1)};
    }
    static SAGE_INLINE double total(F64x4 a) {
        const __m128d x = _mm_add_pd(_mm256_castpd256_pd128(a.x), _mm256_extractf128_pd(a.x, 1));
        return _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x)));
    }
    template <int kDistance>
    static SAGE_INLINE F64x4 swap(F64x4 a) {
        if constexpr (kDistance == 2) return {_mm256_permute2f128_pd(a.x, a.x, 1)};
        return {_mm256_permute_pd(a.x, 0x5)};
    }
    static SAGE_INLINE F64x4 round(F64x4 a) {
        return {_mm256_round_pd(a.x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
    }
    static SAGE_INLINE F64x4 times_power_of_two(F64x4 x, F64x4 n) {
        const __m256i shifted = _mm256_slli_epi64(_mm256_cvtepi32_epi64(_mm256_cvtpd_epi32(n.x)), 52);
        return {_mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(x.x), shifted))};
    }
    friend SAGE_INLINE F64x4 operator+(F64x4 a, F64x4 b) { return {_mm256_add_pd(a.x, b.x)}; }
    friend SAGE_INLINE F64x4 operator-(F64x4 a, F64x4 b) { return {_mm256_sub_pd(a.x, b.x)}; }
    friend SAGE_INLINE F64x4 operator*(F64x4 a, F64x4 b) { return {_mm256_mul_pd(a.x, b.x)}; }
    friend SAGE_INLINE F64x4 operator/(F64x4 a, F64x4 b) { return {_mm256_div_pd(a.x, b.x)}; }
};

}  // namespace

constinit const Kernels kAvx2Kernels[2] = {make_kernels<F32x8>(), make_kernels<F64x4>()};

}  // namespace sage

#if defined(__clang__)
#pragma clang attribute pop
#endif
