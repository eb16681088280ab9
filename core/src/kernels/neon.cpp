// NEON, which every 64-bit ARM processor has: 4 floats or 2 doubles. There are 32 registers, so that sums over eight
// vectors stay in them; there are no masked loads, so that the last few channels are touched one or two at a time.
#include "attention_kernels.h"

#include <arm_neon.h>

namespace sage {
namespace {

struct F32x4 {
    using T = float;
    using Counters = CounterPair;
    static constexpr int kWidth = 4;
    float32x4_t x;

    static SAGE_INLINE float lowest() { return -3.4028234663852886e38f; }
    static SAGE_INLINE F32x4 load(const float* p) { return {vld1q_f32(p)}; }
    static SAGE_INLINE F32x4 load_partial(const float* p, int64_t n) {  // n < kWidth
        const float32x2_t zero = vdup_n_f32(0);
        if (n < 2) return {vcombine_f32(n < 1 ? zero : vld1_lane_f32(p, zero, 0), zero)};
        return {vcombine_f32(vld1_f32(p), n < 3 ? zero : vld1_lane_f32(p + 2, zero, 0))};
    }
    template <class Packed>
    static SAGE_INLINE F32x4 load(const Packed* p) {
        if constexpr (sizeof(Packed) == 2) return widen(vld1_u16(reinterpret_cast<const uint16_t*>(p)), p);
        uint32_t four;
        memcpy(&four, p, sizeof(four));
        return widen(vreinterpret_u16_u32(vdup_n_u32(four)), p);
    }
    template <class Packed>
    static SAGE_INLINE F32x4 load_partial(const Packed* p, int64_t n) {  // n < kWidth
        const uint64_t few = load_few(p, n * static_cast<int64_t>(sizeof(Packed)));
        return widen(vcreate_u16(few), p);
    }
    // The lowest four elements; the pointer only says of which type.
    static SAGE_INLINE F32x4 widen(uint16x4_t x, const Float16*) { return {vcvt_f32_f16(vreinterpret_f16_u16(x))}; }
    static SAGE_INLINE F32x4 widen(uint16x4_t x, const BFloat16*) {
        return {vreinterpretq_f32_u32(vshll_n_u16(x, 16))};
    }
    static SAGE_INLINE F32x4 widen(uint16x4_t x, const Int8*) {
        return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u16(x)))))};
    }
    static SAGE_INLINE F32x4 set(float v) { return {vdupq_n_f32(v)}; }
    SAGE_INLINE void store(float* p) const { vst1q_f32(p, x); }
    SAGE_INLINE void store_partial(float* p, int64_t n) const {
        if (n == 1) vst1q_lane_f32(p, x, 0);
        if (n >= 2) vst1_f32(p, vget_low_f32(x));
        if (n == 3) vst1q_lane_f32(p + 2, x, 2);
    }
    static SAGE_INLINE F32x4 fma(F32x4 a, F32x4 b, F32x4 c) { return {vfmaq_f32(c.x, a.x, b.x)}; }
    static SAGE_INLINE F32x4 fms(F32x4 a, F32x4 b, F32x4 c) { return {vfmaq_f32(vnegq_f32(c.x), a.x, b.x)}; }
    static SAGE_INLINE F32x4 maximum(F32x4 a, F32x4 b) { return {vmaxq_f32(a.x, b.x)}; }
    static SAGE_INLINE F32x4 if_positive(F32x4 z, F32x4 a, F32x4 b) {
        return {vbslq_f32(vcgtzq_f32(z.x), a.x, b.x)};
    }
    static SAGE_INLINE F32x4 if_less(F32x4 z, F32x4 limit, F32x4 a, F32x4 b) {
        return {vbslq_f32(vcltq_f32(z.x, limit.x), a.x, b.x)};
    }
    // Lane l is the sum of part[l]'s lanes.
    static SAGE_INLINE F32x4 reduce(const F32x4* part) {
        return {vpaddq_f32(vpaddq_f32(part[0].x, part[1].x), vpaddq_f32(part[2].x, part[3].x))};
    }
    static SAGE_INLINE float total(F32x4 a) { return vaddvq_f32(a.x); }
    // Lane l is lane l ^ kDistance.
    template <int kDistance>
    static SAGE_INLINE F32x4 swap(F32x4 a) {
        if constexpr (kDistance == 2) return {vextq_f32(a.x, a.x, 2)};
        return {vrev64q_f32(a.x)};
    }
    static SAGE_INLINE F32x4 round(F32x4 a) { return {vrndnq_f32(a.x)}; }
    // x * 2^n for whole n; x and the result normal numbers, or x not a number.
    static SAGE_INLINE F32x4 times_power_of_two(F32x4 x, F32x4 n) {
        const int32x4_t shifted = vshlq_n_s32(vcvtnq_s32_f32(n.x), 23);
        return {vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x.x), shifted))};
    }
    friend SAGE_INLINE F32x4 operator+(F32x4 a, F32x4 b) { return {vaddq_f32(a.x, b.x)}; }
    friend SAGE_INLINE F32x4 operator-(F32x4 a, F32x4 b) { return {vsubq_f32(a.x, b.x)}; }
    friend SAGE_INLINE F32x4 operator*(F32x4 a, F32x4 b) { return {vmulq_f32(a.x, b.x)}; }
    friend SAGE_INLINE F32x4 operator/(F32x4 a, F32x4 b) { return {vdivq_f32(a.x, b.x)}; }
};

