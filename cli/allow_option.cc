#include "cli/allow_option.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>

#include "cli/table.h"

namespace vuda::cli {
namespace {

constexpr size_t kLimit = 64;              // vuda.v1.RegisterRequest
constexpr uint32_t kNoId = UINT32_MAX;     // (uid_t)-1, (gid_t)-1
constexpr size_t kLargestEntry = 1 << 20;  // a group of very many members

// One entry of a database through one of the getXXnam_r functions; nothing: there is no such name.
template <typename Entry, typename Get>
Result<std::optional<Entry>> look_up(Get get, const std::string& name, std::vector<char>& room) {
    for (room.resize(1024); room.size() <= kLargestEntry; room.resize(room.size() * 2)) {
        Entry entry{};
        Entry* found = nullptr;
        const int error = get(name.c_str(), &entry, room.data(), room.size(), &found);
        if (error == ERANGE) continue;
        if (found != nullptr) return std::optional<Entry>(entry);
        // What a database that knows of no such name may say (getpwnam_r(3)).
        if (error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM)
            return std::optional<Entry>();
        return errno_error(error, "cannot look up '" + printable(name) + "'");
    }
    return errno_error(ERANGE, "cannot look up '" + printable(name) + "'");
}

Result<std::optional<uint32_t>> user_id(const std::string& name) {
    std::vector<char> room;
    const auto entry = look_up<passwd>(::getpwnam_r, name, room);
    if (!entry) return entry.error();
    return *entry ? std::optional<uint32_t>((*entry)->pw_uid) : std::nullopt;
}

Result<std::optional<uint32_t>> group_id(const std::string& name) {
    std::vector<char> room;
    const auto entry = look_up<group>(::getgrnam_r, name, room);
    if (!entry) return entry.error();
    return *entry ? std::optional<uint32_t>((*entry)->gr_gid) : std::nullopt;
}

struct Kind {
    const char* option;
    const char* noun;
    Result<std::optional<uint32_t>> (*look_up)(const std::string& name);
};

Result<std::string> ids_of(const Kind& kind, const std::vector<std::string>& words) {
    std::vector<uint32_t> ids;
    for (const std::string& word : words) {
        const auto wrong = [&](const std::string& what) {
            return Error{Code::kInvalidArgument, std::string(kind.option) + ": '" + printable(word) + "' is " + what,
                         std::string("a name or number of a ") + kind.noun + " of this machine is wanted"};
        };
        uint32_t id = kNoId;
        if (!word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; })) {
            const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
            if (error != std::errc() || id == kNoId) return wrong(std::string("no number of a ") + kind.noun);
        } else {
            const Result<std::optional<uint32_t>> found = kind.look_up(word);
            if (!found) return found.error();
            if (!*found) return wrong(std::string("no ") + kind.noun);
            id = **found;
        }
        if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    if (ids.size() > kLimit) {
        return Error{Code::kInvalidArgument, std::string(kind.option) + " is there for more than 64 " + kind.noun + "s",
                     "allow a group that they are in"};
    }
    std::string list;
    for (const uint32_t id : ids) list += (list.empty() ? "" : ",") + std::to_string(id);
    return list;
}

}  // namespace

Result<std::string> ids_of_users(const std::vector<std::string>& words) {
    return ids_of({"--allow-user", "user", user_id}, words);
}

Result<std::string> ids_of_groups(const std::vector<std::string>& words) {
    return ids_of({"--allow-group", "group", group_id}, words);
}

}  // namespace vuda::cli
