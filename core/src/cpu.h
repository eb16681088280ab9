// Which CPU level the kernels may use.
#pragma once

#include <stdint.h>

namespace sage {

enum class CpuLevel : int32_t { kScalar = 0, kAvx2 = 1, kNeon = 2 };
constexpr int32_t kCpuLevelCount = 3;

const char* cpu_level_name(CpuLevel level);

// Can this machine (processor and operating system) run that level, and was it compiled in?
bool cpu_level_available(CpuLevel level);

// The level in use: the highest available, or the one forced.
CpuLevel cpu_level();
void force_cpu_level(CpuLevel level);

}  // namespace sage
