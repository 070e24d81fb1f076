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
            {HandleInfo{static_cast<HandleKind>(item.kind), item.va, item.length, item.offset}, UniqueFd(item.fd)});
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
    uint32_t xids[2] = {};
    const uint32_t found = callbacks_.look_for_faults(callbacks_.context, xids);
    faults.own = (found & VUDA_PRIVATE_OWN_TSG) != 0;
    faults.shared = (found & VUDA_PRIVATE_SHARED_TSG) != 0;
    faults.own_xid = xids[0];
    faults.shared_xid = xids[1];
    return faults;
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

void ProcessState::start(const vuda_private_callbacks& callbacks, const std::string& driver_version) {
    const std::lock_guard lock(start_mutex_);
    if (owned_session_) return;
    const char* socket = ::secure_getenv("VUDA_HANDLE_SOCKET");
    owned_partition_ = std::make_unique<PartitionClient>(
        callbacks,
        [this](const partition::PartitionState& state) {
            if (Session* session = this->session()) session->set_partition_state(state);
        },
        partition::find_cuda,
        [this](uint32_t bytes, uint32_t limit) {
            reporter_.say_once(LogLevel::kError, "launch refused",
                               "a kernel was not run (CUDA error 701): it wants " + std::to_string(bytes) +
                                   " bytes of shared memory a block, beside graphics " + std::to_string(limit) +
                                   " are possible; see docs/compatibility.md");
        });
    host_ = std::make_unique<CallbackHost>(callbacks, wishes_, *owned_partition_);
    owned_session_ = std::make_unique<Session>(
        SessionOptions{socket != nullptr && *socket != '\0' ? socket : kDefaultSocket, VUDA_VERSION_TEXT,
                       driver_version, program_invocation_short_name, executable_path()},
        *host_, reporter_);
    if (wishes_.get().attach_name[0] != '\0') owned_session_->connect_ahead();
    if (early_mode_) owned_session_->set_mode(*early_mode_);
    if (early_quota_) owned_session_->set_quota(*early_quota_);
    if (early_targets_) owned_session_->set_targets(*early_targets_);
    partition_.store(owned_partition_.get(), std::memory_order_release);
    session_.store(owned_session_.get(), std::memory_order_release);
}

}  // namespace vuda::client
