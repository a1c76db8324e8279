// One case per kernel and size, for the driver that compares instruction sets and times them. Long because the list is.
#pragma once
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "../../cpp/kernels.h"
#include "../../cpp/row_update.h"

namespace manyclass {

// `run` leaves in `out` all that the kernel gives, as bytes. fused: its rounding depends on fused multiply-add, and
// `out` is floats. timed: of a size worth a stopwatch.
struct KernelCase {
    std::string name;
    std::function<void(const Kernels&, std::vector<uint8_t>& out)> run;
    bool fused = false, timed = false;
};

class CaseMaker {
public:
    std::vector<KernelCase> all() {
        for (const size_t n : {1, 7, 8, 15, 16, 17, 31, 33, 64, 129, 1024}) whole_vectors(n);
        for (const size_t n : {1, 2, 4, 8, 16, 32, 64, 1024, 4096}) hadamard(n);
        for (const size_t n : {1, 15, 16, 17, 31, 33, 576, 1030}) row_dots(n);
        for (const size_t n : {1, 7, 8, 63, 64, 65, 200, 576}) weighted_sum(n);
        for (const size_t n : {1, 7, 16, 33, 576}) row_rules(n);
        for (const size_t n : {1, 7, 16, 33, 576}) round_row(n);
        for (const size_t depth : {1, 7, 64, 256}) panel_products(depth);
        for (const size_t n : {16, 48, 256}) class_shares(n);
        for (const size_t width : {16, 32, 48, 64, 80, 576, 4096, 8208}) cell_dots(width);
        for (const size_t cells : {1, 7, 8, 9, 67, 3906}) nearest_cell(cells);
        for (const size_t window : {2, 4, 8, 16}) winners(window);
        for (const size_t bits : {32, 64, 96, 160, 512, 1024, 4096}) sketches(bits);
        counters();
        return std::move(cases_);
    }

private:
    template <class T>
    using Shared = std::shared_ptr<std::vector<T>>;

    Shared<float> floats(size_t n, float spread = 1) {
        std::normal_distribution<float> normal(0, spread);
        auto values = std::make_shared<std::vector<float>>(n);
        for (float& value : *values) value = normal(random_);
        return values;
    }
    template <class T>
    Shared<T> whole(size_t n, int low, int high) {
        std::uniform_int_distribution<int> any(low, high);
        auto values = std::make_shared<std::vector<T>>(n);
        for (T& value : *values) value = static_cast<T>(any(random_));
        return values;
    }
    template <class T>
    static T* room(std::vector<uint8_t>& out, size_t n) {
        out.resize(n * sizeof(T));
        return reinterpret_cast<T*>(out.data());
    }
    template <class Run>
    void add(const std::string& name, size_t n, size_t timed_size, Run run, bool fused = false) {
        cases_.push_back({name + " " + std::to_string(n), run, fused, n == timed_size});
    }

    void whole_vectors(size_t n) {
        constexpr size_t timed = 1024;
        const auto x = floats(n), y = floats(n);
        (*x)[n / 2] = -0.0f, (*x)[n - 1] = 1e-41f;
        add("largest_magnitude", n, timed,
            [=](const Kernels& k, auto& out) { *room<float>(out, 1) = k.largest_magnitude(x->data(), n); });
        add("sum_squares", n, timed,
            [=](const Kernels& k, auto& out) { *room<double>(out, 1) = k.sum_squares(x->data(), n); });
        add("sum_magnitudes", n, timed,
            [=](const Kernels& k, auto& out) { *room<double>(out, 1) = k.sum_magnitudes(x->data(), n); });
        add("fast_keys", n, timed,
            [=](const Kernels& k, auto& out) { k.fast_keys(x->data(), n, 500.0f, room<int16_t>(out, n)); });
        add("exact_keys", n, timed,
            [=](const Kernels& k, auto& out) { k.exact_keys(x->data(), n, room<int32_t>(out, n)); });
        add("query_levels", n, timed,
            [=](const Kernels& k, auto& out) { k.query_levels(x->data(), n, 1.5f, room<int8_t>(out, n)); });
        add("multiply", n, timed, [=](const Kernels& k, auto& out) {
            std::memcpy(room<float>(out, n), x->data(), n * sizeof(float));
            k.multiply(reinterpret_cast<float*>(out.data()), y->data(), n);
        });
        const auto halves = whole<uint16_t>(n, 0, 65535);
        for (uint16_t& half : *halves)
            if ((half & 0x7c00) == 0x7c00) half &= 0xbfff;  // no infinities, no NaN
        for (const RowType type : {RowType::f16, RowType::bf16})
            add(type == RowType::f16 ? "load_row float16" : "load_row bfloat16", n, timed,
                [=](const Kernels& k, auto& out) { k.load_row(halves->data(), type, n, room<float>(out, n)); });
    }

