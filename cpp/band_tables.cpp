#include "band_tables.h"

#include <algorithm>

#include "thread_pool.h"

namespace manyclass {
namespace {

// Room for a few later arrivals without moving the bucket.
uint32_t with_slack(uint32_t size) {
    return size + size / 8;
}

}  // namespace

template <class Id>
template <class Code>
void BandTable<Id>::build(const Code* codes, size_t stride, size_t count) {
    constexpr Code absent = static_cast<Code>(kAbsent);
    for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] = Bucket{};
    live_ = 0;
    for (size_t id = 0; id < count; ++id)
        if (const Code code = codes[id * stride]; code != absent) ++buckets_[code].capacity, ++live_;
    uint32_t start = 0;
    for (size_t i = 0; i < buckets_.size(); ++i) {
        Bucket& bucket = buckets_[i];
        bucket.start = start;
        bucket.capacity = with_slack(bucket.capacity);
        start += bucket.capacity;
    }
    ids_ = BigArray<Id>(start);
    for (size_t id = 0; id < count; ++id)
        if (const Code code = codes[id * stride]; code != absent) {
            Bucket& bucket = buckets_[code];
            ids_[bucket.start + bucket.size++] = static_cast<Id>(id);
        }
}

template <class Id>
void BandTable<Id>::give_room(Bucket& bucket, uint32_t capacity) {
    const size_t start = ids_.size();
    ids_.resize(start + capacity, true);
    if (bucket.size) std::memcpy(ids_.data() + start, ids_.data() + bucket.start, bucket.size * sizeof(Id));
    bucket.start = static_cast<uint32_t>(start);
    bucket.capacity = capacity;
}

template <class Id>
void BandTable<Id>::compact() {
    size_t total = 0;
    for (size_t i = 0; i < buckets_.size(); ++i) total += with_slack(buckets_[i].size);
    BigArray<Id> packed(total);
    uint32_t start = 0;
    for (size_t i = 0; i < buckets_.size(); ++i) {
        Bucket& bucket = buckets_[i];
        if (bucket.size) std::memcpy(packed.data() + start, ids_.data() + bucket.start, bucket.size * sizeof(Id));
        bucket.start = start;
        start += bucket.capacity = with_slack(bucket.size);
    }
    ids_ = std::move(packed);
}

template <class Id>
void BandTable<Id>::insert(uint32_t number, Id id) {
    Bucket& bucket = buckets_[number];
    if (bucket.size == bucket.capacity) {
        if (ids_.size() > 3 * live_ + 1024) compact();
        if (bucket.size == bucket.capacity) give_room(bucket, std::max(4u, 2 * bucket.capacity));
    }
    ids_[bucket.start + bucket.size++] = id;
    ++live_;
}

template <class Id>
void BandTable<Id>::remove(uint32_t number, Id id) {
    Bucket& bucket = buckets_[number];
    Id* first = ids_.data() + bucket.start;
    Id* last = first + bucket.size;
    Id* found = std::find(first, last, id);
    if (found == last) return;
    *found = last[-1];
    --bucket.size;
    --live_;
}

template class BandTable<uint16_t>;
template class BandTable<uint32_t>;

template <class Code>
void BandTables::build(const Code* codes, size_t count, size_t threads) {
    const size_t buckets = size_t{1} << bucket_bits_;
    small_.clear();
    large_.clear();
    if (!blocked_) {
        for (size_t band = 0; band < bands_; ++band) large_.emplace_back(buckets);
        parallel_for(bands_, threads, [&](size_t band, size_t) { large_[band].build(codes + band, bands_, count); });
        return;
    }
    if (count) grow_to_block((count - 1) / kBlockClasses);
    parallel_for(small_.size(), threads, [&](size_t task, size_t) {
        const size_t first = task / bands_ * kBlockClasses;
        small_[task].build(codes + first * bands_ + task % bands_, bands_, std::min(kBlockClasses, count - first));
    });
}

template void BandTables::build(const uint16_t*, size_t, size_t);
template void BandTables::build(const uint32_t*, size_t, size_t);

void BandTables::grow_to_block(size_t block) {
    while (small_.size() < (block + 1) * bands_) small_.emplace_back(size_t{1} << bucket_bits_);
}

void BandTables::insert(size_t band, uint32_t bucket, uint32_t id) {
    if (!blocked_) {
        while (large_.size() < bands_) large_.emplace_back(size_t{1} << bucket_bits_);
        return large_[band].insert(bucket, id);
    }
    grow_to_block(id / kBlockClasses);
    small_[id / kBlockClasses * bands_ + band].insert(bucket, static_cast<uint16_t>(id % kBlockClasses));
}

void BandTables::remove(size_t band, uint32_t bucket, uint32_t id) {
    if (!blocked_) return large_[band].remove(bucket, id);
    small_[id / kBlockClasses * bands_ + band].remove(bucket, static_cast<uint16_t>(id % kBlockClasses));
}

size_t BandTables::bytes() const {
    size_t total = 0;
    for (const auto& table : small_) total += table.bytes();
    for (const auto& table : large_) total += table.bytes();
    return total;
}

}  // namespace manyclass
