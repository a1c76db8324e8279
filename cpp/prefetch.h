// Asking for memory before it is needed.
#pragma once
#include <algorithm>
#include <cstddef>

namespace manyclass {

// The first 2 KiB of a row: by then the hardware has noticed and fetches on by itself.
inline void prefetch_row(const void* row, size_t bytes) {
    const char* at = static_cast<const char*>(row);
    for (size_t i = 0; i < std::min<size_t>(bytes, 2048); i += 64) __builtin_prefetch(at + i);
}

}  // namespace manyclass
