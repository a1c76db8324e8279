// Python's view of cpp/index.h. Each method checks its arrays, releases the GIL and calls.
//
// Longer than our usual file because it is one class: a check and a call for each of the index's methods.
#include "../cpp/index.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>

#include "../cpp/limits.h"
#include "arrays.h"

using namespace manyclass;

namespace {

using AnyRows = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;

template <class T>
const T* data_or_null(const std::optional<In<T, 1>>& array, size_t size, const char* what) {
    if (!array) return nullptr;
    require(array->size() == size, what);
    return array->data();
}

// In the words of the reference's SearchStatus.
std::optional<std::string> problem(const SearchStatus& status) {
    switch (status.problem) {
        case SearchStatus::query_not_finite:
            return "query not finite";
        case SearchStatus::logits_overflow:
            return "logits overflow";
        default:
            return std::nullopt;
    }
}

// An index together with the Python arrays its views point into.
class BoundIndex {
public:
    BoundIndex(size_t features, size_t width, bool skip_silent, bool rescore, bool blocked,
               std::optional<In<uint32_t, 2>> permutations, std::optional<In<uint32_t, 3>> offsets, size_t bands,
               bool exact_keys, size_t scan_bits, size_t sketch_bits, std::optional<In<float, 3>> signs, size_t cells) {
        std::optional<WinnerHasher> hasher;
        size_t bucket_bits = 0;
        if (permutations && offsets) {
            const size_t window = offsets->shape(2), planes = offsets->shape(1);
            require(permutations->shape(1) == width && width >= window, "permutations do not fit the coordinates");
            require(offsets->shape(0) == (bands + 15) / 16, "offsets do not fit the bands");
            require(window >= kMinWindow && window <= kMaxWindow && (window & (window - 1)) == 0,
                    "window must be 2, 4, 8 or 16");
            require(bands >= 1 && bands <= kMaxBands, "number of bands");
            const auto code_bits = static_cast<size_t>(__builtin_ctzll(window));
            bucket_bits = code_bits * planes;
            require(bucket_bits <= kMaxBucketBits && planes >= 1, "too many codes per band");
            for (size_t i = 0; i < permutations->size(); ++i)
                require(permutations->data()[i] < width, "permutation out of range");
            for (size_t i = 0; i < offsets->size(); ++i) require(offsets->data()[i] < width, "offset out of range");
            hasher.emplace(
                WinnerHasherShape{width, bands, planes, window, code_bits, permutations->shape(0), exact_keys},
                permutations->data(), offsets->data());
        }
        const auto make_sketcher = [&](size_t bits) -> std::optional<Sketcher> {
            if (!bits) return std::nullopt;
            require(signs.has_value() && bits % kSketchStep == 0 && bits <= kMaxSketchBits, "sketch bits");
            const size_t rotated = signs->shape(2);
            require((rotated & (rotated - 1)) == 0 && rotated >= width && signs->shape(1) == 2 &&
                        signs->shape(0) * rotated >= bits,
                    "signs do not fit the sketch");
            return Sketcher(width, bits, rotated, signs->data());
        };
        require(cells == 0 || (scan_bits > 0 && cells <= kMaxCells && width <= kMaxCellFeatures), "cells");
        require(width > 0 && width <= features, "width");
        bucket_bits_ = bucket_bits;
        index = std::make_unique<Index>(Index::Shape{features, width, skip_silent, rescore, blocked, cells},
                                        std::move(hasher), bucket_bits, make_sketcher(scan_bits),
                                        make_sketcher(sketch_bits));
        features_ = features, width_ = width;
    }

