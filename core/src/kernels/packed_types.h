// Numbers of fewer bytes than a float: the elements of tables that are kept packed. Every vector type of float loads them
// (load, load_partial) as floats; an Int8 still lacks the scale of its row.
#pragma once

#include <stdint.h>
#include <string.h>

#include "../platform.h"

namespace sage {

// IEEE binary16.
struct Float16 {
    uint16_t bits;
};
// The upper half of a float.
struct BFloat16 {
    uint16_t bits;
};
struct Int8 {
    int8_t value;
};

SAGE_INLINE float to_float(Float16 x) {
    const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
    uint32_t bits = rest << 13;
    if (rest >= 0x7c00) {
        bits |= 0x7f800000;  // infinite, or not a number
    } else if (rest >= 0x400) {
        bits += uint32_t{127 - 15} << 23;
    } else {
        bits = bit_cast<uint32_t>(static_cast<float>(rest) * 5.9604644775390625e-8f);  // 2^-24: subnormal
    }
    return bit_cast<float>(sign | bits);
}
SAGE_INLINE float to_float(BFloat16 x) { return bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
SAGE_INLINE float to_float(Int8 x) { return static_cast<float>(x.value); }

// The first few bytes at p, fewer than 8, with zeros after them; nothing past them is read. The order of bytes is that of
// all processors there are kernels for: the lowest first.
SAGE_INLINE uint64_t load_few(const void* p, int64_t bytes) {
    const unsigned char* from = static_cast<const unsigned char*>(p);
    uint64_t all = 0;
    int shift = 0;
    if (bytes & 4) {
        uint32_t x;
        memcpy(&x, from, sizeof(x));
        all = x;
        from += 4;
        shift = 32;
    }
    if (bytes & 2) {
        uint16_t x;
        memcpy(&x, from, sizeof(x));
        all |= static_cast<uint64_t>(x) << shift;
        from += 2;
        shift += 16;
    }
    if (bytes & 1) all |= static_cast<uint64_t>(*from) << shift;
    return all;
}

}  // namespace sage
