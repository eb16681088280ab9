#include "parallel.h"

namespace sage {
namespace {

constexpr int32_t kMaxWorkers = 256;
constexpr int kSpins = 2000;  // a kernel often follows another within microseconds

struct Job {
    void (*function)(void*, int64_t, int32_t);
    void* context;
    int64_t count;
    int32_t width;  // workers with a lower number take part
};

struct Pool {
    Mutex caller = SAGE_MUTEX_STATIC;  // held for a whole job: one job at a time
    Mutex mutex = SAGE_MUTEX_STATIC;   // guards the fields below and both conditions
    Condition work = SAGE_CONDITION_STATIC;
    Condition finished = SAGE_CONDITION_STATIC;
    int32_t started = 0;  // workers 1..started exist; worker 0 is the caller
    Job job = {};
    volatile int64_t generation = 0;
    volatile int64_t next = 0;     // next index of the job
    volatile int64_t running = 0;  // workers that have not finished the job yet
};

Pool pool;
volatile int64_t fork_handler_installed = 0;

volatile int64_t known_cores = 0;  // asking the system opens files on Linux: 20 microseconds

int32_t cores() {
    int64_t count = atomic_load(&known_cores);
    if (count == 0) {
        count = core_count();
        atomic_store(&known_cores, count);
    }
    return static_cast<int32_t>(count);
}

// In a forked child the workers do not exist: start anew.
void reset_after_fork() {
    mutex_init(&pool.caller);
    mutex_init(&pool.mutex);
    condition_init(&pool.work);
    condition_init(&pool.finished);
    pool.started = 0;
    pool.running = 0;
}

void run_indices(const Job& job, int32_t worker) {
    for (;;) {
        const int64_t i = atomic_fetch_add(&pool.next, 1);
        if (i >= job.count) return;
        job.function(job.context, i, worker);
    }
}

struct WorkerStart {
    int32_t worker;
    int64_t generation;
};

void worker_main(void* argument) {
    const WorkerStart start = *static_cast<WorkerStart*>(argument);
    free(argument);
    int64_t seen = start.generation;
    for (;;) {
        for (int spin = 0; spin < kSpins && atomic_load(&pool.generation) == seen; ++spin) {
        }
        mutex_lock(&pool.mutex);
        while (atomic_load(&pool.generation) == seen) condition_wait(&pool.work, &pool.mutex);
        seen = atomic_load(&pool.generation);
        const Job job = pool.job;
        mutex_unlock(&pool.mutex);
        if (start.worker >= job.width) continue;
        run_indices(job, start.worker);
        if (atomic_fetch_add(&pool.running, -1) == 1) {
            mutex_lock(&pool.mutex);
            condition_wake_all(&pool.finished);
            mutex_unlock(&pool.mutex);
        }
    }
}

// Makes workers 1..wanted-1 exist; fewer if the system gives no more. Called with pool.caller held.
int32_t ensure_workers(int32_t wanted) {
    if (atomic_load(&fork_handler_installed) == 0) {
        on_fork_child(reset_after_fork);
        atomic_store(&fork_handler_installed, 1);
    }
    while (pool.started + 1 < wanted) {
        auto* start = static_cast<WorkerStart*>(malloc(sizeof(WorkerStart)));
        if (!start) break;
        *start = WorkerStart{pool.started + 1, atomic_load(&pool.generation)};
        if (!thread_start(worker_main, start)) {
            free(start);
            break;
        }
        ++pool.started;
    }
    return min(wanted, pool.started + 1);
}

}  // namespace

int32_t worker_count(int32_t num_threads) {
    if (num_threads == 0) num_threads = cores();
    return min(max(num_threads, 1), kMaxWorkers);
}

void parallel_for(int32_t num_threads, int64_t count, void (*function)(void*, int64_t, int32_t), void* context) {
    int32_t width = static_cast<int32_t>(min<int64_t>(worker_count(num_threads), count));
    if (width > 1 && mutex_try_lock(&pool.caller)) {
        width = ensure_workers(width);
        mutex_lock(&pool.mutex);
        pool.job = Job{function, context, count, width};
        atomic_store(&pool.next, 0);
        atomic_store(&pool.running, width - 1);
        atomic_fetch_add(&pool.generation, 1);
        condition_wake_all(&pool.work);
        mutex_unlock(&pool.mutex);
        run_indices(pool.job, 0);
        for (int spin = 0; spin < kSpins && atomic_load(&pool.running) != 0; ++spin) {
        }
        mutex_lock(&pool.mutex);
        while (atomic_load(&pool.running) != 0) condition_wait(&pool.finished, &pool.mutex);
        mutex_unlock(&pool.mutex);
        mutex_unlock(&pool.caller);
        return;
    }
    for (int64_t i = 0; i < count; ++i) function(context, i, 0);
}

}  // namespace sage
