#include "exact_logits.h"

#include <algorithm>

#include "kernels.h"
#include "prefetch.h"
#include "thread_pool.h"

namespace manyclass {
namespace {

// A dot product is summed in pieces of this size: those of 64 queries take 512 KiB, about what an L2 cache holds.
constexpr size_t kFeatureBlock = 2048;

class ExactLogits {
public:
    ExactLogits(const ExactWork& work, SearchScratch& scratch)
        : rows_(work.rows),
          bias_(work.bias),
          classes_(work.classes),
          queries_(work.queries),
          count_(work.count),
          threads_(work.threads),
          kernels_(kernels()),
          ids_(scratch.ids),
          logits_(scratch.logits),
          starts_(scratch.starts),
          next_(scratch.next),
          pairs_(scratch.pairs),
          sums_(scratch.sums) {}

    void run() {
        size_t pairs = 0;
        for (size_t q = 0; q < count_; ++q) {
            logits_[q].resize(ids_[q].size());
            pairs += ids_[q].size();
        }
        if (count_ > 1 && pairs > classes_ / 2) return score_by_class(pairs);
        const size_t splits = count_ < threads_ ? threads_ : 1;
        parallel_for(count_ * splits, threads_, [&](size_t task, size_t) {
            const size_t q = task / splits, n = ids_[q].size();
            score_slice(q, n * (task % splits) / splits, n * (task % splits + 1) / splits);
        });
    }

private:
    const float* query(size_t q) const { return queries_ + q * rows_.features; }

    void score_slice(size_t q, size_t begin, size_t end) {
        const size_t bytes = rows_.row_bytes(), ahead = std::max<size_t>(1, 8192 / bytes);
        const std::vector<uint32_t>& ids = ids_[q];
        for (size_t i = begin; i < std::min(end, begin + ahead); ++i) prefetch_row(rows_.row(ids[i]), bytes);
        for (size_t i = begin; i < end; ++i) {
            if (i + ahead < end) prefetch_row(rows_.row(ids[i + ahead]), bytes);
            logits_[q][i] = logit(query(q), ids[i]);
        }
    }

    float logit(const float* x, uint32_t id) const {
        const auto* row = static_cast<const std::byte*>(rows_.row(id));
        const size_t piece_bytes = rows_.row_bytes() / rows_.features * kFeatureBlock;
        float sum = 0;
        for (size_t at = 0; at < rows_.features; at += kFeatureBlock, row += piece_bytes) {
            const float* piece = x + at;
            kernels_.dots(row, rows_.type, &piece, 1, std::min(kFeatureBlock, rows_.features - at), &sum);
        }
        return sum + bias_[id];
    }

    // Each row is read once for all the queries that want it: pairs sorted by class, features in pieces that keep the
    // queries in cache. Gives the same sums as logit().
    void score_by_class(size_t pairs) {
        const size_t classes = classes_, features = rows_.features;
        starts_.assign(classes + 1, 0);
        for (size_t q = 0; q < count_; ++q)
            for (const uint32_t id : ids_[q]) ++starts_[id + 1];
        for (size_t id = 0; id < classes; ++id) starts_[id + 1] += starts_[id];
        pairs_.resize(pairs);
        sums_.assign(pairs, 0.0f);
        next_.assign(starts_.begin(), starts_.end() - 1);
        for (uint32_t q = 0; q < count_; ++q)
            for (const uint32_t id : ids_[q]) pairs_[next_[id]++] = q;
        const size_t slices = threads_ * 4;
        parallel_for(slices, threads_, [&](size_t slice, size_t) {
            const auto boundary = [&](size_t s) {
                return static_cast<size_t>(std::lower_bound(starts_.begin(), starts_.end(), pairs * s / slices) -
                                           starts_.begin());
            };
            const size_t begin = boundary(slice), end = slice + 1 == slices ? classes : boundary(slice + 1);
            // Few queries stay in cache whole: read each row once from end to end. Many do not: piece by piece.
            const bool whole_rows = count_ * features <= kQueryBlock * kFeatureBlock;
            const size_t stretch = whole_rows ? features : kFeatureBlock;
            for (size_t at = 0; at < features; at += stretch)
                for (size_t id = begin; id < end; ++id) dots_of_class(id, end, at, std::min(stretch, features - at));
        });
        for (uint32_t q = 0; q < count_; ++q)
            for (size_t i = 0; i < ids_[q].size(); ++i) {
                const uint32_t id = ids_[q][i];
                logits_[q][i] = sums_[starts_[id]++] + bias_[id];
            }
    }

    void dots_of_class(size_t id, size_t end, size_t at, size_t length) {
        const size_t first = starts_[id], n = starts_[id + 1] - first, element = rows_.row_bytes() / rows_.features;
        if (!n || n > kQueryBlock) return;
        size_t next = id + 1;
        while (next < end && starts_[next + 1] == starts_[next]) ++next;
        const auto row_at = [&](size_t row) { return static_cast<const std::byte*>(rows_.row(row)) + at * element; };
        const float* pieces[kQueryBlock];  // a query asks for a class once, so they fit
        for (size_t done = 0; done < length; done += kFeatureBlock) {
            const size_t piece = std::min(kFeatureBlock, length - done);
            // The next class's row, while this one is worked on: pieces are too short for the hardware to catch up.
            if (next < end)
                for (size_t byte = done * element; byte < (done + piece) * element; byte += 64)
                    __builtin_prefetch(row_at(next) + byte, 0, 2);
            for (size_t i = 0; i < n; ++i) pieces[i] = query(pairs_[first + i]) + at + done;
            kernels_.dots(row_at(id) + done * element, rows_.type, pieces, n, piece, sums_.data() + first);
        }
    }

    const RowsView& rows_;
    const float* bias_;
    size_t classes_;
    const float* queries_;
    size_t count_, threads_;
    const Kernels& kernels_;
    const std::vector<std::vector<uint32_t>>& ids_;
    std::vector<std::vector<float>>& logits_;
    std::vector<uint32_t>&starts_, &next_, &pairs_;  // candidates sorted by class
    std::vector<float>& sums_;
};

}  // namespace

void exact_logits(const ExactWork& work, SearchScratch& scratch) {
    ExactLogits(work, scratch).run();
}

}  // namespace manyclass
