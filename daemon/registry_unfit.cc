// Programs that wish to run unshared where their kernels do not fit beside graphics (OVER_LIMIT_UNSHARE): one says so,
// and is not let into that TSG for a while, longer each time that it comes back and still does not fit. The same
// mechanism as after a fault, but nobody was harmed: it holds off only who asks for it.
#include <algorithm>

#include "daemon/fault_text.h"
#include "daemon/registry.h"
#include "daemon/registry_state.h"
#include "daemon/text.h"

namespace vuda::daemon {
namespace {

std::string want_text(uint32_t bytes, uint32_t limit) {
    return "a kernel wants " + std::to_string(bytes) + " bytes of shared memory a block, beside graphics " +
           std::to_string(limit) + " are possible";
}

}  // namespace

void Registry::on_does_not_fit(Session& session, uint64_t id, const v1::DoesNotFit& said) {
    const Result<Milliseconds> held = take_unfit(session, said);
    if (!held) {
        emit("unshare-refused", valid_name(said.name()) ? said.name() : "", session, &held.error());
        return reply_error(session, id, held.error());
    }
    v1::ServerMessage message;
    message.mutable_does_not_fit_reply()->set_held_ms(static_cast<uint64_t>(held->count()));
    reply(session, id, std::move(message));
}

Result<Milliseconds> Registry::take_unfit(Session& session, const v1::DoesNotFit& said) {
    if (!valid_name(said.name()))
        return Error{Code::kInvalidArgument, "name: '" + clean_text(said.name(), 64) + "' is not a valid name", ""};
    if (said.limit() == 0 || said.bytes() <= said.limit())
        return Error{
            Code::kInvalidArgument,
            "bytes: " + std::to_string(said.bytes()) + " are not above the limit " + std::to_string(said.limit()), ""};
    const auto found = tsgs_.find(said.name());
    if (found == tsgs_.end())
        return Error{Code::kNotFound, "no TSG is registered as '" + said.name() + "'", "see vudactl status"};
    const Tsg& tsg = *found->second;
    const uid_t owner = find(tsg.owner)->peer.uid;
    if (Status may = may_attach(session.peer, find(tsg.owner)->peer, tsg.allow, settings_.attach); !may)
        return may.error();

    const TimePoint now = clock_();
    const Suspect who = suspect_of(session.peer);
    const FaultBook::Want want{said.bytes(), said.limit(), said.fitted()};
    const bool news = faults_.unfit(tsg.name, who, said.fitted(), now) == nullptr;
    const Milliseconds held = faults_.does_not_fit(tsg.name, owner, who, want, settings_.unshare, now);
    if (!news || held.count() == 0) return held;
    if (hooks_.event) {
        v1::Event event = fault_event("unshared", tsg.name, now);
        event.set_session_id(session.id);
        v1::PeerInfo& peer = *event.mutable_peer();
        peer.set_pid(static_cast<uint32_t>(session.peer.pid()));
        peer.set_uid(who.uid);
        peer.set_gid(session.peer.gid);
        peer.set_program(clean_text(who.program, kTextLimit));
        event.mutable_reason()->set_text("runs unshared for " + time_text(held) + ": " +
                                         want_text(said.bytes(), said.limit()));
        auto& fields = *event.mutable_fields();
        fields["VUDA_SHARED_BYTES"] = std::to_string(said.bytes());
        fields["VUDA_SHARED_LIMIT"] = std::to_string(said.limit());
        fields["VUDA_HELD_MS"] = std::to_string(held.count());
        hooks_.event(event);
    }
    faults_changed();
    return held;
}

// A program that can live with the limit is let in, whatever was said of it.
Status Registry::fits(const Session& session, const Waiter& waiter, const Tsg& tsg) const {
    if (!waiter.unshares) return {};
    const TimePoint now = clock_();
    const Suspect who = suspect_of(session.peer);
    const Unfit* unfit = faults_.unfit(tsg.name, who, waiter.fitted, now);
    // What it did under another owner's name of that kind is not told here.
    if (unfit == nullptr || faults_.find(tsg.name)->uid != sessions_.at(tsg.owner)->peer.uid) return {};
    return Error{Code::kFailedPrecondition,
                 clean_text(who.program, kTextLimit / 2) + " runs unshared for " +
                     time_text(left_of(unfit->until, now)) + " more: " + want_text(unfit->bytes, unfit->limit),
                 "vudactl unquarantine " + tsg.name + " lets it in at once"};
}

void Registry::end_unshares(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
        if (hooks_.event) {
            v1::Event event = fault_event("unshare-over", name, clock_());
            event.mutable_reason()->set_text("nobody runs unshared any more because it does not fit");
            hooks_.event(event);
        }
        faults_changed();
    }
}

void Registry::fill_unfit(v1::StatusReply& out) const {
    const TimePoint now = clock_();
    for (const auto& [name, entry] : faults_.names()) {
        for (const auto& [who, unfit] : entry.unfit) {
            if (unfit.until <= now) continue;
            v1::Unfit& one = *out.add_unfit();
            one.set_name(name);
            one.set_uid(who.uid);
            one.set_program(clean_text(who.program, kTextLimit));
            one.set_bytes(unfit.bytes);
            one.set_limit(unfit.limit);
            one.set_times(unfit.times);
            one.set_age_ms(static_cast<uint64_t>(std::chrono::duration_cast<Milliseconds>(now - unfit.last).count()));
            one.set_left_ms(static_cast<uint64_t>(left_of(unfit.until, now).count()));
            one.set_fitted(unfit.fitted);
        }
    }
}

}  // namespace vuda::daemon
