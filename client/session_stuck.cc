// The session of a program whose kernel can neither go on nor end: the GPU repeats its page faults (docs/faults.md).
#include <algorithm>
#include <chrono>
#include <limits>

#include "client/names.h"
#include "client/session.h"

namespace vuda::client {

// Empty: the renderer is this process's own, and has no name. nullopt: nothing is shared.
std::optional<std::string> Session::shared_tsg_locked() const {
    if (channels_ > 0) return attach_name_;
    // A renderer that registers anew is a registered one, whatever its CUDA does.
    if (state_ == SharingState::kSharing || state_ == SharingState::kRegistered) return wanted_ ? wanted_->name : "";
    return std::nullopt;
}

void Session::queue_stuck_locked(bool over) {
    const std::optional<std::string> name = shared_tsg_locked();
    if ((features_ & kFeatureStuck) == 0 || !name || name->empty()) return;
    const auto age = stuck_since_ ? std::chrono::steady_clock::now() - *stuck_since_ : std::chrono::nanoseconds(0);
    const auto age_ms = std::chrono::duration_cast<std::chrono::milliseconds>(age).count();
    queue_locked(encode_stuck(
        next_id_locked(), *name, stuck_replays_,
        static_cast<uint32_t>(std::clamp<long long>(age_ms, 0, std::numeric_limits<uint32_t>::max())), over));
}

void Session::stuck(uint32_t replays) {
    std::string renderer;
    {
        const std::lock_guard lock(mutex_);
        const std::optional<std::string> name = shared_tsg_locked();
        if (!name) return;
        stuck_since_ = std::chrono::steady_clock::now();
        stuck_replays_ = replays;
        queue_stuck_locked(false);
        renderer = name->empty() ? "its renderer" : "the renderer of '" + plain_text(*name, kNameLimit) + "'";
    }
    reporter_.say(LogLevel::kError, "a kernel of this program seems to wait for ever: the GPU repeats page faults " +
                                        std::to_string(replays) + " times a second, as after a bad access; " +
                                        renderer + " goes on until this program ends (docs/faults.md)");
}

void Session::stuck_over() {
    {
        const std::lock_guard lock(mutex_);
        if (!stuck_since_) return;
        stuck_since_.reset();
        queue_stuck_locked(true);
    }
    reporter_.say(LogLevel::kInfo, "the GPU no longer repeats page faults");
}

}  // namespace vuda::client
