// Status and message of the calling thread's last failure.
#pragma once

#include "sage_attention.h"

namespace sage {

// Stores the message and returns the status: `return fail(SAGE_ATTENTION_INVALID_ARGUMENT, "heads: expected ...")`.
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int32_t fail(int32_t status, const char* format, ...);

inline int32_t out_of_memory() { return fail(SAGE_ATTENTION_OUT_OF_MEMORY, "not enough memory for scratch or results"); }

}  // namespace sage

// Leaves the function with the status of `call` unless that is OK.
#define SAGE_TRY(call)                                                    \
    do {                                                                  \
        const int32_t sage_status_ = (call);                              \
        if (sage_status_ != SAGE_ATTENTION_OK) return sage_status_;       \
    } while (0)
