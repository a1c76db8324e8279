// Searches while another thread refreshes, appends and removes: run under ThreadSanitizer (tests/test_sanitizers.py).
//
// Every row is scale * pattern, with one of two patterns of its class and one of a few scales. So each logit that a
// search returns must be scale * (query · pattern) for one such pair: anything else is a torn row. And when a class's
// two patterns are searched together, one of them must find it: it is always in its old bucket or in its new one.
//
// Longer than our usual file because it is a program of its own, built and run as one.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../../cpp/class_tree.h"
#include "../../cpp/row_update.h"
#include "../../cpp/thread_pool.h"
#include "small_index.h"

using namespace manyclass;

namespace {

float dot(const float* a, const float* b) {
    return std::inner_product(a, a + kFeatures, b, 0.0f);
}

class Run {
public:
    Run(const Pipeline& pipeline, size_t rounds)
        : pipeline_(pipeline), rounds_(rounds), random_(7), rows_(random_), index_(make_index(pipeline, random_)) {
        build(pipeline_, rows_, random_, index_);
    }

    void run() {
        std::thread first([this] { search(1); }), second([this] { search(2); }), codes([this] { look_on(); });
        for (size_t round = 0; round < rounds_; ++round) {
            update(round);
            while (searches_ < round) std::this_thread::yield();  // as many searches as updates
        }
        done_ = true;
        first.join();
        second.join();
        codes.join();
        if (index_.classes() != kClasses + kSpare) fail(pipeline_, "appended classes are missing", index_.classes());
        std::printf("%s: %zu rounds, %zu searches\n", pipeline_.name, rounds_, searches_.load());
    }

private:
    // The first half of the classes is only refreshed, so it stays findable; the second half is removed bit by bit.
    void update(size_t round) {
        const size_t count = 1 + round % 33;
        std::vector<int64_t> ids;
        std::vector<float> fresh, bias;
        for (size_t i = 0; i < count; ++i) {
            const size_t id = (round * 37 + i) % kClasses;
            const float scale = kScales[(round + id) % std::size(kScales)];
            const float* pattern = rows_.pattern(id, (round / 2 + id) % 2);
            ids.push_back(static_cast<int64_t>(id));
            for (size_t j = 0; j < kFeatures; ++j) fresh.push_back(scale * pattern[j]);
            bias.push_back(0.0f);
        }
        const size_t threads = 1 + round % 5;
        index_.refresh(ids, round % 3 ? nullptr : bias.data(), reinterpret_cast<const std::byte*>(fresh.data()),
                       threads);
        if (round % 4 == 0) {
            ids.resize(1);
            index_.refresh(ids, nullptr, nullptr, threads);  // re-hash in place
            if (index_.first_bad_row(ids, threads) != 1) fail(pipeline_, "a good row is called bad", 0);
        }
        if (index_.classes() < kClasses + kSpare && (round % 3 == 0 || round + 1 == rounds_)) {
            const size_t left = kClasses + kSpare - index_.classes();
            index_.append(round + 1 == rounds_ ? left : std::min(kAppend, left), nullptr, threads);
            index_.bind_rows(rows_.view());
        }
        if (round % 5 == 0) {
            const int64_t gone = static_cast<int64_t>(kClasses / 2 + round / 5 % (kClasses / 2));
            index_.remove({&gone, 1});
            removed_[static_cast<size_t>(gone)].store(true);
        }
    }

