// Matrix products in tiles of registers, with the right-hand side in panels of 16 columns (kPanel).
// Every number is one sum over the depth, in order, whatever the shape of the tile: all instruction sets that have
// fused multiply-add agree, and so do all ways to cut the work into pieces at the edges of a tile.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

// Tiles as large as the registers hold beside one row of the panels and the factors that are spread over a vector.
#if defined(__AVX512F__)
typedef f32x16 Lanes;
constexpr size_t kRows = 12, kPanels = 2;
#elif defined(__AVX2__)
typedef floats Lanes;
constexpr size_t kRows = 6, kPanels = 1;
#elif defined(MANYCLASS_NEON)
typedef floats Lanes;
constexpr size_t kRows = 6, kPanels = 1;
#else
typedef floats Lanes;
constexpr size_t kRows = 3, kPanels = 1;
#endif
constexpr size_t kWidth = sizeof(Lanes) / sizeof(float), kVectors = kPanel / kWidth;

inline Lanes multiply_add(float a, Lanes b, Lanes c) {
#if defined(__AVX512F__)
    return (Lanes)_mm512_fmadd_ps(_mm512_set1_ps(a), (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (Lanes)_mm256_fmadd_ps(_mm256_set1_ps(a), (__m256)b, (__m256)c);
#elif defined(MANYCLASS_NEON)
    return (Lanes)vfmaq_n_f32((float32x4_t)c, (float32x4_t)b, a);
#else
    return a * b + c;
#endif
}

// Where the left-hand side is: row i at depth k.
struct Rows {
    const float* const* rows;
    float at(size_t i, size_t k) const { return rows[i][k]; }
    Rows from(size_t i) const { return {rows + i}; }
};
struct Columns {
    const float* first;
    size_t step;
    float at(size_t i, size_t k) const { return first[k * step + i]; }
    Columns from(size_t i) const { return {first + i, step}; }
};

template <size_t R, size_t P>
struct Tile {
    Lanes sums[R][P * kVectors];

    void load_from(const float* out, size_t stride) {
        MANYCLASS_UNROLL
        for (size_t i = 0; i < R; ++i) {
            MANYCLASS_UNROLL
            for (size_t v = 0; v < P * kVectors; ++v) sums[i][v] = load<Lanes>(out + i * stride + v * kWidth);
        }
    }
    void store_to(float* out, size_t stride) const {
        MANYCLASS_UNROLL
        for (size_t i = 0; i < R; ++i) {
            MANYCLASS_UNROLL
            for (size_t v = 0; v < P * kVectors; ++v) store(out + i * stride + v * kWidth, sums[i][v]);
        }
    }
};

template <size_t R, size_t P, class Left>
void tile(Left left, const float* panels, size_t depth, float* out, size_t stride, bool add) {
    Tile<R, P> t;
    if (add)
        t.load_from(out, stride);
    else
        t = Tile<R, P>{};
    const float* b = panels;
    for (size_t k = 0; k < depth; ++k, b += kPanel) {
        Lanes row[P * kVectors];
        MANYCLASS_UNROLL
        for (size_t v = 0; v < P * kVectors; ++v)
            row[v] = load<Lanes>(b + v / kVectors * depth * kPanel + v % kVectors * kWidth);
        MANYCLASS_UNROLL
        for (size_t i = 0; i < R; ++i) {
            const float a = left.at(i, k);
            MANYCLASS_UNROLL
            for (size_t v = 0; v < P * kVectors; ++v) t.sums[i][v] = multiply_add(a, row[v], t.sums[i][v]);
        }
    }
    t.store_to(out, stride);
}

// The rows that are left over at the end, one template per number of them.
template <size_t R, size_t P, class Left>
void few_rows(Left left, size_t count, const float* panels, size_t depth, float* out, size_t stride, bool add) {
    if constexpr (R > 0) {
        if (count == R)
            tile<R, P>(left, panels, depth, out, stride, add);
        else
            few_rows<R - 1, P>(left, count, panels, depth, out, stride, add);
    }
}

template <size_t P, class Left>
void all_rows(Left left, size_t count, const float* panels, size_t depth, float* out, size_t stride, bool add) {
    size_t i = 0;
    for (; i + kRows <= count; i += kRows) tile<kRows, P>(left.from(i), panels, depth, out + i * stride, stride, add);
    few_rows<kRows - 1, P>(left.from(i), count - i, panels, depth, out + i * stride, stride, add);
}

template <class Left>
void all_panels(Left left, size_t count, const float* panels, size_t panel_count, size_t depth, float* out,
                size_t stride, bool add) {
    size_t p = 0;
    for (; p + kPanels <= panel_count; p += kPanels)
        all_rows<kPanels>(left, count, panels + p * depth * kPanel, depth, out + p * kPanel, stride, add);
    for (; p < panel_count; ++p)
        all_rows<1>(left, count, panels + p * depth * kPanel, depth, out + p * kPanel, stride, add);
}

}  // namespace

void row_panels(const float* const* rows, size_t count, const float* panels, size_t panel_count, size_t depth,
                float* out, size_t stride) {
    all_panels(Rows{rows}, count, panels, panel_count, depth, out, stride, false);
}

void column_panels(const float* columns, size_t step, size_t count, const float* panels, size_t panel_count,
                   size_t depth, float* out, size_t stride) {
    all_panels(Columns{columns, step}, count, panels, panel_count, depth, out, stride, true);
}

}  // namespace manyclass::MANYCLASS_ISA