    void set_balance(In<float, 1> mean, In<float, 1> centre, In<double, 1> scales, In<int8_t, 2> query_levels,
                     In<double, 1> query_units, In<int16_t, 2> row_levels, In<double, 1> row_units) {
        const size_t directions = query_units.size();
        require(features_ <= kMaxBalancedFeatures && width_ == (directions ? directions : features_) &&
                    mean.size() == features_ && centre.size() == features_ && scales.size() == features_ &&
                    query_levels.shape(0) == directions && query_levels.shape(1) == features_ &&
                    row_levels.shape(0) == directions + 1 && row_levels.shape(1) == features_ &&
                    row_units.size() == directions + 1,
                "balance");
        for (size_t i = 0; i < query_levels.size(); ++i) require(query_levels.data()[i] > -128, "balance");
        for (size_t i = 0; i < row_levels.size(); ++i)
            require(row_levels.data()[i] > -8192 && row_levels.data()[i] < 8192, "balance");
        index->set_balance({features_, directions, mean.data(), centre.data(), scales.data(), query_levels.data(),
                            query_units.data(), row_levels.data(), row_units.data()});
        balanced_ = true;
    }

    void map_queries(In<float, 2> queries, size_t threads, Out<float, 2> out) {
        require(
            balanced_ && queries.shape(1) == features_ && out.shape(0) == queries.shape(0) && out.shape(1) == width_,
            "queries to be mapped");
        nb::gil_scoped_release unlocked;
        index->map_queries(queries.data(), queries.shape(0), threads, out.data());
    }

    void map_rows(In<int64_t, 1> ids, size_t threads, Out<float, 2> out, Out<float, 1> mean_logits) {
        require(balanced_ && out.shape(0) == ids.size() && out.shape(1) == width_ && mean_logits.size() == ids.size(),
                "rows to be mapped");
        std::vector<int64_t> checked(ids.data(), ids.data() + ids.size());
        for (const int64_t id : checked)
            require(id >= 0 && id < static_cast<int64_t>(index->rows().count), "id out of range");
        nb::gil_scoped_release unlocked;
        index->map_rows(checked, threads, out.data(), mean_logits.data());
    }

    void bind_rows(AnyRows rows, int type) {
        static constexpr size_t sizes[] = {4, 8, 2, 2};
        require(type >= 0 && type < 4 && rows.itemsize() == sizes[type], "row type");
        require(rows.shape(1) == features_ && (features_ == 1 || rows.shape(0) == 0 || rows.stride(1) == 1),
                "rows must be dense in features");
        require(rows.shape(0) >= index->classes(), "rows are fewer than the classes");
        const RowsView view{static_cast<const std::byte*>(rows.data()),
                            static_cast<ptrdiff_t>(rows.stride(0)) * static_cast<ptrdiff_t>(rows.itemsize()),
                            rows.shape(0), features_, static_cast<RowType>(type)};
        nb::gil_scoped_release unlocked;
        index->bind_rows(view);
        nb::gil_scoped_acquire locked;
        rows_ = rows;
    }

    // A copy, and that is checked: the array is the caller's, and another thread may change it at any time.
    std::vector<int64_t> checked_ids(const int64_t* data, size_t size, int64_t lowest = 0) const {
        std::vector<int64_t> ids(data, data + size);
        const auto classes = static_cast<int64_t>(index->classes());
        for (const int64_t id : ids) require(id >= lowest && id < classes, "id out of range");
        return ids;
    }
    std::vector<int64_t> checked_ids(const In<int64_t, 1>& ids) const { return checked_ids(ids.data(), ids.size()); }

    size_t first_bad_row(In<int64_t, 1> ids, size_t threads) {
        const auto checked = checked_ids(ids);
        nb::gil_scoped_release unlocked;
        return index->first_bad_row(checked, threads);
    }

    void start_build(size_t count, std::optional<In<float, 1>> bias, std::optional<In<float, 1>> centre) {
        require(count <= index->rows().count, "fewer rows than classes");
        require((!index->scanner() && !index->sketcher()) || centre.has_value(), "centre");
        const float* centre_data = data_or_null(centre, width_, "centre");
        const float* bias_data = data_or_null(bias, count, "bias");
        nb::gil_scoped_release unlocked;
        index->start_build(count, bias_data, centre_data);
    }

    size_t encode(size_t begin, size_t end, size_t threads) {
        require(begin <= end && end <= index->classes(), "slice out of range");
        nb::gil_scoped_release unlocked;
        return index->encode(begin, end, threads);
    }

