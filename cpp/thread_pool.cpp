#include "thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "limits.h"

namespace manyclass {
namespace {

using Work = std::function<void(size_t, size_t)>;

inline void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Some kernels wake a thread on the core that woke it, where the caller is busy, and leave it there. A worker that
// finds itself beside the caller asks for any other core instead.
void leave_core(int core) {
#if defined(__linux__)
    cpu_set_t cores;
    if (core < 0 || sched_getcpu() != core || sched_getaffinity(getpid(), sizeof cores, &cores) != 0) return;
    if (CPU_COUNT(&cores) < 2) return;
    CPU_CLR(static_cast<size_t>(core), &cores);
    pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
#else
    (void)core;
#endif
}

int this_core() {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

// What is to be done, in one word, so that a worker claims a task and learns which round it belongs to at once:
// a round cannot end before its claimed tasks have, and a worker that wakes too late finds nothing to claim. So nobody
// waits for a sleeper: it may well have been woken on the very core the caller is running on.
struct Ticket {
    static constexpr unsigned kBits = 18, kHelperBits = 8;
    static constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1, kHelperMask = (uint64_t{1} << kHelperBits) - 1;
    static uint64_t make(uint64_t round, uint64_t helpers, uint64_t tasks) {
        return round << (2 * kBits + kHelperBits) | helpers << (2 * kBits) | tasks << kBits;
    }
    static size_t tasks(uint64_t word) { return word >> kBits & kMask; }
    static size_t next(uint64_t word) { return word & kMask; }
    // Whether there is a task for this worker: 0 is the caller, others must be wanted in this round.
    static bool open(uint64_t word, size_t worker) {
        return next(word) < tasks(word) && worker <= (word >> (2 * kBits) & kHelperMask);
    }
};

static_assert(kMaxThreads <= Ticket::kHelperMask);

class Pool {
public:
    bool try_run(size_t tasks, size_t threads, const Work& work) {
        std::unique_lock<std::mutex> only_caller(caller_, std::try_to_lock);
        if (!only_caller.owns_lock()) return false;
        while (workers_.size() + 1 < threads) {
            const size_t number = workers_.size() + 1;
            workers_.emplace_back([this, number] { serve(number); });
        }
        work_ = &work;
        done_.store(0, std::memory_order_relaxed);
        core_.store(this_core(), std::memory_order_relaxed);
        ticket_.store(Ticket::make(++round_, threads - 1, tasks), std::memory_order_seq_cst);
        if (parked_.load(std::memory_order_seq_cst)) ticket_.notify_all();
        take_tasks(0);
        for (int spins = 0; done_.load(std::memory_order_acquire) < tasks; ++spins)
            spins < 20000 ? pause_briefly() : std::this_thread::yield();
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
        return true;
    }

private:
    void take_tasks(size_t worker) {
        uint64_t seen = ticket_.load(std::memory_order_acquire);
        while (Ticket::open(seen, worker)) {
            if (!ticket_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) continue;
            try {
                (*work_)(Ticket::next(seen), worker);
            } catch (...) {
                std::lock_guard<std::mutex> one(failing_);
                failure_ = std::current_exception();
            }
            done_.fetch_add(1, std::memory_order_acq_rel);
            seen = ticket_.load(std::memory_order_acquire);
        }
    }

    void serve(size_t number) {
        for (;;) {
            // Spin first, about a tenth of a millisecond: the next stage or query mostly follows sooner, and waking
            // a parked thread takes longer than that.
            uint64_t seen = ticket_.load(std::memory_order_acquire);
            for (int spins = 0; spins < 8000 && !Ticket::open(seen, number); ++spins) {
                pause_briefly();
                seen = ticket_.load(std::memory_order_acquire);
            }
            if (Ticket::open(seen, number)) {
                take_tasks(number);
                continue;
            }
            parked_.fetch_add(1, std::memory_order_seq_cst);
            ticket_.wait(seen, std::memory_order_seq_cst);
            parked_.fetch_sub(1, std::memory_order_seq_cst);
            leave_core(core_.load(std::memory_order_relaxed));
        }
    }

    std::mutex caller_, failing_;
    std::exception_ptr failure_;
    std::vector<std::thread> workers_;
    const Work* work_ = nullptr;
    uint64_t round_ = 0;
    std::atomic<size_t> done_{0};
    std::atomic<uint64_t> ticket_{0};
    std::atomic<unsigned> parked_{0};
    std::atomic<int> core_{-1};
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

void parallel_for(size_t tasks, size_t threads, const Work& work) {
    threads = std::min({threads, tasks, kMaxThreads});
    if (threads > 1 && tasks <= Ticket::kMask && shared_pool().try_run(tasks, threads, work)) return;
    for (size_t task = 0; task < tasks; ++task) work(task, 0);
}

}  // namespace manyclass
