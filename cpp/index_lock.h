// Many readers or one writer, and a fork waits until nobody is inside: a child never inherits a half-made update.
#pragma once
#include <shared_mutex>

namespace manyclass {

class IndexLock {
public:
    class Reading {
    public:
        explicit Reading(IndexLock& lock);
        ~Reading();
        Reading(const Reading&) = delete;
        Reading& operator=(const Reading&) = delete;

    private:
        IndexLock& lock_;
    };
    class Writing {
    public:
        explicit Writing(IndexLock& lock);
        ~Writing();
        Writing(const Writing&) = delete;
        Writing& operator=(const Writing&) = delete;

    private:
        IndexLock& lock_;
    };

private:
    std::shared_mutex turnstile_;  // a waiting writer holds it, so that a stream of readers cannot starve it
    std::shared_mutex body_;
};

}  // namespace manyclass
