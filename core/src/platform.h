// Atomics, threads and aligned memory: the only platform #ifdefs of the core. No C++ standard header.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
// Macros of 16-bit days, of ordinary words.
#undef near
#undef far
#else
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

// SAGE_LAMBDA, between parameters and body of a lambda, is SAGE_INLINE for it.
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#define SAGE_NOINLINE __declspec(noinline)
#define SAGE_INLINE __forceinline
#if _MSC_VER >= 1930
#define SAGE_LAMBDA [[msvc::forceinline]]
#else
#define SAGE_LAMBDA
#endif
// Multiplications and additions are joined where the code says so, nowhere else; before Visual Studio 2022 that had to
// be asked for.
#pragma fp_contract(off)
#else
#define SAGE_NOINLINE __attribute__((noinline))
#if defined(SAGE_SANITIZED)
// Each kernel in one piece, with a check at each access, would take the compiler ten minutes.
#define SAGE_INLINE inline
#define SAGE_LAMBDA
#else
#define SAGE_INLINE inline __attribute__((always_inline))
#define SAGE_LAMBDA __attribute__((always_inline))
#endif
#endif

namespace sage {

// How many vectors of a head are worth writing out: Microsoft's compiler takes minutes over four or more of each of eight.
#if defined(_MSC_VER) && !defined(__clang__)
constexpr int kMostUnrolled = 2;
#else
constexpr int kMostUnrolled = 8;
#endif

// Calls f(0), ..., f(N - 1), without a loop, so that what f keeps in arrays can stay in registers.
template <int N, class F>
SAGE_INLINE void unrolled(const F& f) {
    static_assert(N <= 8);
    if constexpr (N > 0) f(0);
    if constexpr (N > 1) f(1);
    if constexpr (N > 2) f(2);
    if constexpr (N > 3) f(3);
    if constexpr (N > 4) f(4);
    if constexpr (N > 5) f(5);
    if constexpr (N > 6) f(6);
    if constexpr (N > 7) f(7);
}

// ---- atomics: sequentially consistent, which is never the bottleneck here

#if defined(_MSC_VER) && !defined(__clang__)
SAGE_INLINE int64_t atomic_fetch_add(volatile int64_t* p, int64_t v) {
    return _InterlockedExchangeAdd64(reinterpret_cast<volatile long long*>(p), v);
}
SAGE_INLINE int64_t atomic_load(const volatile int64_t* p) {
    return _InterlockedOr64(const_cast<volatile long long*>(reinterpret_cast<const volatile long long*>(p)), 0);
}
SAGE_INLINE void atomic_store(volatile int64_t* p, int64_t v) {
    _InterlockedExchange64(reinterpret_cast<volatile long long*>(p), v);
}
#else
SAGE_INLINE int64_t atomic_fetch_add(volatile int64_t* p, int64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
SAGE_INLINE int64_t atomic_load(const volatile int64_t* p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
SAGE_INLINE void atomic_store(volatile int64_t* p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
#endif

SAGE_INLINE void prefetch(const void* p) {
#if defined(_MSC_VER) && !defined(__clang__) && defined(_M_X64)
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
#elif defined(_MSC_VER) && !defined(__clang__)
    __prefetch(p);
#else
    __builtin_prefetch(p);
#endif
}

// (a * b) >> 64, the bounded draw from 64 random bits
SAGE_INLINE uint64_t multiply_high(uint64_t a, uint64_t b) {
#if defined(_MSC_VER) && !defined(__clang__)
    return __umulh(a, b);
#else
    return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

// The same bits as another type.
template <class To, class From>
SAGE_INLINE To bit_cast(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

// ---- memory

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

// Asks for huge pages under an array that is about to be written for the first time: a fresh array of 100 MB costs
// 25,000 page faults otherwise, on a virtual machine as much as a pass over it. A wish: failure costs speed only.
inline void prefer_huge_pages(void* p, int64_t bytes) {
#if !defined(_WIN32) && defined(MADV_HUGEPAGE)
    if (!p || bytes < static_cast<int64_t>(2 * kHugePage)) return;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(p) + kHugePage - 1) / kHugePage * kHugePage;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes)) / kHugePage * kHugePage;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
    (void)p;
    (void)bytes;
#endif
}

// Aligned to a cache line (to a huge page, and asking for huge pages, from 4 MiB on). Null when there is none.
inline void* allocate(size_t bytes) {
    const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kCacheLine;
    if (bytes == 0) bytes = kCacheLine;
    if (bytes > SIZE_MAX - alignment) return nullptr;
    bytes = (bytes + alignment - 1) / alignment * alignment;
#if defined(_WIN32)
    return _aligned_malloc(bytes, alignment);
#else
    void* p = nullptr;
    if (posix_memalign(&p, alignment, bytes) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
    if (alignment == kHugePage) madvise(p, bytes, MADV_HUGEPAGE);  // a wish: failure costs speed only
#endif
    return p;
#endif
}

inline void deallocate(void* p) {
#if defined(_WIN32)
    _aligned_free(p);
#else
    free(p);
#endif
}

// ---- cores

inline int32_t core_count() {
#if defined(_WIN32)
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return static_cast<int32_t>(info.dwNumberOfProcessors);
#else
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : static_cast<int32_t>(n);
#endif
}

// ---- threads: what the pool needs and no more

#if defined(_WIN32)
using Mutex = SRWLOCK;
using Condition = CONDITION_VARIABLE;
inline void mutex_init(Mutex* m) { InitializeSRWLock(m); }
inline void mutex_lock(Mutex* m) { AcquireSRWLockExclusive(m); }
inline bool mutex_try_lock(Mutex* m) { return TryAcquireSRWLockExclusive(m) != 0; }
inline void mutex_unlock(Mutex* m) { ReleaseSRWLockExclusive(m); }
inline void condition_init(Condition* c) { InitializeConditionVariable(c); }
inline void condition_wait(Condition* c, Mutex* m) { SleepConditionVariableSRW(c, m, INFINITE, 0); }
inline void condition_wake_all(Condition* c) { WakeAllConditionVariable(c); }
using ThreadFunction = void (*)(void*);
struct ThreadStart {
    ThreadFunction function;
    void* argument;
};
inline DWORD WINAPI thread_entry(LPVOID p) {
    ThreadStart start = *static_cast<ThreadStart*>(p);
    free(p);
    start.function(start.argument);
    return 0;
}
// Starts a detached thread; false when the system gives none.
inline bool thread_start(ThreadFunction function, void* argument) {
    auto* start = static_cast<ThreadStart*>(malloc(sizeof(ThreadStart)));
    if (!start) return false;
    *start = ThreadStart{function, argument};
    HANDLE handle = CreateThread(nullptr, 0, thread_entry, start, 0, nullptr);
    if (!handle) {
        free(start);
        return false;
    }
    CloseHandle(handle);
    return true;
}
inline void on_fork_child(void (*)()) {}  // there is no fork
#define SAGE_MUTEX_STATIC SRWLOCK_INIT
#define SAGE_CONDITION_STATIC CONDITION_VARIABLE_INIT
#else
using Mutex = pthread_mutex_t;
using Condition = pthread_cond_t;
inline void mutex_init(Mutex* m) { pthread_mutex_init(m, nullptr); }
inline void mutex_lock(Mutex* m) { pthread_mutex_lock(m); }
inline bool mutex_try_lock(Mutex* m) { return pthread_mutex_trylock(m) == 0; }
inline void mutex_unlock(Mutex* m) { pthread_mutex_unlock(m); }
inline void condition_init(Condition* c) { pthread_cond_init(c, nullptr); }
inline void condition_wait(Condition* c, Mutex* m) { pthread_cond_wait(c, m); }
inline void condition_wake_all(Condition* c) { pthread_cond_broadcast(c); }
using ThreadFunction = void (*)(void*);
struct ThreadStart {
    ThreadFunction function;
    void* argument;
};
inline void* thread_entry(void* p) {
    ThreadStart start = *static_cast<ThreadStart*>(p);
    free(p);
    start.function(start.argument);
    return nullptr;
}
// Starts a detached thread; false when the system gives none.
inline bool thread_start(ThreadFunction function, void* argument) {
    auto* start = static_cast<ThreadStart*>(malloc(sizeof(ThreadStart)));
    if (!start) return false;
    *start = ThreadStart{function, argument};
    // The thread inherits a full signal mask: Ctrl-C belongs to the host program's own threads.
    sigset_t all, previous;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    pthread_t thread;
    const bool created = pthread_create(&thread, nullptr, thread_entry, start) == 0;
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    if (!created) {
        free(start);
        return false;
    }
    pthread_detach(thread);
    return true;
}
inline void on_fork_child(void (*f)()) { pthread_atfork(nullptr, nullptr, f); }
#define SAGE_MUTEX_STATIC PTHREAD_MUTEX_INITIALIZER
#define SAGE_CONDITION_STATIC PTHREAD_COND_INITIALIZER
#endif

// ---- small things every driver wants

// Not isfinite: some systems leave that to the C++ library's <math.h>.
SAGE_INLINE bool is_finite(double x) { return x - x == 0; }

template <class T>
SAGE_INLINE T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
SAGE_INLINE T max(T a, T b) {
    return a < b ? b : a;
}

// Owns one allocation.
struct Buffer {
    void* data = nullptr;
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { deallocate(data); }
    // True on success; count * sizeof(T) is checked for overflow.
    template <class T>
    bool reserve(int64_t count) {
        deallocate(data);
        data = nullptr;
        if (count < 0 || static_cast<uint64_t>(count) > SIZE_MAX / 2 / sizeof(T)) return false;
        data = allocate(static_cast<size_t>(count) * sizeof(T));
        return data != nullptr;
    }
    template <class T>
    T* as() const {
        return static_cast<T*>(data);
    }
    void* release() {
        void* p = data;
        data = nullptr;
        return p;
    }
};

}  // namespace sage
