// Owners that are alive and do not answer: stopped, in a debugger, hung.
//
// Only owners of names are asked, because only on them others wait. A program that merely shares keeps its channels in
// the TSG whether it runs or not, so nothing could be released for it; its turn to attach has a deadline of its own.
#include <algorithm>

#include "daemon/registry.h"
#include "daemon/registry_state.h"

namespace vuda::daemon {

void Registry::heard(Session& session) {
    session.heard = clock_();
    session.asked.reset();
    if (!session.silent) return;
    session.silent = false;
    session.reason.reset();
    if (!session.owned.empty()) expect_words(session);
    emit("owner-speaks", session.owned, session);
}

// Called when a name is registered.
void Registry::expect_words(const Session& owner) {
    if ((owner.features & v1::FEATURE_HEARTBEAT) == 0 || settings_.heartbeat.count() == 0) return;
    const TimePoint due = owner.heard + settings_.heartbeat;
    next_beat_ = next_beat_ ? std::min(*next_beat_, due) : due;
}

Error Registry::silent_error(const Session& owner) const {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(clock_() - owner.heard).count();
    return {Code::kUnavailable,
            "the owner of '" + owner.owned + "', pid " + std::to_string(owner.peer.pid()) + " (" + owner.program +
                "), has not answered for " + std::to_string(seconds) + " s",
            "is it stopped or in a debugger?"};
}

void Registry::ask(Session& owner) {
    owner.asked = clock_();
    v1::ServerMessage ping;
    ping.mutable_ping();
    owner.sink->send(ping);
}

// It did not answer in time, be it Ping or ExportRequest. Who waits for it is told, who comes later is told at once.
void Registry::fall_silent(Session& owner) {
    if (owner.silent || (owner.features & v1::FEATURE_HEARTBEAT) == 0 || settings_.heartbeat.count() == 0) return;
    owner.silent = true;
    ++counters_.silences;
    const Error error = silent_error(owner);
    owner.reason = error;
    emit("owner-silent", owner.owned, owner, &error);
    // The answer to it, whenever it comes, is the owner's return.
    if (!owner.asked) ask(owner);
    expect_words(owner);
    const auto owned = tsgs_.find(owner.owned);
    if (owned == tsgs_.end()) return;
    Tsg& tsg = *owned->second;
    if (tsg.turn && tsg.turn->phase == Turn::Phase::kExport) fail_turn(tsg, error);
    for (const Waiter& waiter : std::exchange(tsg.queue, {})) fail_waiter(waiter, tsg, error);
}

// Asks owners that have said nothing for a while. An idle daemon with nothing registered does nothing here.
void Registry::beat() {
    const TimePoint now = clock_();
    if (!next_beat_ || now < *next_beat_) return;
    next_beat_.reset();
    if (settings_.heartbeat.count() == 0) return;
    std::vector<SessionId> over;
    for (const auto& [name, tsg] : tsgs_) {
        Session& owner = *find(tsg->owner);
        if ((owner.features & v1::FEATURE_HEARTBEAT) == 0) continue;
        if (!owner.asked && now - owner.heard >= settings_.heartbeat) ask(owner);
        if (owner.asked && now - *owner.asked >= settings_.heartbeat) fall_silent(owner);
        if (owner.silent && settings_.release.count() == 0) continue;
        const TimePoint due =
            owner.silent ? owner.heard + settings_.release : owner.asked.value_or(owner.heard) + settings_.heartbeat;
        if (due <= now) {  // of a silent one only: the others were asked, or fell silent, above
            over.push_back(owner.id);
            continue;
        }
        next_beat_ = next_beat_ ? std::min(*next_beat_, due) : due;
    }
    for (const SessionId id : over) end_silent(id);
}

// As if it had died, except that it may come back: it finds its session ended, greets again, and registers again.
void Registry::end_silent(SessionId id) {
    Session* owner = find(id);
    if (owner == nullptr) return;
    ++counters_.silent_ends;
    const Error reason = silent_error(*owner);
    SessionSink* sink = owner->sink;
    close_session(id, reason);
    sink->close(reason);
}

}  // namespace vuda::daemon
