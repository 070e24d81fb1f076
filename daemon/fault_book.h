// What died under which name, who was taken for the cause, whose kernels did not fit beside graphics, and until when
// such a program is held off. Pure: time is passed in.
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

// [faults] and [unshare] of vudad.toml.
struct HoldSettings {
    Milliseconds first{10'000};  // held off after the first time; 0: nobody ever is
    uint32_t factor = 4;         // so many times longer after each further one
    Milliseconds max{3'600'000};
    Milliseconds forget{86'400'000};  // without one for so long: the next one counts as the first

    bool operator==(const HoldSettings&) const = default;
    // After the `times`th time in a row, from 1.
    Milliseconds hold_for(uint32_t times) const;
};

// A program is not changed within seconds so that its kernels fit.
inline constexpr HoldSettings kUnshareDefaults{Milliseconds(600'000), 4, Milliseconds(86'400'000),
                                               Milliseconds(604'800'000)};

struct Suspect {
    uid_t uid = 0;
    std::string program;  // executable's path; "[comm]" where neither the kernel nor the program tells

    // NOLINTNEXTLINE(modernize-use-nullptr): it sees a 0 in what is generated
    auto operator<=>(const Suspect&) const = default;
};

struct Hold {
    uint32_t times = 0;
    TimePoint last;   // newest one
    TimePoint until;  // may attach from then on
};

// Of a program whose kernel did not fit.
struct Unfit : Hold {
    uint32_t bytes = 0;   // of shared memory a block that it wanted, the most of all times
    uint32_t limit = 0;   // that may run beside graphics
    bool fitted = false;  // although it had been told that
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
    std::map<Suspect, Unfit> unfit;

    // Something died; else the name is here for programs that do not fit.
    bool fault() const { return unix_ms != 0; }
    // After a fault.
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
    Milliseconds record(const std::string& name, uid_t owner, const Report& report, const HoldSettings& settings,
                        TimePoint now);
    // The newest report's culprit was another one, as turns out within moments: what it did to the first one is undone.
    Milliseconds blame(const std::string& name, const Suspect& culprit, pid_t pid, const HoldSettings& settings,
                       TimePoint now);
    // The newest report did not know the number.
    void complete(const std::string& name, uint32_t xid, const std::string& text);
    // The owner has a TSG that works, or is gone. False: nothing had died.
    bool recovered(const std::string& name);

    struct Want {
        uint32_t bytes = 0;
        uint32_t limit = 0;
        bool fitted = false;
    };
    // A kernel of `who` did not fit into the TSG called `name`. Returns how long it is held off from now on; 0: it is
    // not. Once more while it is held off, by a process that was in already, is no further time.
    Milliseconds does_not_fit(const std::string& name, uid_t owner, const Suspect& who, const Want& want,
                              const HoldSettings& settings, TimePoint now);

    const NameFaults* find(std::string_view name) const;
    // Not null while `who` is held off, after a fault.
    const Hold* held(std::string_view name, const Suspect& who, TimePoint now) const;
    // Likewise because it does not fit. One that was told the limit and `fitted` is held off only if that did not help
    // before.
    const Unfit* unfit(std::string_view name, const Suspect& who, bool fitted, TimePoint now) const;
    // While somebody is held off after a fault, the name belongs to this user, whether it has an owner or not.
    std::optional<uid_t> reserved(std::string_view name, TimePoint now) const;
    // Lifts all holds and forgets. How many were in force; nullopt: the name is not in the book. One that is dead stays
    // so.
    std::optional<uint32_t> lift(const std::string& name, TimePoint now);

    // Names at which the last hold of its kind ended since the last call. Drops what is forgotten.
    struct Over {
        std::vector<std::string> faults;
        std::vector<std::string> unfit;
    };
    Over take_ended(const HoldSettings& faults, const HoldSettings& unshare, TimePoint now);
    // When take_ended() has something to say next.
    std::optional<TimePoint> next_end() const;

    using Names = std::map<std::string, NameFaults, std::less<>>;
    const Names& names() const { return names_; }
    size_t holds_in_force(TimePoint now) const;
    size_t unfit_in_force(TimePoint now) const;

    // Lines of words; the first one names the format. Times are wall-clock: a hold lasts over a reboot.
    std::string to_text(TimePoint now, int64_t unix_ms) const;
    // Whatever the text is; returns how many lines mean nothing. No hold is longer than its settings' max from now on,
    // whatever the clock did meanwhile.
    size_t load(std::string_view text, const HoldSettings& faults, const HoldSettings& unshare, TimePoint now,
                int64_t unix_ms);

 private:
    using Running = std::map<std::string, TimePoint, std::less<>>;

    NameFaults& entry_of(const std::string& name, uid_t owner);
    void make_room(uid_t owner);
    void drop(Names::iterator entry);

    Names names_;
    uint32_t names_per_uid_ = 16;
    struct Undo {
        std::string name;
        Suspect who;
        std::optional<Hold> before;
    };
    std::optional<Undo> undo_;  // of the newest record()
    // Names with a hold in force whose end was not told yet.
    Running running_;
    Running running_unfit_;
};

}  // namespace vuda::daemon
