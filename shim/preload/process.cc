#include "shim/preload/process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/fault_point.h"
#include "base/monotonic.h"
#include "base/result.h"
#include "rm/driver_version.h"
#include "rm/va_layout.h"
#include "shim/preload/bootstrap.h"
#include "shim/preload/decode.h"
#include "shim/preload/next.h"
#include "shim/preload/surroundings.h"
#include "shim/preload/user_memory.h"

namespace vuda::shim {
namespace {

// GPU contexts that this thread makes share with nobody (vuda_private_callbacks::unshared_contexts).
constinit thread_local bool t_unshared = false;

// The longest that making a CUDA context may take because of us.
constexpr uint64_t kPatienceNs = 2'000'000'000;
constexpr auto kExportPatience = std::chrono::milliseconds(1500);  // less than what vudad gives an owner
constexpr uint32_t kStateUnshared = 5;                             // vuda.v1.SharingState
constexpr uint32_t kStateSharing = 4;
constexpr uint32_t kHandleTsg = 1;  // vuda.v1.HandleKind
constexpr uint32_t kHandleBuffer = 2;

std::chrono::nanoseconds patience_left(uint64_t started_ns) {
    const uint64_t spent = monotonic_ns() - started_ns;
    return std::chrono::nanoseconds(spent >= kPatienceNs ? 0 : kPatienceNs - spent);
}

size_t read_file(const char* path, char* out, size_t size) {
    const int fd = next::open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return 0;
    size_t total = 0;
    while (total < size) {
        const ssize_t got = read(fd, out + total, size - total);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        total += static_cast<size_t>(got);
    }
    next::close(fd);
    return total;
}

unsigned find_uvm_major() {
    char text[8192];
    const size_t size = read_file("/proc/devices", text, sizeof text - 1);
    text[size] = '\0';
    const char* line = std::strstr(text, " nvidia-uvm\n");
    if (line == nullptr) return 0;
    while (line > text && line[-1] >= '0' && line[-1] <= '9') --line;
    return static_cast<unsigned>(std::strtoul(line, nullptr, 10));
}

vuda_private_error to_error(const Refusal& refusal) {
    const Words words = describe(refusal);
    vuda_private_error error{};
    error.code = words.code;
    std::snprintf(error.text, sizeof error.text, "%s", words.text);
    std::snprintf(error.hint, sizeof error.hint, "%s", words.hint);
    return error;
}

void say_unshared(const vuda_private_error& error) {
    say(LogLevel::kError, "not sharing: %s%s%s", error.text, error.hint[0] != '\0' ? "; " : "", error.hint);
}

}  // namespace

// The program's side of one ioctl.
class UserCall : public Forwarder {
 public:
    int fd = -1;
    unsigned long request = 0;
    void* user_arg = nullptr;  // as given to ioctl(2)
    bool indirect = false;     // NV_ESC_IOCTL_XFER_CMD: the argument block is one pointer away
    uint64_t arg = 0;          // address of the argument block
    uint64_t params = 0;
    size_t params_pointer = 0;
    uint32_t inner_request = 0;
    bool forwarded = false;
    int result = 0;
    int error = 0;

    int forward() override { return send(request, user_arg); }

    int forward_copy(std::span<uint8_t> block, std::span<uint8_t> params_block) override {
        if (!params_block.empty()) {
            const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(params_block.data()));
            std::memcpy(block.data() + params_pointer, &address, sizeof address);
        }
        if (!indirect) return send(request, block.data());
        rm::XferArgs outer{};
        outer.cmd = rm::ioctl_number(inner_request);
        outer.size = static_cast<uint32_t>(block.size());
        outer.ptr = reinterpret_cast<uintptr_t>(block.data());
        return send(request, &outer);
    }

    bool read(Edit::Where where, std::span<uint8_t> out) override {
        return read_user(where == Edit::Where::kArg ? arg : params, out.data(), out.size());
    }
    bool write(Edit::Where where, size_t offset, std::span<const uint8_t> bytes) override {
        return write_user((where == Edit::Where::kArg ? arg : params) + offset, bytes.data(), bytes.size());
    }
    size_t pointer_offset() const override { return params_pointer; }

 private:
    int send(unsigned long number, void* block) {
        result = next::ioctl(fd, number, block);
        error = errno;
        forwarded = true;
        return result;
    }
};

