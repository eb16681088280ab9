// exp for any vector type V of the kernels (see scalar.cpp for what V offers).
#pragma once

#include <stdint.h>

#include "../platform.h"

namespace sage {

// e^x for x <= 0; 0 below the smallest normal result; not a number stays so. Cody-Waite reduction to
// |r| <= ln(2)/2, then a polynomial: Cephes' for float (2 ulp), Taylor's to r^13 for double (2 ulp).
template <class V>
SAGE_INLINE V exp_nonpositive(V x) {
    using T = typename V::T;
    if constexpr (sizeof(T) == 4) {
        const V limit = V::set(-87.33654f);
        const V n = V::round(V::maximum(limit, x) * V::set(1.44269504088896341f));
        V r = V::fma(n, V::set(-0.693359375f), x);
        r = V::fma(n, V::set(2.12194440e-4f), r);
        V p = V::set(1.9875691500e-4f);
        p = V::fma(p, r, V::set(1.3981999507e-3f));
        p = V::fma(p, r, V::set(8.3334519073e-3f));
        p = V::fma(p, r, V::set(4.1665795894e-2f));
        p = V::fma(p, r, V::set(1.6666665459e-1f));
        p = V::fma(p, r, V::set(5.0000001201e-1f));
        p = V::fma(p, r * r, r + V::set(1.0f));
        return V::if_less(x, limit, V::set(0.0f), p * V::power_of_two(n));
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
        return V::if_less(x, limit, V::set(0.0), p * V::power_of_two(n));
    }
}

}  // namespace sage
