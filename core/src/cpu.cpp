#include "cpu.h"

#include "platform.h"
#include "status.h"

#if defined(__x86_64__) || defined(_M_X64)
#define SAGE_X86 1
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif

namespace sage {
namespace {

#if SAGE_X86
void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[4]) {
#if defined(_MSC_VER) && !defined(__clang__)
    int r[4];
    __cpuidex(r, static_cast<int>(leaf), static_cast<int>(subleaf));
    for (int i = 0; i < 4; ++i) out[i] = static_cast<uint32_t>(r[i]);
#else
    __cpuid_count(leaf, subleaf, out[0], out[1], out[2], out[3]);
#endif
}

uint64_t xgetbv0() {
#if defined(_MSC_VER) && !defined(__clang__)
    return _xgetbv(0);
#else
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (static_cast<uint64_t>(high) << 32) | low;
#endif
}

// AVX2, FMA and F16C in the processor (it has all or none, unless a hypervisor hides some), and the upper register
// halves saved by the operating system.
bool detect_avx2() {
    uint32_t r[4];
    cpuid(0, 0, r);
    if (r[0] < 7) return false;
    cpuid(1, 0, r);
    const bool osxsave = (r[2] >> 27) & 1, avx = (r[2] >> 28) & 1, fma = (r[2] >> 12) & 1, f16c = (r[2] >> 29) & 1;
    if (!osxsave || !avx || !fma || !f16c || (xgetbv0() & 6) != 6) return false;
    cpuid(7, 0, r);
    return (r[1] >> 5) & 1;
}
#endif

constexpr const char* kNames[kCpuLevelCount] = {"scalar", "avx2", "neon"};

bool level_from_name(const char* name, CpuLevel* level) {
    for (int32_t i = 0; i < kCpuLevelCount; ++i) {
        if (strcmp(name, kNames[i]) == 0) {
            *level = static_cast<CpuLevel>(i);
            return true;
        }
    }
    return false;
}

CpuLevel detect_level() {
    CpuLevel best = CpuLevel::kScalar;
    for (int32_t i = 0; i < kCpuLevelCount; ++i) {
        if (cpu_level_available(static_cast<CpuLevel>(i))) best = static_cast<CpuLevel>(i);
    }
    CpuLevel forced;
    const char* name = getenv("SAGE_ATTENTION_CPU");
    if (name && level_from_name(name, &forced) && cpu_level_available(forced)) return forced;
    return best;
}

volatile int64_t current = -1;  // not detected yet; detection is idempotent, so a race is harmless

}  // namespace

const char* cpu_level_name(CpuLevel level) { return kNames[static_cast<int32_t>(level)]; }

bool cpu_level_available(CpuLevel level) {
    switch (level) {
        case CpuLevel::kScalar:
            return true;
        case CpuLevel::kAvx2:
#if SAGE_X86
            return detect_avx2();
#else
            return false;
#endif
        case CpuLevel::kNeon:
#if defined(__aarch64__) || defined(_M_ARM64)
            return true;  // part of the architecture
#else
            return false;
#endif
    }
    return false;
}

CpuLevel cpu_level() {
    int64_t level = atomic_load(&current);
    if (level < 0) {
        level = static_cast<int64_t>(detect_level());
        atomic_store(&current, level);
    }
    return static_cast<CpuLevel>(level);
}

void force_cpu_level(CpuLevel level) { atomic_store(&current, static_cast<int64_t>(level)); }

}  // namespace sage

using namespace sage;

extern "C" const char* sage_attention_cpu_level(void) { return cpu_level_name(cpu_level()); }

extern "C" int32_t sage_attention_set_cpu_level(const char* name) {
    CpuLevel level;
    if (!name) return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "level: expected a name, got null");
    if (!level_from_name(name, &level)) {
        return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "level: expected scalar, avx2 or neon, got '%s'", name);
    }
    if (!cpu_level_available(level)) {
        return fail(SAGE_ATTENTION_UNSUPPORTED, "level: this machine cannot run '%s'", name);
    }
    force_cpu_level(level);
    return SAGE_ATTENTION_OK;
}

extern "C" const char* sage_attention_available_cpu_level(int32_t i) {
    for (int32_t level = 0; level < kCpuLevelCount; ++level) {
        if (cpu_level_available(static_cast<CpuLevel>(level)) && i-- == 0) return kNames[level];
    }
    return nullptr;
}

extern "C" int32_t sage_attention_default_num_threads(void) { return core_count(); }