    void finish_build(size_t threads) {
        nb::gil_scoped_release unlocked;
        index->finish_build(threads);
    }

    void refresh(In<int64_t, 1> ids, std::optional<In<float, 1>> bias, std::optional<In<uint8_t, 2>> new_rows,
                 size_t threads) {
        const auto checked = checked_ids(ids);
        const float* bias_data = data_or_null(bias, ids.size(), "bias");
        const std::byte* row_data = nullptr;
        if (new_rows) {
            require(new_rows->shape(0) == ids.size() && new_rows->shape(1) == index->rows().row_bytes(), "new rows");
            row_data = reinterpret_cast<const std::byte*>(new_rows->data());
        }
        nb::gil_scoped_release unlocked;
        index->refresh(checked, bias_data, row_data, threads);
    }

    void append(size_t count, std::optional<In<float, 1>> bias, size_t threads) {
        require(index->classes() + count <= index->rows().count, "bind the longer rows first");
        const float* bias_data = data_or_null(bias, count, "bias");
        nb::gil_scoped_release unlocked;
        index->append(count, bias_data, threads);
    }

    void remove(In<int64_t, 1> ids) {
        const auto checked = checked_ids(ids);
        nb::gil_scoped_release unlocked;
        index->remove(checked);
    }

    SearchStatus search(In<float, 2> queries, size_t candidates, size_t keep, size_t probes, size_t cells,
                        size_t threads, bool logistic, Out<int64_t, 2> classes, Out<float, 2> logits,
                        Out<float, 2> log_probs, std::optional<Out<int64_t, 2>> ids,
                        std::optional<Out<float, 2>> id_logits, std::optional<In<int64_t, 2>> excluded) {
        const size_t n = queries.shape(0), k = classes.shape(1);
        require(queries.shape(1) == features_, "queries have another number of features");
        require(classes.shape(0) == n && logits.shape(0) == n && log_probs.shape(0) == n && logits.shape(1) == k &&
                    log_probs.shape(1) == k,
                "outputs do not fit");
        require(probes <= 1 || !index->hasher() || !blocked(), "multi-probing needs unblocked tables");
        require(!ids || (ids->shape(0) == n && ids->shape(1) == candidates), "candidate output does not fit");
        require(!id_logits || (id_logits->shape(0) == n && id_logits->shape(1) == candidates), "logit output");
        SearchPlan plan{candidates, keep, probes, cells, std::max<size_t>(1, threads)};
        const std::vector<int64_t> left_out = exclude(excluded, n, plan);
        const SearchOut out{classes.data(),
                            logits.data(),
                            log_probs.data(),
                            ids ? ids->data() : nullptr,
                            id_logits ? id_logits->data() : nullptr,
                            k,
                            logistic};
        const float* data = queries.data();
        nb::gil_scoped_release unlocked;
        return index->search(data, n, plan, out);
    }

    // Candidates alone, likeliest first; and how many classes were scanned for them: all of them without cells.
    SearchStatus shortlist(In<float, 2> queries, size_t keep, size_t probes, size_t cells, size_t threads,
                           Out<int64_t, 2> ids, std::optional<In<int64_t, 2>> excluded,
                           std::optional<Out<int64_t, 1>> scanned) {
        require(queries.shape(1) == features_ && ids.shape(0) == queries.shape(0), "queries or output do not fit");
        require(!scanned || scanned->size() == queries.shape(0), "scanned does not fit");
        require(probes <= 1 || !index->hasher() || !blocked(), "multi-probing needs unblocked tables");
        SearchPlan plan{ids.shape(1), keep, probes, cells, std::max<size_t>(1, threads)};
        const std::vector<int64_t> left_out = exclude(excluded, queries.shape(0), plan);
        SearchOut out;
        out.candidates = ids.data();
        if (scanned) {
            out.scanned = scanned->data();
            std::fill_n(out.scanned, scanned->size(), static_cast<int64_t>(index->classes()));
        }
        nb::gil_scoped_release unlocked;
        return index->search(queries.data(), queries.shape(0), plan, out);
    }

