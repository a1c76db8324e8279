#include "index_lock.h"

#include <pthread.h>

namespace manyclass {
namespace {

// Held shared by everyone inside any index; a fork takes it alone. Never destroyed: threads may outlive statics.
std::shared_mutex& fork_gate() {
    static auto* gate = new std::shared_mutex;
    static const int registered =
        pthread_atfork([] { fork_gate().lock(); }, [] { fork_gate().unlock(); }, [] { fork_gate().unlock(); });
    (void)registered;
    return *gate;
}

}  // namespace

IndexLock::Reading::Reading(IndexLock& lock) : lock_(lock) {
    fork_gate().lock_shared();
    {
        std::shared_lock<std::shared_mutex> pass(lock_.turnstile_);
    }
    lock_.body_.lock_shared();
}

IndexLock::Reading::~Reading() {
    lock_.body_.unlock_shared();
    fork_gate().unlock_shared();
}

IndexLock::Writing::Writing(IndexLock& lock) : lock_(lock) {
    fork_gate().lock_shared();
    lock_.turnstile_.lock();
    lock_.body_.lock();
}

IndexLock::Writing::~Writing() {
    lock_.body_.unlock();
    lock_.turnstile_.unlock();
    fork_gate().unlock_shared();
}

}  // namespace manyclass
