// A small pool of parked threads. Not OpenMP: torch brings an OpenMP runtime of its own, two of them oversubscribe
// the cores, and a forked child would hang in either.
#pragma once
#include <cstddef>
#include <functional>

namespace manyclass {

// Calls work(task, worker) for every task in [0, tasks), on at most `threads` threads; worker < threads.
// Tasks are handed out in order. If the pool is busy with another caller, the work runs on this thread alone.
void parallel_for(size_t tasks, size_t threads, const std::function<void(size_t task, size_t worker)>& work);

}  // namespace manyclass