Process::Process(const Settings& settings, FdMarks* marks)
    : settings_(settings), marks_(marks), files_(marks), replay_watch_(marks) {
    wishes_ = settings.wishes;
    read_driver();
    uvm_major_ = find_uvm_major();
}

void Process::read_driver() {
    char text[1024];
    const size_t size = read_file(rm::kDriverVersionFile, text, sizeof text);
    const Result<rm::DriverVersion> version = rm::parse_proc_driver_version(std::string_view(text, size));
    if (version) {
        std::snprintf(driver_version_, sizeof driver_version_, "%s", version->to_string().c_str());
        driver_ = rm::find_driver(*version);
    }
    if (driver_.abi == nullptr) return;
    Options options;
    Bootstrap* const bootstrap = bootstrap_for_this_build();
    options.bootstrap = bootstrap != nullptr && bootstrap->available();
    redirector_ = std::make_unique<Redirector>(*driver_.abi, options);
    calls_ = std::make_unique<RmCalls>(files_, *driver_.abi);
    host_channel_ = std::make_unique<HostChannel>(files_, *calls_, *driver_.abi);
    fault_watch_ = std::make_unique<FaultWatch>(files_, *calls_);
}

// ---------------------------------------------------------------------------------------------------------------------
// Descriptors

void Process::opened(int fd, FileRole role) {
    std::vector<FileId> gone;
    files_.opened(fd, role, &gone);
    forget(gone);
    if (role == FileRole::kControl && !addresses_moved_.exchange(true, std::memory_order_relaxed)) move_addresses();
}