    void hadamard(size_t n) {
        const auto x = floats(n);
        add("hadamard", n, 1024, [=](const Kernels& k, auto& out) {
            std::memcpy(room<float>(out, n), x->data(), n * sizeof(float));
            k.hadamard(reinterpret_cast<float*>(out.data()), n);
        });
    }

    void row_dots(size_t n) {
        const auto wide = floats(n), queries = floats(8 * n);
        const auto doubles = std::make_shared<std::vector<double>>(wide->begin(), wide->end());
        const auto halves = whole<uint16_t>(n, 0x3800, 0x4200);  // 0.5 to 3 in float16, small in bfloat16
        for (uint16_t& half : *halves) half |= static_cast<uint16_t>(random_() << 15);
        const struct {
            const char* name;
            RowType type;
        } types[] = {{"float32", RowType::f32},
                     {"float64", RowType::f64},
                     {"float16", RowType::f16},
                     {"bfloat16", RowType::bf16}};
        for (const auto& [name, type] : types)
            for (const size_t count : {1, 2, 3, 4, 8})
                add(
                    "dots " + std::string(name) + " x" + std::to_string(count), n, 576,
                    [=, type = type](const Kernels& k, auto& out) {
                        const float* pieces[8];
                        for (size_t q = 0; q < count; ++q) pieces[q] = queries->data() + q * n;
                        const void* row = type == RowType::f32   ? static_cast<const void*>(wide->data())
                                          : type == RowType::f64 ? static_cast<const void*>(doubles->data())
                                                                 : halves->data();
                        float* sums = room<float>(out, count);
                        for (size_t q = 0; q < count; ++q) sums[q] = static_cast<float>(q);
                        k.dots(row, type, pieces, count, n, sums);
                    },
                    true);
    }

    void weighted_sum(size_t n) {
        const auto halves = whole<uint16_t>(64 * n, 0x3800, 0x4200);  // small numbers in bfloat16
        for (const size_t count : {1, 5, 64})
            for (const RowType type : {RowType::f32, RowType::bf16}) {
                const auto rows = floats(count * n), weights = floats(count), start = floats(n);
                const std::string name = type == RowType::f32 ? "weighted_sum x" : "weighted_sum bfloat16 x";
                add(name + std::to_string(count), n, 576, [=](const Kernels& k, auto& out) {
                    std::vector<const void*> list(count);
                    for (size_t j = 0; j < count; ++j)
                        list[j] = type == RowType::f32 ? static_cast<const void*>(rows->data() + j * n)
                                                       : halves->data() + j * n;
                    std::memcpy(room<float>(out, n), start->data(), n * sizeof(float));
                    k.weighted_sum(list.data(), type, weights->data(), count, n, reinterpret_cast<float*>(out.data()));
                });
            }
    }

    void round_row(size_t n) {
        const auto bits = whole<uint32_t>(n, INT32_MIN, INT32_MAX);  // any float there is
        const uint64_t key = random_();
        add("round_row", n, 576, [=](const Kernels& k, auto& out) {
            std::vector<float> row(n);
            std::memcpy(row.data(), bits->data(), n * sizeof(float));
            k.round_row(row.data(), 3, n, key, room<uint16_t>(out, n));
        });
    }

