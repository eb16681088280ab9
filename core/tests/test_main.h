// The whole test framework: CHECK prints what failed and goes on, RUN runs a function and names it, a program returns
// test_result(). No standard C++ header, as in the core.
#pragma once

#include <stdio.h>
#include <string.h>

#include "sage_attention.h"

inline int& test_failures() {
    static int failures = 0;
    return failures;
}

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            ++test_failures();                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);   \
        }                                                                             \
    } while (0)

#define CHECK_EQUAL(a, b)                                                                                        \
    do {                                                                                                         \
        const long long check_a = static_cast<long long>(a), check_b = static_cast<long long>(b);                \
        if (check_a != check_b) {                                                                                \
            ++test_failures();                                                                                   \
            fprintf(stderr, "%s:%d: failed: %s == %s: %lld, %lld\n", __FILE__, __LINE__, #a, #b, check_a, check_b); \
        }                                                                                                        \
    } while (0)

#define CHECK_OK(call)                                                                                      \
    do {                                                                                                    \
        const int check_status = (call);                                                                    \
        if (check_status != SAGE_ATTENTION_OK) {                                                            \
            ++test_failures();                                                                              \
            fprintf(stderr, "%s:%d: failed: %s: %s\n", __FILE__, __LINE__, #call, sage_attention_last_error()); \
        }                                                                                                   \
    } while (0)

// The call is refused as an invalid argument, with a message that starts with `start` and says expected and got.
#define CHECK_REFUSED(call, start)                                                                               \
    do {                                                                                                         \
        const int check_status = (call);                                                                         \
        const char* check_message = sage_attention_last_error();                                                 \
        if (check_status != SAGE_ATTENTION_INVALID_ARGUMENT || strncmp(check_message, start, strlen(start)) != 0 || \
            !strstr(check_message, ": expected ") || !strstr(check_message, ", got ")) {                         \
            ++test_failures();                                                                                   \
            fprintf(stderr, "%s:%d: status %d, message '%s'\n", __FILE__, __LINE__, check_status, check_message); \
        }                                                                                                        \
    } while (0)

#define RUN(function)                           \
    do {                                        \
        const int before = test_failures();     \
        function();                             \
        printf("%s %s\n", test_failures() == before ? "ok  " : "FAIL", #function); \
    } while (0)

inline int test_result() {
    if (test_failures()) fprintf(stderr, "%d checks failed\n", test_failures());
    return test_failures() != 0;
}
