// exp for any vector type V of the kernels (see scalar.cpp for what V offers).
#pragma once

#include <stdint.h>

#include "../platform.h"

namespace sage {

// e^x for x <= 0; 0 where it would be below the smallest normal number; not a number stays so.
//
// float: 2^n * 2^f with n + f = x log2(e), |f| <= 1/2, and 2^f a polynomial of degree 5 that is 1 at 0 (minimax: 9e-8).
// The error is within 2 ulp for x > -1; further out it grows with |x|, to 4e-6 of numbers near 1e-38, and is never more
// than 1.2e-7 in absolute terms, which is what matters for weights that sum to 1.
// double: Cody-Waite reduction to |r| <= ln(2)/2, then Taylor's polynomial to r^13 (2 ulp).
template <class V>
SAGE_INLINE V exp_nonpositive(V x) {
    using T = typename V::T;
    if constexpr (sizeof(T) == 4) {
        const V limit = V::set(-87.0f), log2_e = V::set(1.44269504088896341f);
        const V clamped = V::maximum(limit, x);
        const V n = V::round(clamped * log2_e);
        const V f = V::fms(clamped, log2_e, n);
        V p = V::set(1.326472730e-3f);
        p = V::fma(p, f, V::set(9.671512991e-3f));
        p = V::fma(p, f, V::set(5.550733581e-2f));
        p = V::fma(p, f, V::set(2.402224243e-1f));
        p = V::fma(p, f, V::set(6.931470037e-1f));
        p = V::fma(p, f, V::set(1.0f));
        return V::if_less(x, limit, V::set(0.0f), V::times_power_of_two(p, n));
    } else {
        const V limit = V::set(-708.3964185322641);
        const V n = V::round(V::maximum(limit, x) * V::set(1.4426950408889634074));
        V r = V::fma(n, V::set(-6.93145751953125e-1), x);
        r = V::fma(n, V::set(-1.42860682030941723212e-6), r);
        V p = V::set(1.0 / 6227020800.0);
        p = V::fma(p, r, V::set(1.0 / 479001600.0));
        p = V::fma(p, r, V::set(1.0 / 39916800.0));
        p = V::fma(p, r, V::set(1.0 / 3628800.0));
        p = V::fma(p, r, V::set(1.0 / 362880.0));
        p = V::fma(p, r, V::set(1.0 / 40320.0));
        p = V::fma(p, r, V::set(1.0 / 5040.0));
        p = V::fma(p, r, V::set(1.0 / 720.0));
        p = V::fma(p, r, V::set(1.0 / 120.0));
        p = V::fma(p, r, V::set(1.0 / 24.0));
        p = V::fma(p, r, V::set(1.0 / 6.0));
        p = V::fma(p, r, V::set(0.5));
        p = V::fma(p, r * r, r + V::set(1.0));
        return V::if_less(x, limit, V::set(0.0), V::times_power_of_two(p, n));
    }
}

}  // namespace sage
