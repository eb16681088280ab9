// The one place that knows which kernels run.
#pragma once

#include "kernels/kernels.h"

namespace sage {

// The kernels of the CPU level in use for an element type.
const Kernels& kernels(int32_t dtype);

}  // namespace sage