    void votes(In<float, 1> query, Out<uint16_t, 1> counts) {
        require(index->hasher() && query.size() == features_, "votes");
        nb::gil_scoped_release unlocked;
        index->votes(query.data(), counts.data(), counts.size());
    }

    void export_codes(Out<uint32_t, 2> codes) {
        require(index->hasher() && codes.shape(1) == index->hasher()->bands(), "codes");
        nb::gil_scoped_release unlocked;
        index->export_codes(codes.data(), codes.shape(0));
    }

    void import_codes(In<uint32_t, 2> codes, size_t threads) {
        require(index->hasher() && codes.shape(0) == index->classes() && codes.shape(1) == index->hasher()->bands(),
                "codes");
        for (size_t i = 0; i < codes.size(); ++i)
            require(codes.data()[i] == kAbsent || codes.data()[i] >> bucket_bits_ == 0, "bucket number out of range");
        nb::gil_scoped_release unlocked;
        index->import_codes(codes.data(), threads);
    }

    void export_scan(Out<uint8_t, 2> codes, Out<float, 1> factors) {
        check_sketch(index->scanner(), codes, factors, codes.shape(0));
        nb::gil_scoped_release unlocked;
        index->export_scan(codes.data(), factors.data(), codes.shape(0));
    }

    void export_sketch(Out<uint8_t, 2> codes, Out<float, 1> factors) {
        check_sketch(index->sketcher(), codes, factors, codes.shape(0));
        nb::gil_scoped_release unlocked;
        index->export_sketch(codes.data(), factors.data(), codes.shape(0));
    }

    void export_weights(Out<int16_t, 1> factors, Out<int16_t, 1> biases) {
        require(index->scanner() && factors.size() == biases.size(), "weights");
        nb::gil_scoped_release unlocked;
        index->export_weights(factors.data(), biases.data(), factors.size());
    }

    void import_scan(In<uint8_t, 2> codes, In<float, 1> factors, double factor_scale, double bias_scale,
                     In<float, 1> centre, std::optional<In<uint16_t, 1>> cells, std::optional<In<float, 1>> distances) {
        const size_t count = index->classes();
        check_sketch(index->scanner(), codes, factors, count);
        require(centre.size() == width_, "centre");
        require(!index->cells() || (cells && distances), "cells");
        const uint16_t* cell_of = data_or_null(cells, count, "cells");
        const float* distance_data = data_or_null(distances, count, "distances");
        for (size_t i = 0; index->cells() && i < count; ++i)
            require(cell_of[i] < index->cells()->count(), "cell out of range");
        nb::gil_scoped_release unlocked;
        index->import_scan(codes.data(), factors.data(), {factor_scale, bias_scale}, centre.data(), cell_of,
                           distance_data);
    }

    void import_sketch(In<uint8_t, 2> codes, In<float, 1> factors, In<float, 1> centre) {
        check_sketch(index->sketcher(), codes, factors, index->classes());
        require(centre.size() == width_, "centre");
        nb::gil_scoped_release unlocked;
        index->import_sketch(codes.data(), factors.data(), centre.data());
    }

    void set_cells(In<int8_t, 2> centres, In<float, 1> biases, double scale) {
        require(index->cells() && centres.shape(0) == index->cells()->count() && centres.shape(1) == width_ &&
                    biases.size() == centres.shape(0),
                "cell centres");
        index->set_cells(centres.data(), biases.data(), scale);
    }

    void nearest_cells(In<float, 2> residuals, In<float, 1> biases, size_t threads, Out<uint16_t, 1> out) {
        require(index->cells() && residuals.shape(1) == width_ && biases.size() == residuals.shape(0) &&
                    out.size() == residuals.shape(0),
                "vectors to be filed");
        nb::gil_scoped_release unlocked;
        index->nearest_cells(residuals.data(), biases.data(), out.size(), threads, out.data());
    }

    void export_cells(Out<uint16_t, 1> cells, Out<float, 1> distances) {
        require(index->cells() && cells.size() == distances.size(), "cells");
        nb::gil_scoped_release unlocked;
        index->export_cells(cells.data(), distances.data(), cells.size());
    }

