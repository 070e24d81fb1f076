// Subcontexts of the renderer's TSG: what vudad says of other programs', and what it hears of ours.
#include "shim/preload/process.h"

namespace vuda::shim {

// On libvuda's thread.
void Process::others_subcontexts(uint64_t taken, uint64_t stale) {
    {
        const std::lock_guard lock(mutex_);
        if (redirector_ != nullptr) redirector_->others_subcontexts(taken, stale);
    }
    tell_subcontexts();
}

// To vudad, where something changed.
void Process::tell_subcontexts() {
    if (!session_.loaded()) return;
    // What is told last is what holds.
    const std::lock_guard one(telling_);
    std::pair<uint64_t, uint64_t> now;
    {
        const std::lock_guard lock(mutex_);
        if (redirector_ == nullptr) return;
        now = redirector_->own_subcontexts();
    }
    if (now == told_) return;
    told_ = now;
    session_.own_subcontexts(now.first, now.second);
}

}  // namespace vuda::shim
