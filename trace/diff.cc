#include "trace/diff.h"

#include <algorithm>

#include "trace/describe.h"

namespace vuda::trace {
namespace {

std::vector<std::string> words_of(const Trace& trace) {
    Describer describer(abi_of(trace.header), Handles::kNamed);
    std::vector<std::string> out;
    out.reserve(trace.records.size());
    for (const Record& record : trace.records) out.push_back(describer.describe(record));
    return out;
}

}  // namespace

// Myers' greedy algorithm (An O(ND) difference algorithm and its variations, 1986), keeping each round's frontier so
// that the path can be walked back: memory grows with the square of the number of differences, hence the limit.
Result<std::vector<DiffLine>> diff(const Trace& trace_a, const Trace& trace_b, size_t limit) {
    const std::vector<std::string> a = words_of(trace_a);
    const std::vector<std::string> b = words_of(trace_b);
    const auto n = static_cast<int64_t>(a.size());
    const auto m = static_cast<int64_t>(b.size());
    const int64_t max = std::min<int64_t>(n + m, static_cast<int64_t>(limit));

    std::vector<std::vector<int32_t>> rounds;  // rounds[d][k + d]: furthest x on diagonal k after d differences
    const auto previous = [&rounds](int64_t d, int64_t k) -> int64_t {
        if (k < -d || k > d) return -1;
        return rounds[static_cast<size_t>(d)][static_cast<size_t>(k + d)];
    };
    int64_t found = -1;
    for (int64_t d = 0; d <= max && found < 0; ++d) {
        std::vector<int32_t> now(static_cast<size_t>(2 * d + 1), -1);
        for (int64_t k = -d; k <= d; k += 2) {
            int64_t x = 0;
            if (d > 0) {
                const int64_t from_insert = previous(d - 1, k + 1);
                const int64_t from_remove = previous(d - 1, k - 1);
                x = (k == -d || (k != d && from_remove < from_insert)) ? from_insert : from_remove + 1;
            }
            int64_t y = x - k;
            if (x > n || y > m || x < 0 || y < 0) continue;
            while (x < n && y < m && a[static_cast<size_t>(x)] == b[static_cast<size_t>(y)]) ++x, ++y;
            now[static_cast<size_t>(k + d)] = static_cast<int32_t>(x);
            if (x == n && y == m) found = d;
        }
        rounds.push_back(std::move(now));
    }
    if (found < 0) {
        return Error{Code::kResourceExhausted, "the traces differ in more than " + std::to_string(limit) + " records",
                     "are they of the same program?"};
    }

    std::vector<DiffLine> lines;
    int64_t x = n;
    int64_t y = m;
    for (int64_t d = found; d > 0; --d) {
        const int64_t k = x - y;
        const int64_t from_insert = previous(d - 1, k + 1);
        const int64_t from_remove = previous(d - 1, k - 1);
        const bool insert = k == -d || (k != d && from_remove < from_insert);
        x = insert ? from_insert : from_remove;
        y = x - (insert ? k + 1 : k - 1);
        if (insert) {
            const auto at = static_cast<size_t>(y);
            lines.push_back({DiffLine::Side::kOnlyB, at, b[at]});
        } else {
            const auto at = static_cast<size_t>(x);
            lines.push_back({DiffLine::Side::kOnlyA, at, a[at]});
        }
    }
    std::reverse(lines.begin(), lines.end());
    return lines;
}

}  // namespace vuda::trace