// The GPU tells the launch descriptors of a TSG apart by their addresses, and CUDA puts those of every process at the
// same ones, unless something else is there. So a program that will share with others keeps their places from CUDA,
// before it comes to choose one. What it then chose is seen by the redirector, and judged by vudad.
void Process::move_addresses() {
    constexpr uint32_t kPatienceMs = 250;
    const int saved = errno;
    if (session_.load(settings_, reinterpret_cast<const void*>(&read_settings))) {
        const vuda_private_wishes now = session_.wishes(settings_);
        if (now.attach_name[0] != '\0' && std::strcmp(now.attach_name, now.register_name) != 0) {
            start_session();
            const int slot = session_.va_slot(kPatienceMs);
            if (slot > 0 && static_cast<uint32_t>(slot) < rm::kVaSlots) {
                // If that is refused, CUDA is where it always is.
                [[maybe_unused]] const void* const kept =
                    ::mmap(reinterpret_cast<void*>(rm::kUsualVaBase), rm::kVaStride * static_cast<size_t>(slot),
                           PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
            }
        }
    }
    errno = saved;
}

void Process::duplicated(int from, int to) {
    std::vector<FileId> gone;
    files_.duplicated(from, to, &gone);
    forget(gone);
}

void Process::forget(const std::vector<FileId>& files) {
    if (files.empty() || calls_ == nullptr) return;
    const int saved = errno;
    for (const FileId file : files) {
        std::vector<Action> cleanup;
        {
            const std::lock_guard lock(mutex_);
            cleanup = redirector_->file_closed(file);
            changed_.notify_all();  // what another thread waits for may be gone with it
        }
        for (const Action& action : cleanup) calls_->run(action);
    }
    deliver_notices();
    errno = saved;
}

FileId Process::file_of(int fd, unsigned long request) {
    const FileId known = marks_->file(fd);
    if (known != 0) return known;
    // A descriptor that came by a way we do not see (SCM_RIGHTS, fcntl, a raw system call): by its device number.
    const int saved = errno;
    struct stat info {};
    FileId file = 0;
    if (fstat(fd, &info) == 0 && S_ISCHR(info.st_mode)) {
        const FileRole role = role_of_device(info.st_rdev, uvm_major_);
        const bool fits = role == FileRole::kUvm || rm::ioctl_type(request) == rm::kRmIoctlType;
        std::vector<FileId> gone;
        if (role != FileRole::kOther && fits) file = files_.opened(fd, role, &gone);
    }
    errno = saved;
    return file;
}

// ---------------------------------------------------------------------------------------------------------------------
// ioctls

int Process::ioctl(int fd, unsigned long request, void* arg) {
    UserCall call;
    call.fd = fd;
    call.request = request;
    call.user_arg = arg;
    call.arg = reinterpret_cast<uintptr_t>(arg);
    call.inner_request = static_cast<uint32_t>(request);
    const int entry = errno;
    try {
        return handle(call);
    } catch (...) {  // out of memory: the program's call goes on as if we were not there
        errno = entry;
        if (!call.forwarded) return call.forward();
        errno = call.error;
        return call.result;
    }
}

int Process::handle(UserCall& call) {
    const unsigned long request = call.request;
    const FileId file = file_of(call.fd, request);
    if (file == 0) return call.forward();

    const FileRole role = files_.role(file);
    if (is_rm_file(role) && rm::ioctl_type(request) == rm::kRmIoctlType &&
        rm::ioctl_number(request) == rm::escape::kXferCmd) {
        rm::XferArgs outer{};
        if (!read_user(call.arg, &outer, sizeof outer) || outer.size > rm::kMaxArgument) return call.forward();
        call.indirect = true;
        call.arg = outer.ptr;
        call.inner_request = static_cast<uint32_t>(rm::rm_request(outer.cmd, outer.size));
    }
    if (role == FileRole::kUvm && call.inner_request == rm::uvm::kInitialize && keeps_out_mps_client()) {
        errno = EPERM;
        return -1;
    }
    const rm::DriverAbi& abi = driver_.abi != nullptr ? *driver_.abi : rm::abi_580();
    const size_t size = arg_size(role, call.inner_request, abi);
    if (size == 0) return call.forward();
    std::vector<uint8_t> block(size);
    if (!read_user(call.arg, block.data(), block.size())) return call.forward();  // the kernel says EFAULT

    if (is_rm_file(role) && rm::ioctl_number(call.inner_request) == rm::escape::kAlloc) {
        const auto made = load<uint32_t>(block, offsetof(rm::AllocArgs, hClass));
        if (made == rm::cls::kChannelGroup || made == rm::cls::kVaSpace) prepare();
    }
    if (calls_ == nullptr) return call.forward();

    const ParamsRef ref = params_of(role, call.inner_request, block, abi);
    std::vector<uint8_t> params(ref.size);
    if (!read_user(ref.pointer, params.data(), params.size())) params.clear();
    call.params = ref.pointer;
    call.params_pointer = ref.pointer_offset;

    Call seen;
    seen.file = file;
    seen.role = role;
    seen.request = call.inner_request;
    seen.now_ns = monotonic_ns();
    seen.unshared = t_unshared;
    seen.arg = block;
    seen.params = params;
    bool maps_control = false;
    seen.maps_control = &maps_control;
    const int result = run_call(*this, *calls_, *this, call, seen);
    const int error = errno;
    if (maps_control) control_buffers_mapped();
    if (has_kept_updates_.load(std::memory_order_acquire)) apply_kept_updates();
    deliver_notices();
    errno = error;
    return result;
}

Plan Process::before(const Call& call) {
    const std::lock_guard lock(mutex_);
    return redirector_->before(call);
}

Plan Process::attached(const Plan& plan, const Call& call, const Offer& offer) {
    const std::lock_guard lock(mutex_);
    Plan next = redirector_->attached(plan, call, offer);
    changed_.notify_all();
    return next;
}

Plan Process::refused(const Plan& plan, const Call& call, size_t failed, std::span<const ActionResult> results) {
    const std::lock_guard lock(mutex_);
    Plan next = redirector_->refused(plan, call, failed, results);
    changed_.notify_all();
    return next;
}

Plan Process::after(const Plan& plan, const Call& call, const Outcome& outcome, std::span<const ActionResult> results) {
    const std::lock_guard lock(mutex_);
    Plan next = redirector_->after(plan, call, outcome, results);
    if (plan.intent.kind == Intent::Kind::kMerge) spent_ns_[plan.intent.started_ns] = monotonic_ns() - call.now_ns;
    changed_.notify_all();
    return next;
}

void Process::abandoned(const Plan& plan) {
    const std::lock_guard lock(mutex_);
    redirector_->abandoned(plan);
    changed_.notify_all();
}

Plan Process::wait(const Plan& plan, const Call& call) {
    std::unique_lock lock(mutex_);
    // The other thread may have ended since `plan` was made.
    Plan next = redirector_->before(call);
    while (next.disposition == Plan::Disposition::kWait) {
        const auto left = patience_left(call.now_ns);
        if (left.count() == 0) return redirector_->attached(plan, call, Offer{});
        changed_.wait_for(lock, left);
        next = redirector_->before(call);
    }
    return next;
}

// ---------------------------------------------------------------------------------------------------------------------
// libvuda

void Process::start_session() {
    // Another thread that makes a context needs it whole: it waits.
    const std::lock_guard lock(starting_);
    if (started_) return;
    vuda_private_callbacks callbacks{};
    callbacks.context = this;
    callbacks.export_host = [](void* context, uint64_t held, vuda_private_handles* out, vuda_private_error* error) {
        return static_cast<Process*>(context)->export_host(held, out, error);
    };
    callbacks.subdevice_control = [](void* context, uint32_t command, void* params, uint32_t size) {
        return static_cast<Process*>(context)->subdevice_control(command, params, size);
    };
    callbacks.detach_command = [](void* context, const vuda_private_error*) {
        auto* self = static_cast<Process*>(context);
        const std::lock_guard lock(self->mutex_);
        if (self->redirector_ != nullptr) self->redirector_->stop_sharing({Reason::kStopped, 0, 0, 0});
    };
    callbacks.guard_fd = [](void* context, int fd, int guarded) {
        static_cast<Process*>(context)->marks_->set_guard(fd, guarded != 0);
    };
    callbacks.host_control = [](void* context, uint32_t command, void* params, uint32_t size) {
        auto* self = static_cast<Process*>(context);
        const std::lock_guard busy(self->files_busy_);
        const Host host = self->host();
        if (host.client == 0 || host.subdevice == 0) return rm::nv::kObjectNotFound;
        return self->calls_->control(host.file, host.client, host.subdevice, command, params, size);
    };
    callbacks.host_compute_class = [](void* context) {
        auto* self = static_cast<Process*>(context);
        const std::lock_guard busy(self->files_busy_);
        return self->host_channel_ != nullptr ? self->host_channel_->compute_class(self->host()) : 0u;
    };
    callbacks.follows_from = [](void* context, uint64_t held) {
        return static_cast<Process*>(context)->follows_from(held) ? 1 : 0;
    };
    callbacks.mirror_delta = [](void* context, int idle, vuda_private_mirror* out, vuda_private_error* error) {
        return static_cast<Process*>(context)->mirror_delta(idle != 0, out, error);
    };
    callbacks.mirror_update = [](void* context, const vuda_private_mirror* update, vuda_private_error* error) {
        return static_cast<Process*>(context)->mirror_update(*update, error);
    };
    callbacks.others_subcontexts = [](void* context, uint64_t taken, uint64_t stale) {
        static_cast<Process*>(context)->others_subcontexts(taken, stale);
    };
    callbacks.look_for_faults = [](void* context, vuda_private_faults* out) {
        return static_cast<Process*>(context)->look_for_faults(out);
    };
    callbacks.turn_slice = [](void* context, uint32_t us) { return static_cast<Process*>(context)->turn_slice(us); };
    callbacks.unshared_contexts = [](void*, int on) { t_unshared = on != 0; };
    callbacks.host_methods = [](void* context, const uint32_t* pairs, uint32_t count, uint64_t* ns,
                                vuda_private_error* error) {
        return static_cast<Process*>(context)->host_methods(pairs, count, ns, error);
    };
    VUDA_FAULT_POINT(shim_session_loaded);
    session_.start(&callbacks, driver_version_);
    started_ = true;
    VUDA_FAULT_POINT(shim_session_started);
}

void Process::prepare() {
    const int saved = errno;
    const bool loaded = session_.load(settings_, reinterpret_cast<const void*>(&read_settings));
    const vuda_private_wishes now = session_.wishes(settings_);
    Wishes wishes;
    wishes.share_renderer = now.register_name[0] != '\0';
    wishes.attach = now.attach_name[0] != '\0';
    wishes.share_in_process = now.share_in_process != 0;
    wishes.require = now.require != 0;
    wishes.reserve = now.reserve;
    wishes.cuda_channels = cuda_channels();
    if (wishes.attach || wishes.share_in_process) wishes.unfit = unfit_surroundings();
    // The renderer that it wants to join is this very process.
    if (wishes.attach && wishes.share_renderer && std::strcmp(now.attach_name, now.register_name) == 0) {
        wishes.attach = false;
        wishes.share_in_process = true;
    }
    if (wishes.any()) {
        if (loaded) {
            start_session();
        } else {
            say(LogLevel::kError, "cannot load libvuda.so: %s",
                session_.problem()[0] != '\0' ? session_.problem() : "not found beside libvuda_preload.so");
        }
    }
    bool report = false;
    {
        const std::lock_guard lock(mutex_);
        const bool renamed = std::strcmp(wishes_.register_name, now.register_name) != 0;
        wishes_ = now;
        if (redirector_ != nullptr) {
            redirector_->set_wishes(wishes);
            if (renamed) redirector_->announce_again();
        } else if (wishes.any() && !reported_driver_) {
            report = reported_driver_ = true;
        }
    }
    if (report) {
        unshared_.store(true, std::memory_order_release);
        vuda_private_error error{};
        error.code = static_cast<int>(Code::kFailedPrecondition);
        std::snprintf(error.text, sizeof error.text, "driver %s is %.*s%s%.*s",
                      driver_version_[0] != '\0' ? driver_version_ : "(none)",
                      static_cast<int>(rm::verdict_name(driver_.verdict).size()),
                      rm::verdict_name(driver_.verdict).data(), driver_.note.empty() ? "" : ": ",
                      static_cast<int>(driver_.note.size()), driver_.note.data());
        say_unshared(error);
        if (loaded) session_.report(kStateUnshared, &error);
    }
    errno = saved;
}

// CUDA begins. Later there would be nothing to tell by: a client of MPS makes no TSG and no address space.
bool Process::keeps_out_mps_client() {
    if (!client_of_mps()) return false;
    prepare();
    vuda_private_error error{};
    bool require = false;
    {
        const std::lock_guard lock(mutex_);
        if (wishes_.attach_name[0] == '\0' && wishes_.share_in_process == 0) return false;
        require = wishes_.require != 0;
        error = to_error({Reason::kMps, 0, 0, 0});
    }
    unshared_.store(true, std::memory_order_release);
    if (!told_mps_.exchange(true)) {
        say_unshared(error);
        if (session_.loaded()) session_.report(kStateUnshared, &error);
    }
    return require;
}

Offer Process::attach(const AttachWish& wish) {
    Offer offer;
    vuda_private_handles handles{};
    vuda_private_error error{};
    char name[sizeof wishes_.attach_name];
    {
        const std::lock_guard lock(mutex_);
        std::memcpy(name, wishes_.attach_name, sizeof name);
    }
    int result = -1;
    if (session_.loaded()) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(patience_left(wish.started_ns)).count();
        result = session_.attach(name, wish.gpu.bytes.data(), wish.channels, wish.va_base, static_cast<uint32_t>(left),
                                 &handles, &error);
    } else {
        error.code = static_cast<int>(Code::kUnavailable);
        std::snprintf(error.text, sizeof error.text, "libvuda.so is not loaded");
    }
    if (result == 0) {
        for (uint32_t i = 0; i < handles.count; ++i) {
            const vuda_private_handle& handle = handles.items[i];
            if (handle.kind == kHandleTsg && offer.tsg_fd < 0) {
                offer.tsg_fd = handle.fd;
            } else if (handle.kind == kHandleBuffer) {
                offer.buffers.push_back({handle.fd, handle.va, handle.length, handle.offset, handle.mapping});
            } else {
                next::close(handle.fd);
            }
        }
        std::free(handles.items);
        offer.channels_in_use = handles.channels_in_use;
        offer.stale_veids = handles.stale_veids;
        offer.unknown_veids = handles.unknown_veids;
        // A transfer without a TSG still opened a turn: the import of descriptor -1 fails, and the turn ends by that.
        offer.ok = true;
        VUDA_FAULT_POINT(shim_offer_taken);
        return offer;
    }
    const std::lock_guard lock(mutex_);
    attach_error_ = error;
    return offer;
}

