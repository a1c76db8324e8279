// The inner loops, one table of function pointers per instruction set.
//
// Every function here gives the same bits on every instruction set, except `dots`, which uses fused multiply-add
// where there is one: all sets that have it agree, and only baseline code rounds differently. Kernel sources are
// compiled once per instruction set in a namespace of their own and use no std templates: a template instantiated with
// AVX2 code could otherwise be the copy that the linker keeps for the baseline build.
#pragma once
#include <cstddef>
#include <cstdint>

namespace manyclass {

enum class RowType : int { f32 = 0, f64 = 1, f16 = 2, bf16 = 3 };

// What the winner kernels read: `groups` groups of 16 bands; lane h of a group is band 16*group + h, and looks at
// element (offset + h) of the permuted copy number group % copies. Copies are extended by 15 wrapped elements.
struct WindowPlan {
    const uint32_t* offsets;  // [groups][planes][window]
    size_t groups, planes, window, code_bits, copies, copy_stride;
};

// What a query's winners look like beside its bucket numbers, for multi-probing.
struct WinnerDetail {
    uint8_t* best;     // [planes][groups*16] winning position of each code
    uint8_t* second;   // [planes][groups*16] runner-up position
    uint16_t* margin;  // [planes][groups*16] how far the winner is ahead, in key units
    uint8_t* silent;   // [groups*16] 1 where some window's two best are both zero
};

struct RowRule;  // row_update.h

constexpr uint32_t kNoClass = 0xffffffffu;
constexpr float kTiniest = 1e-34f;  // a vector below that counts as zero: what scales it to levels could overflow
constexpr size_t kBlock = 32;       // classes per block of the flat sketch
constexpr int kQueryLevels = 7;     // a query coordinate is an integer in [-7, 7]
constexpr size_t kScanTile = 4;     // queries that may share one pass over the codes
constexpr size_t kPanel = 16;       // columns of a matrix that lie together where it is multiplied
constexpr int kCellLevels = 127;    // a coordinate is an integer in [-127, 127] where cells are chosen

// Rows of whole numbers: levels [rows][width], width a multiple of 16, and the sum of each row.
struct LevelRows {
    const int8_t* levels;
    const int32_t* sums;
    size_t width;
};

// One query's part in a pass over the flat sketch: survivors are appended as keys that sort best first.
struct ScanQuery {
    const uint8_t* tables;  // what fill_scan_tables of the same instruction set made of the query
    int16_t alpha, beta;    // Q15 weights of sketch score and bias
    int16_t floor;          // only scores strictly above survive
    uint64_t* kept;
    size_t count, capacity;
};

struct ScanPlan {
    const uint8_t* blocks;  // each: bits/8*32 code bytes, 32 factors, 32 biases
    size_t bits, block_bytes;
    int gain;             // left shift that brings a raw score near 16 bits
    const uint32_t* ids;  // class id at each position, kNoClass where there is none
};

struct Kernels {
    const char* name;
    float (*largest_magnitude)(const float* x, size_t n);
    double (*sum_squares)(const float* x, size_t n);  // in double: squares of floats neither vanish nor overflow there
    double (*sum_magnitudes)(const float* x, size_t n);
    void (*load_row)(const void* row, RowType type, size_t n, float* out);
    void (*fast_keys)(const float* x, size_t n, float scale, int16_t* out);
    void (*exact_keys)(const float* x, size_t n, int32_t* out);
    void (*fast_winners)(const WindowPlan& plan, const int16_t* copies, uint32_t* buckets, const WinnerDetail* detail);
    void (*exact_winners)(const WindowPlan& plan, const int32_t* copies, uint32_t* buckets, const WinnerDetail* detail);
    void (*hadamard)(float* x, size_t n);
    void (*multiply)(float* x, const float* y, size_t n);
    void (*query_levels)(const float* z, size_t n, float scale, int8_t* out);
    // A query's levels as tables of partial sums: [bits/4][16], offset to be non-negative, and behind them whatever
    // else this instruction set looks up. Not to be moved after that: some of it is aligned.
    size_t (*scan_table_bytes)(size_t bits);
    void (*fill_scan_tables)(const int8_t* levels, size_t bits, uint8_t* tables);
    // Scans blocks from `begin`; stops early when a survivor list is nearly full. Returns the block to go on from.
    size_t (*scan_sketch)(const ScanPlan& plan, ScanQuery* queries, size_t count, size_t begin, size_t end);
    // Sum of level_i * (bit_i ? 1 : -1), from one class's packed code and the query's four bit planes.
    int (*sketch_score)(const uint8_t* code, const uint8_t* planes, size_t bytes, int level_sum);
    // Appends keys of counters strictly above floor; returns where it stopped, as scan_sketch does.
    size_t (*scan_counters)(const uint16_t* counters, size_t begin, size_t end, uint16_t floor, uint32_t first_id,
                            uint64_t* kept, size_t* count, size_t capacity);
    // out[v][cell] = product of centre `cell`, of those begin..end, with each of up to kScanTile vectors of levels
    // within kCellLevels.
    void (*cell_dots)(const LevelRows& centres, size_t begin, size_t end, const int16_t* const* vectors, size_t count,
                      int32_t* const* out);
    // The cell of the largest products[cell] * unit + (bias * biases[cell] - offsets[cell]); ties go to the lowest.
    size_t (*nearest_cell)(const int32_t* products, double unit, double bias, const double* biases,
                           const double* offsets, size_t count);
    // Adds the dot products of one row's piece with `count` queries' pieces to `sums`.
    void (*dots)(const void* row, RowType type, const float* const* queries, size_t count, size_t n, float* sums);
    // Adds the sum of weights[j] * rows[j] to `out`; rows are f32 or bf16.
    void (*weighted_sum)(const void* const* rows, RowType type, const float* weights, size_t count, size_t n,
                         float* out);
    // Matrix products with a right-hand side in panels [panels][depth][kPanel] (cpp/kernels/panel_products.cpp):
    // out[i][column] = sum over k of rows[i][k] * panel[k][column];
    void (*row_panels)(const float* const* rows, size_t count, const float* panels, size_t panel_count, size_t depth,
                       float* out, size_t stride);
    // and the same added to `out`, with columns[k * step + i] for rows[i][k].
    void (*column_panels)(const float* columns, size_t step, size_t count, const float* panels, size_t panel_count,
                          size_t depth, float* out, size_t stride);
    // One class, n examples, n a multiple of kPanel (cpp/kernels/class_shares.cpp). Products to logits,
    // (product + bias) * scale + log_weight, and the largest of each example so far;
    void (*finish_logits)(float* logits, float bias, float scale, float log_weight, size_t n, float* largest);
    // logits, at most shift, to e^(logit - shift), which are added to sums and, if not null, squared to squares;
    void (*exponentials)(float* logits, const float* shift, size_t n, float* sums, float* squares);
    // those to gradients mass * share - spread, share = value * factor; returns the sum of the shares;
    float (*softmax_shares)(float* values, const float* factors, const float* mass, float spread, size_t n);
    // logits to weight * sigmoid(logit), weight * log(1 + e^logit) added to losses; returns the sum of the former.
    float (*logistic_shares)(float* logits, float weight, size_t n, float* losses, float* squares);
    // One optimizer step on one row of n elements; states that the rule does not use may be null.
    void (*apply_rule)(const RowRule& rule, float* weight, float* first, float* second, const float* gradient,
                       size_t n);
    // Columns first, first + 1, ... of one row as bfloat16, up or down by chance (formula in row_update.h); key is the
    // row's.
    void (*round_row)(const float* row, size_t first, size_t n, uint64_t key, uint16_t* out);
};

// The table in use: chosen at first call from the CPU and MANYCLASS_SIMD (instruction_sets.cpp, as the next four).
const Kernels& kernels();
// Names of the tables this machine can run, best first; null-terminated.
const char* const* available_kernels();
// Names of all that were compiled, whether or not this machine has what they need.
const char* const* compiled_kernels();
// Null if `name` is unknown or not runnable here.
const Kernels* kernels_named(const char* name);
// Switches the whole process; only for tests and start-up. Returns false if unknown.
bool use_kernels(const char* name);

// Larger scores first, then lower ids, as one ascending integer.
constexpr int64_t kHighestScore = 0x7fffffff;
inline uint64_t best_first_key(int score, uint32_t id) {
    return (static_cast<uint64_t>(kHighestScore - score) << 32) | id;
}
inline uint32_t key_id(uint64_t key) {
    return static_cast<uint32_t>(key);
}
// A key's upper half is its rank; ranks beyond 32 bits, which no key has, stand for the lowest score.
inline int rank_score(uint64_t rank) {
    const int64_t score = kHighestScore - static_cast<int64_t>(rank);
    return static_cast<int>(score < -kHighestScore ? -kHighestScore : score);
}
inline int key_score(uint64_t key) {
    return rank_score(key >> 32);
}

}  // namespace manyclass
