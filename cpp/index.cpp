#include "index.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "search_scratch.h"
#include "thread_pool.h"
#include "vector_norm.h"
#include "wide_score.h"

namespace manyclass {
namespace {

constexpr size_t kRefreshSlice = 1024;  // classes prepared at a time: bounds memory and how long a search may wait

}  // namespace

struct Index::Encoded {
    std::vector<float> row;
    std::vector<uint32_t> buckets;
    bool filed = false;  // false: constant row, kept out of the tables
    float norm = 0, lead = 0;
    SketchRow scan, sketch;
    uint16_t cell = 0;
    float distance = 0;  // from the cell's centre
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
    if (scanner) scan_.emplace(*scanner, SketchBlocks(scanner->bits(), shape.cells));
    if (sketcher) sketch_.emplace(*sketcher, SketchRecords(sketcher->bits()));
    if (scan_ && shape.cells) cells_.emplace(shape.width, shape.cells);
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
            if (std::isfinite(vector_norm(row.data(), shape_.features))) continue;
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
    if (balance_) mean_logits_.assign(count, 0.0f);
    removed_.clear();
    if (codes_) codes_->resize(count);
    if (scan_) scan_->store.start(count), scan_->sketcher.set_centre(centre);
    if (sketch_) sketch_->store.resize(count), sketch_->sketcher.set_centre(centre);
}

void Index::encode_into(const void* row, float bias, Encoded& out) const {
    out.row.resize(shape_.features);
    kernels().load_row(row, rows_.type, shape_.features, out.row.data());
    out.norm = vector_norm(out.row.data(), shape_.features);
    out.lead = bias;
    if (balance_ && std::isfinite(out.norm)) {
        thread_local std::vector<float> coordinates;
        coordinates.resize(shape_.width);
        const double lead = balance_->map_row(out.row.data(), coordinates.data()) + bias;
        out.lead = masks(bias) ? bias : nearest_float(lead);
        out.row.swap(coordinates);
        out.norm = std::min(vector_norm(out.row.data(), shape_.width), std::numeric_limits<float>::max());
    }
    if (hasher_) {
        out.buckets.resize(hasher_->bands());
        out.filed = hasher_->hash(out.row.data(), out.buckets.data());
    }
    if (scan_) scan_->sketcher.encode_row(out.row.data(), out.scan);
    if (sketch_) sketch_->sketcher.encode_row(out.row.data(), out.sketch);
    if (cells_) {
        const float* centre = scan_->sketcher.centre().data();
        for (size_t i = 0; i < shape_.width; ++i) out.row[i] -= centre[i];
        cells_->nearest(out.row.data(), &out.lead, 1, &out.cell, &out.distance);
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
            if (balance_) mean_logits_[id] = entry.lead;
            if (!std::isfinite(entry.norm)) {
                size_t seen = bad.load();
                while (id < seen && !bad.compare_exchange_weak(seen, id)) {
                }
                continue;
            }
            if (codes_)
                entry.filed && !masks(bias_[id]) ? codes_->set_all(id, entry.buckets.data()) : codes_->set_absent(id);
            if (scan_) {
                scan_->store.set_code(id, entry.scan.code.data());
                scan_->store.set_factor(id, entry.scan.factor);
            }
            if (cells_) scan_->store.set_cell(id, entry.cell, entry.distance);
            if (sketch_) sketch_->store.set(id, entry.sketch.code.data(), entry.sketch.factor, entry.lead);
        }
    });
    return bad;
}

void Index::finish_build(size_t threads) {
    if (scan_) scan_->store.arrange(leads().data(), hidden_classes());
    if (tables_) codes_->build(*tables_, threads);
}

// Puts a class in the place of what was under its id. Either all of it changes or, where memory runs out, nothing.
void Index::replace(size_t id, const Encoded& entry, float bias, const void* new_row) {
    const bool hidden = removed(id) || masks(bias);
    if (scan_) scan_->store.prepare(entry.cell);
    always_.prepare();
    if (codes_) move_in_tables(id, entry, hidden);
    if (new_row) std::memcpy(const_cast<void*>(rows_.row(id)), new_row, rows_.row_bytes());
    const double reach_before = reach(id);
    bias_[id] = bias;
    norms_[id] = entry.norm;
    if (balance_) mean_logits_[id] = entry.lead;
    always_.update(static_cast<uint32_t>(id), reach_before, reach(id), hidden);
    if (scan_) scan_->store.set(id, entry.scan, entry.lead, hidden, entry.cell, entry.distance);
    if (sketch_) sketch_->store.set(id, entry.sketch.code.data(), entry.sketch.factor, entry.lead);
}

