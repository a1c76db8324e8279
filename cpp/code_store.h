// The bucket numbers each class is filed under, [classes][bands]: what a refresh compares with.
#pragma once
#include <cstdint>

#include "band_tables.h"
#include "big_array.h"

namespace manyclass {

class CodeStore {
public:
    // Two bytes a code where they suffice: the largest value is kept for "in no table".
    CodeStore(size_t bands, size_t bucket_bits) : bands_(bands), narrow_(bucket_bits < 16) {}

    void resize(size_t classes) {
        narrow_ ? small_.resize(classes * bands_, true) : large_.resize(classes * bands_, true);
        classes_ = classes;
    }
    size_t classes() const { return classes_; }
    size_t bands() const { return bands_; }
    uint32_t get(size_t id, size_t band) const {
        if (!narrow_) return large_[id * bands_ + band];
        const uint16_t code = small_[id * bands_ + band];
        return code == 0xffff ? kAbsent : code;
    }
    void set(size_t id, size_t band, uint32_t code) {
        if (narrow_)
            small_[id * bands_ + band] = static_cast<uint16_t>(code);
        else
            large_[id * bands_ + band] = code;
    }
    void set_all(size_t id, const uint32_t* codes) {
        for (size_t band = 0; band < bands_; ++band) set(id, band, codes[band]);
    }
    void set_absent(size_t id) {
        for (size_t band = 0; band < bands_; ++band) set(id, band, kAbsent);
    }
    void build(BandTables& tables, size_t threads) const {
        narrow_ ? tables.build(small_.data(), classes_, threads) : tables.build(large_.data(), classes_, threads);
    }
    size_t bytes() const { return small_.bytes() + large_.bytes(); }

private:
    size_t bands_, classes_ = 0;
    bool narrow_;
    BigArray<uint16_t> small_;
    BigArray<uint32_t> large_;
};

}  // namespace manyclass