void Process::release(Offer* offer) {
    const int saved = errno;
    if (offer->tsg_fd >= 0) next::close(offer->tsg_fd);
    for (const OfferedBuffer& buffer : offer->buffers) {
        if (buffer.fd >= 0) next::close(buffer.fd);
    }
    errno = saved;
}

void Process::deliver_notices() {
    std::vector<Notice> notices;
    {
        const std::lock_guard lock(mutex_);
        notices = redirector_->take_notices();
    }
    for (const Notice& notice : notices) deliver(notice);
    if (!notices.empty()) tell_subcontexts();
}

void Process::deliver(const Notice& notice) {
    const bool loaded = session_.loaded();
    vuda_private_error error = to_error(notice.refusal);
    if (notice.kind == Notice::Kind::kUnshared || (notice.kind == Notice::Kind::kAttachDone && notice.refusal))
        unshared_.store(true, std::memory_order_release);
    const vuda_private_error* reason = notice.refusal ? &error : nullptr;
    switch (notice.kind) {
        case Notice::Kind::kHost: {
            char name[sizeof wishes_.register_name];
            {
                const std::lock_guard lock(mutex_);
                std::memcpy(name, wishes_.register_name, sizeof name);
            }
            Uuid uuid;
            if (!calls_->gpu_uuid(notice.file, notice.client, notice.subdevice, &uuid)) {
                say(LogLevel::kError, "cannot register '%s': the driver does not tell the GPU's UUID", name);
            } else if (loaded) {
                VUDA_FAULT_POINT(shim_host_found);
                session_.register_name(name, uuid.bytes.data());
            }
            return;
        }
        case Notice::Kind::kAttachDone: {
            uint64_t spent = 0;
            {
                const std::lock_guard lock(mutex_);
                const auto found = spent_ns_.find(notice.started_ns);
                if (found != spent_ns_.end()) {
                    spent = found->second;
                    spent_ns_.erase(found);
                }
            }
            if (!notice.refusal)
                say(LogLevel::kInfo, "sharing: %u channels moved, %u control buffers", notice.moved, notice.buffers);
            if (!loaded) return;
            VUDA_FAULT_POINT(shim_attach_done);
            if (notice.turn) {
                session_.attach_done(notice.moved, notice.veid, notice.veids, notice.buffers,
                                     static_cast<uint32_t>(spent / 1000), reason);
            } else {
                session_.report(notice.refusal ? kStateUnshared : kStateSharing, reason);
            }
            return;
        }
        case Notice::Kind::kDetached:
            VUDA_FAULT_POINT(shim_detached);
            if (loaded) {
                if (notice.attach && notice.moved > 0 && reason == nullptr) {
                    session_.context_left(notice.veids, notice.moved);
                } else if (notice.attach || notice.moved == 0) {
                    session_.detached(reason);
                }
            }
            VUDA_FAULT_POINT(shim_detach_told);
            return;
        case Notice::Kind::kUnshared:
            if (notice.refusal.reason == Reason::kAttachFailed) {
                const std::lock_guard lock(mutex_);
                if (attach_error_.code != 0) error = attach_error_;
            }
            if (notice.refusal.reason == Reason::kMps && told_mps_.exchange(true)) return;
            say_unshared(error);
            if (loaded) session_.report(kStateUnshared, &error);
            return;
        case Notice::Kind::kNote:
            say(LogLevel::kInfo, "%s", error.text);
            if (loaded) session_.report(kStateSharing, &error);
            return;
    }
}

