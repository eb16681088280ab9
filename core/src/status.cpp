#include "status.h"

#include <stdarg.h>
#include <stdio.h>

namespace {
thread_local char last_message[512] = "no error";
}

namespace sage {

int32_t fail(int32_t status, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_message, sizeof last_message, format, arguments);
    va_end(arguments);
    return status;
}

}  // namespace sage

extern "C" const char* sage_attention_last_error(void) { return last_message; }