    void search(size_t seed) {
        const size_t k = pipeline_.candidates, most = 70;
        std::vector<int64_t> classes(most * k), ids(most * k);
        std::vector<float> logits(most * k), id_logits(most * k), log_probs(most * k), queries;
        for (size_t turn = 0; !done_ || turn < 3; ++turn) {
            // More than one block of 64, a few, or one; each class by both its patterns, in the same block.
            const size_t count = turn % 7 == 0 ? most : 2 + turn % 3 * 2;
            queries.clear();
            const auto wanted = [&](size_t q) { return (turn * 13 + seed * 31 + q / 2 * 5) % (kClasses / 2); };
            for (size_t q = 0; q < count; ++q) {
                const float* pattern = rows_.pattern(wanted(q), q % 2);
                queries.insert(queries.end(), pattern, pattern + kFeatures);
            }
            const auto gone = snapshot();
            const size_t cells = pipeline_.cells ? pipeline_.cells - 1 : 0;  // all but the empty one
            const SearchPlan plan{k, pipeline_.keep, pipeline_.probes, cells, 1 + (turn + seed) % 4};
            const SearchStatus status =
                index_.search(queries.data(), count, plan,
                              {classes.data(), logits.data(), log_probs.data(), ids.data(), id_logits.data(), k});
            if (status.problem != SearchStatus::none) fail(pipeline_, "a good query is called bad", status.query);
            for (size_t q = 0; q < count; ++q) {
                const int64_t* found = ids.data() + q * k;
                check_row(queries.data() + q * kFeatures, found, id_logits.data() + q * k, gone);
                if (classes[q * k] >= 0 && !std::count(found, found + k, classes[q * k]))
                    fail(pipeline_, "the best class is not a candidate", wanted(q));
                if (q % 2 && !std::count(found - k, found + k, static_cast<int64_t>(wanted(q))))
                    fail(pipeline_, "a class in neither its old nor its new bucket", wanted(q));
            }
            ++searches_;
        }
    }

    std::vector<bool> snapshot() const {
        std::vector<bool> gone(kClasses + kSpare);
        for (size_t id = 0; id < gone.size(); ++id) gone[id] = removed_[id].load();
        return gone;
    }

    void check_row(const float* query, const int64_t* ids, const float* logits, const std::vector<bool>& gone) const {
        for (size_t i = 0; i < pipeline_.candidates && ids[i] >= 0; ++i) {
            const auto id = static_cast<size_t>(ids[i]);
            if (id >= kClasses + kSpare) fail(pipeline_, "an id that never existed", id);
            if (gone[id]) fail(pipeline_, "a removed class came back", id);
            if (i && ids[i] <= ids[i - 1]) fail(pipeline_, "candidates are not ascending", id);
            bool whole = false;
            for (size_t version = 0; version < 2; ++version)
                for (const float scale : kScales)
                    whole |= std::fabs(logits[i] - scale * dot(query, rows_.pattern(id, version))) <= 1e-3f;
            if (!whole) fail(pipeline_, "a torn row", id);
        }
    }

    // Whoever saves or inspects the index reads beside the updates.
    void look_on() {
        std::vector<uint16_t> votes(kClasses + kSpare);
        while (!done_) {
            if (pipeline_.bands) index_.votes(rows_.pattern(3, 0), votes.data(), votes.size());
            if (index_.bytes().norms_and_biases == 0) fail(pipeline_, "the index takes no memory", 0);
            if (pipeline_.scan_bits) index_.outliers(), index_.scan_scales();
            index_.always();
            std::this_thread::yield();
        }
    }