    nb::dict bytes() const {
        const Index::Bytes bytes = [&] {
            nb::gil_scoped_release unlocked;
            return index->bytes();
        }();
        nb::dict parts;
        parts["tables"] = bytes.tables;
        parts["codes"] = bytes.codes;
        parts["scan"] = bytes.scan;
        if (index->cells()) parts["cells"] = bytes.cells;
        parts["sketch"] = bytes.sketch;
        if (balanced_) parts["balance"] = bytes.balance;
        parts["norms and biases"] = bytes.norms_and_biases;
        return parts;
    }

    std::vector<float> centre() const {
        const Sketcher* sketcher = index->scanner() ? index->scanner() : index->sketcher();
        require(sketcher != nullptr, "the index has no sketch");
        return sketcher->centre();
    }

    void set_state(In<float, 1> bias, In<float, 1> norms, std::optional<In<uint8_t, 1>> removed,
                   std::optional<In<float, 1>> mean_logits) {
        require(mean_logits.has_value() == balanced_, "mean logits go with a balance");
        require(norms.size() == bias.size() && bias.size() <= index->rows().count, "state");
        const uint8_t* removed_data = data_or_null(removed, bias.size(), "removed");
        const float* logit_data = data_or_null(mean_logits, bias.size(), "mean logits");
        nb::gil_scoped_release unlocked;
        index->set_state(bias.size(), bias.data(), norms.data(), removed_data, logit_data);
    }

    bool blocked() const { return index->blocked(); }

    std::unique_ptr<Index> index;

private:
    template <class Codes, class Factors>
    static void check_sketch(const Sketcher* sketcher, const Codes& codes, const Factors& factors, size_t count) {
        require(
            sketcher && codes.shape(0) == count && codes.shape(1) == sketcher->code_bytes() && factors.size() == count,
            "sketch arrays");
    }
    // Tells the plan what each query must not find; returns the array that it points to.
    std::vector<int64_t> exclude(const std::optional<In<int64_t, 2>>& excluded, size_t queries,
                                 SearchPlan& plan) const {
        if (!excluded || excluded->shape(1) == 0) return {};
        require(excluded->shape(0) == queries, "excluded ids do not fit the queries");
        std::vector<int64_t> ids = checked_ids(excluded->data(), excluded->size(), -1);
        plan.excluded = ids.data(), plan.excluded_width = excluded->shape(1);
        return ids;
    }
    size_t features_ = 0, width_ = 0, bucket_bits_ = 0;
    bool balanced_ = false;
    AnyRows rows_;
};

}  // namespace

