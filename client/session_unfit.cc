// The session of a program that wishes to run unshared where its kernels do not fit beside graphics.
#include <utility>

#include "client/names.h"
#include "client/session.h"

namespace vuda::client {
namespace {

// "10 min", "90 s": rounded up.
std::string short_time(uint64_t ms) {
    const uint64_t seconds = (ms + 999) / 1000;
    return seconds < 120 ? std::to_string(seconds) + " s" : std::to_string((seconds + 59) / 60) + " min";
}

}  // namespace

std::string launch_refused_text(const LargeKernel& kernel, const std::string& consequence) {
    return "a kernel was not run (CUDA error 701): it wants " + std::to_string(kernel.bytes) +
           " bytes of shared memory a block, beside graphics " + std::to_string(kernel.limit) + " are possible; " +
           (consequence.empty() ? "see docs/compatibility.md" : consequence);
}

bool Session::does_not_fit(const LargeKernel& kernel) {
    bool down = false;
    {
        const std::lock_guard lock(mutex_);
        if (shared_name_.empty()) return false;
        unfit_ = kernel;
        unfit_id_ = 0;
        down = link_ != Link::kUp;
        if (thread_running_) wake_locked();
    }
    // vudad hears of it when it is back; the program's user need not wait for that.
    if (down) say_unfit(kernel, "");
    return true;
}

void Session::send_unfit_locked(std::optional<LargeKernel>& hopeless) {
    if (!unfit_ || unfit_id_ != 0) return;
    if ((features_ & kFeatureUnshare) == 0) {
        hopeless = std::exchange(unfit_, std::nullopt);
        return;
    }
    unfit_id_ = next_id_locked();
    outbox_.push_back(encode_does_not_fit(unfit_id_, shared_name_, *unfit_));
}

void Session::unfit_answered(uint64_t id, const Error* error, const DoesNotFitReply* reply) {
    LargeKernel kernel;
    std::string name;
    {
        const std::lock_guard lock(mutex_);
        if (id == 0 || id != unfit_id_ || !unfit_) return;
        kernel = *std::exchange(unfit_, std::nullopt);
        unfit_id_ = 0;
        name = plain_text(shared_name_, kNameLimit);
    }
    if (reply != nullptr && reply->held_ms > 0) {
        return say_unfit(kernel, "the next context of " + plain_text(options_.program, 64) + " on '" + name +
                                     "' starts unshared, for " + short_time(reply->held_ms) +
                                     " (vudactl unquarantine " + name + " lets it back)");
    }
    say_unfit(kernel, error != nullptr ? "it goes on sharing: " + error->to_string() : "");
}

// Once, whatever comes later.
void Session::say_unfit(const LargeKernel& kernel, const std::string& consequence) {
    reporter_.say_once(LogLevel::kError, "launch refused", launch_refused_text(kernel, consequence));
}

}  // namespace vuda::client
