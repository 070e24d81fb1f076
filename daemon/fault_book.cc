#include "daemon/fault_book.h"

#include <algorithm>

namespace vuda::daemon {
Milliseconds FaultSettings::hold_for(uint32_t faults) const {
    if (first.count() == 0 || faults == 0) return Milliseconds(0);
    Milliseconds time = std::min(first, max);
    for (uint32_t i = 1; i < faults && time < max; ++i) time = std::min(time * factor, max);
    return time;
}

bool NameFaults::held(TimePoint now) const {
    return std::any_of(holds.begin(), holds.end(), [now](const auto& entry) { return entry.second.until > now; });
}

// Names nobody owns make room first, the oldest of them; one with a dead TSG is its owner's business.
void FaultBook::make_room(uid_t owner) {
    const auto drop_oldest = [this](auto matches) {
        auto oldest = names_.end();
        for (auto it = names_.begin(); it != names_.end(); ++it) {
            if (it->second.dead || !matches(it->second)) continue;
            if (oldest == names_.end() || it->second.at < oldest->second.at) oldest = it;
        }
        if (oldest == names_.end()) return;
        running_.erase(oldest->first);
        names_.erase(oldest);
    };
    const auto of_owner = [owner](const NameFaults& entry) { return entry.uid == owner; };
    const auto count = std::count_if(names_.begin(), names_.end(), [&](const auto& e) { return of_owner(e.second); });
    if (static_cast<uint64_t>(count) >= 2ull * names_per_uid_) drop_oldest(of_owner);
    if (names_.size() >= kNames) drop_oldest([](const NameFaults&) { return true; });
}

Milliseconds FaultBook::hold(NameFaults& entry, const Suspect& who, const FaultSettings& settings, TimePoint now) {
    const auto known = entry.holds.find(who);
    if (known == entry.holds.end() && entry.holds.size() >= kHoldsPerName) {
        entry.holds.erase(std::min_element(entry.holds.begin(), entry.holds.end(), [](const auto& a, const auto& b) {
            return a.second.until < b.second.until;
        }));
    }
    Hold& hold = entry.holds[who];
    if (hold.faults > 0 && now - hold.last >= settings.forget) hold.faults = 0;
    ++hold.faults;
    hold.last = now;
    const Milliseconds time = settings.hold_for(hold.faults);
    hold.until = now + time;
    return time;
}

Milliseconds FaultBook::record(const std::string& name, uid_t owner, const Report& report,
                               const FaultSettings& settings, TimePoint now) {
    auto found = names_.find(name);
    if (found != names_.end() && found->second.uid != owner) {
        // Another user's name by now: what one user's programs did is nothing to the other's.
        running_.erase(name);
        names_.erase(found);
        found = names_.end();
    }
    if (found == names_.end()) {
        make_room(owner);
        found = names_.emplace(name, NameFaults{}).first;
    }
    NameFaults& entry = found->second;
    entry.uid = owner;
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

Milliseconds FaultBook::blame(const std::string& name, const Suspect& culprit, pid_t pid, const FaultSettings& settings,
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
    const Milliseconds time = hold(entry, culprit, settings, now);
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
    const auto found = entry->holds.find(who);
    return found == entry->holds.end() || found->second.until <= now ? nullptr : &found->second;
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
        static_cast<uint32_t>(std::count_if(found->second.holds.begin(), found->second.holds.end(),
                                            [now](const auto& entry) { return entry.second.until > now; }));
    running_.erase(name);
    if (undo_ && undo_->name == name) undo_.reset();
    if (found->second.dead) {
        found->second.holds.clear();
    } else {
        names_.erase(found);
    }
    return lifted;
}

std::vector<std::string> FaultBook::take_ended(const FaultSettings& settings, TimePoint now) {
    std::vector<std::string> ended;
    for (auto it = running_.begin(); it != running_.end();) {
        if (it->second > now) {
            ++it;
            continue;
        }
        ended.push_back(it->first);
        it = running_.erase(it);
    }
    for (auto it = names_.begin(); it != names_.end();) {
        std::erase_if(it->second.holds, [&](const auto& entry) {
            return entry.second.until <= now && now - entry.second.last >= settings.forget;
        });
        const bool forgotten = !it->second.dead && it->second.holds.empty() && now - it->second.at >= settings.forget;
        it = forgotten ? names_.erase(it) : std::next(it);
    }
    return ended;
}

std::optional<TimePoint> FaultBook::next_end() const {
    std::optional<TimePoint> next;
    for (const auto& [name, until] : running_) {
        if (!next || until < *next) next = until;
    }
    return next;
}

size_t FaultBook::holds_in_force(TimePoint now) const {
    size_t sum = 0;
    for (const auto& [name, entry] : names_) {
        sum += static_cast<size_t>(std::count_if(entry.holds.begin(), entry.holds.end(),
                                                 [now](const auto& hold) { return hold.second.until > now; }));
    }
    return sum;
}

}  // namespace vuda::daemon
