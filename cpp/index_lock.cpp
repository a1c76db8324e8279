#include "index_lock.h"

#include <pthread.h>

#include <new>

namespace manyclass {
namespace {

// Held shared by everyone inside any index; a fork takes it alone. Never destroyed: threads may outlive statics.
// The child makes it anew instead of unlocking it: threads that were waiting for it do not exist there, yet a lock
// would hand itself over to them.
std::shared_mutex& fork_gate() {
    alignas(std::shared_mutex) static unsigned char storage[sizeof(std::shared_mutex)];
    static std::shared_mutex* const gate = new (storage) std::shared_mutex;
    static const int registered = pthread_atfork([] { fork_gate().lock(); }, [] { fork_gate().unlock(); },
                                                 [] { new (&fork_gate()) std::shared_mutex; });
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