    const Pipeline& pipeline_;
    const size_t rounds_;
    std::mt19937 random_;
    Rows rows_;
    Index index_;
    std::atomic<bool> done_{false};
    std::atomic<size_t> searches_{0};
    std::atomic<bool> removed_[kClasses + kSpare] = {};
};

// The pool must stay right while it grows and when rounds of many threads alternate with rounds of few: a thread that
// comes late may not take part in a round it does not belong to.
void change_the_number_of_threads() {
    for (size_t round = 0; round < 1600; ++round) {
        const size_t threads = round % 2 ? 2 : 2 + round / 64;
        std::vector<std::atomic<int>> done(64);
        parallel_for(done.size(), threads, [&](size_t task, size_t worker) {
            if (worker >= threads || done[task]++) {
                std::fprintf(stderr, "task %zu on worker %zu of %zu, or twice\n", task, worker, threads);
                std::exit(1);
            }
            if (task % 5 == 0) std::this_thread::yield();
        });
        for (const auto& times : done)
            if (times != 1) {
                std::fprintf(stderr, "a task was not done with %zu threads\n", threads);
                std::exit(1);
            }
    }
}

// Each row has one writer, so any number of threads gives what one thread gives.
void update_rows_on_several_threads() {
    constexpr size_t kRows = 9000, kWidth = 31;
    std::vector<int64_t> ids;
    for (size_t id = 0; id < kRows; ++id)
        if (id % 3) ids.push_back(static_cast<int64_t>(id));
    const std::vector<float> gradient(ids.size() * kWidth, 0.25f);
    RowRule rule;
    rule.kind = RowRule::adam;
    rule.step = 0.5f, rule.eps = 1e-3f, rule.first_decay = 0.75f, rule.second_decay = 0.5f;
    std::vector<float> expected;
    for (const size_t threads : {1, 2, 5}) {
        std::vector<float> weight(kRows * kWidth), first(weight), second(weight);
        for (size_t round = 0; round < 3; ++round)
            update_rows(rule, {{weight.data()}, {first.data()}, {second.data()}, kWidth}, ids.data(), ids.size(),
                        gradient.data(), threads);
        if (expected.empty()) expected = weight;
        if (weight != expected || weight[0] != 0 || weight[kWidth] == 0) {
            std::fprintf(stderr, "rows updated by %zu threads differ\n", threads);
            std::exit(1);
        }
    }
}

// Paths, probabilities and searches of a class tree, from several callers and on several threads each.
void walk_the_class_tree_on_several_threads() {
    constexpr size_t kLeaves = 3000, kInputs = 70, kBest = 5;
    std::mt19937 random(3);
    std::vector<int64_t> counts(kLeaves), targets(kLeaves);
    for (int64_t& count : counts) count = static_cast<int64_t>(random() % 50);
    std::iota(targets.begin(), targets.end(), -1);
    const ClassTree tree(counts);
    std::normal_distribution<float> normal;
    std::vector<float> rows(tree.nodes() * kFeatures), input(kInputs * kFeatures);
    for (float& value : rows) value = normal(random);
    for (float& value : input) value = normal(random);
    const TreeWeights weights{rows.data(), nullptr, kFeatures};

    struct Found {
        std::vector<int64_t> nodes, classes;
        std::vector<int8_t> sides;
        std::vector<float> all, best;
        bool operator==(const Found&) const = default;
    };
    const auto walk = [&](size_t threads) {
        const size_t steps = kLeaves * tree.depth();
        Found found{std::vector<int64_t>(steps), std::vector<int64_t>(kInputs * kBest), std::vector<int8_t>(steps),
                    std::vector<float>(kInputs * kLeaves), std::vector<float>(kInputs * kBest)};
        tree.paths(targets, found.nodes.data(), found.sides.data(), threads);
        tree.log_probs(weights, input.data(), kInputs, found.all.data(), threads);
        tree.topk(weights, input.data(), kInputs, kBest, found.classes.data(), found.best.data(), threads);
        return found;
    };
    const Found expected = walk(1);
    std::vector<std::thread> callers;
    for (size_t threads = 2; threads < 5; ++threads)
        callers.emplace_back([&, threads] {
            if (walk(threads) == expected) return;
            std::fprintf(stderr, "a class tree walked by %zu threads differs\n", threads);
            std::exit(1);
        });
    for (std::thread& caller : callers) caller.join();
}

}  // namespace

int main(int argc, char** argv) {
    const size_t rounds = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 100;
    const std::string only = argc > 2 ? argv[2] : "";
    change_the_number_of_threads();
    update_rows_on_several_threads();
    walk_the_class_tree_on_several_threads();
    for (const Pipeline& pipeline : kPipelines)
        if (only.empty() || only == pipeline.name) Run(pipeline, rounds).run();
    return 0;
}
