// The index: rows (a view), their codes and tables, their sketches, and the search that runs through them.
//
// Searches take the lock for reading, block of queries by block; updates prepare outside the lock and hold it for
// writing only while they move classes: a search sees each class entirely before or entirely after a change.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "always_candidates.h"
#include "balance.h"
#include "band_tables.h"
#include "bucket_numbers.h"
#include "cells.h"
#include "code_store.h"
#include "index_lock.h"
#include "sketch.h"
#include "sketch_blocks.h"
#include "sketch_records.h"

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
    const int64_t* excluded = nullptr;  // [queries][excluded_width] classes that a query must not find; -1 is none
    size_t excluded_width = 0;
};

struct SearchOut {
    int64_t* classes = nullptr;     // [queries][k], -1 where absent; null: no exact logits, candidates in order of rank
    float* logits = nullptr;        // [queries][k], -inf where absent
    float* log_probs = nullptr;     // [queries][k]: softmax over the candidates, or log sigmoid
    int64_t* candidates = nullptr;  // optional [queries][candidates], ids ascending (or by rank), then -1
    float* candidate_logits = nullptr;
    size_t k = 0;
    bool logistic = false;
    int64_t* scanned = nullptr;  // optional [queries]: written where cells are chosen, the classes that those hold
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
        size_t width;  // coordinates that codes and sketches are made of: the features, or those of a balance
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

    // Position in ids of the first row whose norm is not finite (a NaN, an infinity, an overflow), or ids.size().
    size_t first_bad_row(std::span<const int64_t> ids, size_t threads) const;
    // Before anything is built or restored; its width must be the index's.
    void set_balance(const Balance::Parts& parts) { balance_.emplace(parts); }
    // Coordinates [count][width] of queries, and of rows with their mean logits.
    void map_queries(const float* queries, size_t count, size_t threads, float* out) const;
    void map_rows(std::span<const int64_t> ids, size_t threads, float* out, float* mean_logits) const;
    // Sets up classes_ = count empty entries; then set_cells if there are any; then encode in slices, then finish.
    // encode returns the first row whose norm is not finite, or end. A bias of -infinity masks a class.
    void start_build(size_t count, const float* bias, const float* centre);
    void set_cells(const int8_t* centres, const float* biases, double scale) { cells_->set(centres, biases, scale); }
    // The cells of vectors (count, features), to find better centres.
    void nearest_cells(const float* residuals, const float* biases, size_t count, size_t threads, uint16_t* out) const;
    size_t encode(size_t begin, size_t end, size_t threads);
    void finish_build(size_t threads);

    // Re-hashes the rows. `bias` (same length as ids) and `new_rows` (dense, in the rows' own type) may be null.
    void refresh(std::span<const int64_t> ids, const float* bias, const std::byte* new_rows, size_t threads);
    void append(size_t count, const float* bias, size_t threads);
    void remove(std::span<const int64_t> ids);

    // Classes that join whatever the tables found: the `wanted` best of all that reach, as |w| * scale + bias, more
    // than `floor`.
    void set_always(std::span<const int64_t> ids, size_t wanted, double scale, double floor);
    AlwaysCandidates always() const;
    void set_vote_weights(std::span<const float> weights) { vote_weights_.assign(weights.begin(), weights.end()); }

    SearchStatus search(const float* queries, size_t count, const SearchPlan& plan, const SearchOut& out);
    // Votes of the first `count` classes for one query: the paper's counts.
    void votes(const float* query, uint16_t* counts, size_t count);

    // Raw state, for files: the first `count` classes, as there may be more by the time the lock is held.
    void export_codes(uint32_t* codes, size_t count) const;
    void import_codes(const uint32_t* codes, size_t threads);
    // codes [count][bits/8], factors [count].
    void export_scan(uint8_t* codes, float* factors, size_t count) const;
    void export_sketch(uint8_t* codes, float* factors, size_t count) const;
    void export_cells(uint16_t* cell_of, float* distances, size_t count) const;
    void export_weights(int16_t* factors, int16_t* biases, size_t count) const;
    SketchScales scan_scales() const;
    std::vector<uint32_t> outliers() const;
    std::vector<float> cell_radii() const;
    // After set_state. cell_of and distances are null where there are no cells.
    void import_scan(const uint8_t* codes, const float* factors, const SketchScales& scales, const float* centre,
                     const uint16_t* cell_of, const float* distances);
    void import_sketch(const uint8_t* codes, const float* factors, const float* centre);
    // mean_logits: with a balance only.
    void set_state(size_t count, const float* bias, const float* norms, const uint8_t* removed,
                   const float* mean_logits);
    std::vector<float> bias() const;
    std::vector<float> norms() const;
    std::vector<float> mean_logits() const;
    std::vector<uint8_t> removed() const;
    const Shape& shape() const { return shape_; }
    const Cells* cells() const { return cells_ ? &*cells_ : nullptr; }
    const WinnerHasher* hasher() const { return hasher_ ? &*hasher_ : nullptr; }
    const Sketcher* scanner() const { return scan_ ? &scan_->sketcher : nullptr; }
    const Sketcher* sketcher() const { return sketch_ ? &sketch_->sketcher : nullptr; }
    struct Bytes {
        size_t tables = 0, codes = 0, scan = 0, cells = 0, sketch = 0, norms_and_biases = 0, balance = 0;
    };
    Bytes bytes() const;

private:
    friend class Search;
    struct Encoded;
    template <class Store>
    struct SketchPart {
        Sketcher sketcher;
        Store store;
    };
    bool removed(size_t id) const { return !removed_.empty() && removed_[id]; }
    bool hidden(size_t id) const { return removed(id) || masks(bias_[id]); }
    std::vector<uint8_t> hidden_classes() const;
    static bool masks(float bias) { return bias == -std::numeric_limits<float>::infinity(); }
    void encode_into(const void* row, float bias, Encoded& out) const;
    void encode_slice(std::span<Encoded> entries, size_t threads, const std::function<const void*(size_t)>& row,
                      const std::function<float(size_t)>& bias) const;
    void replace(size_t id, const Encoded& entry, float bias, const void* new_row);
    void move_in_tables(size_t id, const Encoded& entry, bool hidden);
    // What a class has before the query is looked at: the logit of the mean query, or the bias where that is zero.
    const std::vector<float>& leads() const { return balance_ ? mean_logits_ : bias_; }
    double reach(size_t id) const { return static_cast<double>(norms_[id]) * always_.scale + leads()[id]; }
    void grow_to(size_t count);
    void shrink_to(size_t count) noexcept;
    void settle();

    Shape shape_;
    RowsView rows_;
    size_t classes_ = 0;
    std::optional<Balance> balance_;
    std::optional<WinnerHasher> hasher_;
    std::optional<CodeStore> codes_;
    std::optional<BandTables> tables_;
    std::optional<SketchPart<SketchBlocks>> scan_;
    std::optional<SketchPart<SketchRecords>> sketch_;
    std::optional<Cells> cells_;
    std::vector<float> bias_, norms_;  // norms: of the coordinates
    std::vector<float> mean_logits_;   // with a balance only
    std::vector<uint8_t> removed_;     // empty until a class is removed
    AlwaysCandidates always_;
    std::vector<float> vote_weights_;
    mutable IndexLock lock_;
    std::array<std::atomic<SearchScratch*>, 4> idle_{};  // no mutex: a forked child could inherit it locked
};

}  // namespace manyclass