// Into the new buckets first, for which memory may run out, then out of the old ones.
void Index::move_in_tables(size_t id, const Encoded& entry, bool hidden) {
    const auto number = static_cast<uint32_t>(id);
    const auto target = [&](size_t band) { return entry.filed && !hidden ? entry.buckets[band] : kAbsent; };
    const auto changes = [&](size_t band) { return codes_->get(id, band) != target(band); };
    size_t band = 0;
    try {
        for (; band < codes_->bands(); ++band)
            if (changes(band) && target(band) != kAbsent) tables_->insert(band, target(band), number);
    } catch (...) {
        while (band--)
            if (changes(band) && target(band) != kAbsent) tables_->remove(band, target(band), number);
        throw;
    }
    for (band = 0; band < codes_->bands(); ++band) {
        if (!changes(band)) continue;
        if (const uint32_t before = codes_->get(id, band); before != kAbsent) tables_->remove(band, before, number);
        codes_->set(id, band, target(band));
    }
}

// Ends a change: chooses new scales for the scan once the old ones no longer suit its classes.
void Index::settle() {
    always_.settle();
    if (scan_ && !scan_->store.suited()) scan_->store.arrange(leads().data(), hidden_classes());
}

std::vector<uint8_t> Index::hidden_classes() const {
    std::vector<uint8_t> flags(classes_);
    for (size_t id = 0; id < classes_; ++id) flags[id] = hidden(id);
    return flags;
}

void Index::encode_slice(std::span<Encoded> entries, size_t threads, const std::function<const void*(size_t)>& row,
                         const std::function<float(size_t)>& bias) const {
    constexpr size_t step = 16;
    parallel_for((entries.size() + step - 1) / step, threads, [&](size_t task, size_t) {
        for (size_t i = task * step; i < std::min(entries.size(), (task + 1) * step); ++i)
            encode_into(row(i), bias(i), entries[i]);
    });
}

void Index::refresh(std::span<const int64_t> ids, const float* bias, const std::byte* new_rows, size_t threads) {
    const size_t row_bytes = rows_.row_bytes();
    std::vector<Encoded> entries(std::min(ids.size(), kRefreshSlice));
    for (size_t begin = 0; begin < ids.size(); begin += kRefreshSlice) {
        const size_t n = std::min(kRefreshSlice, ids.size() - begin);
        const auto id = [&](size_t i) { return static_cast<size_t>(ids[begin + i]); };
        const auto new_row = [&](size_t i) { return new_rows ? new_rows + (begin + i) * row_bytes : nullptr; };
        const auto new_bias = [&](size_t i) { return bias ? bias[begin + i] : bias_[id(i)]; };
        {
            IndexLock::Reading reading(lock_);  // another thread may be writing these rows through refresh
            encode_slice(
                {entries.data(), n}, threads, [&](size_t i) { return new_rows ? new_row(i) : rows_.row(id(i)); },
                new_bias);
        }
        IndexLock::Writing writing(lock_);
        for (size_t i = 0; i < n; ++i) replace(id(i), entries[i], new_bias(i), new_row(i));
        settle();
    }
}

void Index::append(size_t count, const float* bias, size_t threads) {
    const size_t first = classes_;
    std::vector<Encoded> entries(std::min(count, kRefreshSlice));
    try {
        for (size_t begin = 0; begin < count; begin += kRefreshSlice) {
            const size_t n = std::min(kRefreshSlice, count - begin), start = first + begin;
            const auto new_bias = [&](size_t i) { return bias ? bias[begin + i] : 0.0f; };
            encode_slice({entries.data(), n}, threads, [&](size_t i) { return rows_.row(start + i); }, new_bias);
            IndexLock::Writing writing(lock_);
            grow_to(start + n);
            for (size_t i = 0; i < n; ++i) replace(start + i, entries[i], new_bias(i), nullptr);
            settle();
        }
    } catch (...) {
        IndexLock::Writing writing(lock_);
        shrink_to(first);
        throw;
    }
}

