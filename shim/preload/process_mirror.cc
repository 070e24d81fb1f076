// Following a renderer's control buffers: the owner's side, and the side of those who share.
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/fault_point.h"
#include "base/monotonic.h"
#include "shim/preload/next.h"
#include "shim/preload/process.h"

namespace vuda::shim {
namespace {

constexpr uint32_t kControlBuffer = 2;  // vuda.v1.HandleKind
constexpr size_t kRangesEach = 1024;    // of one update, as vudad takes them
// Of one that nobody waits for. A mapping call that comes meanwhile waits for it first; vudad's deadline (40 ms) leaves
// room for that, at a fraction of a millisecond for each on an H200.
constexpr size_t kRestEach = 16;
// A merge holds an address space for as long as it imports and maps.
constexpr auto kMergePatience = std::chrono::seconds(1);

void fill(vuda_private_error* out, const Error& error) {
    *out = {};
    out->code = static_cast<int>(error.code);
    std::snprintf(out->text, sizeof out->text, "%s", error.text.c_str());
    std::snprintf(out->hint, sizeof out->hint, "%s", error.hint.c_str());
}

template <typename Item>
Item* copy_out(const std::vector<Item>& items) {
    if (items.empty()) return nullptr;
    auto* out = static_cast<Item*>(std::malloc(items.size() * sizeof(Item)));
    if (out != nullptr) std::memcpy(out, items.data(), items.size() * sizeof(Item));
    return out;
}

Error step_error(const MirrorWork::Step& step, size_t failed, uint32_t status) {
    char text[200];
    const auto va = static_cast<unsigned long long>(step.range.va);
    const auto length = static_cast<unsigned long long>(step.range.length);
    if (failed < step.actions.size() && std::holds_alternative<UvmCreateRange>(step.actions[failed])) {
        std::snprintf(text, sizeof text,
                      "CUDA's address space holds something else in 0x%llx to 0x%llx, where the renderer's control "
                      "buffer of mapping %llu must go (NV_STATUS 0x%x)",
                      va, va + length, static_cast<unsigned long long>(step.range.mapping), status);
        return {Code::kFailedPrecondition, text, ""};
    }
    std::snprintf(text, sizeof text, "the driver refused to %s a control buffer at 0x%llx (NV_STATUS 0x%x)",
                  step.drop ? "unmap" : "map", va, status);
    return {Code::kInternal, text, ""};
}

void close_all(MirrorUpdate& update) {
    for (const OfferedBuffer& buffer : update.added) {
        if (buffer.fd >= 0) next::close(buffer.fd);
    }
    update.added.clear();
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------------
// The owner's side

// The mapping exists, and the program has not heard of it: whatever the GPU is told to do with it comes later.
void Process::control_buffers_mapped() {
    bool local = false;
    {
        const std::lock_guard lock(mutex_);
        local = redirector_->shares_locally();
    }
    if (local) {
        const std::lock_guard one(mirroring_);
        MirrorUpdate update;
        HostDelta change;
        {
            const std::lock_guard lock(mutex_);
            update = redirector_->local_update(&change);
        }
        if (Status done = apply(update, true); !done) {
            // Tried again with the next one.
            say(LogLevel::kError, "a control buffer of the renderer could not be mirrored: %s",
                done.error().text.c_str());
        } else {
            const std::lock_guard lock(mutex_);
            redirector_->local_told(change);
        }
    }
    if (session_.loaded()) session_.mirror_changed();
}

bool Process::follows_from(uint64_t held) const {
    try {
        const Host now = host();
        return held != 0 && held == export_generation_ && now.client != 0 && now.order == exported_.order &&
               now.client == exported_.client && now.channels == exported_.channels && now.unfit == Reason::kNone &&
               now.settled_at_ns <= monotonic_ns();
    } catch (...) {  // out of memory
        return false;
    }
}

int Process::mirror_delta(bool idle, vuda_private_mirror* out, vuda_private_error* error) {
    *out = {};
    std::vector<vuda_private_handle> added;
    try {
        Host now;
        HostDelta delta;
        {
            const std::lock_guard lock(mutex_);
            if (redirector_ != nullptr) {
                now = redirector_->told_host();
                delta = idle ? redirector_->untold_rest(kRestEach)
                             : redirector_->untold(VUDA_PRIVATE_MIRROR_PART, kRangesEach);
            }
        }
        if (idle && delta.removed.empty()) return 0;
        if (exported_.client == 0 || now.client != exported_.client) {
            fill(error, {Code::kFailedPrecondition, "the TSG that was exported is gone", ""});
            return -1;
        }
        out->rest = delta.rest ? 1 : 0;

        std::vector<HostBuffer> gone;
        {
            const std::lock_guard busy(files_busy_);
            for (const HostBuffer& buffer : delta.added) {
                uint32_t status = 0;
                const int fd = calls_->export_object(now.file, now.client, now.device, buffer.memory, &status);
                if (fd < 0) {
                    const std::lock_guard lock(mutex_);
                    if (!redirector_->is_untold(buffer)) {
                        gone.push_back(buffer);  // freed meanwhile
                        continue;
                    }
                    for (const vuda_private_handle& handle : added) next::close(handle.fd);
                    char text[160];
                    std::snprintf(text, sizeof text, "the driver refused to export a control buffer (NV_STATUS 0x%x)",
                                  status);
                    fill(error, {Code::kInternal, text, ""});
                    return -1;
                }
                added.push_back({kControlBuffer, fd, buffer.va, buffer.length, buffer.offset, buffer.order});
                VUDA_FAULT_POINT(shim_mirror_exported);
            }
        }
        for (const HostBuffer& buffer : gone) std::erase(delta.added, buffer);
        out->more = delta.more ? 1 : 0;
        // No update, and so no number: vudad would never hear of it.
        if (delta.added.empty() && delta.removed.empty()) return 0;
        std::vector<vuda_private_range> removed;
        for (const HostBuffer& buffer : delta.removed) removed.push_back({buffer.va, buffer.length, buffer.order});
        out->added = copy_out(added);
        out->removed = copy_out(removed);
        if ((out->added == nullptr && !added.empty()) || (out->removed == nullptr && !removed.empty()))
            throw std::bad_alloc();
        out->added_count = static_cast<uint32_t>(added.size());
        out->removed_count = static_cast<uint32_t>(removed.size());
        {
            const std::lock_guard lock(mutex_);
            redirector_->told(delta);
        }
        out->from = export_generation_;
        out->to = ++export_generation_;
        return 0;
    } catch (...) {
        for (const vuda_private_handle& handle : added) next::close(handle.fd);
        std::free(out->added);
        std::free(out->removed);
        *out = {};
        fill(error, {Code::kResourceExhausted, "", ""});
        std::snprintf(error->text, sizeof error->text, "out of memory");
        return -1;
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The side of those who share: on libvuda's thread, without a lock of CUDA's

int Process::mirror_update(const vuda_private_mirror& raw, vuda_private_error* error) {
    try {
        MirrorUpdate update;
        for (uint32_t i = 0; i < raw.removed_count; ++i)
            update.removed.push_back({raw.removed[i].va, raw.removed[i].length, raw.removed[i].mapping});
        for (uint32_t i = 0; i < raw.added_count; ++i) {
            const vuda_private_handle& item = raw.added[i];
            update.added.push_back({item.fd, item.va, item.length, item.offset, item.mapping});
        }
        update.added = tidy(std::move(update.added));
        const std::lock_guard one(mirroring_);
        {
            // For a context that is about to share: its set may be older than this.
            const std::lock_guard lock(mutex_);
            if (redirector_ != nullptr && redirector_->attaching()) {
                MirrorUpdate& kept = kept_updates_.emplace_back();
                kept.removed = update.removed;
                for (OfferedBuffer buffer : update.added) {
                    buffer.fd = ::fcntl(buffer.fd, F_DUPFD_CLOEXEC, 3);
                    kept.added.push_back(buffer);
                }
                has_kept_updates_.store(true, std::memory_order_release);
            }
        }
        const Status done = apply(update, false);
        if (done) return 0;
        fill(error, done.error());
    } catch (...) {
        *error = {};
        error->code = static_cast<int>(Code::kResourceExhausted);
        std::snprintf(error->text, sizeof error->text, "out of memory");
    }
    return -1;
}

// On the thread that has just made a context share, before it goes on.
void Process::apply_kept_updates() {
    const std::lock_guard one(mirroring_);
    std::vector<MirrorUpdate> updates;
    bool done = false;
    {
        const std::lock_guard lock(mutex_);
        done = !redirector_->attaching();
        updates = std::exchange(kept_updates_, {});
    }
    for (const MirrorUpdate& update : updates) {
        if (Status applied = apply(update, false); !applied) {
            say(LogLevel::kError, "a control buffer of the renderer could not be mirrored: %s",
                applied.error().text.c_str());
        }
    }
    if (done) {
        for (MirrorUpdate& update : updates) close_all(update);
        updates.clear();
    }
    const std::lock_guard lock(mutex_);
    // Others are about to share still.
    kept_updates_.insert(kept_updates_.begin(), std::make_move_iterator(updates.begin()),
                         std::make_move_iterator(updates.end()));
    has_kept_updates_.store(!kept_updates_.empty(), std::memory_order_release);
}

bool Process::still_open(const Action& action) const {
    return std::visit(
        [this](const auto& one) {
            if constexpr (requires { one.uvm; }) {
                if (files_.descriptor(one.uvm) < 0) return false;
            }
            if constexpr (requires { one.file; }) {
                if (files_.descriptor(one.file) < 0) return false;
            }
            return true;
        },
        action);
}

// mirroring_ held.
Status Process::apply(const MirrorUpdate& update, bool local) {
    if (calls_ == nullptr) return {};
    Status result;
    MirroredSpaces handled;
    const auto deadline = std::chrono::steady_clock::now() + kMergePatience;
    for (;;) {
        MirrorWork work;
        {
            std::unique_lock lock(mutex_);
            for (;;) {
                work = redirector_->begin_mirror(update, handled, local);
                if (work.state != MirrorWork::State::kBusy) break;
                if (changed_.wait_until(lock, deadline) == std::cv_status::timeout)
                    return Error{Code::kDeadlineExceeded, "a CUDA context is being made or ended for too long", ""};
            }
        }
        if (work.state == MirrorWork::State::kNone) return result;
        std::vector<bool> done;
        Status failed;
        for (const MirrorWork::Step& step : work.steps) {
            // A program that closes its files waits for one buffer, not for all.
            const std::lock_guard busy(files_busy_);
            size_t at = 0;
            uint32_t status = kNvOk;
            for (; at < step.actions.size(); ++at) {
                status = calls_->run(step.actions[at]).status;
                if (status != kNvOk) break;
            }
            done.push_back(status == kNvOk);
            if (status == kNvOk) continue;
            for (const Action& undo : undo_all(std::span(step.actions).first(at))) calls_->run(undo);
            // The others all the same: each one that is there is one less to fault on. A program that has closed its
            // files meanwhile is ending, and has no GPU work left to fault.
            if (failed && still_open(step.actions[at])) failed = step_error(step, at, status);
        }
        std::vector<Action> clean_up;
        {
            const std::lock_guard lock(mutex_);
            // Nor has a context that is gone by now: its ranges were taken away while we were at them.
            if (result && !Redirector::has_left(work)) result = failed;
            clean_up = redirector_->end_mirror(work, done);
            changed_.notify_all();
        }
        for (const Action& action : clean_up) calls_->run(action);
        handled.push_back(work.space);
    }
}

}  // namespace vuda::shim
