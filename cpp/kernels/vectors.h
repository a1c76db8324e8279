// Fixed-width vectors through the compiler's own vector types: one source for every instruction set.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../kernels.h"

#ifndef MANYCLASS_ISA
#define MANYCLASS_ISA scalar
#endif
#if defined(__AVX2__)
#include <immintrin.h>
#endif
#if defined(MANYCLASS_NEON)
#include <arm_neon.h>
#endif

// Before a short loop over arrays that are meant to be registers: without it GCC may leave them in memory.
#if defined(__clang__)
#define MANYCLASS_UNROLL _Pragma("unroll")
#else
#define MANYCLASS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace manyclass::MANYCLASS_ISA {

typedef float f32x8 __attribute__((vector_size(32)));
// The widest that baseline code has, and 32 with AVX2: what has no lanes of its own to keep apart uses these.
#if defined(__AVX2__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif
typedef float floats __attribute__((vector_size(kVectorBytes)));
typedef int32_t ints __attribute__((vector_size(kVectorBytes)));
typedef int16_t shorts __attribute__((vector_size(kVectorBytes)));

typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));

template <class Vector, class Element>
static inline Vector load(const Element* from) {
    Vector v;
    std::memcpy(&v, from, sizeof v);
    return v;
}
template <class Vector, class Element>
static inline void store(Element* to, const Vector& v) {
    std::memcpy(to, &v, sizeof v);
}

}  // namespace manyclass::MANYCLASS_ISA