void Process::wishes_changed() {
    prepare();
    if (calls_ != nullptr) deliver_notices();
}

void Process::device_created() {
    const std::lock_guard lock(mutex_);
    if (redirector_ == nullptr) return;
    redirector_->device_created();
    changed_.notify_all();
}

// ---------------------------------------------------------------------------------------------------------------------
// The renderer's side: called by libvuda's thread when somebody attaches

Host Process::host() const {
    const std::lock_guard lock(mutex_);
    return redirector_ != nullptr ? redirector_->host_only() : Host{};
}

int Process::host_methods(const uint32_t* pairs, uint32_t count, uint64_t* ns, vuda_private_error* error) {
    Error why{Code::kResourceExhausted, "out of memory", {}};
    try {
        std::vector<partition::Method> methods;
        for (uint32_t i = 0; i < count; ++i) methods.push_back({pairs[2 * i], pairs[2 * i + 1]});
        // A program that closes its files meanwhile waits: at most as long as the GPU may take.
        const std::lock_guard busy(files_busy_);
        const Host at = host();
        Result<std::chrono::nanoseconds> took =
            host_channel_ != nullptr ? host_channel_->run(at, methods)
                                     : Error{Code::kFailedPrecondition, "the driver is not supported", {}};
        if (took) {
            *ns = static_cast<uint64_t>(took->count());
            return 0;
        }
        why = took.error();
    } catch (...) {  // as `why` says
    }
    *error = {};
    error->code = static_cast<int>(why.code);
    std::snprintf(error->text, sizeof error->text, "%s", why.text.c_str());
    std::snprintf(error->hint, sizeof error->hint, "%s", why.hint.c_str());
    return -1;
}

