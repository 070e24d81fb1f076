// The seam of session_abi.h. No exception leaves this file.
#include <algorithm>
#include <cstdlib>
#include <exception>

#include "client/process_state.h"
#include "client/session_abi.h"

namespace {

using namespace vuda;
using namespace vuda::client;

constexpr uint32_t kTimeoutLimitMs = 60000;

Error not_started() { return Error{Code::kFailedPrecondition, "VUDA's session was not started", "please report this"}; }

Error failure(const std::exception& thrown) {
    return Error{Code::kResourceExhausted, std::string("VUDA failed: ") + thrown.what(), ""};
}

Uuid read_uuid(const uint8_t* bytes) {
    Uuid uuid;
    std::copy_n(bytes, uuid.bytes.size(), uuid.bytes.begin());
    return uuid;
}

// Runs `body` with this process's session, if there is one. What it says gets lost where memory does; the program goes
// on.
template <typename Body>
void with_session(Body body) {
    try {
        if (Session* session = ProcessState::get().session()) body(*session);
    } catch (const std::exception&) {
    }
}

void with_partition(void (PartitionClient::*call)()) {
    if (PartitionClient* partition = ProcessState::get().partition()) (partition->*call)();
}

void sharing_began() {
    ProcessState& state = ProcessState::get();
    PartitionClient* partition = state.partition();
    if (partition == nullptr) return;
    // The environment may have changed since the start.
    partition->over_limit(state.over_limit());
    partition->sharing_began();
}

page::Page* session_page() {
    try {
        PartitionClient* partition = ProcessState::get().partition();
        return partition == nullptr ? nullptr : partition->page();
    } catch (const std::exception&) {
        return nullptr;
    }
}

// Moves `set` into the caller's structure. False: no memory, `set` still owns the fds.
bool give(HandleSet& set, vuda_private_handles* out) {
    auto* items = static_cast<vuda_private_handle*>(std::calloc(set.items.size(), sizeof(vuda_private_handle)));
    if (items == nullptr) return false;
    for (size_t i = 0; i < set.items.size(); ++i) {
        const HandleInfo& info = set.items[i].info;
        items[i] = {static_cast<uint32_t>(info.kind),
                    set.items[i].fd.release(),
                    info.va,
                    info.length,
                    info.offset,
                    info.mapping};
    }
    out->items = items;
    out->count = static_cast<uint32_t>(set.items.size());
    out->channels_in_use = set.channels_in_use;
    out->generation = set.generation;
    out->stale_veids = set.stale_veids;
    out->unknown_veids = set.unknown_veids;
    return true;
}

}  // namespace

