// The index: rows (a view), their codes and tables, their sketches, and the search that runs through them.
//
// Searches take the lock for reading, block of queries by block; updates prepare outside the lock and hold it for
// writing only while they move classes: a search sees each class entirely before or entirely after a change.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "band_tables.h"
#include "bucket_numbers.h"
#include "cells.h"
#include "code_store.h"
#include "index_lock.h"
#include "sketch.h"
#include "sketch_store.h"

namespace manyclass {

struct RowsView {
    const std::byte* data = nullptr;
    ptrdiff_t stride = 0;  // bytes from one row to the next
    size_t count = 0, features = 0;
    RowType type = RowType::f32;
    const void* row(size_t id) const { return data + static_cast<ptrdiff_t>(id) * stride; }
    size_t row_bytes() const { return features * (type == RowType::f32 ? 4 : type == RowType::f64 ? 8 : 2); }
};

struct SearchPlan {
    size_t candidates;  // classes that get an exact logit
    size_t keep;        // classes the tables hand on to the sketch or the re-score
    size_t probes;      // of tables: 1 reads every band's own bucket; more: this many per band at most, likeliest first
    size_t cells;       // of a scan with cells: how many are scanned, likeliest first; without cells it means nothing
    size_t threads;
};

struct SearchOut {
    int64_t* classes = nullptr;     // [queries][k], -1 where absent; null: no exact logits, candidates in order of rank
    float* logits = nullptr;        // [queries][k], -inf where absent
    float* log_probs = nullptr;     // [queries][k]: softmax over the candidates, or log sigmoid
    int64_t* candidates = nullptr;  // optional [queries][candidates], ids ascending (or by rank), then -1
    float* candidate_logits = nullptr;
    size_t k = 0;
    bool logistic = false;
};

// What may be wrong with a search's numbers; anything but `none` leaves the outputs meaningless.
struct SearchStatus {
    enum Problem { none, query_not_finite, logits_overflow } problem = none;
    size_t query = 0;  // the first one that has the problem
};

struct SearchScratch;

class Index {
public:
    ~Index();
    struct Shape {
        size_t features;
        bool skip_silent = true, rescore = false, blocked = true;
        size_t cells = 0;  // parts of the scan; 0: it is not parted
    };
    // hasher: codes of a row; there are then tables, with buckets of that many bits. scanner: a sketch of every class
    // that is scanned flat. sketcher: a sketch that re-ranks what tables or scan found.
    Index(const Shape& shape, std::optional<WinnerHasher> hasher, size_t bucket_bits, std::optional<Sketcher> scanner,
          std::optional<Sketcher> sketcher);

    // Points at new memory with at least as many rows; says nothing about their codes.
    void bind_rows(const RowsView& rows);
    const RowsView& rows() const { return rows_; }
    bool blocked() const { return shape_.blocked; }
    size_t classes() const { return classes_; }

    // Position in ids of the first row whose squared norm is not finite (a NaN, an infinity, an overflow), or
    // ids.size().
    size_t first_bad_row(std::span<const int64_t> ids, size_t threads) const;
    // Sets up classes_ = count empty entries; then set_cells if there are any; then encode in slices, then finish.
    // encode returns the first row whose squared norm is not finite, or end.
    void start_build(size_t count, const float* bias, const float* centre);
    void set_cell_radii(const double* radii) { cells_->set_radii(radii); }
    std::vector<double> cell_radii() const;
    void set_cells(const int8_t* centres, const float* biases, double scale) { cells_->set(centres, biases, scale); }
    // The cells of vectors (count, features), to find better centres.
    void nearest_cells(const float* residuals, const float* biases, size_t count, size_t threads, uint16_t* out) const;
    size_t encode(size_t begin, size_t end, size_t threads);
    void finish_build(size_t threads);

    // Re-hashes the rows. `bias` (same length as ids) and `new_rows` (dense, in the rows' own type) may be null.
    void refresh(std::span<const int64_t> ids, const float* bias, const std::byte* new_rows, size_t threads);
    void append(size_t count, const float* bias, size_t threads);
    void remove(std::span<const int64_t> ids);

    void set_always(std::span<const int64_t> ids);
    void set_vote_weights(std::span<const float> weights) { vote_weights_.assign(weights.begin(), weights.end()); }

    SearchStatus search(const float* queries, size_t count, const SearchPlan& plan, const SearchOut& out);
    // Votes of the first `count` classes for one query: the paper's counts.
    void votes(const float* query, uint16_t* counts, size_t count);

    // Raw state, for files: the first `count` classes, as there may be more by the time the lock is held.
    void export_codes(uint32_t* codes, size_t count) const;
    void import_codes(const uint32_t* codes, size_t threads);
    struct SketchPart {
        SketchPart(Sketcher maker, bool flat) : sketcher(std::move(maker)), store(sketcher.bits(), flat) {}
        Sketcher sketcher;
        SketchStore store;
        std::vector<float> factors;  // only while building
    };
    SketchPart* scan() { return scan_ ? &*scan_ : nullptr; }
    SketchPart* sketch() { return sketch_ ? &*sketch_ : nullptr; }
    void export_sketch(const SketchPart& part, uint8_t* codes, int16_t* factors, int16_t* biases, size_t count) const;
    void import_sketch(SketchPart& part, const uint8_t* codes, const int16_t* factors, const int16_t* biases,
                       double factor_scale, double bias_scale);
    void export_cells(uint16_t* cell_of, size_t count) const;
    void import_cells(const uint16_t* cell_of) { scan_->store.sort_by_cell(cells_->count(), cell_of); }
    void set_state(size_t count, const float* bias, const float* norms, const uint8_t* removed);
    std::vector<float> bias() const;
    std::vector<float> norms() const;
    std::vector<uint8_t> removed() const;
    const Cells* cells() const { return cells_ ? &*cells_ : nullptr; }
    const WinnerHasher* hasher() const { return hasher_ ? &*hasher_ : nullptr; }
    size_t table_bytes() const { return tables_ ? tables_->bytes() : 0; }
    size_t code_bytes() const { return codes_ ? codes_->bytes() : 0; }

private:
    friend class Search;
    struct Encoded;
    void encode_into(const void* row, float bias, Encoded& out) const;
    void apply(size_t id, const Encoded& entry);

    Shape shape_;
    RowsView rows_;
    size_t classes_ = 0;
    std::optional<WinnerHasher> hasher_;
    std::optional<CodeStore> codes_;
    std::optional<BandTables> tables_;
    std::optional<SketchPart> scan_, sketch_;
    std::optional<Cells> cells_;
    std::vector<uint16_t> cell_of_;  // these two only while building
    std::vector<double> distances_;
    std::vector<float> bias_, norms_;
    std::vector<uint8_t> removed_;  // empty until a class is removed
    std::vector<uint32_t> always_;
    std::vector<float> vote_weights_;
    mutable IndexLock lock_;
    std::array<std::atomic<SearchScratch*>, 4> idle_{};  // no mutex: a forked child could inherit it locked
};

}  // namespace manyclass