int Process::private_l1(uint32_t value, vuda_private_error* error) {
    constexpr uint32_t kLargest = 6;  // 7 is a class error on GH100
    Error why{Code::kResourceExhausted, "out of memory", {}};
    try {
        bool to_others;
        {
            const std::lock_guard lock(mutex_);
            to_others = wishes_.register_name[0] != '\0' || wishes_.attach_name[0] != '\0';
        }
        const std::lock_guard busy(files_busy_);
        Status sent = to_others ? Error{Code::kFailedPrecondition, "only a TSG that is nobody else's is sent it", {}}
                      : value == 0 || value > kLargest
                          ? Error{Code::kInvalidArgument, "SET_L1_CONFIGURATION takes 1 to 6", {}}
                      : host_channel_ == nullptr ? Error{Code::kFailedPrecondition, "the driver is not supported", {}}
                                                 : host_channel_->set_l1(host(), value);
        if (sent) return 0;
        why = sent.error();
    } catch (...) {  // as `why` says
    }
    *error = {};
    error->code = static_cast<int>(why.code);
    std::snprintf(error->text, sizeof error->text, "%s", why.text.c_str());
    std::snprintf(error->hint, sizeof error->hint, "%s", why.hint.c_str());
    return -1;
}

int Process::export_host(uint64_t held, vuda_private_handles* out, vuda_private_error* error) {
    const auto fail = [&](Code code, const char* text) {
        *error = {};
        error->code = static_cast<int>(code);
        std::snprintf(error->text, sizeof error->text, "%s", text);
        return -1;
    };
    try {
        const auto deadline = std::chrono::steady_clock::now() + kExportPatience;
        Host host;
        bool current = false;
        {
            // A renderer that is still setting up would be exported half-done, or the wrong TSG of it.
            std::unique_lock lock(mutex_);
            for (;;) {
                host = redirector_ != nullptr ? redirector_->host_only() : Host{};
                const uint64_t now = monotonic_ns();
                if (host.client != 0 && host.settled_at_ns <= now) break;
                if (std::chrono::steady_clock::now() >= deadline) break;
                const auto until = host.client == 0 ? deadline
                                                    : std::chrono::steady_clock::now() +
                                                          std::chrono::nanoseconds(host.settled_at_ns - now);
                changed_.wait_until(lock, std::min(until, deadline));
            }
            current = held != 0 && held == export_generation_ && host.same_tsg(exported_) && redirector_->all_told();
            if (host.client != 0 && !current) host = redirector_->host();
        }
        if (host.client == 0) return fail(Code::kFailedPrecondition, "the renderer has no graphics TSG any more");
        if (host.unfit != Reason::kNone) {
            const vuda_private_error why = to_error({host.unfit, 0, 0, 0});
            *error = why;
            return -1;
        }
        if (current) {
            *out = {};
            out->channels_in_use = host.channels;
            out->generation = held;
            return 0;
        }
        Result<std::vector<vuda_private_handle>> made = export_all(host);
        if (!made) return fail(made.error().code, made.error().text.c_str());
        auto* items = static_cast<vuda_private_handle*>(std::malloc(made->size() * sizeof(vuda_private_handle)));
        if (items == nullptr) {
            for (const vuda_private_handle& handle : *made) next::close(handle.fd);
            return fail(Code::kResourceExhausted, "out of memory");
        }
        std::memcpy(items, made->data(), made->size() * sizeof(vuda_private_handle));
        out->items = items;
        out->count = static_cast<uint32_t>(made->size());
        out->channels_in_use = host.channels;
        out->generation = ++export_generation_;
        {
            const std::lock_guard lock(mutex_);
            redirector_->told(host.order, host.buffers);
        }
        host.buffers = {};
        exported_ = std::move(host);
        return 0;
    } catch (...) {
        return fail(Code::kResourceExhausted, "out of memory");
    }
}