    void panel_products(size_t depth) {
        for (const size_t count : {1, 5, 12, 31})
            for (const size_t panels : {1, 2, 5}) {
                const size_t width = panels * kPanel;
                const auto left = floats(count * depth), right = floats(depth * width), start = floats(count * width);
                const std::string size = std::to_string(count) + " x " + std::to_string(width);
                add(
                    "row_panels " + size, depth, 256,
                    [=](const Kernels& k, auto& out) {
                        std::vector<const float*> rows(count);
                        for (size_t i = 0; i < count; ++i) rows[i] = left->data() + i * depth;
                        k.row_panels(rows.data(), count, right->data(), panels, depth, room<float>(out, count * width),
                                     width);
                    },
                    true);
                add(
                    "column_panels " + size, depth, 256,
                    [=](const Kernels& k, auto& out) {
                        float* sums = room<float>(out, count * width);
                        std::memcpy(sums, start->data(), count * width * sizeof(float));
                        k.column_panels(left->data(), count, count, right->data(), panels, depth, sums, width);
                    },
                    true);
            }
    }

    // What comes out is in two parts, the line and what it is added to.
    void class_shares(size_t n) {
        const auto x = floats(n, 20), shift = floats(n), start = floats(n);
        for (size_t i = 0; i < n; ++i) (*shift)[i] = (*x)[i] + (*shift)[i] * (*shift)[i];
        (*x)[1] = -INFINITY, (*x)[2] = (*shift)[2], (*x)[3] = -200, (*x)[4] = 200;
        const auto both = [=](auto& out) {
            float* line = room<float>(out, 3 * n);
            for (size_t part = 0; part < 3; ++part)
                std::memcpy(line + part * n, (part ? start : x)->data(), n * sizeof(float));
            return line;
        };
        add("finish_logits", n, 256, [=](const Kernels& k, auto& out) {
            float* line = both(out);
            k.finish_logits(line, 0.3f, 1.7f, 2.5f, n, line + n);
        });
        for (const bool squares : {false, true}) {
            add(squares ? "exponentials, squares" : "exponentials", n, 256, [=](const Kernels& k, auto& out) {
                float* line = both(out);
                k.exponentials(line, shift->data(), n, line + n, squares ? line + 2 * n : nullptr);
            });
            add(squares ? "logistic_shares, squares" : "logistic_shares", n, 256, [=](const Kernels& k, auto& out) {
                float* line = both(out);
                line[2 * n - 1] = k.logistic_shares(line, 1.5f, n, line + n, squares ? line + 2 * n : nullptr);
            });
        }
        add("softmax_shares", n, 256, [=](const Kernels& k, auto& out) {
            float* line = both(out);
            std::memcpy(line, start->data(), n * sizeof(float));
            line[2 * n] = k.softmax_shares(line, shift->data(), line + n, 0.25f, n);
        });
    }

    void row_rules(size_t n) {
        const auto weight = floats(n), first = floats(n), gradient = floats(n);
        for (float& value : *first) value = value < 0 ? -value : value;  // Adagrad takes its root
        const auto rule_case = [&](const char* name, RowRule rule) {
            add(std::string("apply_rule ") + name, n, 576, [=](const Kernels& k, auto& out) {
                float* to = room<float>(out, 3 * n);
                std::memcpy(to, weight->data(), n * sizeof(float));
                std::memcpy(to + n, first->data(), n * sizeof(float));
                std::memcpy(to + 2 * n, first->data(), n * sizeof(float));
                k.apply_rule(rule, to, to + n, to + 2 * n, gradient->data(), n);
            });
        };
        RowRule rule;
        rule.step = 0.1f, rule.scale = -0.3f;
        rule_case("sgd", rule);
        rule.weight_decay = 0.01f, rule.first_decay = 0.9f;
        rule_case("momentum", rule);
        rule.nesterov = true;
        rule_case("nesterov", rule);
        rule.kind = RowRule::adagrad, rule.eps = 1e-6f;
        rule_case("adagrad", rule);
        rule.kind = RowRule::adam, rule.second_decay = 0.999f, rule.second_share = 0.001f, rule.first_share = 0.1f;
        rule.keep = 0.99f, rule.correction = 0.3f;
        rule_case("adam", rule);
    }

