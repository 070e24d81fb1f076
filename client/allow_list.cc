#include "client/allow_list.h"

#include <algorithm>
#include <charconv>

#include "client/names.h"

namespace vuda::client {
namespace {

constexpr uint32_t kNoId = UINT32_MAX;  // (uid_t)-1, (gid_t)-1

Error too_many(const std::string& what) {
    return Error{Code::kInvalidArgument, what + " has more than " + std::to_string(kAllowLimit) + " ids",
                 "allow a group instead"};
}

}  // namespace

Result<std::vector<uint32_t>> parse_ids(const std::string& variable, std::string_view text) {
    std::vector<uint32_t> ids;
    const std::string_view all = text;
    while (!text.empty()) {
        const size_t end = std::min(text.find(','), text.size());
        const std::string_view word = text.substr(0, end);
        uint32_t id = 0;
        const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
        // A comma with nothing behind it is as wrong as one with nothing before it.
        if (error != std::errc() || stop != word.data() + word.size() || id == kNoId || end + 1 == text.size()) {
            return Error{Code::kInvalidArgument,
                         variable + "='" + plain_text(all, 64) + "' is not a list of numeric ids",
                         "separate numbers by commas, nothing else"};
        }
        ids.push_back(id);
        if (ids.size() > kAllowLimit) return too_many(variable);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return ids;
}

Result<AllowList> parse_allow_list(std::string_view uids, std::string_view gids) {
    Result<std::vector<uint32_t>> users = parse_ids("VUDA_ALLOW_UIDS", uids);
    if (!users) return users.error();
    Result<std::vector<uint32_t>> groups = parse_ids("VUDA_ALLOW_GIDS", gids);
    if (!groups) return groups.error();
    return AllowList{*std::move(users), *std::move(groups)};
}

Status check_allow_list(const AllowList& list) {
    if (list.uids.size() > kAllowLimit) return too_many("the list of users");
    if (list.gids.size() > kAllowLimit) return too_many("the list of groups");
    for (const auto* ids : {&list.uids, &list.gids}) {
        if (std::find(ids->begin(), ids->end(), kNoId) != ids->end())
            return Error{Code::kInvalidArgument, "4294967295 is nobody's id", "leave it out"};
    }
    return {};
}

}  // namespace vuda::client
