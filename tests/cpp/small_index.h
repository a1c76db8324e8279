// A small index of every pipeline, for the drivers: rows of two patterns per class.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "../../cpp/index.h"

namespace manyclass {

constexpr size_t kFeatures = 40, kClasses = 200, kSpare = 40, kAppend = 4;
constexpr float kScales[] = {1.0f, 2.0f, 1.5f};

struct Pipeline {
    const char* name;
    size_t bands, planes, window, probes, scan_bits, sketch_bits, candidates, keep;
    bool exact_keys, rescore;
    size_t cells = 0;
    bool balanced = false;
};

constexpr Pipeline kPipelines[] = {
    {"paper tables", 20, 2, 16, 1, 0, 0, 30, 30, true, false},
    {"re-score", 20, 2, 16, 1, 0, 0, 30, 90, true, true},
    {"flat sketch", 0, 0, 0, 1, 96, 0, 60, 60, true, false},
    {"flat sketch, re-ranked", 0, 0, 0, 1, 64, 160, 40, 120, true, false},
    {"cells", 0, 0, 0, 1, 96, 0, 60, 60, true, false, 9},
    {"balanced cells", 0, 0, 0, 1, 96, 64, 60, 60, true, false, 9, true},
    {"tables and sketch", 20, 2, 16, 1, 0, 64, 30, 200, true, false},
    {"probes and sketch", 24, 3, 4, 4, 0, 160, 40, 2000, false, false},
    {"exhaustive", 0, 0, 0, 1, 0, 0, kClasses + kSpare, kClasses + kSpare, true, false},
};

[[noreturn]] inline void fail(const Pipeline& pipeline, const char* what, size_t id) {
    std::fprintf(stderr, "%s: %s (class %zu)\n", pipeline.name, what, id);
    std::exit(1);
}

class Rows {
public:
    explicit Rows(std::mt19937& random) : patterns_(2 * (kClasses + kSpare) * kFeatures) {
        std::normal_distribution<float> normal;
        for (float& value : patterns_) value = normal(random);
        values_.assign(patterns_.begin(), patterns_.begin() + (kClasses + kSpare) * kFeatures);
    }
    const float* pattern(size_t id, size_t version) const {
        return patterns_.data() + (version * (kClasses + kSpare) + id) * kFeatures;
    }
    RowsView view() const {
        return {reinterpret_cast<const std::byte*>(values_.data()), kFeatures * sizeof(float), kClasses + kSpare,
                kFeatures, RowType::f32};
    }

private:
    std::vector<float> values_, patterns_;
};

inline Index make_index(const Pipeline& p, std::mt19937& random) {
    std::optional<WinnerHasher> hasher;
    size_t bits = 0;
    if (p.bands) {
        std::vector<uint32_t> permutation(kFeatures), offsets;
        std::iota(permutation.begin(), permutation.end(), 0u);
        std::vector<uint32_t> dealt = permutation;
        std::shuffle(permutation.begin(), permutation.end(), random);
        for (size_t code = 0; code < (p.bands + 15) / 16 * p.planes; ++code) {
            std::shuffle(dealt.begin(), dealt.end(), random);
            offsets.insert(offsets.end(), dealt.begin(), dealt.begin() + static_cast<ptrdiff_t>(p.window));
        }
        const auto code_bits = static_cast<size_t>(__builtin_ctzll(p.window));
        bits = code_bits * p.planes;
        hasher.emplace(WinnerHasherShape{kFeatures, p.bands, p.planes, p.window, code_bits, 1, p.exact_keys},
                       permutation.data(), offsets.data());
    }
    constexpr size_t width = 64;
    std::vector<float> signs(4 * 2 * width);
    for (float& sign : signs) sign = random() & 1 ? 1.0f : -1.0f;
    const auto sketcher = [&](size_t sketch_bits) -> std::optional<Sketcher> {
        if (!sketch_bits) return std::nullopt;
        return Sketcher(kFeatures, sketch_bits, width, signs.data());
    };
    return Index({kFeatures, kFeatures, false, p.rescore, p.probes == 1, p.cells}, std::move(hasher), bits,
                 sketcher(p.scan_bits), sketcher(p.sketch_bits));
}

// Coordinates that are the features, rounded: all of the work of a balance, and classes are found as without it.
inline void balance(Index& index) {
    const std::vector<float> zero(kFeatures, 0.0f);
    const std::vector<double> one(kFeatures, 1.0), query_units(kFeatures, 1.0 / 127),
        row_units(kFeatures + 1, 1.0 / 8191);
    std::vector<int8_t> query_levels(kFeatures * kFeatures, 0);
    std::vector<int16_t> row_levels((kFeatures + 1) * kFeatures, 0);
    for (size_t i = 0; i < kFeatures; ++i) {
        query_levels[i * kFeatures + i] = 127;
        row_levels[i * kFeatures + i] = 8191;
    }
    index.set_balance({kFeatures, kFeatures, zero.data(), zero.data(), one.data(), query_levels.data(),
                       query_units.data(), row_levels.data(), row_units.data()});
}

// Builds it over the first pattern of kClasses classes.
inline void build(const Pipeline& pipeline, const Rows& rows, std::mt19937& random, Index& index) {
    const std::vector<float> centre(kFeatures, 0.0f);
    index.bind_rows(rows.view());
    if (pipeline.balanced) balance(index);
    index.start_build(kClasses, nullptr, centre.data());
    if (pipeline.cells) {  // random centres: classes change cells often
        std::vector<int8_t> centres(pipeline.cells * kFeatures);
        for (int8_t& level : centres) level = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
        std::vector<float> biases(pipeline.cells, 0.0f);
        biases.back() = -1e6f;  // stays empty and comes last: all other cells are scanned, so no class is missed
        index.set_cells(centres.data(), biases.data(), 0.01);
    }
    if (index.encode(0, kClasses, 2) != kClasses) fail(pipeline, "encode refused a row", 0);
    index.finish_build(2);
    if (pipeline.rescore) {
        std::vector<float> weights(pipeline.bands + 1);
        for (size_t votes = 0; votes < weights.size(); ++votes) weights[votes] = std::cbrt(float(votes));
        index.set_vote_weights(weights);
    }
}

}  // namespace manyclass
