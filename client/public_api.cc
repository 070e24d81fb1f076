// The calls of vuda.h: record the wish, and let the preload know. No exception leaves this file.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include "base/monotonic.h"
#include "client/names.h"
#include "client/process_state.h"
#include "vuda/vuda.h"

namespace {

using namespace vuda;
using namespace vuda::client;

// Plain storage: nothing to destroy when a thread ends after this library's users.
thread_local char t_last_error[512];

void copy_text(char* to, size_t size, std::string_view text) {
    const size_t length = std::min(text.size(), size - 1);
    std::memcpy(to, text.data(), length);
    to[length] = '\0';
}

int fail(int code, std::string_view text) {
    copy_text(t_last_error, sizeof t_last_error, text);
    return code;
}

// VUDA_OK when a wish can have an effect in this process.
int check_shim() {
    const char* disabled = ::secure_getenv("VUDA_DISABLE");
    if (disabled != nullptr && std::strcmp(disabled, "1") == 0) {
        return fail(VUDA_E_DISABLED, "VUDA is disabled by VUDA_DISABLE=1; unset it to share");
    }
    if (::dlsym(RTLD_DEFAULT, "vuda_preload_abi_version") == nullptr) {
        return fail(
            VUDA_E_NO_SHIM,
            "libvuda_preload.so is not loaded in this process; run it under vudactl run (vudactl run -- PROGRAM)");
    }
    return VUDA_OK;
}

int check_name(const char* call, const char* name) {
    if (name == nullptr) return fail(VUDA_E_INVALID, std::string(call) + ": the name is NULL; pass the name of a TSG");
    if (!valid_name(name)) {
        return fail(VUDA_E_INVALID,
                    std::string(call) + ": '" + plain_text(name, VUDA_MAX_NAME) +
                        "' is not a valid name; use 1 to 64 of A-Z a-z 0-9 . _ -, not starting with . or -");
    }
    return VUDA_OK;
}

// The preload looks at the wishes when it makes a context; this tells it that a TSG which exists already may be wanted.
void tell_preload() {
    void* found = ::dlsym(RTLD_DEFAULT, "vuda_preload_wishes_changed");
    if (found == nullptr) return;
    void (*changed)();
    std::memcpy(&changed, &found, sizeof changed);  // POSIX guarantees the size; a cast would be pedantically invalid
    changed();
}

template <typename Change>
int apply(Change change) {
    try {
        if (const int code = check_shim(); code != VUDA_OK) return code;
        change(ProcessState::get());
        tell_preload();
        return VUDA_OK;
    } catch (const std::bad_alloc&) {
        return fail(VUDA_E_NO_MEMORY, "out of memory; the call had no effect");
    } catch (const std::exception& thrown) {
        return fail(VUDA_E_INTERNAL, std::string("internal error: ") + thrown.what() + "; please report this");
    }
}

// The process's state when somebody takes samples of this kind; else NULL.
ProcessState* listened(page::SampleKind kind) {
    try {
        ProcessState& state = ProcessState::get();
        PartitionClient* partition = state.partition();
        page::Page* page = partition == nullptr ? nullptr : partition->page();
        return page != nullptr && page::SampleWriter(*page).wanted(kind) ? &state : nullptr;
    } catch (const std::exception&) {
        return nullptr;
    }
}

}  // namespace

