#include "bench/common/trace.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace vuda::bench {
namespace {

double rounded(double ms) { return std::round(ms * 1e3) / 1e3; }

}  // namespace

nlohmann::ordered_json Trace::to_json() const {
    auto json = nlohmann::ordered_json::array();
    for (const Entry& entry : entries_)
        json.push_back({rounded(ms_between(Clock::time_point{}, entry.end)), rounded(entry.ms)});
    return json;
}

}  // namespace vuda::bench
