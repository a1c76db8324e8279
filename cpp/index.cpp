#include "index.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "search_scratch.h"
#include "thread_pool.h"

namespace manyclass {
namespace {

constexpr size_t kRefreshSlice = 1024;  // classes prepared at a time: bounds memory and how long a search may wait

}  // namespace

struct Index::Encoded {
    std::vector<float> row;
    std::vector<uint32_t> buckets;
    bool filed = false;  // false: constant row, kept out of the tables
    float norm = 0;
    SketchRow scan, sketch;
    uint16_t cell = 0;
    double distance = 0;  // from the cell's centre
};

Index::~Index() {
    for (auto& slot : idle_) delete slot.load();
}

Index::Index(const Shape& shape, std::optional<WinnerHasher> hasher, size_t bucket_bits,
             std::optional<Sketcher> scanner, std::optional<Sketcher> sketcher)
    : shape_(shape), hasher_(std::move(hasher)) {
    if (hasher_) {
        codes_.emplace(hasher_->bands(), bucket_bits);
        tables_.emplace(hasher_->bands(), bucket_bits, shape.blocked);
    }
    if (scanner) scan_.emplace(std::move(*scanner), true);
    if (sketcher) sketch_.emplace(std::move(*sketcher), false);
    if (scan_ && shape.cells) cells_.emplace(shape.features, shape.cells);
}

void Index::bind_rows(const RowsView& rows) {
    IndexLock::Writing writing(lock_);
    rows_ = rows;
}

size_t Index::first_bad_row(std::span<const int64_t> ids, size_t threads) const {
    IndexLock::Reading reading(lock_);
    std::atomic<size_t> first{ids.size()};
    const size_t slices = (ids.size() + kRefreshSlice - 1) / kRefreshSlice;
    parallel_for(slices, threads, [&](size_t slice, size_t) {
        std::vector<float> row(shape_.features);
        const size_t end = std::min(ids.size(), (slice + 1) * kRefreshSlice);
        for (size_t i = slice * kRefreshSlice; i < end; ++i) {
            kernels().load_row(rows_.row(static_cast<size_t>(ids[i])), rows_.type, shape_.features, row.data());
            if (std::isfinite(kernels().sum_squares(row.data(), shape_.features))) continue;
            size_t seen = first.load();
            while (i < seen && !first.compare_exchange_weak(seen, i)) {
            }
            break;  // the first of this slice
        }
    });
    return first;
}

void Index::start_build(size_t count, const float* bias, const float* centre) {
    classes_ = count;
    bias_.assign(count, 0.0f);
    if (bias) std::copy(bias, bias + count, bias_.begin());
    norms_.assign(count, 0.0f);
    removed_.clear();
    if (codes_) codes_->resize(count);
    if (cells_) cell_of_.assign(count, 0), distances_.assign(count, 0.0);
    for (SketchPart* part : {scan(), sketch()})
        if (part) {
            part->store.resize(count);
            part->sketcher.set_centre(centre);
            part->factors.assign(count, 0.0f);
        }
}

void Index::encode_into(const void* row, float bias, Encoded& out) const {
    out.row.resize(shape_.features);
    kernels().load_row(row, rows_.type, shape_.features, out.row.data());
    out.norm = std::sqrt(kernels().sum_squares(out.row.data(), shape_.features));
    if (hasher_) {
        out.buckets.resize(hasher_->bands());
        out.filed = hasher_->hash(out.row.data(), out.buckets.data());
    }
    if (scan_) scan_->sketcher.encode_row(out.row.data(), out.scan);
    if (sketch_) sketch_->sketcher.encode_row(out.row.data(), out.sketch);
    if (cells_) {
        const float* centre = scan_->sketcher.centre().data();
        for (size_t i = 0; i < shape_.features; ++i) out.row[i] -= centre[i];
        cells_->nearest(out.row.data(), &bias, 1, &out.cell, &out.distance);
    }
}

size_t Index::encode(size_t begin, size_t end, size_t threads) {
    std::atomic<size_t> bad{end};
    constexpr size_t slice_rows = 256;
    // Whole blocks per task: two threads never write into one block of the flat sketch.
    static_assert(slice_rows % kBlock == 0);
    const size_t first = begin / slice_rows, slices = end > begin ? (end - 1) / slice_rows - first + 1 : 0;
    parallel_for(slices, threads, [&](size_t task, size_t) {
        Encoded entry;
        const size_t low = std::max(begin, (first + task) * slice_rows);
        const size_t high = std::min(end, (first + task + 1) * slice_rows);
        for (size_t id = low; id < high; ++id) {
            encode_into(rows_.row(id), bias_[id], entry);
            norms_[id] = entry.norm;
            if (!std::isfinite(entry.norm)) {
                size_t seen = bad.load();
                while (id < seen && !bad.compare_exchange_weak(seen, id)) {
                }
                continue;
            }
            if (codes_) entry.filed ? codes_->set_all(id, entry.buckets.data()) : codes_->set_absent(id);
            const auto keep = [id](SketchPart& part, const SketchRow& row) {
                part.store.set_code(id, row.code.data());
                part.factors[id] = row.factor;
            };
            if (scan_) keep(*scan_, entry.scan);
            if (sketch_) keep(*sketch_, entry.sketch);
            if (cells_) cell_of_[id] = entry.cell, distances_[id] = entry.distance;
        }
    });
    return bad;
}

void Index::finish_build(size_t threads) {
    float largest_bias = 0;
    for (const float bias : bias_) largest_bias = std::max(largest_bias, std::fabs(bias));
    for (SketchPart* part : {scan(), sketch()})
        if (part) {
            float largest = 0;
            for (const float factor : part->factors) largest = std::max(largest, factor);
            part->store.set_scales(0, 0);
            part->store.reserve_scales(largest, largest_bias);
            for (size_t id = 0; id < classes_; ++id) part->store.set_weights(id, part->factors[id], bias_[id]);
            std::vector<float>().swap(part->factors);
            part->store.sort_by_factor();
        }
    if (cells_) import_cells(cell_of_.data());
    for (size_t id = 0; cells_ && id < classes_; ++id) cells_->widen(cell_of_[id], distances_[id]);
    std::vector<uint16_t>().swap(cell_of_);
    std::vector<double>().swap(distances_);
    if (tables_) codes_->build(*tables_, threads);
}

void Index::apply(size_t id, const Encoded& entry) {
    norms_[id] = entry.norm;
    const bool gone = !removed_.empty() && removed_[id];
    if (codes_)
        for (size_t band = 0; band < codes_->bands(); ++band) {
            const uint32_t before = codes_->get(id, band);
            const uint32_t after = entry.filed && !gone ? entry.buckets[band] : kAbsent;
            if (before == after) continue;
            if (before != kAbsent) tables_->remove(band, before, static_cast<uint32_t>(id));
            if (after != kAbsent) tables_->insert(band, after, static_cast<uint32_t>(id));
            codes_->set(id, band, after);
        }
    if (cells_) {
        scan_->store.file(id, entry.cell);
        cells_->widen(entry.cell, entry.distance);
    }
    const auto keep = [&](SketchStore& store, const SketchRow& row) {
        store.reserve_scales(row.factor, std::fabs(bias_[id]));
        store.set_code(id, row.code.data());
        store.set_weights(id, row.factor, bias_[id]);
    };
    if (scan_) keep(scan_->store, entry.scan);
    if (sketch_) keep(sketch_->store, entry.sketch);
}

void Index::refresh(std::span<const int64_t> ids, const float* bias, const std::byte* new_rows, size_t threads) {
    const size_t row_bytes = rows_.row_bytes();
    std::vector<Encoded> entries(std::min(ids.size(), kRefreshSlice));
    for (size_t begin = 0; begin < ids.size(); begin += kRefreshSlice) {
        const size_t n = std::min(kRefreshSlice, ids.size() - begin);
        const auto source = [&](size_t i) -> const void* {
            return new_rows ? new_rows + (begin + i) * row_bytes : rows_.row(static_cast<size_t>(ids[begin + i]));
        };
        {
            IndexLock::Reading reading(lock_);  // another thread may be writing these rows through refresh
            constexpr size_t step = 16;
            parallel_for((n + step - 1) / step, threads, [&](size_t task, size_t) {
                for (size_t i = task * step; i < std::min(n, (task + 1) * step); ++i)
                    encode_into(source(i), bias ? bias[begin + i] : bias_[static_cast<size_t>(ids[begin + i])],
                                entries[i]);
            });
        }
        IndexLock::Writing writing(lock_);
        for (size_t i = 0; i < n; ++i) {
            const auto id = static_cast<size_t>(ids[begin + i]);
            if (new_rows) std::memcpy(const_cast<void*>(rows_.row(id)), source(i), row_bytes);
            if (bias) bias_[id] = bias[begin + i];
            apply(id, entries[i]);
        }
    }
}

void Index::append(size_t count, const float* bias, size_t threads) {
    const size_t first = classes_;
    std::vector<Encoded> entries(count);
    parallel_for(count, threads,
                 [&](size_t i, size_t) { encode_into(rows_.row(first + i), bias ? bias[i] : 0.0f, entries[i]); });
    IndexLock::Writing writing(lock_);
    bias_.resize(first + count, 0.0f);
    norms_.resize(first + count, 0.0f);
    if (bias) std::copy(bias, bias + count, bias_.begin() + static_cast<ptrdiff_t>(first));
    if (!removed_.empty()) removed_.resize(first + count, 0);
    if (codes_) {
        codes_->resize(first + count);
        for (size_t i = 0; i < count; ++i) codes_->set_absent(first + i);
    }
    if (scan_) scan_->store.resize(first + count);
    if (sketch_) sketch_->store.resize(first + count);
    for (size_t i = 0; cells_ && i < count; ++i) scan_->store.file(first + i, entries[i].cell);
    for (size_t i = 0; i < count; ++i) apply(first + i, entries[i]);
    classes_ = first + count;
}

void Index::remove(std::span<const int64_t> ids) {
    IndexLock::Writing writing(lock_);
    if (removed_.empty()) removed_.assign(classes_, 0);
    for (const int64_t id : ids) {
        removed_[static_cast<size_t>(id)] = 1;
        for (size_t band = 0; codes_ && band < codes_->bands(); ++band) {
            const uint32_t code = codes_->get(static_cast<size_t>(id), band);
            if (code != kAbsent) tables_->remove(band, code, static_cast<uint32_t>(id));
            codes_->set(static_cast<size_t>(id), band, kAbsent);
        }
    }
    std::erase_if(always_, [&](uint32_t id) { return removed_[id] != 0; });
}

void Index::set_always(std::span<const int64_t> ids) {
    IndexLock::Writing writing(lock_);
    always_.clear();
    for (const int64_t id : ids)
        if (removed_.empty() || !removed_[static_cast<size_t>(id)]) always_.push_back(static_cast<uint32_t>(id));
}

void Index::nearest_cells(const float* residuals, const float* biases, size_t count, size_t threads,
                          uint16_t* out) const {
    parallel_for((count + kScanTile - 1) / kScanTile, threads, [&](size_t task, size_t) {
        const size_t first = task * kScanTile;
        cells_->nearest(residuals + first * shape_.features, biases + first, std::min(kScanTile, count - first),
                        out + first, nullptr);
    });
}

}  // namespace manyclass