extern "C" {

uint32_t vuda_version(void) { return VUDA_VERSION; }

const char* vuda_last_error(void) { return t_last_error; }

int vuda_register(const char* name) {
    if (const int code = check_name("vuda_register", name); code != VUDA_OK) return code;
    return apply([name](ProcessState& state) { state.wishes().set_register(name); });
}

int vuda_set_allowed(const struct vuda_allowed* allowed) {
    try {
        std::optional<AllowList> list;
        if (allowed != nullptr) {
            if (allowed->size < sizeof(struct vuda_allowed))
                return fail(VUDA_E_INVALID, "vuda_set_allowed: set allowed.size to sizeof(struct vuda_allowed) first");
            if ((allowed->uids == nullptr && allowed->uid_count != 0) ||
                (allowed->gids == nullptr && allowed->gid_count != 0))
                return fail(VUDA_E_INVALID, "vuda_set_allowed: a list is NULL and its count is not 0");
            // Before anything is read or copied: a count that was never set is mostly a large one.
            if (allowed->uid_count > VUDA_MAX_ALLOWED || allowed->gid_count > VUDA_MAX_ALLOWED)
                return fail(VUDA_E_INVALID, "vuda_set_allowed: more than 64 users or groups; allow a group instead");
            list.emplace();
            list->uids.assign(allowed->uids, allowed->uids + allowed->uid_count);
            list->gids.assign(allowed->gids, allowed->gids + allowed->gid_count);
            if (const Status valid = check_allow_list(*list); !valid)
                return fail(VUDA_E_INVALID, "vuda_set_allowed: " + valid.error().to_string());
        }
        return apply([&list](ProcessState& state) {
            state.wishes().set_allowed(std::move(list));
            if (Session* session = state.session()) session->set_allowed(state.allowed());
        });
    } catch (const std::bad_alloc&) {
        return fail(VUDA_E_NO_MEMORY, "out of memory; the call had no effect");
    }
}

int vuda_attach(const char* name) {
    if (const int code = check_name("vuda_attach", name); code != VUDA_OK) return code;
    return apply([name](ProcessState& state) { state.wishes().set_attach(name); });
}

int vuda_reserve(uint32_t channels) {
    if (channels == 0 || (channels > VUDA_MAX_CHANNELS && channels != VUDA_ALL_CHANNELS)) {
        return fail(VUDA_E_INVALID, "vuda_reserve: " + std::to_string(channels) +
                                        " channels are not possible; use 1 to 128 or VUDA_ALL_CHANNELS");
    }
    return apply([channels](ProcessState& state) { state.wishes().set_reserve(channels); });
}

int vuda_detach(void) {
    return apply([](ProcessState& state) {
        state.wishes().clear();
        if (Session* session = state.session()) session->clear_registration();
    });
}

int vuda_set_mode(int mode) {
    if (mode != VUDA_MODE_INTRA_SM && mode != VUDA_MODE_INTER_SM && mode != VUDA_MODE_SLICED) {
        return fail(VUDA_E_INVALID, "vuda_set_mode: " + std::to_string(mode) +
                                        " is no mode; use VUDA_MODE_INTRA_SM, VUDA_MODE_INTER_SM or VUDA_MODE_SLICED");
    }
    return apply([mode](ProcessState& state) { state.want_mode(static_cast<partition::Mode>(mode)); });
}

int vuda_set_quota(uint32_t tpcs) {
    QuotaWish quota;
    if (tpcs == VUDA_QUOTA_AUTO) {
        quota.kind = QuotaWish::Kind::kAutomatic;
    } else if (tpcs != VUDA_QUOTA_NONE) {
        if (tpcs == 0 || tpcs > VUDA_MAX_TPCS) {
            return fail(VUDA_E_INVALID, "vuda_set_quota: " + std::to_string(tpcs) +
                                            " TPCs are not possible; use 1 to 256, VUDA_QUOTA_AUTO or VUDA_QUOTA_NONE");
        }
        quota = {QuotaWish::Kind::kTpcs, tpcs};
    }
    return apply([quota](ProcessState& state) { state.want_quota(quota); });
}

int vuda_set_slo(const struct vuda_slo* slo) {
    TargetsWish wish;
    if (slo != nullptr) {
        if (slo->size < sizeof(struct vuda_slo)) {
            return fail(VUDA_E_INVALID, "vuda_set_slo: set slo.size to sizeof(struct vuda_slo) first");
        }
        wish = {slo->frame_ms, slo->frame_miss, slo->latency_ms, slo->latency_miss, slo->throughput, slo->weight};
        const struct {
            const char* name;
            double value;
            double most;
        } members[] = {{"frame_ms", wish.frame_ms, 60'000},      {"frame_miss", wish.frame_miss, 1},
                       {"latency_ms", wish.latency_ms, 600'000}, {"latency_miss", wish.latency_miss, 1},
                       {"throughput", wish.throughput, 1e9},     {"weight", wish.weight, 1'000}};
        for (const auto& member : members) {
            // NaN fails both comparisons.
            if (member.value >= 0 && member.value <= member.most) continue;
            return fail(VUDA_E_INVALID, std::string("vuda_set_slo: ") + member.name +
                                            " is out of range; vuda.h gives the ranges, and 0 is none");
        }
    }
    return apply([wish](ProcessState& state) { state.want_targets(wish); });
}

int vuda_set_over_limit(int policy) {
    if (policy != VUDA_OVER_LIMIT_REJECT && policy != VUDA_OVER_LIMIT_UNSHARE && policy != VUDA_OVER_LIMIT_NATIVE) {
        return fail(VUDA_E_INVALID, "vuda_set_over_limit: " + std::to_string(policy) +
                                        " is no policy; use VUDA_OVER_LIMIT_REJECT, VUDA_OVER_LIMIT_UNSHARE or "
                                        "VUDA_OVER_LIMIT_NATIVE");
    }
    return apply([policy](ProcessState& state) {
        state.wishes().set_over_limit(static_cast<limits::OverLimit>(policy));
        if (PartitionClient* partition = state.partition()) partition->over_limit(state.over_limit());
    });
}

int vuda_get_partition(struct vuda_partition* out) {
    if (out == nullptr || out->size < sizeof(struct vuda_partition)) {
        return fail(VUDA_E_INVALID, "vuda_get_partition: set partition.size to sizeof(struct vuda_partition) first");
    }
    struct vuda_partition filled {};
    filled.size = out->size;
    try {
        ProcessState& state = ProcessState::get();
        Error answer{Code::kOk, "", ""};
        if (Session* session = state.session()) answer = session->partition_answer();
        if (PartitionClient* partition = state.partition()) {
            const PartitionView view = partition->view();
            filled.mode = static_cast<int32_t>(view.split.mode);
            filled.backend = static_cast<int32_t>(view.state.backend);
            filled.applied_tpcs = view.split.applied_tpcs;
            filled.total_tpcs = static_cast<uint32_t>(view.state.topology.tpcs.size());
            filled.graphics_tpcs = static_cast<uint32_t>(view.state.topology.graphics_count());
            filled.generation = view.split.generation;
            filled.launches = view.launches;
            if (answer.text.empty()) answer = view.state.reason;
        }
        copy_text(filled.reason, sizeof filled.reason, answer.to_string());
    } catch (const std::exception&) {
        return fail(VUDA_E_NO_MEMORY, "out of memory; try again");
    }
    std::memcpy(out, &filled, sizeof filled);
    return VUDA_OK;
}

void vuda_step_begin(uint64_t id) {
    if (ProcessState* state = listened(page::SampleKind::kStep)) state->steps().begin(id, monotonic_ns());
}

void vuda_step_end(uint64_t id) {
    ProcessState* state = listened(page::SampleKind::kStep);
    if (state == nullptr) return;
    const uint64_t now = monotonic_ns();
    if (const auto duration = state->steps().end(id, now)) {
        page::SampleWriter(*state->partition()->page()).push({page::SampleKind::kStep, id, now, *duration});
    }
}

int vuda_get_state(struct vuda_state* out) {
    if (out == nullptr || out->size < sizeof(struct vuda_state)) {
        return fail(VUDA_E_INVALID, "vuda_get_state: set state.size to sizeof(struct vuda_state) first");
    }
    struct vuda_state filled {};
    filled.size = out->size;
    try {
        if (Session* session = ProcessState::get().session()) {
            const SessionSnapshot now = session->snapshot();
            filled.state = static_cast<int32_t>(now.state);
            filled.channels = now.channels;
            copy_text(filled.name, sizeof filled.name, now.name);
            if (now.reason.code != Code::kOk) {
                copy_text(filled.reason, sizeof filled.reason, now.reason.to_string());
            }
        }
    } catch (const std::exception&) {
        return fail(VUDA_E_NO_MEMORY, "out of memory; try again");
    }
    std::memcpy(out, &filled, sizeof filled);
    return VUDA_OK;
}

}  // extern "C"
