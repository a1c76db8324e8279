// Which instruction set runs: the best the CPU has, unless MANYCLASS_SIMD names one.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kernels.h"

namespace manyclass {
namespace scalar {
extern const Kernels table;
}
#if defined(MANYCLASS_HAS_AVX2)
namespace avx2 {
extern const Kernels table;
}
#endif

namespace {

const Kernels* const* runnable() {
    static const Kernels* list[3] = {};
    static const bool filled = [] {
        size_t n = 0;
#if defined(MANYCLASS_HAS_AVX2)
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
            __builtin_cpu_supports("popcnt"))
            list[n++] = &avx2::table;
#endif
        list[n] = &scalar::table;
        return true;
    }();
    (void)filled;
    return list;
}

std::atomic<const Kernels*>& current() {
    static std::atomic<const Kernels*> chosen = [] {
        const char* wanted = std::getenv("MANYCLASS_SIMD");
        const Kernels* named = wanted ? kernels_named(wanted) : nullptr;
        return named ? named : runnable()[0];
    }();
    return chosen;
}

}  // namespace

const Kernels& kernels() {
    return *current().load(std::memory_order_relaxed);
}

const Kernels* kernels_named(const char* name) {
    for (const Kernels* const* k = runnable(); *k; ++k)
        if (!std::strcmp((*k)->name, name)) return *k;
    return nullptr;
}

const char* const* available_kernels() {
    static const char* names[3] = {};
    for (size_t i = 0; runnable()[i]; ++i) names[i] = runnable()[i]->name;
    return names;
}

bool use_kernels(const char* name) {
    const Kernels* named = kernels_named(name);
    if (named) current().store(named, std::memory_order_relaxed);
    return named != nullptr;
}

}  // namespace manyclass
