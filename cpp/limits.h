// The limits of an index. config.py states the same ones for users, with messages that name a way out; a test compares.
#pragma once
#include <cstddef>

namespace manyclass {

constexpr size_t kMaxBands = 65'535;               // a class's votes are 16-bit
constexpr size_t kMinWindow = 2, kMaxWindow = 16;  // a position takes the low four bits of a key; powers of two only
constexpr size_t kMaxBucketBits = 24;              // every band has 2 to this power buckets
constexpr size_t kMaxProbedCodes = 6;              // codes of a band that may give way to their runner-up
constexpr size_t kSketchStep = 32;                 // sketch bits are a multiple of it
constexpr size_t kMaxSketchBits = 4096;            // raw scores, up to 7 per bit, are 16-bit
constexpr size_t kMaxCells = 65'535;               // the number of a cell is 16-bit
constexpr size_t kMaxCellFeatures = 65'536;        // more could overflow the 32-bit products with centres
constexpr size_t kMaxBalancedFeatures = 8192;      // more could overflow the 32-bit products that make coordinates
constexpr size_t kMaxThreads = 255;                // the thread pool counts helpers in eight bits

}  // namespace manyclass
