// Two runs compared by what they did: handles are replaced by names, times, fds and addresses left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/record.h"

namespace vuda::trace {

struct DiffLine {
    enum class Side : uint8_t { kOnlyA, kOnlyB };
    Side side = Side::kOnlyA;
    size_t record = 0;  // index into that trace's records
    std::string text;   // the record in words

    bool operator==(const DiffLine&) const = default;
};

// The smallest set of records to take out of `a` and put in from `b` to make them say the same, in order of their
// places. RESOURCE_EXHAUSTED when more than `limit` records differ.
Result<std::vector<DiffLine>> diff(const Trace& a, const Trace& b, size_t limit = 4000);

}  // namespace vuda::trace
