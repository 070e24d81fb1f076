// What died under which name, who was taken for the cause, and until when that program is held off. Pure: time is
// passed in.
//
// A program is known by its user and its executable, not by its process: what must not come back at once is the next
// start of the same program. That is no barrier (a copy of the executable is another program); it ends accidents that
// repeat themselves.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "daemon/clock.h"

namespace vuda::daemon {

// [faults] of vudad.toml.
struct FaultSettings {
    Milliseconds first{10'000};  // held off after the first fault; 0: nobody ever is
    uint32_t factor = 4;         // so many times longer after each further one
    Milliseconds max{3'600'000};
    Milliseconds forget{86'400'000};  // without a fault for so long: the next one counts as the first

    bool operator==(const FaultSettings&) const = default;
    // After the `faults`th fault in a row, from 1.
    Milliseconds hold_for(uint32_t faults) const;
};

struct Suspect {
    uid_t uid = 0;
    std::string program;  // executable's path; "[comm]" where neither the kernel nor the program tells

    // NOLINTNEXTLINE(modernize-use-nullptr): it sees a 0 in what is generated
    auto operator<=>(const Suspect&) const = default;
};

struct Hold {
    uint32_t faults = 0;
    TimePoint last;   // newest fault
    TimePoint until;  // may attach from then on
};

struct NameFaults {
    uid_t uid = 0;      // the owner's
    bool dead = false;  // the owner is there, its TSG is dead, and it has not registered another one
    uint32_t xid = 0;
    std::string text;     // one line
    int64_t unix_ms = 0;  // when vudad heard of it
    TimePoint at;
    std::optional<Suspect> culprit;
    pid_t culprit_pid = 0;
    std::map<Suspect, Hold> holds;

    bool held(TimePoint now) const;
};

class FaultBook {
 public:
    static constexpr size_t kNames = 1024;
    static constexpr size_t kHoldsPerName = 64;

    struct Report {
        uint32_t xid = 0;
        std::string text;
        std::optional<Suspect> culprit;  // none: nothing is known of anybody
        pid_t pid = 0;                   // the culprit's
        int64_t unix_ms = 0;
    };

    // Of names without a living owner, so many of one user are kept; the oldest goes.
    void set_limit(uint32_t names_per_uid) { names_per_uid_ = names_per_uid; }

    // A TSG died. Returns how long the culprit is held off; 0: it is not.
    Milliseconds record(const std::string& name, uid_t owner, const Report& report, const FaultSettings& settings,
                        TimePoint now);
    // The newest report's culprit was another one, as turns out within moments: what it did to the first one is undone.
    Milliseconds blame(const std::string& name, const Suspect& culprit, pid_t pid, const FaultSettings& settings,
                       TimePoint now);
    // The newest report did not know the number.
    void complete(const std::string& name, uint32_t xid, const std::string& text);
    // The owner has a TSG that works, or is gone. False: nothing had died.
    bool recovered(const std::string& name);

    const NameFaults* find(std::string_view name) const;
    // Not null while `who` is held off.
    const Hold* held(std::string_view name, const Suspect& who, TimePoint now) const;
    // While somebody is held off the name belongs to this user, whether it has an owner or not.
    std::optional<uid_t> reserved(std::string_view name, TimePoint now) const;
    // Lifts all holds and forgets. How many were in force; nullopt: the name is not in the book. One that is dead stays
    // so.
    std::optional<uint32_t> lift(const std::string& name, TimePoint now);

    // Names at which the last hold ended since the last call. Drops what is forgotten.
    std::vector<std::string> take_ended(const FaultSettings& settings, TimePoint now);
    // When take_ended() has something to say next.
    std::optional<TimePoint> next_end() const;

    using Names = std::map<std::string, NameFaults, std::less<>>;
    const Names& names() const { return names_; }
    size_t holds_in_force(TimePoint now) const;

    // Lines of words; the first one names the format. Times are wall-clock: a hold lasts over a reboot.
    std::string to_text(TimePoint now, int64_t unix_ms) const;
    // Whatever the text is; returns how many lines mean nothing. No hold is longer than settings.max from now on,
    // whatever the clock did meanwhile.
    size_t load(std::string_view text, const FaultSettings& settings, TimePoint now, int64_t unix_ms);

 private:
    Milliseconds hold(NameFaults& entry, const Suspect& who, const FaultSettings& settings, TimePoint now);
    void make_room(uid_t owner);

    Names names_;
    uint32_t names_per_uid_ = 16;
    struct Undo {
        std::string name;
        Suspect who;
        std::optional<Hold> before;
    };
    std::optional<Undo> undo_;  // of the newest record()
    // Names with a hold in force whose end was not told yet.
    std::map<std::string, TimePoint, std::less<>> running_;
};

}  // namespace vuda::daemon
