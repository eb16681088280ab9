// The one place that knows which kernels run.
#pragma once

#include "kernels/kernels.h"

namespace sage {

// The kernels of the CPU level in use for an element type.
const Kernels& kernels(int32_t dtype);

// The same for raw rows, which wider levels have for float alone: double is there to be compared with.
const Kernels& raw_kernels(int32_t dtype);

}  // namespace sage
