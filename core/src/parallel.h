// parallel_for over a small persistent pool. Nothing starts before the first call that wants two threads.
#pragma once

#include "platform.h"

namespace sage {

// Runs function(context, i, worker) for each i in [0, count), on up to num_threads threads (0: one per core).
// worker < the number returned by worker_count(num_threads). A call made while another one holds the pool runs on
// the caller alone: results never depend on the number of threads.
void parallel_for(int32_t num_threads, int64_t count, void (*function)(void* context, int64_t i, int32_t worker),
                  void* context);

// Upper bound of `worker` + 1 for this num_threads.
int32_t worker_count(int32_t num_threads);

template <class F>
void parallel_for(int32_t num_threads, int64_t count, const F& f) {
    parallel_for(
        num_threads, count,
        [](void* context, int64_t i, int32_t worker) { (*static_cast<const F*>(context))(i, worker); },
        const_cast<F*>(&f));
}

}  // namespace sage