struct F64x2 {
    using T = double;
    using Counters = CounterPair;
    static constexpr int kWidth = 2;
    float64x2_t x;

    static SAGE_INLINE double lowest() { return -1.7976931348623157e308; }
    static SAGE_INLINE F64x2 load(const double* p) { return {vld1q_f64(p)}; }
    static SAGE_INLINE F64x2 load_partial(const double* p, int64_t n) {  // n < kWidth
        const float64x1_t zero = vdup_n_f64(0);
        return {vcombine_f64(n < 1 ? zero : vld1_f64(p), zero)};
    }
    static SAGE_INLINE F64x2 set(double v) { return {vdupq_n_f64(v)}; }
    SAGE_INLINE void store(double* p) const { vst1q_f64(p, x); }
    SAGE_INLINE void store_partial(double* p, int64_t n) const {
        if (n == 1) vst1q_lane_f64(p, x, 0);
    }
    static SAGE_INLINE F64x2 fma(F64x2 a, F64x2 b, F64x2 c) { return {vfmaq_f64(c.x, a.x, b.x)}; }
    static SAGE_INLINE F64x2 maximum(F64x2 a, F64x2 b) { return {vmaxq_f64(a.x, b.x)}; }
    static SAGE_INLINE F64x2 if_positive(F64x2 z, F64x2 a, F64x2 b) {
        return {vbslq_f64(vcgtzq_f64(z.x), a.x, b.x)};
    }
    static SAGE_INLINE F64x2 if_less(F64x2 z, F64x2 limit, F64x2 a, F64x2 b) {
        return {vbslq_f64(vcltq_f64(z.x, limit.x), a.x, b.x)};
    }
    static SAGE_INLINE F64x2 reduce(const F64x2* part) { return {vpaddq_f64(part[0].x, part[1].x)}; }
    static SAGE_INLINE double total(F64x2 a) { return vaddvq_f64(a.x); }
    template <int kDistance>
    static SAGE_INLINE F64x2 swap(F64x2 a) {
        static_assert(kDistance == 1);
        return {vextq_f64(a.x, a.x, 1)};
    }
    static SAGE_INLINE F64x2 round(F64x2 a) { return {vrndnq_f64(a.x)}; }
    static SAGE_INLINE F64x2 times_power_of_two(F64x2 x, F64x2 n) {
        const int64x2_t shifted = vshlq_n_s64(vcvtnq_s64_f64(n.x), 52);
        return {vreinterpretq_f64_s64(vaddq_s64(vreinterpretq_s64_f64(x.x), shifted))};
    }
    friend SAGE_INLINE F64x2 operator+(F64x2 a, F64x2 b) { return {vaddq_f64(a.x, b.x)}; }
    friend SAGE_INLINE F64x2 operator-(F64x2 a, F64x2 b) { return {vsubq_f64(a.x, b.x)}; }
    friend SAGE_INLINE F64x2 operator*(F64x2 a, F64x2 b) { return {vmulq_f64(a.x, b.x)}; }
    friend SAGE_INLINE F64x2 operator/(F64x2 a, F64x2 b) { return {vdivq_f64(a.x, b.x)}; }
};

}  // namespace

constinit const Kernels kNeonKernels[2] = {make_kernels<F32x4>(), make_kernels<F64x2>()};

}  // namespace sage
