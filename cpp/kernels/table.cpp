// The function table of the instruction set this file is compiled for.
#include "vectors.h"

#define MANYCLASS_TEXT(x) #x
#define MANYCLASS_NAME(x) MANYCLASS_TEXT(x)

namespace manyclass::MANYCLASS_ISA {

float largest_magnitude(const float*, size_t);
double sum_squares(const float*, size_t);
double sum_magnitudes(const float*, size_t);
void load_row(const void*, RowType, size_t, float*);
void fast_keys(const float*, size_t, float, int16_t*);
void exact_keys(const float*, size_t, int32_t*);
void fast_winners(const WindowPlan&, const int16_t*, uint32_t*, const WinnerDetail*);
void exact_winners(const WindowPlan&, const int32_t*, uint32_t*, const WinnerDetail*);
void hadamard(float*, size_t);
void multiply(float*, const float*, size_t);
void query_levels(const float*, size_t, float, int8_t*);
size_t scan_table_bytes(size_t);
void fill_scan_tables(const int8_t*, size_t, uint8_t*);
size_t scan_sketch(const ScanPlan&, ScanQuery*, size_t, size_t, size_t);
int sketch_score(const uint8_t*, const uint8_t*, size_t, int);
size_t scan_counters(const uint16_t*, size_t, size_t, uint16_t, uint32_t, uint64_t*, size_t*, size_t);
void cell_dots(const LevelRows&, size_t, size_t, const int16_t* const*, size_t, int32_t* const*);
size_t nearest_cell(const int32_t*, double, double, const double*, const double*, size_t);
void dots(const void*, RowType, const float* const*, size_t, size_t, float*);
void weighted_sum(const void* const*, RowType, const float*, size_t, size_t, float*);
void row_panels(const float* const*, size_t, const float*, size_t, size_t, float*, size_t);
void column_panels(const float*, size_t, size_t, const float*, size_t, size_t, float*, size_t);
void finish_logits(float*, float, float, float, size_t, float*);
void exponentials(float*, const float*, size_t, float*, float*);
float softmax_shares(float*, const float*, const float*, float, size_t);
float logistic_shares(float*, float, size_t, float*, float*);
void apply_rule(const RowRule&, float*, float*, float*, const float*, size_t);
void round_row(const float*, size_t, size_t, uint64_t, uint16_t*);

extern const Kernels table = {
    MANYCLASS_NAME(MANYCLASS_ISA),
    largest_magnitude,
    sum_squares,
    sum_magnitudes,
    load_row,
    fast_keys,
    exact_keys,
    fast_winners,
    exact_winners,
    hadamard,
    multiply,
    query_levels,
    scan_table_bytes,
    fill_scan_tables,
    scan_sketch,
    sketch_score,
    scan_counters,
    cell_dots,
    nearest_cell,
    dots,
    weighted_sum,
    row_panels,
    column_panels,
    finish_logits,
    exponentials,
    softmax_shares,
    logistic_shares,
    apply_rule,
    round_row,
};

}  // namespace manyclass::MANYCLASS_ISA
