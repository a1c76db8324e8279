#include "step_classes.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace manyclass {
namespace {

constexpr unsigned kDigit = 11;
constexpr size_t kFew = 64;  // so many are sorted sooner by comparing

// Ascending, without the negative ones: a radix sort, as ids are small numbers.
std::vector<int64_t> sorted(std::span<const int64_t> ids) {
    std::vector<int64_t> all;
    all.reserve(ids.size());
    uint64_t largest = 0;
    bool ascending = true;
    for (const int64_t id : ids) {
        if (id < 0) continue;
        ascending &= all.empty() || all.back() <= id;
        largest = std::max(largest, static_cast<uint64_t>(id));
        all.push_back(id);
    }
    if (ascending) return all;
    if (all.size() < kFew) {
        std::sort(all.begin(), all.end());
        return all;
    }
    std::vector<int64_t> other(all.size());
    constexpr uint64_t mask = (1u << kDigit) - 1;
    for (unsigned shift = 0; shift < static_cast<unsigned>(std::bit_width(largest)); shift += kDigit) {
        size_t starts[mask + 2] = {};
        for (const int64_t id : all) ++starts[(static_cast<uint64_t>(id) >> shift & mask) + 1];
        for (size_t i = 0; i < mask; ++i) starts[i + 1] += starts[i];
        for (const int64_t id : all) other[starts[static_cast<uint64_t>(id) >> shift & mask]++] = id;
        all.swap(other);
    }
    return all;
}

// log(1 - share), also of a share that rounds to one.
double log_of_rest(double share) {
    return std::log1p(-std::min(share, 1 - 0x1p-40));
}

}  // namespace

CountedIds counted_ids(std::span<const int64_t> draws, std::span<const int64_t> members) {
    CountedIds found;
    found.ids.reserve(draws.size());
    found.times.reserve(draws.size());
    size_t before = 0;  // members below the draw
    for (const int64_t draw : sorted(draws)) {
        while (before < members.size() && members[before] - static_cast<int64_t>(before) <= draw) ++before;
        const int64_t id = draw + static_cast<int64_t>(before);
        if (found.ids.empty() || found.ids.back() != id) {
            found.ids.push_back(id);
            found.times.push_back(0);
        }
        ++found.times.back();
    }
    return found;
}

WeightedClasses merged_classes(std::span<const int64_t> given, double log_weight, std::span<const int64_t> drawn,
                               std::span<const double> drawn_log_weights) {
    WeightedClasses found;
    found.ids.reserve(given.size() + drawn.size());
    found.log_weights.reserve(given.size() + drawn.size());
    const auto add = [&](int64_t id, double weight) {
        if (!found.ids.empty() && found.ids.back() == id) return;
        found.ids.push_back(id);
        found.log_weights.push_back(weight);
    };
    size_t next = 0;
    for (const int64_t id : sorted(given)) {
        for (; next < drawn.size() && drawn[next] <= id; ++next) add(drawn[next], drawn_log_weights[next]);
        add(id, log_weight);
    }
    for (; next < drawn.size(); ++next) add(drawn[next], drawn_log_weights[next]);
    return found;
}

WeightedClasses sampled_classes(std::span<const int64_t> targets, std::span<const int64_t> draws,
                                std::span<const int32_t> counts, const Chances& chances) {
    std::vector<int64_t> both(targets.begin(), targets.end());
    both.insert(both.end(), draws.begin(), draws.end());
    const double of_draws = chances.draws * log_of_rest(1 / chances.classes_left);
    const double in_all = chances.known + chances.alike * chances.classes_left;
    const double unmet = chances.new_share / chances.classes_left;
    WeightedClasses found;
    found.ids.reserve(both.size());
    found.log_weights.reserve(both.size());
    for (const int64_t id : sorted(both)) {
        if (!found.ids.empty() && found.ids.back() == id) continue;
        const double met = (counts[static_cast<size_t>(id)] + chances.alike) / in_all;
        const double share = (1 - chances.new_share) * met + unmet;
        found.ids.push_back(id);
        found.log_weights.push_back(-std::log(-std::expm1(chances.others * log_of_rest(share) + of_draws)));
    }
    return found;
}

Repetitions count_targets(std::span<const int64_t> targets, std::span<int32_t> counts, std::span<int32_t> ring,
                          size_t place) {
    Repetitions found{};
    for (const int64_t target : targets) {
        const int32_t before = counts[static_cast<size_t>(target)];
        found.met += before;
        found.unmet += before == 0;
    }
    for (const int64_t target : targets) ++counts[static_cast<size_t>(target)];
    for (const int64_t target : targets) found.pairs += counts[static_cast<size_t>(target)] - 1;
    found.pairs -= found.met;
    for (const int64_t target : targets) {
        int32_t& kept = ring[place];
        if (kept >= 0) --counts[static_cast<size_t>(kept)];
        kept = static_cast<int32_t>(target);
        place = place + 1 < ring.size() ? place + 1 : 0;
    }
    return found;
}

}  // namespace manyclass
