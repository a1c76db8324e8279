// Arrays that may be gigabytes: zero-filled, on huge pages where the system offers them (a random read of a bucket
// otherwise pays for a page-table walk as well as for the line).
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace manyclass {

inline void* (*big_allocate)(size_t alignment, size_t bytes) = std::aligned_alloc;  // a test may refuse

template <class T>
class BigArray {
public:
    BigArray() = default;
    explicit BigArray(size_t size) { resize(size); }
    BigArray(BigArray&& other) noexcept { swap(other); }
    BigArray& operator=(BigArray&& other) noexcept {
        swap(other);
        return *this;
    }
    ~BigArray() { std::free(data_); }

    T* data() { return data_; }
    const T* data() const { return data_; }
    T& operator[](size_t i) { return data_[i]; }
    const T& operator[](size_t i) const { return data_[i]; }
    size_t size() const { return size_; }
    size_t bytes() const { return capacity_ * sizeof(T); }

    // Keeps the old elements, zeroes the new ones; grows by half at least when `spare`.
    void resize(size_t size, bool spare = false) {
        if (size > capacity_) {
            size_t capacity = spare && capacity_ ? std::max(size, capacity_ + capacity_ / 2) : size;
            const size_t page = capacity * sizeof(T) >= kHugePage ? kHugePage : 64;
            const size_t bytes = (capacity * sizeof(T) + page - 1) / page * page;
            void* fresh = big_allocate(page, bytes);
            if (!fresh) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
            if (page == kHugePage) madvise(fresh, bytes, MADV_HUGEPAGE);
#endif
            if (size_) std::memcpy(fresh, static_cast<const void*>(data_), size_ * sizeof(T));
            std::free(data_);
            data_ = static_cast<T*>(fresh);
            capacity_ = capacity;
        }
        if (size > size_) std::memset(static_cast<void*>(data_ + size_), 0, (size - size_) * sizeof(T));
        size_ = size;
    }

private:
    static constexpr size_t kHugePage = size_t{2} << 20;
    void swap(BigArray& other) {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }
    T* data_ = nullptr;
    size_t size_ = 0, capacity_ = 0;
};

}  // namespace manyclass
