// Hash tables, one per band: bucket number -> ids of the classes whose codes spell it.
//
// Where every band's own bucket is read (no multi-probing), tables are blocked: ids are 16-bit and local to a block of
// 65,536 classes, so that the vote counters of a block stay in cache. Tables that are probed are not: they hold 32-bit
// ids of all classes, because reading the same probes in every block would grow with the number of classes again.
// Moving a class touches only the two buckets; ids are never dropped. Not thread-safe: the index holds the lock.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "big_array.h"

namespace manyclass {

constexpr uint32_t kAbsent = 0xffffffffu;  // bucket number of a class that is in no table

struct Bucket {
    uint32_t start, size, capacity;
};

template <class Id>
class BandTable {
public:
    explicit BandTable(size_t buckets) : buckets_(buckets) {}
    // Ids 0..count-1 with bucket number codes[id * stride]; the largest value of Code means: in no bucket.
    template <class Code>
    void build(const Code* codes, size_t stride, size_t count);
    void insert(uint32_t bucket, Id id);
    void remove(uint32_t bucket, Id id);
    std::span<const Id> operator[](uint32_t bucket) const {
        return {ids_.data() + buckets_[bucket].start, buckets_[bucket].size};
    }
    const Bucket* header(uint32_t bucket) const { return &buckets_[bucket]; }
    const Id* ids() const { return ids_.data(); }
    size_t bytes() const { return buckets_.bytes() + ids_.bytes(); }

private:
    void give_room(Bucket& bucket, uint32_t capacity);
    void compact();
    BigArray<Bucket> buckets_;
    BigArray<Id> ids_;
    size_t live_ = 0;
};

class BandTables {
public:
    static constexpr size_t kBlockClasses = 65536;

    BandTables(size_t bands, size_t bucket_bits, bool blocked)
        : bands_(bands), bucket_bits_(bucket_bits), blocked_(blocked) {}

    // All classes at once; codes [count][bands].
    template <class Code>
    void build(const Code* codes, size_t count, size_t threads);
    void insert(size_t band, uint32_t bucket, uint32_t id);
    void remove(size_t band, uint32_t bucket, uint32_t id);

    bool blocked() const { return blocked_; }
    size_t blocks() const { return blocked_ ? small_.size() / bands_ : 1; }
    const BandTable<uint16_t>& block_table(size_t block, size_t band) const { return small_[block * bands_ + band]; }
    const BandTable<uint32_t>& table(size_t band) const { return large_[band]; }
    size_t bytes() const;

private:
    void grow_to_block(size_t block);
    size_t bands_, bucket_bits_;
    bool blocked_;
    std::vector<BandTable<uint16_t>> small_;
    std::vector<BandTable<uint32_t>> large_;
};

}  // namespace manyclass
