// Classes that may reach the top without resembling the query: those of largest reach, |w| * scale + bias.
//
// It keeps more of them than it shows, so that the next ones are known when some leave: all classes above a floor. Too
// many raise the floor. Once fewer are left than are wanted, the caller must choose anew from all classes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace manyclass {

class AlwaysCandidates {
public:
    struct Entry {
        double reach;
        uint32_t id;
    };
    double scale = 0, floor = std::numeric_limits<double>::infinity();

    // Shows the best `wanted` of these, which are all classes of more than the floor, and any of just that.
    void choose(std::vector<Entry> known, size_t wanted);
    // Takes the memory that one update may need.
    void prepare();
    // The class had one reach and has another now, or must not be found any more.
    void update(uint32_t id, double before, double reach, bool hidden) noexcept;
    void forget_from(uint32_t id) noexcept;  // this id and all above
    // What a search looks at: as it was when settled last.
    const std::vector<uint32_t>& ids() const { return shown_; }
    void settle() noexcept;
    std::vector<uint32_t> known() const;

private:
    size_t wanted_ = 0;
    std::vector<Entry> known_;  // largest reach first, then lowest id
    std::vector<uint32_t> shown_;
};

}  // namespace manyclass
