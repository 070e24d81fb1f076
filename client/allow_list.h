// Who may attach to a name beside its owner's user and root, as the owner states it when it registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vuda::client {

inline constexpr size_t kAllowLimit = 64;  // users, and groups; vuda.v1.RegisterRequest

// Numeric ids. Both empty: nobody else.
struct AllowList {
    std::vector<uint32_t> uids;
    std::vector<uint32_t> gids;
    bool operator==(const AllowList&) const = default;
};

// "1000,1001": decimal ids, each 0 to 4294967294, at most kAllowLimit, nothing else between the commas; "" is no id.
// `variable` names the text in the error.
Result<std::vector<uint32_t>> parse_ids(const std::string& variable, std::string_view text);

// Of VUDA_ALLOW_UIDS and VUDA_ALLOW_GIDS. A mistake in either is an error of both: half a list is nobody's intention.
Result<AllowList> parse_allow_list(std::string_view uids, std::string_view gids);

// INVALID_ARGUMENT: more than kAllowLimit of a kind, or the id that stands for none ((uid_t)-1).
Status check_allow_list(const AllowList& list);

}  // namespace vuda::client
