#include "shim/preload/call_runner.h"

#include <cerrno>
#include <cstring>

#include "base/fault_point.h"
#include "shim/preload/decode.h"

namespace vuda::shim {
namespace {

// Wait, attach, merge, fall back, forward, follow: more is a bug of ours, and not the program's problem.
constexpr int kMaxRounds = 64;

uint64_t load_field(std::span<const uint8_t> block, const Edit& edit) {
    uint64_t value = 0;
    std::memcpy(&value, block.data() + edit.offset, edit.size);
    return value;
}

void store_field(std::span<uint8_t> block, const Edit& edit, uint64_t value) {
    std::memcpy(block.data() + edit.offset, &value, edit.size);
}

bool fits(const Edit& edit, size_t size) { return edit.size <= 8 && size_t{edit.offset} + edit.size <= size; }

// Writes the bytes of `now` that differ from `before`, in runs.
bool write_changes(Forwarder& forwarder, Edit::Where where, Bytes before, Bytes now) {
    size_t i = 0;
    while (i < now.size()) {
        if (now[i] == before[i]) {
            ++i;
            continue;
        }
        size_t end = i;
        while (end < now.size() && now[end] != before[end]) ++end;
        if (!forwarder.write(where, i, now.subspan(i, end - i))) return false;
        i = end;
    }
    return true;
}

struct Ran {
    std::vector<ActionResult> results;
    size_t failed = SIZE_MAX;
    uint32_t status = kNvOk;
};

Ran run_actions(Executor& executor, const Plan& plan) {
    Ran ran;
    for (size_t i = 0; i < plan.before.size(); ++i) {
        ran.results.push_back(executor.run(plan.before[i]));
        if (ran.results.back().status == kNvOk) continue;
        if (ran.failed == SIZE_MAX) {
            ran.failed = i;
            ran.status = ran.results.back().status;
        }
        if (plan.on_failure == Plan::OnFailure::kUndo) break;
    }
    return ran;
}

}  // namespace

bool apply_edits(Edit::Where where, std::span<const Edit> edits, std::span<uint8_t> block) {
    for (const Edit& edit : edits) {
        if (edit.where != where) continue;
        if (!fits(edit, block.size())) return false;
        store_field(block, edit, edit.value);
    }
    return true;
}

std::vector<uint8_t> visible_block(Edit::Where where, std::span<const uint8_t> original, std::span<const uint8_t> sent,
                                   std::span<const uint8_t> left, std::span<const Edit> edits) {
    std::vector<uint8_t> visible(original.begin(), original.end());
    for (size_t i = 0; i < visible.size(); ++i) {
        if (left[i] != sent[i]) visible[i] = left[i];
    }
    for (const Edit& edit : edits) {
        if (edit.where != where || !fits(edit, visible.size())) continue;
        store_field(visible, edit, (load_field(left, edit) & ~edit.keep) | (load_field(original, edit) & edit.keep));
    }
    return visible;
}

int run_call(RedirectorAccess& redirector, Executor& executor, Attacher& attacher, Forwarder& forwarder,
             const Call& call) {
    // The descriptors of an offer live as long as this call.
    struct OfferKeeper {
        Attacher& attacher;
        std::vector<Offer> offers;
        ~OfferKeeper() {
            for (Offer& offer : offers) attacher.release(&offer);
        }
    } keeper{attacher, {}};

    Plan plan = redirector.before(call);
    int result = 0;
    const int entry = errno;  // a successful ioctl leaves errno alone, and so do we
    int error = entry;
    bool answered = false;  // what the program asked for was done or refused, and its memory says so
    const auto forward = [&] {
        result = forwarder.forward();
        error = result < 0 ? errno : entry;
        answered = true;
    };
    const auto take_back = [&] {
        for (const Action& undo : undo_all(plan.before)) executor.run(undo);
    };
    for (int round = 0; round < kMaxRounds; ++round) {
        if (plan.disposition == Plan::Disposition::kAttach) {
            keeper.offers.push_back(attacher.attach(plan.attach));
            plan = redirector.attached(plan, call, keeper.offers.back());
            continue;
        }

        if (plan.disposition == Plan::Disposition::kWait) {
            plan = redirector.wait(plan, call);
            continue;
        }

        Ran ran = run_actions(executor, plan);
        if (ran.failed != SIZE_MAX && plan.on_failure == Plan::OnFailure::kUndo) {
            for (const Action& undo : undo_all(std::span(plan.before).first(ran.failed))) executor.run(undo);
            plan = redirector.refused(plan, call, ran.failed, ran.results);
            continue;
        }
        if (plan.disposition == Plan::Disposition::kDone) break;

        std::vector<uint8_t> arg(call.arg.begin(), call.arg.end());
        std::vector<uint8_t> params(call.params.begin(), call.params.end());
        Outcome outcome;
        // Neither a place that is not there for the status nor an edit outside of its block can be while plans are
        // right; the program must not pay if they are not.
        const bool failed_answer = ran.failed != SIZE_MAX && plan.on_failure == Plan::OnFailure::kAnswer;
        if (plan.disposition == Plan::Disposition::kAnswer || failed_answer) {
            const uint32_t status = failed_answer ? ran.status : plan.status;
            if (plan.status_offset == 0 || plan.status_offset + sizeof status > arg.size()) {
                take_back();
                break;
            }
            std::memcpy(arg.data() + plan.status_offset, &status, sizeof status);
            outcome = {0, arg, params};
            const Plan next = redirector.after(plan, call, outcome, ran.results);
            const bool written = forwarder.write(Edit::Where::kArg, plan.status_offset,
                                                 Bytes(arg).subspan(plan.status_offset, sizeof status));
            result = written ? 0 : -1;
            error = written ? entry : EFAULT;
            answered = true;
            plan = next;
            continue;
        }

        if (plan.edits.empty()) {
            forward();
            const bool readable = forwarder.read(Edit::Where::kArg, arg) &&
                                  (params.empty() || forwarder.read(Edit::Where::kParams, params));
            outcome = {readable ? result : -1, arg, params};
        } else {
            if (!apply_edits(Edit::Where::kArg, plan.edits, arg) ||
                !apply_edits(Edit::Where::kParams, plan.edits, params)) {
                take_back();
                break;
            }
            const std::vector<uint8_t> sent_arg = arg;
            const std::vector<uint8_t> sent_params = params;
            result = forwarder.forward_copy(arg, params);
            error = result < 0 ? errno : entry;
            VUDA_FAULT_POINT(shim_call_rewritten);
            if (!params.empty()) {
                std::memcpy(arg.data() + forwarder.pointer_offset(), call.arg.data() + forwarder.pointer_offset(),
                            sizeof(uint64_t));
            }
            outcome = {result, arg, params};
            const Plan next = redirector.after(plan, call, outcome, ran.results);
            if (next.disposition != Plan::Disposition::kForward) {
                answered = true;
                const auto seen_arg = visible_block(Edit::Where::kArg, call.arg, sent_arg, arg, plan.edits);
                const auto seen_params =
                    visible_block(Edit::Where::kParams, call.params, sent_params, params, plan.edits);
                if (!write_changes(forwarder, Edit::Where::kArg, call.arg, seen_arg) ||
                    !write_changes(forwarder, Edit::Where::kParams, call.params, seen_params)) {
                    result = -1;
                    error = EFAULT;
                }
            }
            plan = next;
            continue;
        }
        const Plan next = redirector.after(plan, call, outcome, ran.results);
        for (const Action& cleanup : plan.after) executor.run(cleanup);
        plan = next;
    }
    if (!answered) {
        redirector.abandoned(plan);
        forward();
    }
    errno = error;
    return result;
}

}  // namespace vuda::shim
