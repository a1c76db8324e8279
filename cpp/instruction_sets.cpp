// Which instruction set runs: the best the CPU has, unless MANYCLASS_SIMD names one.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kernels.h"

// Every table that CMakeLists.txt compiles for this kind of CPU, best first, with what it asks of the CPU at hand.
// __builtin_cpu_supports also asks the operating system, which must save the wider registers.
#if defined(__x86_64__)
#define MANYCLASS_TABLES(LEVEL) LEVEL(avx512) LEVEL(avx2) LEVEL(scalar)
#elif defined(__aarch64__)
#define MANYCLASS_TABLES(LEVEL) LEVEL(neon) LEVEL(scalar)
#else
#define MANYCLASS_TABLES(LEVEL) LEVEL(scalar)
#endif

namespace manyclass {

#define MANYCLASS_DECLARE(isa)  \
    namespace isa {             \
    extern const Kernels table; \
    }
MANYCLASS_TABLES(MANYCLASS_DECLARE)

namespace {

bool scalar_runs() {
    return true;
}
#if defined(__x86_64__)
bool avx2_runs() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
           __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi");
}
// Ice Lake, Zen 4 and later. What came before lacks the byte permutations and slows down under wide registers.
bool avx512_runs() {
    return avx2_runs() && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vpopcntdq");
}
#elif defined(__aarch64__)
bool neon_runs() {
    return true;
}
#endif

struct Level {
    const Kernels* table;
    bool (*runs)();
};
#define MANYCLASS_ENTRY(isa) {&isa::table, isa##_runs},
constexpr Level kLevels[] = {MANYCLASS_TABLES(MANYCLASS_ENTRY)};
constexpr size_t kCount = sizeof kLevels / sizeof *kLevels;

struct Lists {
    const Kernels* runnable[kCount + 1] = {};
    const char* names[kCount + 1] = {};
    const char* compiled[kCount + 1] = {};
};

const Lists& lists() {
    static const Lists all = [] {
        Lists found;
        size_t compiled = 0, n = 0;
        for (const Level& level : kLevels) {
            found.compiled[compiled++] = level.table->name;
            if (!level.runs()) continue;
            found.names[n] = level.table->name;
            found.runnable[n++] = level.table;
        }
        return found;
    }();
    return all;
}

std::atomic<const Kernels*>& current() {
    static std::atomic<const Kernels*> chosen = [] {
        const char* wanted = std::getenv("MANYCLASS_SIMD");
        const Kernels* named = wanted ? kernels_named(wanted) : nullptr;
        return named ? named : lists().runnable[0];
    }();
    return chosen;
}

}  // namespace

const Kernels& kernels() {
    return *current().load(std::memory_order_relaxed);
}

const Kernels* kernels_named(const char* name) {
    for (const Kernels* const* k = lists().runnable; *k; ++k)
        if (!std::strcmp((*k)->name, name)) return *k;
    return nullptr;
}

const char* const* available_kernels() {
    return lists().names;
}

const char* const* compiled_kernels() {
    return lists().compiled;
}

bool use_kernels(const char* name) {
    const Kernels* named = kernels_named(name);
    if (named) current().store(named, std::memory_order_relaxed);
    return named != nullptr;
}

}  // namespace manyclass