uint32_t Process::look_for_faults(vuda_private_faults* out) {
    *out = {};
    if (fault_watch_ == nullptr) return 0;
    try {
        std::vector<Notifier> notifiers;
        bool shares = false;
        {
            const std::lock_guard lock(mutex_);
            notifiers = redirector_->notifiers();
            shares = redirector_->sharing_subdevice().client != 0;
        }
        if (fault_watch_->differs(notifiers)) {
            const std::lock_guard busy(files_busy_);
            fault_watch_->watch(notifiers);
        }
        const FaultWatch::Found found = fault_watch_->look();
        if (found.host) {
            const std::lock_guard lock(mutex_);
            redirector_->host_died(found.host_tsg);
        }
        if (found.host || found.shared) replay_watch_.give_up();
        const ReplayRule::Change change = replay_watch_.look(shares, monotonic_ns());
        out->own_xid = found.host_xid;
        out->shared_xid = found.shared_xid;
        out->replays = replay_watch_.rate();
        return (found.host ? VUDA_PRIVATE_OWN_TSG : 0u) | (found.shared ? VUDA_PRIVATE_SHARED_TSG : 0u) |
               (change == ReplayRule::Change::kStuck ? VUDA_PRIVATE_STUCK : 0u) |
               (change == ReplayRule::Change::kOver ? VUDA_PRIVATE_STUCK_OVER : 0u);
    } catch (...) {  // out of memory: the next look is soon
        return 0;
    }
}

