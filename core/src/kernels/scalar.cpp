// The baseline: one element at a time, no instruction beyond the platform's own. The truth the other levels are
// measured against, and what runs where none of them can.
#include "attention_kernels.h"

namespace sage {
namespace {

template <class Element>
struct One {
    using T = Element;
    using Counters = CounterPair;
    static constexpr int kWidth = 1;
    T x;

    static SAGE_INLINE T lowest() { return sizeof(T) == 4 ? T(-3.4028234663852886e38) : T(-1.7976931348623157e308); }
    static SAGE_INLINE One load(const T* p) { return {*p}; }
    static SAGE_INLINE One load_partial(const T* p, int64_t) { return {*p}; }
    template <class Packed>
    static SAGE_INLINE One load(const Packed* p) {
        return {to_float(*p)};
    }
    template <class Packed>
    static SAGE_INLINE One load_partial(const Packed* p, int64_t) {
        return {to_float(*p)};
    }
    static SAGE_INLINE One set(T x) { return {x}; }
    SAGE_INLINE void store(T* p) const { *p = x; }
    SAGE_INLINE void store_partial(T* p, int64_t) const { *p = x; }
    static SAGE_INLINE One fma(One a, One b, One c) { return {a.x * b.x + c.x}; }
    static SAGE_INLINE One fms(One a, One b, One c) { return {a.x * b.x - c.x}; }
    static SAGE_INLINE One maximum(One a, One b) { return {a.x > b.x ? a.x : b.x}; }  // not a number where b is none
    static SAGE_INLINE One if_positive(One z, One a, One b) { return z.x > 0 ? a : b; }
    static SAGE_INLINE One if_less(One z, One limit, One a, One b) { return z.x < limit.x ? a : b; }
    static SAGE_INLINE One reduce(const One* part) { return part[0]; }
    static SAGE_INLINE T total(One a) { return a.x; }
    // Nearest integer, ties to even, for |x| < 2^22 (float) or 2^51 (double).
    static SAGE_INLINE One round(One a) {
        const T magic = sizeof(T) == 4 ? T(12582912.0) : T(6755399441055744.0);
        volatile T shifted = a.x + magic;  // volatile: the sum must not be simplified away
        return {shifted - magic};
    }
    // x * 2^n for whole n; x and the result normal numbers, or x not a number.
    static SAGE_INLINE One times_power_of_two(One x, One n) {
        if constexpr (sizeof(T) == 4) {
            const int32_t k = n.x >= T(-126) && n.x <= T(127) ? static_cast<int32_t>(n.x) : 0;
            const uint32_t bits = static_cast<uint32_t>(k + 127) << 23;
            return {x.x * bit_cast<T>(bits)};
        } else {
            const int32_t k = n.x >= T(-1022) && n.x <= T(1023) ? static_cast<int32_t>(n.x) : 0;
            const uint64_t bits = static_cast<uint64_t>(k + 1023) << 52;
            return {x.x * bit_cast<T>(bits)};
        }
    }
    friend SAGE_INLINE One operator+(One a, One b) { return {a.x + b.x}; }
    friend SAGE_INLINE One operator-(One a, One b) { return {a.x - b.x}; }
    friend SAGE_INLINE One operator*(One a, One b) { return {a.x * b.x}; }
    friend SAGE_INLINE One operator/(One a, One b) { return {a.x / b.x}; }
};

}  // namespace

constinit const Kernels kScalarKernels[2] = {make_kernels<One<float>>(), make_kernels<One<double>>()};

}  // namespace sage
