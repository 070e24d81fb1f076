#include "daemon/fault_book.h"

#include <algorithm>

namespace vuda::daemon {
namespace {

bool in_force(const Hold& hold, TimePoint now) { return hold.until > now; }

// One more time: `who` is held off, and how long.
template <typename Held>
Milliseconds hold_off(std::map<Suspect, Held>& holds, const Suspect& who, const HoldSettings& settings, TimePoint now) {
    if (!holds.contains(who) && holds.size() >= FaultBook::kHoldsPerName) {
        holds.erase(std::min_element(holds.begin(), holds.end(),
                                     [](const auto& a, const auto& b) { return a.second.until < b.second.until; }));
    }
    Hold& hold = holds[who];
    if (hold.times > 0 && now - hold.last >= settings.forget) hold.times = 0;
    ++hold.times;
    hold.last = now;
    const Milliseconds time = settings.hold_for(hold.times);
    hold.until = now + time;
    return time;
}

template <typename Held>
size_t count_in_force(const std::map<Suspect, Held>& holds, TimePoint now) {
    return static_cast<size_t>(
        std::count_if(holds.begin(), holds.end(), [now](const auto& one) { return in_force(one.second, now); }));
}

template <typename Held>
const Held* find_in_force(const std::map<Suspect, Held>& holds, const Suspect& who, TimePoint now) {
    const auto found = holds.find(who);
    return found == holds.end() || !in_force(found->second, now) ? nullptr : &found->second;
}

template <typename Held>
void forget(std::map<Suspect, Held>& holds, const HoldSettings& settings, TimePoint now) {
    std::erase_if(
        holds, [&](const auto& one) { return !in_force(one.second, now) && now - one.second.last >= settings.forget; });
}

template <typename Running>
std::vector<std::string> take_over(Running& running, TimePoint now) {
    std::vector<std::string> over;
    for (auto it = running.begin(); it != running.end();) {
        if (it->second > now) {
            ++it;
            continue;
        }
        over.push_back(it->first);
        it = running.erase(it);
    }
    return over;
}

}  // namespace

Milliseconds HoldSettings::hold_for(uint32_t times) const {
    if (first.count() == 0 || times == 0) return Milliseconds(0);
    Milliseconds time = std::min(first, max);
    for (uint32_t i = 1; i < times && time < max; ++i) time = std::min(time * factor, max);
    return time;
}

bool NameFaults::held(TimePoint now) const { return count_in_force(holds, now) > 0; }

void FaultBook::drop(Names::iterator entry) {
    running_.erase(entry->first);
    running_unfit_.erase(entry->first);
    names_.erase(entry);
}

// Names nobody owns make room first, the oldest of them; one with a dead TSG is its owner's business.
void FaultBook::make_room(uid_t owner) {
    const auto drop_oldest = [this](auto matches) {
        auto oldest = names_.end();
        for (auto it = names_.begin(); it != names_.end(); ++it) {
            if (it->second.dead || !matches(it->second)) continue;
            if (oldest == names_.end() || it->second.at < oldest->second.at) oldest = it;
        }
        if (oldest != names_.end()) drop(oldest);
    };
    const auto of_owner = [owner](const NameFaults& entry) { return entry.uid == owner; };
    const auto count = std::count_if(names_.begin(), names_.end(), [&](const auto& e) { return of_owner(e.second); });
    if (static_cast<uint64_t>(count) >= 2ull * names_per_uid_) drop_oldest(of_owner);
    if (names_.size() >= kNames) drop_oldest([](const NameFaults&) { return true; });
}

// Made where it is not there.
NameFaults& FaultBook::entry_of(const std::string& name, uid_t owner) {
    auto found = names_.find(name);
    if (found != names_.end() && found->second.uid != owner) {
        // Another user's name by now: what one user's programs did is nothing to the other's.
        drop(found);
        found = names_.end();
    }
    if (found == names_.end()) {
        make_room(owner);
        found = names_.emplace(name, NameFaults{}).first;
        found->second.uid = owner;
    }
    return found->second;
}

Milliseconds FaultBook::record(const std::string& name, uid_t owner, const Report& report, const HoldSettings& settings,
                               TimePoint now) {
    NameFaults& entry = entry_of(name, owner);
    entry.dead = true;
    entry.xid = report.xid;
    entry.text = report.text;
    entry.unix_ms = report.unix_ms;
    entry.at = now;
    entry.culprit.reset();
    entry.culprit_pid = 0;
    undo_.reset();
    return report.culprit ? blame(name, *report.culprit, report.pid, settings, now) : Milliseconds(0);
}

Milliseconds FaultBook::blame(const std::string& name, const Suspect& culprit, pid_t pid, const HoldSettings& settings,
                              TimePoint now) {
    const auto found = names_.find(name);
    if (found == names_.end()) return Milliseconds(0);
    NameFaults& entry = found->second;
    if (entry.culprit == culprit) return Milliseconds(0);
    if (undo_ && undo_->name == name) {
        if (undo_->before) {
            entry.holds[undo_->who] = *undo_->before;
        } else {
            entry.holds.erase(undo_->who);
        }
    }
    const auto before = entry.holds.find(culprit);
    undo_ = Undo{name, culprit, before == entry.holds.end() ? std::nullopt : std::optional(before->second)};
    entry.culprit = culprit;
    entry.culprit_pid = pid;
    const Milliseconds time = hold_off(entry.holds, culprit, settings, now);
    if (time.count() > 0) running_[name] = std::max(now + time, running_[name]);
    return time;
}

void FaultBook::complete(const std::string& name, uint32_t xid, const std::string& text) {
    const auto found = names_.find(name);
    if (found == names_.end() || found->second.xid != 0) return;
    found->second.xid = xid;
    found->second.text = text;
}

bool FaultBook::recovered(const std::string& name) {
    const auto found = names_.find(name);
    if (found == names_.end() || !found->second.dead) return false;
    found->second.dead = false;
    return true;
}

const NameFaults* FaultBook::find(std::string_view name) const {
    const auto found = names_.find(name);
    return found == names_.end() ? nullptr : &found->second;
}

const Hold* FaultBook::held(std::string_view name, const Suspect& who, TimePoint now) const {
    const NameFaults* entry = find(name);
    if (entry == nullptr) return nullptr;
    return find_in_force(entry->holds, who, now);
}

Milliseconds FaultBook::does_not_fit(const std::string& name, uid_t owner, const Suspect& who, const Want& want,
                                     const HoldSettings& settings, TimePoint now) {
    if (settings.first.count() == 0) return Milliseconds(0);
    NameFaults& entry = entry_of(name, owner);
    if (!entry.fault()) entry.at = now;
    Milliseconds time(0);
    if (const Unfit* known = find_in_force(entry.unfit, who, now)) {
        time = std::chrono::ceil<Milliseconds>(known->until - now);
    } else {
        time = hold_off(entry.unfit, who, settings, now);
    }
    Unfit& unfit = entry.unfit[who];
    unfit.bytes = std::max(unfit.bytes, want.bytes);
    unfit.limit = want.limit;
    unfit.fitted = unfit.fitted || want.fitted;
    TimePoint& running = running_unfit_[name];
    running = std::max(running, unfit.until);
    return time;
}

const Unfit* FaultBook::unfit(std::string_view name, const Suspect& who, bool fitted, TimePoint now) const {
    const NameFaults* entry = find(name);
    if (entry == nullptr) return nullptr;
    const Unfit* unfit = find_in_force(entry->unfit, who, now);
    return unfit == nullptr || (fitted && !unfit->fitted) ? nullptr : unfit;
}

std::optional<uid_t> FaultBook::reserved(std::string_view name, TimePoint now) const {
    const NameFaults* entry = find(name);
    if (entry == nullptr || !entry->held(now)) return std::nullopt;
    return entry->uid;
}

std::optional<uint32_t> FaultBook::lift(const std::string& name, TimePoint now) {
    const auto found = names_.find(name);
    if (found == names_.end()) return std::nullopt;
    const auto lifted =
        static_cast<uint32_t>(count_in_force(found->second.holds, now) + count_in_force(found->second.unfit, now));
    if (undo_ && undo_->name == name) undo_.reset();
    if (found->second.dead) {
        running_.erase(name);
        running_unfit_.erase(name);
        found->second.holds.clear();
        found->second.unfit.clear();
    } else {
        drop(found);
    }
    return lifted;
}

FaultBook::Over FaultBook::take_ended(const HoldSettings& faults, const HoldSettings& unshare, TimePoint now) {
    Over over{take_over(running_, now), take_over(running_unfit_, now)};
    for (auto it = names_.begin(); it != names_.end();) {
        NameFaults& entry = it->second;
        forget(entry.holds, faults, now);
        forget(entry.unfit, unshare, now);
        const bool forgotten = !entry.dead && entry.holds.empty() && entry.unfit.empty() &&
                               (!entry.fault() || now - entry.at >= faults.forget);
        it = forgotten ? names_.erase(it) : std::next(it);
    }
    return over;
}

std::optional<TimePoint> FaultBook::next_end() const {
    std::optional<TimePoint> next;
    for (const Running* running : {&running_, &running_unfit_}) {
        for (const auto& [name, until] : *running) {
            if (!next || until < *next) next = until;
        }
    }
    return next;
}

size_t FaultBook::holds_in_force(TimePoint now) const {
    size_t sum = 0;
    for (const auto& [name, entry] : names_) sum += count_in_force(entry.holds, now);
    return sum;
}

size_t FaultBook::unfit_in_force(TimePoint now) const {
    size_t sum = 0;
    for (const auto& [name, entry] : names_) sum += count_in_force(entry.unfit, now);
    return sum;
}

}  // namespace vuda::daemon
