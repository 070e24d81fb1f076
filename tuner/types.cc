#include "tuner/types.h"

#include <cmath>
#include <string>

namespace vuda::tuner {
namespace {

std::string limit_text(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

Error invalid(std::string text, std::string hint = {}) {
    return {Code::kInvalidArgument, std::move(text), std::move(hint)};
}

// 0 stands for "none"; NaN and infinities fail every comparison that lets a value pass.
Status check_bound(const char* name, double value, double least, double most) {
    if (value == 0) return {};
    if (value >= least && value <= most) return {};
    return invalid(std::string(name) + " " + limit_text(value) + " is out of range",
                   "from " + limit_text(least) + " to " + limit_text(most) + ", or 0 for none");
}

Status check_miss(const char* name, double miss, bool has_bound) {
    if (!(miss >= 0 && miss < 1))
        return invalid(std::string(name) + " " + limit_text(miss) + " is out of range", "a fraction, 0 up to below 1");
    if (miss > 0 && !has_bound)
        return invalid(std::string(name) + " needs the bound that may be missed", "give both, or neither");
    return {};
}

}  // namespace

Status Ladder::validate() const {
    if (tpcs.empty()) return invalid("the ladder has no level");
    if (tpcs.size() > kMaxLevels)
        return invalid("the ladder has " + std::to_string(tpcs.size()) + " levels",
                       "at most " + std::to_string(kMaxLevels));
    if (total_tpcs > kMaxTpcs) return invalid("a GPU with " + std::to_string(total_tpcs) + " TPCs");
    uint32_t before = 0;
    for (const uint32_t level : tpcs) {
        if (level <= before)
            return invalid("the ladder's levels do not ascend from 1: " + std::to_string(before) + ", " +
                           std::to_string(level));
        before = level;
    }
    if (before > (total_tpcs == 0 ? kMaxTpcs - 1 : total_tpcs))
        return invalid("level " + std::to_string(before) + " is above the GPU's TPCs");
    return {};
}

Status GraphicsTarget::validate() const {
    if (Status bound = check_bound("frame_ms", frame_ms, 0.1, 60'000); !bound) return bound;
    return check_miss("frame_miss", miss, frame_ms > 0);
}

Status ComputeTarget::validate() const {
    if (Status bound = check_bound("latency_ms", latency_ms, 0.001, 600'000); !bound) return bound;
    if (Status bound = check_bound("throughput", throughput, 1e-4, 1e9); !bound) return bound;
    return check_miss("latency_miss", latency_miss, latency_ms > 0);
}

Status validate_weight(double weight) {
    if (weight >= kMinWeight && weight <= kMaxWeight) return {};
    return invalid("weight " + limit_text(weight) + " is out of range",
                   "from " + limit_text(kMinWeight) + " to " + limit_text(kMaxWeight));
}

}  // namespace vuda::tuner
