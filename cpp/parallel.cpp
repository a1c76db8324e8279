#include "parallel.h"

#include <pthread.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace manyclass {
namespace {

inline void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class Pool {
public:
    bool try_run(size_t tasks, size_t threads, const std::function<void(size_t, size_t)>& work) {
        std::unique_lock<std::mutex> only_caller(caller_, std::try_to_lock);
        if (!only_caller.owns_lock()) return false;
        while (workers_.size() + 1 < threads) {
            const size_t number = workers_.size() + 1;
            workers_.emplace_back([this, number] { serve(number); });
        }
        work_ = &work;
        tasks_ = tasks;
        helpers_ = threads - 1;
        next_.store(0, std::memory_order_relaxed);
        running_.store(workers_.size(), std::memory_order_relaxed);
        round_.fetch_add(1, std::memory_order_seq_cst);
        if (parked_.load(std::memory_order_seq_cst)) round_.notify_all();
        take_tasks(0);
        for (int spins = 0; running_.load(std::memory_order_acquire); ++spins)
            spins < 20000 ? pause_briefly() : std::this_thread::yield();
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
        return true;
    }

private:
    void take_tasks(size_t worker) {
        for (size_t task; (task = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_;) {
            try {
                (*work_)(task, worker);
            } catch (...) {
                std::lock_guard<std::mutex> one(failing_);
                failure_ = std::current_exception();
            }
        }
    }

    void serve(size_t number) {
        unsigned seen = 0;
        for (;;) {
            // Spin first: a query's next stage follows within microseconds, and waking a parked thread costs more.
            for (int spins = 0; spins < 2000 && round_.load(std::memory_order_acquire) == seen; ++spins)
                pause_briefly();
            if (round_.load(std::memory_order_acquire) == seen) {
                parked_.fetch_add(1, std::memory_order_seq_cst);
                round_.wait(seen, std::memory_order_seq_cst);
                parked_.fetch_sub(1, std::memory_order_seq_cst);
            }
            const unsigned now = round_.load(std::memory_order_acquire);
            if (now == seen) continue;
            seen = now;
            if (number <= helpers_) take_tasks(number);
            running_.fetch_sub(1, std::memory_order_release);
        }
    }

    std::mutex caller_, failing_;
    std::exception_ptr failure_;
    std::vector<std::thread> workers_;
    const std::function<void(size_t, size_t)>* work_ = nullptr;
    size_t tasks_ = 0, helpers_ = 0;
    std::atomic<size_t> next_{0}, running_{0};
    std::atomic<unsigned> round_{0}, parked_{0};
};

std::atomic<Pool*> pool{nullptr};

// The pool is never destroyed (its threads may outlive static destructors), and a forked child, which has none of
// its threads, starts with a new one.
Pool& shared_pool() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { pool.store(nullptr); });
    (void)registered;
    Pool* existing = pool.load(std::memory_order_acquire);
    if (existing) return *existing;
    auto made = std::make_unique<Pool>();
    if (pool.compare_exchange_strong(existing, made.get())) return *made.release();
    return *existing;
}

}  // namespace

void parallel_for(size_t tasks, size_t threads, const std::function<void(size_t, size_t)>& work) {
    if (threads > tasks) threads = tasks;
    if (threads > 1 && shared_pool().try_run(tasks, threads, work)) return;
    for (size_t task = 0; task < tasks; ++task) work(task, 0);
}

}  // namespace manyclass
