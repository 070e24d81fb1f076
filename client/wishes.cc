#include "client/wishes.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "client/names.h"
#include "vuda/vuda.h"

namespace vuda::client {
namespace {

// CUDA makes as many channels on the graphics engine as this says (CUDA C++ Programming Guide, "CUDA Environment
// Variables": 1 to 32, default 8; the channels were counted with driver 580.159.04).
constexpr const char* kCudaChannels = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr uint32_t kMaxCudaChannels = 32;

std::string env(const char* name) {
    const char* value = ::secure_getenv(name);
    return value != nullptr ? value : "";
}

void copy_name(char (&to)[65], std::string_view name) {
    // A cut name could be somebody else's; this one is refused where names are checked, with a text that says why.
    if (name.size() > kNameLimit) name = "<longer than 64 bytes>";
    std::memcpy(to, name.data(), name.size());
    to[name.size()] = '\0';
}

}  // namespace

std::optional<uint32_t> parse_reserve(const char* text) {
    const std::string_view all = "all";
    const std::string_view value = text;
    if (value == all) return VUDA_ALL_CHANNELS;
    uint32_t channels = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), channels);
    if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
    if (channels < 1 || channels > VUDA_MAX_CHANNELS) return std::nullopt;
    return channels;
}

void Wishes::set_register(std::string name) {
    const std::lock_guard lock(mutex_);
    register_ = std::move(name);
}

void Wishes::set_attach(std::string name) {
    const std::lock_guard lock(mutex_);
    attach_ = std::move(name);
}

void Wishes::set_reserve(uint32_t channels) {
    const std::lock_guard lock(mutex_);
    reserve_ = channels;
    const char* present = std::getenv(kCudaChannels);
    if (present != nullptr && told_cuda_ != present) return;  // the user's own choice
    told_cuda_ = channels == VUDA_ALL_CHANNELS ? "" : std::to_string(std::min(channels, kMaxCudaChannels));
    if (!told_cuda_.empty()) {
        ::setenv(kCudaChannels, told_cuda_.c_str(), 1);
    } else if (present != nullptr) {
        ::unsetenv(kCudaChannels);
    }
}

void Wishes::set_allowed(std::optional<AllowList> allow) {
    const std::lock_guard lock(mutex_);
    allow_ = std::move(allow);
}

void Wishes::set_over_limit(limits::OverLimit policy) {
    const std::lock_guard lock(mutex_);
    over_limit_ = policy;
}

void Wishes::keep_apart() {
    const std::lock_guard lock(mutex_);
    apart_ = true;
}

void Wishes::clear() {
    const std::lock_guard lock(mutex_);
    ignore_environment_ = true;
    register_.reset();
    attach_.reset();
    reserve_.reset();
    allow_.reset();
    over_limit_.reset();
}

vuda_private_wishes Wishes::get() const {
    const std::lock_guard lock(mutex_);
    vuda_private_wishes out{};
    out.reserve = VUDA_ALL_CHANNELS;
    out.require = env("VUDA_REQUIRE") == "1";
    if (!ignore_environment_) {
        copy_name(out.register_name, env("VUDA_REGISTER"));
        copy_name(out.attach_name, env("VUDA_ATTACH"));
        out.share_in_process = env("VUDA_SHARE") == "1";
        out.reserve = parse_reserve(env("VUDA_RESERVE").c_str()).value_or(VUDA_ALL_CHANNELS);
    }
    if (register_) copy_name(out.register_name, *register_);
    if (attach_) copy_name(out.attach_name, *attach_);
    if (reserve_) {
        out.reserve = *reserve_;
        if (out.attach_name[0] == '\0') out.share_in_process = 1;
    }
    if (apart_) out.share_in_process = 0;
    return out;
}

Result<AllowList> Wishes::allowed() const {
    const std::lock_guard lock(mutex_);
    if (allow_) return *allow_;
    if (ignore_environment_) return AllowList{};
    return parse_allow_list(env("VUDA_ALLOW_UIDS"), env("VUDA_ALLOW_GIDS"));
}

Result<limits::OverLimit> Wishes::over_limit() const {
    const std::lock_guard lock(mutex_);
    if (over_limit_) return *over_limit_;
    const std::string said = env("VUDA_OVER_LIMIT");
    if (ignore_environment_ || said.empty()) return limits::kDefaultOverLimit;
    if (const auto policy = limits::parse_over_limit(said)) return *policy;
    return Error{Code::kInvalidArgument,
                 "VUDA_OVER_LIMIT='" + plain_text(said, 32) + "' is none of native, unshare and reject", ""};
}

}  // namespace vuda::client
