#include "client/process_state.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "client/names.h"
#include "client/own_fd.h"

namespace vuda::client {
namespace {

constexpr char kDefaultSocket[] = "/run/vuda/handles.sock";

constinit std::atomic<ProcessState*> g_state{nullptr};
constinit std::atomic<ProcessState*> g_abandoned{nullptr};

template <size_t size>
void copy_text(char (&to)[size], const std::string& text) {
    const size_t length = std::min(text.size(), size - 1);
    std::memcpy(to, text.data(), length);
    to[length] = '\0';
}

template <size_t size>
std::string text_of(const char (&from)[size]) {
    return plain_text({from, ::strnlen(from, size)}, size);
}

// Of the file that this process runs; empty when the kernel does not say.
std::string executable_path() {
    char path[1025];
    const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
    return size > 0 && size < static_cast<ssize_t>(sizeof path) ? std::string(path, static_cast<size_t>(size)) : "";
}

bool fitted() {
    const char* value = ::secure_getenv("VUDA_FIT_KERNELS");
    return value != nullptr && std::strcmp(value, "1") == 0;
}

}  // namespace

void fill_error(vuda_private_error* out, const Error& error) {
    if (out == nullptr) return;
    out->code = static_cast<int32_t>(error.code);
    copy_text(out->text, error.text);
    copy_text(out->hint, error.hint);
}

Error read_error(const vuda_private_error* in) {
    if (in == nullptr || in->code == 0) return Error{Code::kOk, "", ""};
    return Error{in->code >= 1 && in->code <= 16 ? static_cast<Code>(in->code) : Code::kUnknown, text_of(in->text),
                 text_of(in->hint)};
}

Result<HandleSet> CallbackHost::export_host(uint64_t held) {
    if (callbacks_.export_host == nullptr) return Error{Code::kUnimplemented, "this process cannot export a TSG", ""};
    vuda_private_handles raw{};
    vuda_private_error error{};
    if (callbacks_.export_host(callbacks_.context, held, &raw, &error) != 0) {
        Error failure = read_error(&error);
        if (failure.code == Code::kOk) failure = Error{Code::kInternal, "export failed without a reason", ""};
        return failure;
    }
    const std::unique_ptr<vuda_private_handle, decltype(&std::free)> items(raw.items, &std::free);
    HandleSet set;
    set.channels_in_use = raw.channels_in_use;
    set.generation = raw.generation;
    // All fds get their owner before anything is judged.
    for (uint32_t i = 0; i < raw.count; ++i) {
        const vuda_private_handle& item = raw.items[i];
        set.items.push_back(
            {HandleInfo{static_cast<HandleKind>(item.kind), item.va, item.length, item.offset, item.mapping},
             UniqueFd(item.fd)});
    }
    return set;
}

void CallbackHost::detach_command(const Error& reason) {
    if (reason.code != Code::kUnavailable) wishes_.clear();
    if (callbacks_.detach_command == nullptr) return;
    vuda_private_error raw{};
    fill_error(&raw, reason);
    callbacks_.detach_command(callbacks_.context, &raw);
}

void CallbackHost::guard_fd(int fd, bool guarded) {
    if (fd >= 0 && callbacks_.guard_fd != nullptr) callbacks_.guard_fd(callbacks_.context, fd, guarded ? 1 : 0);
}

void CallbackHost::register_failed(const Error& error) {
    if (callbacks_.register_failed == nullptr) return;
    vuda_private_error raw{};
    fill_error(&raw, error);
    callbacks_.register_failed(callbacks_.context, &raw);
}

SessionHost::Faults CallbackHost::look_for_faults() {
    Faults faults;
    if (callbacks_.look_for_faults == nullptr) return faults;
    vuda_private_faults raw{};
    const uint32_t found = callbacks_.look_for_faults(callbacks_.context, &raw);
    faults.own = (found & VUDA_PRIVATE_OWN_TSG) != 0;
    faults.shared = (found & VUDA_PRIVATE_SHARED_TSG) != 0;
    faults.own_xid = raw.own_xid;
    faults.shared_xid = raw.shared_xid;
    faults.stuck = (found & VUDA_PRIVATE_STUCK) != 0;
    faults.stuck_over = (found & VUDA_PRIVATE_STUCK_OVER) != 0;
    faults.replays = raw.replays;
    return faults;
}

bool CallbackHost::follows_from(uint64_t held) {
    return callbacks_.follows_from != nullptr && callbacks_.follows_from(callbacks_.context, held) != 0;
}

Result<MirrorChange> CallbackHost::mirror_delta(bool idle) {
    if (callbacks_.mirror_delta == nullptr)
        return Error{Code::kUnimplemented, "this process cannot export buffers", ""};
    vuda_private_mirror raw{};
    vuda_private_error error{};
    if (callbacks_.mirror_delta(callbacks_.context, idle ? 1 : 0, &raw, &error) != 0) return read_error(&error);
    const std::unique_ptr<vuda_private_handle, decltype(&std::free)> added(raw.added, &std::free);
    const std::unique_ptr<vuda_private_range, decltype(&std::free)> removed(raw.removed, &std::free);
    MirrorChange change;
    change.from = raw.from;
    change.to = raw.to;
    change.more = raw.more != 0;
    change.rest = raw.rest != 0;
    for (uint32_t i = 0; i < raw.added_count; ++i) {
        const vuda_private_handle& item = raw.added[i];
        change.added.push_back({HandleInfo{HandleKind::kControlBuffer, item.va, item.length, item.offset, item.mapping},
                                UniqueFd(item.fd)});
    }
    for (uint32_t i = 0; i < raw.removed_count; ++i) {
        change.removed.push_back({raw.removed[i].va, raw.removed[i].length, raw.removed[i].mapping});
    }
    return change;
}

Status CallbackHost::mirror_update(const MirrorChange& change) {
    if (callbacks_.mirror_update == nullptr) return Error{Code::kUnimplemented, "this process cannot mirror", ""};
    std::vector<vuda_private_handle> added;
    std::vector<vuda_private_range> removed;
    for (const ExportedHandle& one : change.added) {
        added.push_back({static_cast<uint32_t>(one.info.kind), one.fd.get(), one.info.va, one.info.length,
                         one.info.offset, one.info.mapping});
    }
    for (const MirrorRange& one : change.removed) removed.push_back({one.va, one.length, one.mapping});
    vuda_private_mirror raw{};
    raw.from = change.from;
    raw.to = change.to;
    raw.removed = removed.data();
    raw.removed_count = static_cast<uint32_t>(removed.size());
    raw.added = added.data();
    raw.added_count = static_cast<uint32_t>(added.size());
    vuda_private_error error{};
    if (callbacks_.mirror_update(callbacks_.context, &raw, &error) == 0) return {};
    return read_error(&error);
}

void CallbackHost::others_subcontexts(const Subcontexts& now) {
    if (callbacks_.others_subcontexts != nullptr)
        callbacks_.others_subcontexts(callbacks_.context, now.taken, now.stale);
}

bool CallbackHost::turn_slice(uint32_t us) const {
    return callbacks_.turn_slice == nullptr || callbacks_.turn_slice(callbacks_.context, us) != 0;
}

Status CallbackHost::page_received(int fd, uint64_t bytes) { return partition_.page_received(fd, bytes); }

void ProcessState::want_mode(partition::Mode mode) {
    const std::lock_guard lock(start_mutex_);
    if (owned_session_) return owned_session_->set_mode(mode);
    early_mode_ = mode;
}

void ProcessState::want_quota(const QuotaWish& quota) {
    const std::lock_guard lock(start_mutex_);
    if (owned_session_) return owned_session_->set_quota(quota);
    early_quota_ = quota;
}

void ProcessState::want_targets(const TargetsWish& targets) {
    const std::lock_guard lock(start_mutex_);
    if (owned_session_) return owned_session_->set_targets(targets);
    early_targets_ = targets;
}

AllowList ProcessState::allowed() {
    Result<AllowList> list = wishes_.allowed();
    if (list) return *std::move(list);
    Error error = list.error();
    error.text += "; nobody but this user and root may attach";
    reporter_.say_once(LogLevel::kError, "allow list", error.to_string());
    return {};
}

limits::OverLimit ProcessState::over_limit() {
    const Result<limits::OverLimit> asked = wishes_.over_limit();
    const limits::OverLimit policy = limits::over_limit_of(asked ? *asked : limits::kDefaultOverLimit, fitted());
    if (!asked) {
        reporter_.say_once(LogLevel::kError, "over limit",
                           asked.error().to_string() + "; it is " + std::string(limits::over_limit_text(policy)));
    } else if (policy != *asked) {
        reporter_.say_once(LogLevel::kInfo, "over limit of a fitted program",
                           "kernels that are too large to share are refused: they may have been chosen by a number "
                           "that is not the GPU's (--fit-kernels)");
    }
    return policy;
}

LimitTerms ProcessState::limit_terms() { return {over_limit(), fitted()}; }

std::optional<LargeKernel> ProcessState::untold_kernel() {
    PartitionClient* partition = this->partition();
    if (partition == nullptr) return std::nullopt;
    const std::optional<partition::Refusals> untold = partition->untold_refusal();
    return untold ? std::optional(LargeKernel{untold->bytes, untold->limit, fitted()}) : std::nullopt;
}

void ProcessState::launch_refused(uint32_t bytes, uint32_t limit) {
    const LimitTerms terms = limit_terms();
    const LargeKernel kernel{bytes, limit, terms.fitted};
    std::string consequence;
    if (terms.over_limit == limits::OverLimit::kUnshare) {
        if (Session* session = this->session(); session != nullptr && session->does_not_fit(kernel)) return;
        // It shares with its own renderer: nobody else has a part in that, and nobody is told.
        wishes_.keep_apart();
        consequence = "the next context of this process does not run in its renderer's TSG";
    } else if (PartitionClient* partition = this->partition();
               terms.over_limit == limits::OverLimit::kNative && partition) {
        const std::string why = partition->view().state.native_reason;
        if (!why.empty()) consequence = "it cannot run in a TSG of CUDA's own: " + why + " (docs/compatibility.md)";
    }
    reporter_.say_once(LogLevel::kError, "launch refused", launch_refused_text(kernel, consequence));
}

ProcessState::ProcessState() : pid_(::getpid()), reporter_(parse_log_level(::secure_getenv("VUDA_LOG"))) {}

ProcessState& ProcessState::get() {
    ProcessState* state = g_state.load(std::memory_order_acquire);
    if (state != nullptr && state->pid_ != ::getpid()) {
        // A child made by clone() without the handlers of pthread_atfork.
        abandon_in_child();
        state = nullptr;
    }
    if (state != nullptr) return *state;
    auto made = std::make_unique<ProcessState>();
    if (g_state.compare_exchange_strong(state, made.get(), std::memory_order_acq_rel)) return *made.release();
    return *state;
}

void ProcessState::abandon_in_child() {
    close_own_fds_in_child();
    ProcessState* state = g_state.exchange(nullptr, std::memory_order_acq_rel);
    if (state == nullptr) return;
    state->older_ = g_abandoned.exchange(state, std::memory_order_acq_rel);
}

bool ProcessState::turn_slice(uint32_t us) {
    // The session is published last, so that with it there is the host.
    return session() == nullptr || host_->turn_slice(us);
}

void ProcessState::start(const vuda_private_callbacks& callbacks, const std::string& driver_version) {
    const std::lock_guard lock(start_mutex_);
    if (owned_session_) return;
    const char* socket = ::secure_getenv("VUDA_HANDLE_SOCKET");
    owned_partition_ = std::make_unique<PartitionClient>(
        callbacks,
        [this](const partition::PartitionState& state) {
            if (Session* session = this->session()) session->set_partition_state(state);
        },
        partition::find_cuda, [this](uint32_t bytes, uint32_t limit) { launch_refused(bytes, limit); },
        [this] {
            reporter_.say_once(
                LogLevel::kError, "managed memory refused",
                "managed memory is refused (CUDA error 801): a kernel that fetches it by a page fault would end the "
                "renderer; start this program unshared (docs/compatibility.md)");
        });
    owned_partition_->over_limit(over_limit());
    host_ = std::make_unique<CallbackHost>(callbacks, wishes_, *owned_partition_);
    owned_session_ = std::make_unique<Session>(
        SessionOptions{socket != nullptr && *socket != '\0' ? socket : kDefaultSocket, VUDA_VERSION_TEXT,
                       driver_version, program_invocation_short_name, executable_path()},
        *host_, reporter_);
    if (wishes_.get().attach_name[0] != '\0') owned_session_->connect_ahead(wishes_.get().attach_name);
    if (early_mode_) owned_session_->set_mode(*early_mode_);
    if (early_quota_) owned_session_->set_quota(*early_quota_);
    if (early_targets_) owned_session_->set_targets(*early_targets_);
    partition_.store(owned_partition_.get(), std::memory_order_release);
    session_.store(owned_session_.get(), std::memory_order_release);
}

}  // namespace vuda::client