extern "C" {

uint32_t vuda_private_abi(void) { return VUDA_PRIVATE_ABI; }

void vuda_private_get_wishes(struct vuda_private_wishes* out) {
    *out = {};
    try {
        ProcessState& state = ProcessState::get();
        *out = state.wishes().get();
        const char* reserve = ::secure_getenv("VUDA_RESERVE");
        if (reserve != nullptr && *reserve != '\0' && !parse_reserve(reserve)) {
            state.reporter().say_once(LogLevel::kError, "VUDA_RESERVE",
                                      "VUDA_RESERVE='" + std::string(reserve).substr(0, 32) +
                                          "' is neither a number of channels (1 to 128) nor 'all'; all are used");
        }
    } catch (const std::exception&) {
    }
}

void vuda_private_start(const struct vuda_private_callbacks* callbacks, const char* driver_version) {
    try {
        ProcessState::get().start(*callbacks, driver_version != nullptr ? driver_version : "");
    } catch (const std::exception&) {
    }
}

void vuda_private_register(const char* name, const uint8_t gpu_uuid[16]) {
    with_session(
        [&](Session& session) { session.set_registration(name, read_uuid(gpu_uuid), ProcessState::get().allowed()); });
}

int vuda_private_va_slot(uint32_t timeout_ms) {
    int slot = -1;
    with_session([&](Session& session) {
        const auto known = session.va_slot(std::chrono::milliseconds(std::min(timeout_ms, kTimeoutLimitMs)));
        if (known) slot = static_cast<int>(*known);
    });
    return slot;
}

int vuda_private_attach(const char* name, const uint8_t gpu_uuid[16], uint32_t channels, uint64_t va_base,
                        uint32_t timeout_ms, struct vuda_private_handles* out, struct vuda_private_error* error) {
    *out = {};
    try {
        Session* session = ProcessState::get().session();
        if (session == nullptr) {
            fill_error(error, not_started());
            return -1;
        }
        Result<HandleSet> set = session->attach(name, read_uuid(gpu_uuid), channels,
                                                std::chrono::milliseconds(std::min(timeout_ms, kTimeoutLimitMs)),
                                                ProcessState::get().limit_terms(), va_base);
        if (set && give(*set, out)) return 0;
        if (set) {
            AttachOutcome outcome;
            outcome.reason = Error{Code::kResourceExhausted, "out of memory", ""};
            session->attach_done(outcome);
            fill_error(error, outcome.reason);
        } else {
            fill_error(error, set.error());
        }
    } catch (const std::exception& thrown) {
        fill_error(error, failure(thrown));
    }
    return -1;
}

void vuda_private_attach_done(uint32_t channels_moved, uint32_t veid, uint64_t veids, uint32_t control_buffers,
                              uint32_t attach_us, const struct vuda_private_error* reason) {
    with_session([&](Session& session) {
        AttachOutcome outcome;
        outcome.reason = read_error(reason);
        outcome.state = outcome.reason.code == Code::kOk ? SharingState::kSharing : SharingState::kUnshared;
        outcome.channels_moved = channels_moved;
        outcome.veid = veid;
        outcome.veids = veids;
        outcome.control_buffers = control_buffers;
        outcome.attach_us = attach_us;
        session.attach_done(outcome);
        if (outcome.state == SharingState::kSharing) sharing_began();
    });
}

void vuda_private_context_left(uint64_t veids, uint32_t channels) {
    with_session([&](Session& session) { session.context_left(veids, channels); });
}

void vuda_private_own_subcontexts(uint64_t taken, uint64_t stale) {
    with_session([&](Session& session) { session.own_subcontexts(taken, stale); });
}

void vuda_private_detached(const struct vuda_private_error* reason) {
    with_session([&](Session& session) {
        session.detached(read_error(reason));
        with_partition(&PartitionClient::sharing_ended);
    });
}

void vuda_private_mirror_changed(void) {
    with_session([](Session& session) { session.control_buffers_changed(); });
}

void vuda_private_report(uint32_t state, const struct vuda_private_error* reason) {
    if (state > static_cast<uint32_t>(SharingState::kFaulted)) return;
    with_session([&](Session& session) {
        // Sharing within one process needs no turn, and so ends in no vuda_private_attach_done.
        const bool began = static_cast<SharingState>(state) == SharingState::kSharing &&
                           session.snapshot().state != SharingState::kSharing;
        session.set_state(static_cast<SharingState>(state), read_error(reason));
        if (began) sharing_began();
    });
}

int vuda_private_wants_samples(uint32_t kind) {
    const page::Page* page = session_page();
    if (page == nullptr || kind < 1 || kind > page::kSampleKinds) return 0;
    return (page->daemon.wanted.load(std::memory_order_relaxed) >> kind & 1) != 0 ? 1 : 0;
}

void vuda_private_sample(uint32_t kind, uint64_t id, uint64_t end_ns, uint64_t duration_ns) {
    page::Page* page = session_page();
    if (page == nullptr || kind < 1 || kind > page::kSampleKinds) return;
    page::SampleWriter(*page).push({static_cast<page::SampleKind>(kind), id, end_ns, duration_ns});
}

void vuda_private_device_lost(void) {
    with_session([](Session& session) { session.device_lost(); });
}

void vuda_private_ending(void) {
    with_session([](Session& session) { session.ending(ProcessState::get().untold_kernel()); });
}

int vuda_private_turns(uint32_t* graphics_permille, uint64_t* frame_ns) {
    *graphics_permille = 0;
    *frame_ns = 0;
    page::Page* page = session_page();
    if (page == nullptr) return 0;
    page::SampleWriter writer(*page);
    if (page->process.paces.load(std::memory_order_relaxed) == 0) writer.set_paces();
    page::Split split;
    if (!page::read_split(page->daemon, split) || split.mode != page::SplitMode::kSliced) return 0;
    if (writer.applied() != split.generation) writer.set_applied(split.generation);
    *graphics_permille = split.graphics_permille;
    *frame_ns = split.frame_ns;
    return 1;
}

int vuda_private_turn_slice(uint32_t us) {
    try {
        return ProcessState::get().turn_slice(us) ? 1 : 0;
    } catch (const std::exception&) {
        return 1;
    }
}

uint64_t vuda_private_disable_mask(uint64_t mask[4]) {
    page::Split split;
    try {
        if (PartitionClient* partition = ProcessState::get().partition()) split = partition->own_launch();
    } catch (const std::exception&) {
        split = {};
    }
    std::copy(std::begin(split.disable), std::end(split.disable), mask);
    return split.generation;
}

int vuda_private_own_kernel(uint32_t shared_memory, uint32_t limit) {
    try {
        PartitionClient* partition = ProcessState::get().partition();
        return partition == nullptr ? 0 : partition->own_kernel(shared_memory, limit);
    } catch (const std::exception&) {
        return 0;
    }
}

int vuda_private_watch_launches(int on) {
    try {
        PartitionClient* partition = ProcessState::get().partition();
        return partition != nullptr && partition->watch_launches(on != 0) ? 1 : 0;
    } catch (const std::exception&) {
        return 0;
    }
}

void vuda_private_after_fork_in_child(void) { ProcessState::abandon_in_child(); }

}  // extern "C"
