// How far those who share follow the control buffers of this process's renderer: which changes were made, which of them
// were sent, which are mirrored. Pure; its owner locks around each call.
#pragma once

#include <cstdint>
#include <deque>

namespace vuda::client {

class MirrorProgress {
 public:
    // vudad wants changes, and a mapping call to wait this many milliseconds at most. What was not sent yet still
    // counts.
    void begin(uint32_t wait_ms);
    // Nobody follows any more, or cannot be told: nobody waits.
    void end();
    bool on() const { return wait_ms_ > 0; }
    uint32_t wait_ms() const { return wait_ms_; }

    // ---- the program's threads ----
    // One more change; its number, for reached().
    uint64_t change() { return ++changed_; }
    // Waiting makes sense: there is somebody, and whoever was waited for in vain has caught up.
    bool worth_waiting() const { return on() && !stuck_; }
    bool reached(uint64_t change) const { return !on() || done_ >= change; }
    void waited_in_vain() { stuck_ = on(); }

    // ---- who sends ----
    bool due() const { return on() && covered_ < changed_; }
    // Something is left that nobody waits for (MirrorChange::rest).
    void rest(bool left) { rest_ = left; }
    // A piece of it may go: nothing else is to be sent or on its way. So a change waits for one piece at most.
    bool may_rest() const { return on() && rest_ && !due() && in_flight_.empty(); }
    uint64_t newest() const { return changed_; }
    void sent(uint64_t id) { in_flight_.push_back({id, 0}); }
    // Everything up to `change` is in what was sent.
    void covered(uint64_t change);
    // The update `id` was answered, one way or the other. False: it is none of these. `late`: by some who share, whose
    // work would only pile up: what is left waits for the next change.
    bool answered(uint64_t id, bool late = false);

 private:
    struct Update {
        uint64_t id = 0;
        uint64_t change = 0;  // reached with it; 0: it is not the last part
    };

    void reach(uint64_t change);

    uint32_t wait_ms_ = 0;
    uint64_t changed_ = 0;
    uint64_t covered_ = 0;
    uint64_t done_ = 0;
    bool stuck_ = false;
    bool rest_ = false;
    std::deque<Update> in_flight_;
};

}  // namespace vuda::client
