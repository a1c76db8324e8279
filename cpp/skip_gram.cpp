#include "skip_gram.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace manyclass {
namespace {

// SplitMix64 of a counter.
uint64_t number_of(uint64_t key, size_t place) {
    uint64_t z = key + (static_cast<uint64_t>(place) + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// What stays of a part of the text, and where; separators stay.
struct Kept {
    std::vector<uint32_t> words;
    std::vector<uint32_t> spans;  // how far the window of each reaches

    void clear() {
        words.clear();
        spans.clear();
    }

    void add(const SkipGramText& text, size_t place) {
        const uint32_t word = text.words[place];
        const uint64_t number = number_of(text.key, place);
        if (word != kSeparator) {
            if (word >= text.keep.size()) throw std::invalid_argument("a word of the text has no entry in keep");
            if (number >> 32 > text.keep[word]) return;
        }
        words.push_back(word);
        spans.push_back(1 + static_cast<uint32_t>((number & 0xffffffffu) * text.window >> 32));
    }

    // Whether the last words are a whole window, or as far as it may reach.
    bool reaches(size_t from, size_t window) const {
        return words.size() - from >= window || (words.size() > from && words.back() == kSeparator);
    }
};

}  // namespace

size_t skip_gram_examples(const SkipGramText& text, std::span<const int64_t> begins, size_t length, int64_t* centres,
                          int64_t* neighbours) {
    size_t made = 0;
    Kept kept;
    for (const int64_t begin_of : begins) {
        const size_t begin = static_cast<size_t>(begin_of);
        const size_t end = begin + std::min(length, text.words.size() - begin);
        kept.clear();
        for (size_t place = begin; place > 0 && !kept.reaches(0, text.window); --place) kept.add(text, place - 1);
        std::reverse(kept.words.begin(), kept.words.end());  // their spans are never looked at
        const size_t first = kept.words.size();
        for (size_t place = begin; place < end; ++place) kept.add(text, place);
        const size_t last = kept.words.size();
        for (size_t place = end; place < text.words.size() && !kept.reaches(last, text.window); ++place)
            kept.add(text, place);
        for (size_t at = first; at < last; ++at) {
            if (kept.words[at] == kSeparator) continue;
            int64_t* const row = neighbours + made * 2 * text.window;
            const size_t span = kept.spans[at];
            size_t left = at, right = at + 1, found = 0;
            while (left > 0 && at - left < span && kept.words[left - 1] != kSeparator) --left;
            for (; left < at; ++left) row[found++] = kept.words[left];
            for (; right < kept.words.size() && right - at <= span && kept.words[right] != kSeparator; ++right)
                row[found++] = kept.words[right];
            if (!found) continue;
            std::fill(row + found, row + 2 * text.window, int64_t{-1});
            centres[made++] = kept.words[at];
        }
    }
    return made;
}

}  // namespace manyclass
