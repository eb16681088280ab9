#include "dispatch.h"

#include "cpu.h"

namespace sage {

const Kernels& kernels(int32_t dtype) {
    switch (cpu_level()) {
        case CpuLevel::kAvx2:
#if defined(__x86_64__) || defined(_M_X64)
            return kAvx2Kernels[dtype];
#else
            break;
#endif
        case CpuLevel::kNeon:
#if defined(__aarch64__) || defined(_M_ARM64)
            return kNeonKernels[dtype];
#else
            break;
#endif
        case CpuLevel::kScalar:
            break;
    }
    return kScalarKernels[dtype];
}

}  // namespace sage
