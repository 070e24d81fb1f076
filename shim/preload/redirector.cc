#include "shim/preload/redirector.h"

#include <algorithm>

#include "shim/preload/decode.h"
#include "shim/preload/state.h"

namespace vuda::shim {

bool undo_of(const Action& action, Action* undo) {
    if (const auto* dup = std::get_if<DupObject>(&action)) {
        *undo = FreeObject{dup->file, dup->client, dup->object};
    } else if (const auto* import = std::get_if<ImportObject>(&action)) {
        *undo = FreeObject{import->file, import->client, import->object};
    } else if (const auto* transfer = std::get_if<TransferObject>(&action)) {
        *undo = FreeObject{transfer->file, transfer->client, transfer->object};
    } else if (const auto* ctxshare = std::get_if<AllocCtxshare>(&action)) {
        *undo = FreeObject{ctxshare->file, ctxshare->client, ctxshare->object};
    } else if (const auto* range = std::get_if<UvmCreateRange>(&action)) {
        *undo = UvmFreeRange{range->uvm, range->va, range->length};
    } else {
        return false;
    }
    return true;
}

std::vector<Action> undo_all(std::span<const Action> done) {
    std::vector<Action> undo;
    std::vector<std::pair<uint32_t, uint32_t>> freed;
    for (size_t i = done.size(); i-- > 0;) {
        if (const auto* gone = std::get_if<FreeObject>(&done[i])) {
            freed.emplace_back(gone->client, gone->object);
            continue;
        }
        Action one;
        if (!undo_of(done[i], &one)) continue;
        if (const auto* object = std::get_if<FreeObject>(&one)) {
            if (std::erase(freed, std::pair{object->client, object->object}) > 0) continue;
        }
        undo.push_back(one);
    }
    return undo;
}

Redirector::Redirector(const rm::DriverAbi& abi, Options options) : state_(std::make_unique<State>()) {
    state_->abi = &abi;
    state_->options = options;
}
Redirector::~Redirector() = default;

void Redirector::set_wishes(const Wishes& wishes) {
    if (wishes == state_->wishes) return;
    state_->wishes = wishes;
    state_->announce_host();
}

void Redirector::announce_again() {
    state_->announced_client = 0;
    state_->announce_host();
}

const Wishes& Redirector::wishes() const { return state_->wishes; }

Plan Redirector::before(const Call& call) {
    const size_t size = arg_size(call.role, call.request, *state_->abi);
    if (size == 0 || call.arg.size() < size) return {};
    if (call.role == FileRole::kUvm) return state_->before_uvm(call);
    switch (rm::ioctl_number(call.request)) {
        case rm::escape::kAlloc: return state_->before_alloc(call);
        case rm::escape::kControl: return state_->before_control(call);
        case rm::escape::kFree: return state_->before_free(call);
        default: return {};
    }
}

Plan Redirector::attached(const Plan& plan, const Call& call, const Offer& offer) {
    if (plan.intent.kind == Intent::Kind::kFree) return state_->before_free(call, true);
    if (!offer.ok) {
        const Reason reason = plan.disposition == Plan::Disposition::kWait ? Reason::kBusy : Reason::kAttachFailed;
        return state_->decline(call, plan.intent, {reason, 0, 0, 0}, false);
    }
    return state_->merge_with(call, plan, nullptr, &offer);
}

Plan Redirector::refused(const Plan& plan, const Call& call, size_t failed, std::span<const ActionResult> results) {
    State& s = *state_;
    const Intent& intent = plan.intent;
    const uint32_t status = failed < results.size() ? results[failed].status : kNvErrOperatingSystem;
    if (intent.kind == Intent::Kind::kInject) {
        if (Tsg* t = s.tsg(intent.client, intent.tsg)) t->legacy = true;
        s.notice(Notice::Kind::kUnshared, {Reason::kCtxshareRefused, status, 0, 0});
        return {};
    }
    if (intent.kind != Intent::Kind::kMerge || failed >= plan.before.size()) return {};

    const Action& action = plan.before[failed];
    Refusal why{Reason::kImportRefused, status, 0, 0};
    if (const auto* map = std::get_if<UvmMapRange>(&action)) {
        const Host host = s.host();
        if (!intent.attach && !intent.transfer && host.client == map->client && host.client != 0) {
            Plan again = plan;
            again.intent.transfer = true;
            return s.merge_with(call, again, &host, nullptr);
        }
        why = {Reason::kBufferRefused, status, map->va, 0};
    } else if (const auto* range = std::get_if<UvmCreateRange>(&action)) {
        why = {Reason::kBufferOverlap, status, range->va, 0};
    } else if (const auto* share = std::get_if<AllocCtxshare>(&action)) {
        why = share->patient ? Refusal{Reason::kVeidTaken, status, share->veid, 0}
                             : Refusal{Reason::kCtxshareRefused, status, 0, 0};
    } else if (failed > 0) {
        why.reason = Reason::kBufferRefused;
    }
    return s.decline(call, intent, why, intent.attach);
}

Plan Redirector::after(const Plan& plan, const Call& call, const Outcome& outcome,
                       std::span<const ActionResult> results) {
    State& s = *state_;
    Plan done;
    done.disposition = Plan::Disposition::kDone;
    const Intent& intent = plan.intent;
    const size_t size = arg_size(call.role, call.request, *s.abi);
    const size_t status_at = status_offset(call.role, call.request, *s.abi);
    if (size == 0 || call.arg.size() < size || outcome.arg.size() < size) return done;
    const uint32_t status = outcome.result == 0 ? load<uint32_t>(outcome.arg, status_at) : kNvErrOperatingSystem;

    switch (intent.kind) {
        case Intent::Kind::kMerge: {
            if (status == kNvOk && s.finish_merge(plan, results)) {
                s.track(call, outcome);
                s.mark_moved(call, outcome, intent);
                return done;
            }
            const Reason reason = intent.legacy ? Reason::kChannelRefused : Reason::kCtxshareRefused;
            Plan again = s.decline(call, intent, {reason, status, 0, 0}, intent.attach);
            again.before = undo_all(plan.before);
            again.intent.kind = Intent::Kind::kOldWay;
            return again;
        }
        case Intent::Kind::kMoveChannel: {
            Tsg* t = s.tsg(intent.client, intent.tsg);
            if (t == nullptr || t->merge == nullptr) return done;
            if (status == kNvOk) {
                s.track(call, outcome);
                s.mark_moved(call, outcome, intent);
                return done;
            }
            if (t->merge->moved == 0)
                return s.back_to_native(call, intent.client, intent.tsg, {Reason::kChannelRefused, status, 0, 0});
            if (t->merge->partial) {  // this one and the rest stay in CUDA's own TSG
                t->merge->limit = t->merge->moved;
                Plan again;
                again.intent.kind = Intent::Kind::kOldWay;
                return again;
            }
            return done;
        }
        case Intent::Kind::kMoveCtxshare:
            if (status == kNvOk) {
                s.track(call, outcome);
                s.mark_moved(call, outcome, intent);
            }
            return done;
        case Intent::Kind::kInject:
            if (status == kNvOk) {
                if (Tsg* t = s.tsg(intent.client, intent.tsg)) {
                    (intent.partial ? t->injected_thread : t->injected) = intent.ctxshare;
                }
                s.track(call, outcome);
            } else if (!plan.before.empty()) {
                Plan again;
                again.before = undo_all(plan.before);
                again.intent.kind = Intent::Kind::kOldWay;
                return again;
            }
            return done;
        case Intent::Kind::kSchedule: s.scheduled(intent, status); return done;
        case Intent::Kind::kFree:
            // First: the shared handle is gone even if RM then refused to free what the program named.
            s.forget_freed(load<rm::FreeArgs>(call.arg));
            s.track(call, outcome);
            return done;
        case Intent::Kind::kOldWay:
            // CUDA's context share did not come back to CUDA's own group: RM has it no more.
            for (size_t i = 0; i < plan.before.size() && i < results.size(); ++i) {
                const auto* lost = std::get_if<AllocCtxshare>(&plan.before[i]);
                if (lost != nullptr && results[i].status != kNvOk) s.forget_object(lost->client, lost->object);
            }
            s.track(call, outcome);
            return done;
        case Intent::Kind::kNone: s.track(call, outcome); return done;
    }
    return done;
}

void Redirector::abandoned(const Plan& plan) {
    if (plan.intent.kind != Intent::Kind::kMerge) return;
    Tsg* t = state_->tsg(plan.intent.client, plan.intent.tsg);
    if (t != nullptr && t->merge == nullptr) t->stage = Tsg::Stage::kNative;
    state_->stop_merging(plan.intent);
}

std::vector<Action> Redirector::file_closed(FileId file) {
    State& s = *state_;
    std::vector<Action> ranges;
    std::vector<uint32_t> gone;
    for (auto& [handle, owner] : s.clients) {
        if (owner.file == file) gone.push_back(handle);
        for (auto& [space_handle, space] : owner.va_spaces) {
            if (space->uvm == file) space->uvm = 0;
        }
        for (auto& [tsg_handle, t] : owner.tsgs) {
            if (t.merge != nullptr && t.merge->uvm == file) t.merge->uvm = 0;
        }
    }
    for (const uint32_t handle : gone) {
        std::vector<Action> objects;  // RM frees them itself
        std::vector<uint32_t> tsgs;
        for (const auto& [tsg_handle, t] : s.clients.at(handle).tsgs) tsgs.push_back(tsg_handle);
        for (const uint32_t tsg_handle : tsgs) {
            s.clean_up(handle, tsg_handle, &objects, &ranges);
            s.forget_tsg(s.clients.at(handle), tsg_handle);
        }
        s.forget_client(handle);
    }
    std::erase_if(ranges, [](const Action& action) {
        const auto* range = std::get_if<UvmFreeRange>(&action);
        return range == nullptr || range->uvm == 0;
    });
    return ranges;
}

void Redirector::device_created() { state_->settled = true; }

void Redirector::stop_sharing(const Refusal& why) { state_->stopped = why; }

Host Redirector::host() const { return state_->host(); }

Host Redirector::host_only() const { return state_->host_only(); }

Subdevice Redirector::sharing_subdevice() const { return state_->sharing_subdevice(); }

std::vector<Notifier> Redirector::notifiers() const { return state_->notifiers(); }

void Redirector::host_died(uint64_t order) {
    state_->dead_host = order;
    state_->announce_host();  // there may be another one already
}

std::vector<Notice> Redirector::take_notices() { return std::exchange(state_->notices, {}); }

size_t Redirector::tracked() const {
    size_t total = 0;
    for (const auto& [handle, owner] : state_->clients) total += 1 + owner.size();
    return total;
}

uint64_t Redirector::looks() const { return state_->looks; }

}  // namespace vuda::shim
