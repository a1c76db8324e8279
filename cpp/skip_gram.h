// Words of a text with the words around them, as skip-gram learns from: what a word2vec program does between two steps.
//
// In the core because a Python thread makes the next batch while the current one is learned from, which takes code that
// runs without the interpreter's lock; and because it serves any sequence of items, not only words.
//
// A text is word numbers in one row; `kSeparator` stands where a window must not reach across. A frequent word is left
// out by chance, and the words around it then are neighbours of each other. Everything random is a function of the key
// and of a word's place alone, so that any part of a text can be asked for, in any order, by any number of threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace manyclass {

constexpr uint32_t kSeparator = 0xffffffffu;

struct SkipGramText {
    std::span<const uint32_t> words;
    std::span<const uint32_t> keep;  // [word] it stays where the upper 32 bits of its place's number are at most this
    uint64_t key;
    size_t window;  // neighbours on either side, at most; each word takes 1 to `window`, by chance
};

// Writes the words at places begin <= p < begin + length of each segment that stay and have a neighbour: the word into
// centres, its neighbours in the order of the text into neighbours [segments * length][2 * window], -1 where there is
// none. Returns how many. A word that `keep` does not have throws std::invalid_argument.
size_t skip_gram_examples(const SkipGramText& text, std::span<const int64_t> begins, size_t length, int64_t* centres,
                          int64_t* neighbours);

}  // namespace manyclass