uint32_t Process::subdevice_control(uint32_t command, void* params, uint32_t size) {
    const std::lock_guard busy(files_busy_);
    Subdevice at;
    {
        const std::lock_guard lock(mutex_);
        if (redirector_ != nullptr) at = redirector_->sharing_subdevice();
    }
    if (at.client == 0 || calls_ == nullptr) return rm::nv::kObjectNotFound;
    return calls_->control(at.file, at.client, at.object, command, params, size);
}

// Between two frames of the program's: what is busy is not waited for.
int Process::turn_slice(uint32_t us) {
    const std::unique_lock one(slicing_, std::try_to_lock);
    if (!one) return 0;
    if (calls_ == nullptr) return 1;
    TurnSlice::Tsg at;
    {
        const std::lock_guard lock(mutex_);
        at = redirector_->turn_tsg();
    }
    if (!turn_slice_.differs(at, us)) return 1;
    const std::unique_lock busy(files_busy_, std::try_to_lock);
    if (!busy) return 0;
    const int saved = errno;
    try {
        turn_slice_.ask(at, us, [this](const TurnSlice::Tsg& of, uint32_t command, uint64_t* value) {
            rm::TsgTimesliceParams params{*value};
            const uint32_t status = calls_->control(of.file, of.client, of.tsg, command, &params, sizeof params);
            *value = params.timesliceUs;
            return status;
        });
    } catch (...) {  // out of memory: the timeslice stays as it is
    }
    errno = saved;
    return 1;
}

Result<std::vector<vuda_private_handle>> Process::export_all(Host& host) {
    const std::lock_guard busy(files_busy_);
    std::vector<vuda_private_handle> made;
    made.reserve(host.buffers.size() + 1);
    const auto refuse = [&](const char* what, uint64_t va, uint32_t status) {
        for (const vuda_private_handle& handle : made) next::close(handle.fd);
        char text[160];
        std::snprintf(text, sizeof text, "the driver refused to export the renderer's %s (at 0x%llx, NV_STATUS 0x%x)",
                      what, static_cast<unsigned long long>(va), status);
        return Error{Code::kInternal, text, {}};
    };
    uint32_t status = 0;
    const int tsg = calls_->export_object(host.file, host.client, host.device, host.tsg, &status);
    if (tsg < 0) return refuse("TSG", 0, status);
    made.push_back({kHandleTsg, tsg, 0, 0, 0, 0});
    VUDA_FAULT_POINT(shim_tsg_exported);
    std::vector<HostBuffer> exported;
    exported.reserve(host.buffers.size());
    for (const HostBuffer& buffer : host.buffers) {
        const int fd = calls_->export_object(host.file, host.client, host.device, buffer.memory, &status);
        if (fd >= 0) {
            made.push_back({kHandleBuffer, fd, buffer.va, buffer.length, buffer.offset, buffer.order});
            exported.push_back(buffer);
            VUDA_FAULT_POINT(shim_buffer_exported);
            continue;
        }
        // The renderer may have freed it meanwhile: then it is no control buffer any more.
        const std::lock_guard lock(mutex_);
        const Host again = redirector_->host();
        const bool still = std::ranges::any_of(
            again.buffers, [&](const HostBuffer& b) { return b.va == buffer.va && b.memory == buffer.memory; });
        if (still) return refuse("control buffer", buffer.va, status);
    }
    host.buffers = std::move(exported);
    return made;
}

}  // namespace vuda::shim
