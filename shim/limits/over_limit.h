// What becomes of kernels that want more shared memory a block than may run beside graphics (scg_limit.h). Each process
// chooses for itself: `vudactl run --over-limit`, VUDA_OVER_LIMIT, vuda_set_over_limit(). Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace vuda::limits {

// vuda.v1.OverLimit, enum vuda_over_limit
enum class OverLimit : uint32_t {
    kReject = 1,   // not run; the call that launched it fails (launch_guard.h)
    kUnshare = 2,  // likewise, and the next context does not share: there everything runs
    kNative = 3,   // runs in a TSG of CUDA's own in the same process, where that can be had; else as kReject
};

inline constexpr OverLimit kDefaultOverLimit = OverLimit::kNative;

// What holds for a program whose libraries were told of less shared memory than the GPU has (`vudactl run
// --fit-kernels`): what they chose may be too large all the same, and then it computes wrongly wherever it runs
// (cuBLASLt's bf16 products do, docs/compatibility.md).
constexpr OverLimit over_limit_of(OverLimit asked, bool fitted) {
    return fitted && asked == OverLimit::kNative ? OverLimit::kReject : asked;
}

inline constexpr std::array<std::pair<OverLimit, std::string_view>, 3> kOverLimitNames{
    {{OverLimit::kNative, "native"}, {OverLimit::kUnshare, "unshare"}, {OverLimit::kReject, "reject"}}};

// "native", "unshare" or "reject"; empty for a number that is none of them.
constexpr std::string_view over_limit_text(OverLimit policy) {
    for (const auto& [value, name] : kOverLimitNames) {
        if (value == policy) return name;
    }
    return {};
}

// The other way; nullopt for anything else.
constexpr std::optional<OverLimit> parse_over_limit(std::string_view text) {
    for (const auto& [value, name] : kOverLimitNames) {
        if (name == text) return value;
    }
    return std::nullopt;
}

}  // namespace vuda::limits