void Index::grow_to(size_t count) {
    const size_t first = classes_;
    bias_.resize(count, -std::numeric_limits<float>::infinity());
    norms_.resize(count, 0.0f);
    if (balance_) mean_logits_.resize(count, -std::numeric_limits<float>::infinity());
    if (!removed_.empty()) removed_.resize(count, 0);
    if (codes_) codes_->resize(count);
    for (size_t id = first; codes_ && id < count; ++id) codes_->set_absent(id);
    if (scan_) scan_->store.resize(count);
    if (sketch_) sketch_->store.resize(count);
    classes_ = count;
}

void Index::shrink_to(size_t count) noexcept {
    for (size_t id = count; codes_ && id < classes_; ++id)
        for (size_t band = 0; band < codes_->bands(); ++band)
            if (const uint32_t code = codes_->get(id, band); code != kAbsent)
                tables_->remove(band, code, static_cast<uint32_t>(id));
    always_.forget_from(static_cast<uint32_t>(count));
    classes_ = count;
    bias_.resize(count);
    norms_.resize(count);
    if (balance_) mean_logits_.resize(count);
    if (!removed_.empty()) removed_.resize(count);
    if (codes_) codes_->resize(count);
    if (scan_) scan_->store.resize(count);
    if (sketch_) sketch_->store.resize(count);
}

void Index::remove(std::span<const int64_t> ids) {
    IndexLock::Writing writing(lock_);
    if (removed_.empty()) removed_.assign(classes_, 0);
    for (const int64_t wide : ids) {
        const auto id = static_cast<size_t>(wide);
        if (scan_) scan_->store.prepare(cells_ ? scan_->store.cell_of(id) : 0);
        removed_[id] = 1;
        for (size_t band = 0; codes_ && band < codes_->bands(); ++band) {
            const uint32_t code = codes_->get(id, band);
            if (code != kAbsent) tables_->remove(band, code, static_cast<uint32_t>(id));
            codes_->set(id, band, kAbsent);
        }
        if (scan_) scan_->store.hide(id);
        always_.update(static_cast<uint32_t>(id), reach(id), 0, true);
    }
    settle();
}

void Index::set_always(std::span<const int64_t> ids, size_t wanted, double scale, double floor) {
    IndexLock::Writing writing(lock_);
    always_.scale = scale, always_.floor = floor;
    std::vector<AlwaysCandidates::Entry> known;
    for (const int64_t id : ids)
        if (!hidden(static_cast<size_t>(id)))
            known.push_back({reach(static_cast<size_t>(id)), static_cast<uint32_t>(id)});
    always_.choose(std::move(known), wanted);
}

void Index::map_queries(const float* queries, size_t count, size_t threads, float* out) const {
    const size_t tiles = (count + kScanTile - 1) / kScanTile, splits = tiles < threads ? threads : 1;
    parallel_for(tiles * splits, threads, [&](size_t task, size_t) {
        const size_t first = task / splits * kScanTile, split = task % splits;
        balance_->map_queries(queries + first * shape_.features, std::min(kScanTile, count - first),
                              shape_.width * split / splits, shape_.width * (split + 1) / splits,
                              out + first * shape_.width);
    });
}

void Index::map_rows(std::span<const int64_t> ids, size_t threads, float* out, float* mean_logits) const {
    constexpr size_t step = 64;
    parallel_for((ids.size() + step - 1) / step, threads, [&](size_t task, size_t) {
        std::vector<float> row(shape_.features);
        for (size_t i = task * step; i < std::min(ids.size(), (task + 1) * step); ++i) {
            const auto id = static_cast<size_t>(ids[i]);
            kernels().load_row(rows_.row(id), rows_.type, shape_.features, row.data());
            mean_logits[i] = nearest_float(balance_->map_row(row.data(), out + i * shape_.width));
        }
    });
}

void Index::nearest_cells(const float* residuals, const float* biases, size_t count, size_t threads,
                          uint16_t* out) const {
    parallel_for((count + kScanTile - 1) / kScanTile, threads, [&](size_t task, size_t) {
        const size_t first = task * kScanTile;
        cells_->nearest(residuals + first * shape_.width, biases + first, std::min(kScanTile, count - first),
                        out + first, nullptr);
    });
}

}  // namespace manyclass