    void cell_dots(size_t width) {
        constexpr size_t cells = 67;
        const auto centres = whole<int8_t>(cells * width, -128, 127);
        const auto sums = std::make_shared<std::vector<int32_t>>(cells, 0);
        for (size_t i = 0; i < cells * width; ++i) (*sums)[i / width] += (*centres)[i];
        const auto vectors = whole<int16_t>(4 * width, -127, 127);
        for (const size_t count : {1, 2, 3, 4})
            add("cell_dots x" + std::to_string(count), width, 576, [=](const Kernels& k, auto& out) {
                const int16_t* from[4];
                int32_t* to[4];
                std::memset(room<int32_t>(out, count * cells), 0, count * cells * sizeof(int32_t));
                for (size_t v = 0; v < count; ++v) {
                    from[v] = vectors->data() + v * width;
                    to[v] = reinterpret_cast<int32_t*>(out.data()) + v * cells;
                }
                k.cell_dots({centres->data(), sums->data(), width}, 2, cells, from, count, to);
            });
    }

    void nearest_cell(size_t cells) {
        const auto products = whole<int32_t>(cells, -3, 3);  // so few that many tie
        const auto biases = std::make_shared<std::vector<double>>(cells, 0.5), offsets = biases;
        add("nearest_cell", cells, 3906, [=](const Kernels& k, auto& out) {
            *room<uint64_t>(out, 1) =
                k.nearest_cell(products->data(), 0.25, -1.5, biases->data(), offsets->data(), cells);
        });
    }

    void winners(size_t window) {
        constexpr size_t features = 100, groups = 3;
        const size_t code_bits = static_cast<size_t>(__builtin_ctzll(window)), planes = 12 / code_bits;
        const auto offsets = whole<uint32_t>(groups * planes * window, 0, features - 1);
        const auto narrow = whole<int16_t>(2 * (features + 15), -2047, 2047);
        const auto wide = whole<int32_t>(2 * (features + 15), -1 << 26, 1 << 26);
        for (int16_t& key : *narrow) key = static_cast<int16_t>(random_() % 3 ? key * 16 : 0);
        for (int32_t& key : *wide) key = random_() % 3 ? key * 16 : 0;
        for (const bool exact : {false, true})
            for (const bool detailed : {false, true}) {
                const std::string name = std::string(exact ? "exact_winners" : "fast_winners");
                add(name + (detailed ? " with detail" : ""), window, 16, [=](const Kernels& k, auto& out) {
                    const WindowPlan plan{offsets->data(), groups, planes, window, code_bits, 2, features + 15};
                    constexpr size_t bands = groups * 16;
                    const size_t codes = bands * planes;
                    out.assign(bands * 4 + codes * 4 + bands, 0);
                    auto* buckets = reinterpret_cast<uint32_t*>(out.data());
                    uint8_t* rest = out.data() + bands * 4;
                    const WinnerDetail detail{rest + 2 * codes, rest + 3 * codes, reinterpret_cast<uint16_t*>(rest),
                                              rest + 4 * codes};
                    if (exact)
                        k.exact_winners(plan, wide->data(), buckets, detailed ? &detail : nullptr);
                    else
                        k.fast_winners(plan, narrow->data(), buckets, detailed ? &detail : nullptr);
                });
            }
    }

    // Queries of every size: the last one's levels are all as large as they may be.
    void sketches(size_t bits) {
        constexpr size_t blocks = 37, queries = kScanTile;
        const size_t block_bytes = bits / 8 * kBlock + 4 * kBlock;
        const auto data = whole<uint8_t>(blocks * block_bytes, 0, 255);
        const auto ids = whole<uint32_t>(blocks * kBlock, 0, 1 << 30);
        for (uint32_t& id : *ids)
            if (random_() % 16 == 0) id = kNoClass;
        const auto levels = whole<int8_t>(queries * bits, -7, 7);
        for (size_t i = 0; i < bits; ++i) {
            (*levels)[i] /= 3, (*levels)[bits + i] /= 3;
            (*levels)[(queries - 1) * bits + i] = random_() % 2 ? 7 : -7;
        }
        int gain = 0;
        while ((static_cast<size_t>(kQueryLevels) * bits << (gain + 1)) <= 32767) ++gain;
        for (const size_t count : {1, 2, 3, 4})
            for (const int floor : {-32768, 100, 27000})
                for (const bool calm : {true, false}) {
                    const std::string name = std::string("scan_sketch") + (calm ? "" : ", large levels,") + " x" +
                                             std::to_string(count) + " above " + std::to_string(floor);
                    const bool timed = floor == 27000 && calm && (bits == 512 || bits == 1024);
                    add(name, bits, timed ? bits : 0, scan_case({data, ids, levels, bits, gain, count, floor, calm}));
                }
        add("fill_scan_tables", bits, 1024, [=](const Kernels& k, auto& out) {
            std::vector<uint8_t> tables(k.scan_table_bytes(bits));
            k.fill_scan_tables(levels->data(), bits, tables.data());
            std::memcpy(room<uint8_t>(out, bits * 4), tables.data(), bits * 4);  // the rest is the set's own affair
        });
        const auto planes = whole<uint8_t>(4 * ((bits / 8 + 7) & ~size_t{7}), 0, 255);
        add("sketch_score", bits, 1024, [=](const Kernels& k, auto& out) {
            int32_t* scores = room<int32_t>(out, 32);
            for (size_t i = 0; i < 32; ++i) scores[i] = k.sketch_score(data->data() + i, planes->data(), bits / 8, 17);
        });
    }

