#include "always_candidates.h"

#include <algorithm>

namespace manyclass {
namespace {

bool comes_first(const AlwaysCandidates::Entry& a, const AlwaysCandidates::Entry& b) {
    return a.reach != b.reach ? a.reach > b.reach : a.id < b.id;
}

}  // namespace

void AlwaysCandidates::choose(std::vector<Entry> known, size_t wanted) {
    wanted_ = wanted;
    known_ = std::move(known);
    std::sort(known_.begin(), known_.end(), comes_first);
    shown_.reserve(wanted);
    settle();
}

void AlwaysCandidates::prepare() {
    if (known_.size() == known_.capacity()) known_.reserve(2 * known_.size() + 8);
}

void AlwaysCandidates::update(uint32_t id, double before, double reach, bool hidden) noexcept {
    const auto old = std::lower_bound(known_.begin(), known_.end(), Entry{before, id}, comes_first);
    const bool was_known = old != known_.end() && old->id == id;
    if (was_known) known_.erase(old);
    if (hidden || !(was_known ? reach >= floor : reach > floor)) return;
    const Entry entry{reach, id};
    known_.insert(std::upper_bound(known_.begin(), known_.end(), entry, comes_first), entry);
    if (known_.size() <= 4 * wanted_) return;
    known_.erase(known_.begin() + static_cast<std::ptrdiff_t>(2 * wanted_), known_.end());
    floor = known_.back().reach;
}

void AlwaysCandidates::forget_from(uint32_t id) noexcept {
    std::erase_if(known_, [&](const Entry& entry) { return entry.id >= id; });
    settle();
}

void AlwaysCandidates::settle() noexcept {
    shown_.resize(std::min(wanted_, known_.size()));
    std::transform(known_.begin(), known_.begin() + static_cast<std::ptrdiff_t>(shown_.size()), shown_.begin(),
                   [](const Entry& entry) { return entry.id; });
    std::sort(shown_.begin(), shown_.end());
}

std::vector<uint32_t> AlwaysCandidates::known() const {
    std::vector<uint32_t> ids;
    for (const Entry& entry : known_) ids.push_back(entry.id);
    std::sort(ids.begin(), ids.end());
    return ids;
}

}  // namespace manyclass
