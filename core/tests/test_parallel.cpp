// The thread pool: every index once, nested calls, several callers, life after fork.
#include "parallel.h"

#include "test_main.h"

#if !defined(_WIN32)
#include <sys/wait.h>
#endif

using namespace sage;

namespace {

constexpr int64_t kCount = 5000;

// Runs `count` indices and checks that each came once, with a worker below worker_count.
bool each_once(int32_t num_threads, int64_t count) {
    Buffer memory;
    if (!memory.reserve<int64_t>(count)) return false;
    int64_t* hits = memory.as<int64_t>();
    for (int64_t i = 0; i < count; ++i) hits[i] = 0;
    volatile int64_t bad_workers = 0;
    parallel_for(num_threads, count, [&](int64_t i, int32_t worker) {
        ++hits[i];
        if (worker < 0 || worker >= worker_count(num_threads)) atomic_fetch_add(&bad_workers, 1);
    });
    bool good = atomic_load(&bad_workers) == 0;
    for (int64_t i = 0; i < count; ++i) good = good && hits[i] == 1;
    return good;
}

void every_index_once() {
    const int64_t counts[] = {0, 1, 2, 3, 100, kCount};
    for (int32_t threads = 0; threads < 9; ++threads) {
        for (int64_t count : counts) CHECK(each_once(threads, count));
    }
    for (int i = 0; i < 2000; ++i) CHECK(each_once(4, 8));
    CHECK_EQUAL(worker_count(1), 1);
    CHECK(worker_count(0) >= 1);
    CHECK(worker_count(1 << 30) >= 2);
}

void nested_calls() {
    volatile int64_t sum = 0;
    parallel_for(3, 20, [&](int64_t, int32_t) {
        parallel_for(3, 50, [&](int64_t i, int32_t worker) {
            CHECK_EQUAL(worker, 0);  // the pool is taken: the inner call runs on its caller
            atomic_fetch_add(&sum, i);
        });
    });
    CHECK_EQUAL(atomic_load(&sum), 20 * 49 * 50 / 2);
}

volatile int64_t callers_done = 0;
volatile int64_t callers_good = 0;

void concurrent_caller(void*) {
    bool good = true;
    for (int i = 0; i < 200; ++i) good = good && each_once(4, 300);
    if (good) atomic_fetch_add(&callers_good, 1);
    atomic_fetch_add(&callers_done, 1);
}

void concurrent_callers() {
    for (int i = 0; i < 4; ++i) CHECK(thread_start(concurrent_caller, nullptr));
    while (atomic_load(&callers_done) < 4) CHECK(each_once(2, 100));
    CHECK_EQUAL(atomic_load(&callers_good), 4);
}

#if defined(__SANITIZE_THREAD__)
#define SAGE_TEST_FORK 0  // ThreadSanitizer does not follow threads started in a forked child
#elif defined(_WIN32)
#define SAGE_TEST_FORK 0
#else
#define SAGE_TEST_FORK 1
#endif

void after_fork() {
#if SAGE_TEST_FORK
    CHECK(each_once(4, kCount));
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) _exit(each_once(4, kCount) && each_once(3, 7) ? 0 : 1);
    int status = -1;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(each_once(4, kCount));
#endif
}

}  // namespace

int main() {
    RUN(every_index_once);
    RUN(nested_calls);
    RUN(concurrent_callers);
    RUN(after_fork);
    return test_result();
}
