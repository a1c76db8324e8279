// Every kernel on every instruction set that this machine runs: the same bits as baseline code (`kernel_driver`), and
// how long each takes beside the next best set (`kernel_driver time [part of a name]`).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "kernel_cases.h"

// Inputs begin a cache line, as those of torch and most of NumPy do: times would otherwise depend on the day's luck.
__attribute__((noinline)) void* operator new(size_t bytes) {
    void* memory = std::aligned_alloc(64, (bytes | 63) + 1);
    if (!memory) throw std::bad_alloc();
    return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
    std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}

using namespace manyclass;

namespace {

bool close(const std::vector<uint8_t>& left, const std::vector<uint8_t>& right) {
    const auto* a = reinterpret_cast<const float*>(left.data());
    const auto* b = reinterpret_cast<const float*>(right.data());
    for (size_t i = 0; i < left.size() / sizeof(float); ++i)
        if (!(std::fabs(a[i] - b[i]) <= 1e-3f + 1e-4f * std::fabs(a[i]))) return false;
    return left.size() == right.size();
}

// Sums that use fused multiply-add are the same wherever there is one; against baseline code they are only close.
size_t compare(const std::vector<KernelCase>& cases) {
    size_t failures = 0;
    for (const KernelCase& one : cases) {
        std::vector<uint8_t> expected, found, fused;
        one.run(*kernels_named("scalar"), expected);
        for (const char* const* name = available_kernels(); *name; ++name) {
            if (*name == kernels_named("scalar")->name) continue;
            one.run(*kernels_named(*name), found);
            const bool same =
                one.fused ? close(expected, found) && (fused.empty() || fused == found) : expected == found;
            if (one.fused) fused = found;
            if (!same) ++failures, std::printf("DIFFERENT %s: %s\n", *name, one.name.c_str());
        }
    }
    return failures;
}

double microseconds(const KernelCase& one, const Kernels& kernels, size_t repeats) {
    std::vector<uint8_t> out;
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < repeats; ++i) one.run(kernels, out);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
           static_cast<double>(repeats);
}

// Turn by turn, so that a busy machine is equally busy for all; the quickest of many turns.
void time(const std::vector<KernelCase>& cases, const char* part) {
    for (const KernelCase& one : cases) {
        if (!one.timed || (part && one.name.find(part) == std::string::npos)) continue;
        const size_t repeats = 1 + static_cast<size_t>(500 / microseconds(one, kernels(), 3));
        std::vector<double> best(8, 1e30);
        for (int turn = 0; turn < 31; ++turn)
            for (size_t i = 0; available_kernels()[i]; ++i)
                best[i] = std::min(best[i], microseconds(one, *kernels_named(available_kernels()[i]), repeats));
        std::printf("%-40s", one.name.c_str());
        for (size_t i = 0; available_kernels()[i]; ++i)
            std::printf("  %s %.3f us (x%.2f)", available_kernels()[i], best[i],
                        available_kernels()[i + 1] ? best[i + 1] / best[i] : 1.0);
        std::printf("\n");
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<KernelCase> cases = CaseMaker().all();
    if (argc > 1 && !std::strcmp(argv[1], "time")) {
        time(cases, argc > 2 ? argv[2] : nullptr);
        return 0;
    }
    const size_t failures = compare(cases);
    std::printf("%zu cases on", cases.size());
    for (const char* const* name = available_kernels(); *name; ++name) std::printf(" %s", *name);
    std::printf("\n");
    return failures ? 1 : 0;
}