void bind_index(nb::module_& m) {
    nb::class_<SearchStatus>(m, "SearchStatus").def_prop_ro("problem", &problem).def_ro("query", &SearchStatus::query);
    nb::class_<BoundIndex>(m, "Index")
        .def(nb::init<size_t, size_t, bool, bool, bool, std::optional<In<uint32_t, 2>>, std::optional<In<uint32_t, 3>>,
                      size_t, bool, size_t, size_t, std::optional<In<float, 3>>, size_t>(),
             nb::arg("features"), nb::arg("width"), nb::arg("skip_silent"), nb::arg("rescore"), nb::arg("blocked"),
             nb::arg("permutations").none(), nb::arg("offsets").none(), nb::arg("bands"), nb::arg("exact_keys"),
             nb::arg("scan_bits"), nb::arg("sketch_bits"), nb::arg("signs").none(), nb::arg("cells"))
        .def("bind_rows", &BoundIndex::bind_rows)
        .def("set_balance", &BoundIndex::set_balance)
        .def("map_queries", &BoundIndex::map_queries)
        .def("map_rows", &BoundIndex::map_rows)
        .def("first_bad_row", &BoundIndex::first_bad_row)
        .def("start_build", &BoundIndex::start_build, nb::arg("count"), nb::arg("bias").none(),
             nb::arg("centre").none())
        .def("encode", &BoundIndex::encode)
        .def("finish_build", &BoundIndex::finish_build)
        .def("refresh", &BoundIndex::refresh, nb::arg("ids"), nb::arg("bias").none(), nb::arg("new_rows").none(),
             nb::arg("threads"))
        .def("append", &BoundIndex::append, nb::arg("count"), nb::arg("bias").none(), nb::arg("threads"))
        .def("remove", &BoundIndex::remove)
        .def("set_always", [](BoundIndex& self, In<int64_t, 1> ids, size_t wanted, double scale,
                              double floor) { self.index->set_always(self.checked_ids(ids), wanted, scale, floor); })
        .def("always", [](BoundIndex& self) { return copied(self.index->always().ids()); })
        .def("always_known", [](BoundIndex& self) { return copied(self.index->always().known()); })
        .def("always_rule",
             [](BoundIndex& self) {
                 const AlwaysCandidates always = self.index->always();
                 return nb::make_tuple(always.scale, always.floor);
             })
        .def("set_vote_weights",
             [](BoundIndex& self, In<float, 1> weights) {
                 require(weights.size() > 0, "vote weights");
                 self.index->set_vote_weights({weights.data(), weights.size()});
             })
        .def("search", &BoundIndex::search, nb::arg("queries"), nb::arg("candidates"), nb::arg("keep"),
             nb::arg("probes"), nb::arg("cells"), nb::arg("threads"), nb::arg("logistic"), nb::arg("classes"),
             nb::arg("logits"), nb::arg("log_probs"), nb::arg("ids").none(), nb::arg("id_logits").none(),
             nb::arg("excluded").none())
        .def("shortlist", &BoundIndex::shortlist, nb::arg("queries"), nb::arg("keep"), nb::arg("probes"),
             nb::arg("cells"), nb::arg("threads"), nb::arg("ids"), nb::arg("excluded").none(),
             nb::arg("scanned").none() = nb::none())
        .def("votes", &BoundIndex::votes)
        .def("export_codes", &BoundIndex::export_codes)
        .def("import_codes", &BoundIndex::import_codes)
        .def("export_scan", &BoundIndex::export_scan)
        .def("export_sketch", &BoundIndex::export_sketch)
        .def("export_weights", &BoundIndex::export_weights)
        .def("import_scan", &BoundIndex::import_scan, nb::arg("codes"), nb::arg("factors"), nb::arg("factor_scale"),
             nb::arg("bias_scale"), nb::arg("centre"), nb::arg("cells").none(), nb::arg("distances").none())
        .def("import_sketch", &BoundIndex::import_sketch)
        .def("set_cells", &BoundIndex::set_cells)
        .def("cell_radii",
             [](BoundIndex& self) {
                 require(self.index->cells() != nullptr, "the index has no cells");
                 return copied(self.index->cell_radii());
             })
        .def("nearest_cells", &BoundIndex::nearest_cells)
        .def("export_cells", &BoundIndex::export_cells)
        .def("set_state", &BoundIndex::set_state, nb::arg("bias"), nb::arg("norms"), nb::arg("removed").none(),
             nb::arg("mean_logits").none())
        .def("bias", [](BoundIndex& self) { return copied(self.index->bias()); })
        .def("norms", [](BoundIndex& self) { return copied(self.index->norms()); })
        .def("mean_logits", [](BoundIndex& self) { return copied(self.index->mean_logits()); })
        .def("removed", [](BoundIndex& self) { return copied(self.index->removed()); })
        .def("centre", [](BoundIndex& self) { return copied(self.centre()); })
        .def("scan_scales",
             [](BoundIndex& self) {
                 require(self.index->scanner() != nullptr, "the index has no scan");
                 const SketchScales scales = self.index->scan_scales();
                 return nb::make_tuple(scales.factor, scales.bias);
             })
        .def("outliers",
             [](BoundIndex& self) {
                 require(self.index->scanner() != nullptr, "the index has no scan");
                 return copied(self.index->outliers());
             })
        .def("bytes", &BoundIndex::bytes)
        .def_prop_ro("classes", [](BoundIndex& self) { return self.index->classes(); });
}