    struct ScanCase {
        Shared<uint8_t> data;
        Shared<uint32_t> ids;
        Shared<int8_t> levels;
        size_t bits;
        int gain;
        size_t count;
        int floor;
        bool calm;
    };

    // Until all blocks are done, with lists that are full now and then: where a pass stopped is part of what it gives.
    std::function<void(const Kernels&, std::vector<uint8_t>&)> scan_case(const ScanCase& in) {
        const size_t blocks = in.ids->size() / kBlock, capacity = 6 * kBlock + 11;
        // Tables are each instruction set's own, and are filled once.
        const auto tables_of = [=](const Kernels& k) {
            std::vector<std::vector<uint8_t>> tables(in.count);
            for (size_t q = 0; q < in.count; ++q) {
                tables[q].resize(k.scan_table_bytes(in.bits));
                const size_t own = in.calm ? q % 2 : q + kScanTile - in.count;
                k.fill_scan_tables(in.levels->data() + own * in.bits, in.bits, tables[q].data());
            }
            return tables;
        };
        auto filled = std::make_shared<std::map<const Kernels*, std::vector<std::vector<uint8_t>>>>();
        return [=](const Kernels& k, std::vector<uint8_t>& out) {
            const ScanPlan plan{in.data->data(), in.bits, in.bits / 8 * kBlock + 4 * kBlock, in.gain, in.ids->data()};
            if (!filled->count(&k)) (*filled)[&k] = tables_of(k);
            const auto& tables = (*filled)[&k];
            uint64_t kept[kScanTile][6 * kBlock + 11];
            ScanQuery scans[kScanTile];
            for (size_t q = 0; q < in.count; ++q)
                scans[q] = {tables[q].data(),
                            static_cast<int16_t>(20000 + q),
                            static_cast<int16_t>(9000 * q),
                            static_cast<int16_t>(in.floor),
                            kept[q],
                            0,
                            capacity};
            out.clear();
            const auto note = [&](const void* what, size_t bytes) {
                const auto* from = static_cast<const uint8_t*>(what);
                out.insert(out.end(), from, from + bytes);
            };
            for (size_t at = 1, before = 0; at < blocks;) {
                at = k.scan_sketch(plan, scans, in.count, at, blocks);
                note(&at, sizeof at);
                for (size_t q = 0; q < in.count; ++q)
                    note(kept[q] + before, (scans[q].count - before) * sizeof(uint64_t));
                before = at % 7 * 21;
                for (size_t q = 0; q < in.count; ++q) scans[q].count = before;
            }
        };
    }

    void counters() {
        for (const size_t n : {0, 5, 32, 33, 100, 5000}) {
            const auto counts = whole<uint16_t>(n, 0, 300);
            add("scan_counters", n, 5000, [=](const Kernels& k, auto& out) {
                uint64_t* kept = room<uint64_t>(out, 400);
                std::memset(kept, 0, out.size());
                size_t count = 3;
                kept[398] = k.scan_counters(counts->data(), 0, n, 290, 77, kept, &count, 390);
                kept[399] = count;
            });
        }
    }

    std::mt19937 random_{11};
    std::vector<KernelCase> cases_;
};

}  // namespace manyclass
