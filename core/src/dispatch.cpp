#include "dispatch.h"

#include "cpu.h"
#include "sage_attention.h"

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

const Kernels& raw_kernels(int32_t dtype) {
    return dtype == SAGE_ATTENTION_FLOAT32 ? kernels(dtype) : kScalarKernels[dtype];
}

}  // namespace sage
