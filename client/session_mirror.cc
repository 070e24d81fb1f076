// The session's part in following a renderer's control buffers: as owner, and as one of those who share.
#include <pthread.h>

#include <utility>

#include "base/fault_point.h"
#include "client/session.h"

namespace vuda::client {
namespace {

// Mapping calls come in rows: the next one need not find those who share at work on what was left by the one before.
constexpr auto kMirrorsQuiet = std::chrono::milliseconds(10);

}  // namespace

void Session::control_buffers_changed() {
    std::unique_lock lock(mutex_);
    if (!mirrors_.on() || !thread_running_ || ::pthread_equal(thread_, ::pthread_self()) != 0) return;
    const uint64_t change = mirrors_.change();
    wake_locked();
    if (!mirrors_.worth_waiting()) return;
    const auto patience = std::chrono::milliseconds(mirrors_.wait_ms());
    if (changed_.wait_for(lock, patience, [&] { return mirrors_.reached(change); })) return;
    mirrors_.waited_in_vain();
    lock.unlock();
    reporter_.say_once(LogLevel::kInfo, "mirrors late",
                       "vudad did not pass a control buffer on within " + std::to_string(patience.count()) +
                           " ms; the renderer goes on");
}

// Sends what the renderer mapped and unmapped, in parts: a part's descriptors are closed here before the next are made.
// What others may let go of and nobody waits for goes in pieces, one at a time, while the renderer maps nothing.
void Session::send_mirrors() {
    for (;;) {
        uint64_t newest = 0;
        bool idle = false;
        {
            const std::lock_guard lock(mutex_);
            if (link_ != Link::kUp) return;
            if (mirrors_.due()) {
                mirrors_quiet_ = deadline_in(kMirrorsQuiet);
            } else if (mirrors_.may_rest() && std::chrono::steady_clock::now() >= mirrors_quiet_) {
                idle = true;
            } else {
                return;
            }
            newest = mirrors_.newest();
        }
        if (output_.has_fds() && flush()) return;  // goes on when the socket has room
        Result<MirrorChange> change = host_.mirror_delta(idle);
        uint64_t id = 0;
        {
            const std::lock_guard lock(mutex_);
            mirrors_.rest(change && change->rest);
            if (change && !change->empty()) mirrors_.sent(id = next_id_locked());
            if (!change || !change->more) mirrors_.covered(newest);
            if (!change) stop_mirroring_locked();
            // What goes out now is waited for still: who waits need not wake up for it.
            if (change && change->empty()) changed_.notify_all();
        }
        if (!change) {
            reporter_.say_once(LogLevel::kInfo, "mirrors: " + change.error().text,
                               "control buffers are not followed: " + change.error().to_string());
            return;
        }
        if (change->empty() && !change->more) return;
        if (change->empty()) continue;  // unmapped meanwhile
        VUDA_FAULT_POINT(client_mirror_made);
        const std::string body = encode_mirror_update(id, *change);
        std::vector<UniqueFd> fds;
        for (ExportedHandle& handle : change->added) fds.push_back(std::move(handle.fd));
        if (Status added = output_.add(body, std::move(fds)); !added) return drop_link(added.error());
        if (flush()) return;
        VUDA_FAULT_POINT(client_mirror_sent);
    }
}

void Session::mirrors_answered(uint64_t id, const Error* error, uint32_t late) {
    {
        const std::lock_guard lock(mutex_);
        if (!mirrors_.answered(id, late > 0)) return;
        // vudad asks for a whole set if that helps.
        if (error != nullptr) stop_mirroring_locked();
        changed_.notify_all();
    }
    if (error != nullptr) {
        reporter_.say_once(LogLevel::kInfo, "mirrors: " + error->text,
                           "vudad did not take a control buffer: " + error->to_string());
    } else if (late > 0) {
        reporter_.say_once(LogLevel::kInfo, "mirrors late",
                           std::to_string(late) +
                               " program(s) that share do not follow this renderer's control buffers in time; it goes "
                               "on (vudactl watch)");
    }
}

void Session::stop_mirroring_locked() {
    mirrors_.end();
    changed_.notify_all();
}

// As attacher. vudad hears when it is done, and its owner waits for that.
void Session::mirror(const MirrorUpdate& update) {
    MirrorChange change{update.from, update.to, update.removed, {}, false};
    Status mirrored;
    if (arrived_fds_.size() < update.added.size()) {
        arrived_fds_.clear();
        mirrored = fds_lost_error();
    } else {
        for (size_t i = 0; i < update.added.size(); ++i)
            change.added.push_back({update.added[i], std::move(arrived_fds_[i])});
        arrived_fds_.erase(arrived_fds_.begin(),
                           arrived_fds_.begin() + static_cast<std::ptrdiff_t>(update.added.size()));
        VUDA_FAULT_POINT(client_mirror_received);
        mirrored = host_.mirror_update(change);
        VUDA_FAULT_POINT(client_mirrored);
    }
    if (!mirrored) {
        reporter_.say_once(LogLevel::kError, "mirror: " + mirrored.error().text,
                           "a control buffer of the renderer could not be mirrored: " + mirrored.error().to_string());
    }
    const std::lock_guard lock(mutex_);
    queue_locked(encode_mirror_done(update.to, mirrored ? Error{Code::kOk, "", ""} : mirrored.error()));
}

}  // namespace vuda::client
