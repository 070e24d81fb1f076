#include "client/session.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <exception>

#include "base/fault_point.h"
#include "client/descriptor_table.h"
#include "client/names.h"
#include "client/transfer.h"
#include "rm/xid.h"

namespace vuda::client {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A local connect only waits for room in the listener's backlog.
constexpr auto kConnectTime = 1000ms;
constexpr auto kGreetingTime = 2000ms;
constexpr auto kExportTime = 2000ms;  // when vudad names no deadline
constexpr auto kMaxExportTime = 10000ms;
// A TSG that died is noticed within this time and vudad's; each look is a few memory reads.
constexpr auto kLookEvery = 50ms;
constexpr auto kLookPatience = 100ms;  // of who waits for one
// Of a mapping call, whatever vudad says.
constexpr uint32_t kMirrorWaitLimit = 60'100;
constexpr size_t kThreadStack = 1 << 20;
// A vudad that stops reading is cut off before the process collects more than this.
constexpr size_t kOutputLimit = 1 << 20;

const Error kNoError{Code::kOk, "", ""};

Error bad_name(const std::string& name) {
    return Error{Code::kInvalidArgument, "'" + plain_text(name, kNameLimit) + "' is not a valid name",
                 "use 1 to 64 of A-Z a-z 0-9 . _ -, not starting with . or -"};
}

Error closed_by_program() { return Error{Code::kUnavailable, "the program closed VUDA's connection", ""}; }

Status check_export(const HandleSet& set) {
    const auto broken = [](const char* what) { return Error{Code::kInternal, what, "please report this"}; };
    if (set.items.empty() || set.items.front().info.kind != HandleKind::kTsg) return broken("export without a TSG");
    if (set.items.size() > kHandleLimit) {
        return Error{Code::kResourceExhausted,
                     "the renderer has " + std::to_string(set.items.size()) + " handles to export, limit is " +
                         std::to_string(kHandleLimit),
                     ""};
    }
    for (size_t i = 0; i < set.items.size(); ++i) {
        if (!set.items[i].fd) return broken("export without a file descriptor");
        if (i > 0 && set.items[i].info.kind != HandleKind::kControlBuffer) return broken("export of more than one TSG");
    }
    return {};
}

}  // namespace

Session::Session(SessionOptions options, SessionHost& host, Reporter& reporter)
    : options_(std::move(options)), host_(host), reporter_(reporter), backoff_(options_.random) {}

Session::~Session() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        if (!thread_running_) return;
        wake_locked();
    }
    ::pthread_join(thread_, nullptr);
}

// ---- Callers' side
// --------------------------------------------------------------------------------------------------------------------

Status Session::ensure_thread_locked() {
    if (thread_running_) return {};
    int pipe_fds[2];
    if (::pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) return errno_error(errno, "pipe");
    wake_read_ = OwnFd(UniqueFd(pipe_fds[0]));
    wake_write_ = OwnFd(UniqueFd(pipe_fds[1]));

    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, kThreadStack);
    // The program's signals are the program's business: this thread takes none.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = ::pthread_create(&thread_, &attributes, &Session::thread_main, this);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::pthread_attr_destroy(&attributes);
    if (rc != 0) {
        wake_read_.reset();
        wake_write_.reset();
        return errno_error(rc, "cannot start VUDA's thread");
    }
    thread_running_ = true;
    return {};
}

void Session::wake_locked() {
    if (!wake_write_.intact()) return;  // the program closed the pipe, and that has woken the thread
    const char byte = 0;
    // EAGAIN: the pipe is full of wake-ups.
    [[maybe_unused]] const ssize_t written = ::write(wake_write_.get(), &byte, 1);
}

void Session::queue_locked(std::string body) {
    // Without a link there is nobody to tell; the next greeting reports the state.
    if (link_ == Link::kUp) outbox_.push_back(std::move(body));
}

void Session::fail_attach_locked(const Error& error) {
    if (!attach_ || attach_->answer) return;
    attach_->answer.emplace(error);
    changed_.notify_all();
}

bool Session::wants_link_locked() const {
    if (fresh_wish_ || wanted_ || attach_ || channels_ > 0) return true;
    return was_connected_ && state_ != SharingState::kUnspecified && state_ != SharingState::kIdle;
}

// Something of this process is in a TSG that others are in, or may come to.
bool Session::watches_locked() const {
    return was_registered_ || channels_ > 0 || turn_taken_ || state_ == SharingState::kSharing;
}

void Session::set_registration(const std::string& name, const Uuid& gpu, const AllowList& allow) {
    Status started;
    {
        const std::lock_guard lock(mutex_);
        Registration wanted{name, gpu, allow};
        if (wanted_ == wanted && registered_) return;
        if (wanted_ != wanted) was_registered_ = false;
        wanted_ = std::move(wanted);
        refused_.reset();
        fresh_wish_ = true;
        if (channels_ == 0) state_ = SharingState::kWaiting;
        started = ensure_thread_locked();
        if (started) wake_locked();
    }
    if (!started) registration_failed(started.error());
}

void Session::set_allowed(const AllowList& allow) {
    const std::lock_guard lock(mutex_);
    if (!wanted_ || wanted_->allow == allow) return;
    wanted_->allow = allow;
    refused_.reset();
    wake_locked();
}

void Session::connect_ahead(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (valid_name(name)) will_attach_ = name;
    fresh_wish_ = true;
    // Without a thread the attach that follows tries again, and reports it.
    if (ensure_thread_locked()) wake_locked();
}

void Session::clear_registration() {
    const std::lock_guard lock(mutex_);
    if (!wanted_) return;
    wanted_.reset();
    was_registered_ = false;
    if (channels_ == 0) state_ = SharingState::kIdle;
    wake_locked();
}

std::optional<uint32_t> Session::va_slot(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (thread_running_) changed_.wait_until(lock, deadline_in(timeout), [&] { return va_slot_ || links_lost_ > 0; });
    return va_slot_;
}

Result<HandleSet> Session::attach(const std::string& name, const Uuid& gpu, uint32_t channels,
                                  std::chrono::milliseconds timeout, const LimitTerms& terms, uint64_t va_base) {
    const Deadline deadline = deadline_in(timeout);
    if (!valid_name(name)) return attach_failed(bad_name(name));

    std::unique_lock lock(mutex_);
    while (turn_taken_ && Clock::now() < turn_ends_) {
        if (Clock::now() >= deadline) {
            lock.unlock();
            return attach_failed(
                Error{Code::kDeadlineExceeded, "another GPU context of this process is still attaching", "try again"});
        }
        changed_.wait_until(lock, std::min(deadline, turn_ends_));
    }
    turn_taken_ = true;
    turn_ends_ = deadline;
    const auto end_turn_locked = [this] {
        turn_taken_ = false;
        changed_.notify_all();
    };

    const auto op =
        std::make_shared<AttachOp>(AttachOp{name, gpu, channels, deadline, terms, va_base, 0, false, 0, std::nullopt});
    if (Status started = ensure_thread_locked(); !started) {
        end_turn_locked();
        lock.unlock();
        return attach_failed(started.error());
    }
    attach_ = op;
    attach_name_ = name;
    va_base_ = va_base;
    if (channels_ == 0) state_ = SharingState::kWaiting;
    fresh_wish_ = true;
    wake_locked();
    changed_.wait_until(lock, deadline, [&op] { return op->answer.has_value(); });
    attach_.reset();
    if (!op->answer) {
        if (op->id != 0) {
            // Whatever vudad does with the request now, its turn must not wait for us.
            AttachOutcome outcome;
            outcome.reason = Error{Code::kDeadlineExceeded, "the program stopped waiting", ""};
            queue_locked(encode_attach_done(next_id_locked(), outcome));
            wake_locked();
        }
        op->answer.emplace(Error{Code::kDeadlineExceeded,
                                 "vudad did not answer within " + std::to_string(timeout.count()) + " ms",
                                 "see vudactl status"});
    }
    if (!*op->answer) {
        end_turn_locked();
        lock.unlock();
        return attach_failed(op->answer->error());
    }
    const AttachReply reply = **op->answer;
    turn_link_ = op->link;
    lock.unlock();
    VUDA_FAULT_POINT(client_attach_answered);

    Result<HandleSet> pulled = pull_handles(options_.socket, reply.token, reply.handles, deadline);
    if (pulled) {
        pulled->stale_veids = reply.stale_veids;
        pulled->unknown_veids = reply.unknown_veids;
        return pulled;
    }
    lock.lock();
    end_turn_locked();
    AttachOutcome outcome;
    outcome.reason = pulled.error();
    queue_locked(encode_attach_done(next_id_locked(), outcome));
    wake_locked();
    lock.unlock();
    return attach_failed(pulled.error());
}

// The caller has the error as its result and decides what to say; here it becomes the state that others see.
Error Session::attach_failed(const Error& error) {
    const std::lock_guard lock(mutex_);
    reason_ = error;
    if (channels_ == 0) {
        state_ = registered_ ? SharingState::kRegistered : SharingState::kUnshared;
        queue_locked(encode_state_report(state_, reason_));
        wake_locked();
    }
    return error;
}

void Session::attach_done(const AttachOutcome& outcome) {
    const std::lock_guard lock(mutex_);
    turn_taken_ = false;
    changed_.notify_all();
    reason_ = outcome.reason;
    if (std::exchange(dead_turn_, false)) {
        // vudad was told, and knows of no turn any more.
        state_ = SharingState::kFaulted;
    } else if (outcome.state == SharingState::kSharing) {
        channels_ += outcome.channels_moved;
        shared_name_ = attach_name_;
        veid_ = outcome.veid;
        veids_ |= outcome.veids;
        control_buffers_ = outcome.control_buffers;
        owner_gone_ = false;
        state_ = SharingState::kSharing;
    } else if (channels_ == 0) {
        state_ = registered_ ? SharingState::kRegistered : outcome.state;
    }
    if (turn_link_ == links_) {
        queue_locked(encode_attach_done(next_id_locked(), outcome));
    } else if (outcome.state == SharingState::kSharing) {
        // This vudad knows of no turn: the one that granted it is gone. The channels are in the TSG all the same.
        queue_share_locked();
    } else {
        queue_locked(encode_state_report(state_, reason_));
    }
    wake_locked();
}

// What a vudad hears that did not see the attach.
void Session::queue_share_locked() {
    AttachOutcome still;
    still.channels_moved = channels_;
    still.veid = veid_;
    still.veids = veids_;
    still.control_buffers = control_buffers_;
    still.reason = reason_;
    queue_locked(encode_sharing_report(attach_name_, still, va_base_));
}

void Session::own_subcontexts(uint64_t taken, uint64_t stale) {
    const std::lock_guard lock(mutex_);
    own_taken_ = taken;
    own_stale_ = stale;
    if (!registered_) return;
    queue_subcontexts_locked();
    wake_locked();
}

void Session::queue_subcontexts_locked() {
    if ((features_ & kFeatureSubcontexts) == 0 || !wanted_) return;
    queue_locked(encode_subcontexts({wanted_->name, own_taken_, own_stale_, 0}));
}

void Session::context_left(uint64_t veids, uint32_t channels) {
    const std::lock_guard lock(mutex_);
    veids_ = veids;
    channels_ = channels;
    if ((features_ & kFeatureSubcontexts) == 0) return;
    queue_locked(encode_subcontexts({attach_name_, veids, 0, channels}));
    wake_locked();
}

void Session::detached(const Error& reason) {
    const std::lock_guard lock(mutex_);
    channels_ = 0;
    veids_ = 0;
    attach_name_.clear();
    reason_ = reason;
    state_ = registered_ ? SharingState::kRegistered : SharingState::kIdle;
    queue_locked(encode_detach_notice(reason));
    wake_locked();
}

void Session::set_state(SharingState state, const Error& reason) {
    const std::lock_guard lock(mutex_);
    state_ = state;
    reason_ = reason;
    if (link_ == Link::kUp) {
        queue_locked(encode_state_report(state, reason));
    } else {
        fresh_wish_ = true;
    }
    // Nothing depends on this report: without a thread it is simply not made.
    if (ensure_thread_locked()) wake_locked();
}

void Session::device_lost() {
    std::unique_lock lock(mutex_);
    device_lost_ = true;
    look_at_once(lock);
}

void Session::ending(const std::optional<LargeKernel>& unfit) {
    // The session's thread is soon done with it. But a signal handler may have interrupted one of these functions on
    // this thread and called exit: then it never comes free.
    constexpr int kTries = 1000;
    std::unique_lock lock(mutex_, std::defer_lock);
    for (int tries = 0; tries < kTries && !lock.try_lock(); ++tries) ::sched_yield();
    if (!lock.owns_lock()) return;
    if (unfit && !unfit_ && !shared_name_.empty()) unfit_ = unfit;
    if (watches_locked() || unfit_) look_at_once(lock);
    const std::optional<LargeKernel> unanswered = unfit_;
    lock.unlock();
    if (unanswered) say_unfit(*unanswered, "");
}

void Session::look_at_once(std::unique_lock<std::mutex>& lock) {
    if (!thread_running_ || ::pthread_equal(thread_, ::pthread_self()) != 0) return;
    const uint64_t wanted = ++looks_asked_;
    wake_locked();
    changed_.wait_for(lock, kLookPatience, [&] { return looks_done_ >= wanted; });
}

SessionSnapshot Session::snapshot() const {
    const std::lock_guard lock(mutex_);
    SessionSnapshot out{state_, attach_name_, channels_, reason_};
    if (out.name.empty() && wanted_) out.name = wanted_->name;
    return out;
}

// ---- Session's thread
// -----------------------------------------------------------------------------------------------------------------

void* Session::thread_main(void* self) {
    ::pthread_setname_np(::pthread_self(), "vuda-session");
    static_cast<Session*>(self)->run();
    return nullptr;
}

void Session::run() {
    bool guarded = false;
    for (;;) {
        try {
            if (!guarded) {
                host_.guard_fd(wake_read_.get(), true);
                host_.guard_fd(wake_write_.get(), true);
                guarded = true;
                grow_descriptor_table(wake_read_.get());
            }
            {
                const std::lock_guard lock(mutex_);
                if (stopping_) break;
            }
            step();
        } catch (const std::exception& failure) {
            // Out of memory, in practice. The link starts afresh; its state is not to be trusted.
            drop_link(Error{Code::kResourceExhausted, std::string("VUDA's session failed: ") + failure.what(), ""});
        }
    }
    drop_link(Error{Code::kCancelled, "the session ended", ""});
    host_.guard_fd(wake_read_.get(), false);
    host_.guard_fd(wake_write_.get(), false);
}

void Session::step() {
    refresh_wake_pipe();
    if (connection_.get() >= 0 && !connection_.intact()) drop_link(closed_by_program());
    bool lost = false;
    bool due = false;
    uint64_t asked = 0;
    {
        const std::lock_guard lock(mutex_);
        lost = std::exchange(device_lost_, false);
        asked = looks_asked_;
        const bool watches = watches_locked();
        due = lost || asked > looks_done_ || (watches ? Clock::now() >= next_look_ : looks_);
        looks_ = watches;
    }
    if (due) look(lost);
    bool connect = false;
    {
        const std::lock_guard lock(mutex_);
        if (link_ == Link::kDown && wants_link_locked() && (fresh_wish_ || Clock::now() >= retry_at_)) {
            fresh_wish_ = false;
            if (attach_) attach_->tried = true;
            connect = true;
        }
    }
    if (connect) connect_link();
    send_mirrors();
    send_due();
    const bool blocked = flush();

    int timeout = -1;
    {
        const std::lock_guard lock(mutex_);
        if (fault_id_ == 0 && unfit_id_ == 0 && looks_done_ < asked) {
            looks_done_ = asked;
            changed_.notify_all();
        }
        if (stopping_) return;
        std::optional<Deadline> until;
        if (link_ == Link::kGreeting) until = greeting_ends_;
        if (link_ == Link::kDown && wants_link_locked()) until = fresh_wish_ ? Clock::now() : retry_at_;
        if (watches_locked()) until = until ? std::min(*until, next_look_) : next_look_;
        if (link_ == Link::kUp && mirrors_.may_rest())
            until = until ? std::min(*until, mirrors_quiet_) : mirrors_quiet_;
        if (until) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
            timeout = static_cast<int>(std::clamp<long long>(left, 0, INT_MAX));
        }
    }
    pollfd entries[2] = {{wake_read_.get(), POLLIN, 0},
                         {connection_.get(), static_cast<short>(blocked ? POLLIN | POLLOUT : POLLIN), 0}};
    if (::poll(entries, 2, timeout) < 0) return;  // EINTR cannot happen here, ENOMEM is worth another try
    if (entries[0].revents != 0) drain_wake_pipe();
    if (connection_.get() >= 0 && (entries[1].revents & ~POLLOUT) != 0) read_link();
    if (link_ == Link::kGreeting && Clock::now() >= greeting_ends_) {
        drop_link(Error{Code::kDeadlineExceeded, "vudad does not answer on " + options_.socket, "restart vudad"});
    }
}

// The program may close everything (closefrom). Closing the writing end wakes poll, so that this is noticed at once.
void Session::refresh_wake_pipe() {
    if (wake_read_.intact() && wake_write_.intact()) return;
    int pipe_fds[2];
    if (::pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0)
        return;  // out of fds: the next wake-up is the link's or the back-off's
    host_.guard_fd(wake_read_.get(), false);
    host_.guard_fd(wake_write_.get(), false);
    {
        const std::lock_guard lock(mutex_);
        wake_read_ = OwnFd(UniqueFd(pipe_fds[0]));
        wake_write_ = OwnFd(UniqueFd(pipe_fds[1]));
    }
    host_.guard_fd(pipe_fds[0], true);
    host_.guard_fd(pipe_fds[1], true);
}

void Session::drain_wake_pipe() {
    char buffer[64];
    while (wake_read_.intact() && ::read(wake_read_.get(), buffer, sizeof buffer) == sizeof buffer) {
    }
}

void Session::connect_link() {
    Result<UniqueFd> fd = connect_unix(options_.socket, deadline_in(kConnectTime));
    if (!fd) {
        Error error = fd.error();
        error.text = "vudad is not reachable: " + error.text;
        if (error.hint.empty()) {
            error.hint = error.code == Code::kPermissionDenied ? "ask for access to that socket (vudactl doctor)"
                                                               : "start it (systemctl start vudad)";
        }
        drop_link(error);
        return;
    }
    connection_ = OwnFd(*std::move(fd));
    VUDA_FAULT_POINT(client_connected);
    host_.guard_fd(connection_.get(), true);
    greeting_ends_ = deadline_in(kGreetingTime);
    page_lost_ = false;
    std::string hello;
    AttachPlace place;
    {
        const std::lock_guard lock(mutex_);
        link_ = Link::kGreeting;
        hello_id_ = next_id_locked();
        place = {will_attach_, va_slot_ ? *va_slot_ + 1 : 0};
    }
    hello = encode_hello(
        hello_id_,
        kFeatureShare | kFeatureExportRefresh | kFeatureSharedPage | kFeatureQuota | kFeatureSlo | kFeatureHeartbeat |
            kFeatureFaults | kFeatureLiveMirror | kFeatureUnshare | kFeatureSubcontexts | kFeatureStuck,
        options_.client_version, options_.driver_version, options_.program, options_.executable, place);
    if (Status framed = output_.add(hello); !framed) drop_link(framed.error());
}

// Ends the link, or notes that it could not be made. Who waits for vudad is told.
void Session::drop_link(const Error& error) {
    if (connection_.get() >= 0) {
        host_.guard_fd(connection_.get(), false);
        VUDA_FAULT_POINT(client_link_lost);
    }
    connection_.reset();
    decoder_ = FrameDecoder();
    output_.clear();
    arrived_fds_.clear();
    bool registration_waits;
    bool stopping;
    {
        const std::lock_guard lock(mutex_);
        stopping = stopping_;
        if (link_ == Link::kUp && Clock::now() - up_since_ >= Backoff::kLast) backoff_.reset();
        registration_waits = wanted_ && !was_registered_ && wanted_ != refused_;
        // An attach that came when this link was dying already deserves a new one.
        if (attach_ && attach_->id == 0 && !attach_->tried) {
            fresh_wish_ = true;
        } else {
            fail_attach_locked(error);
        }
        link_ = Link::kDown;
        ++links_lost_;
        changed_.notify_all();
        outbox_.clear();
        sent_.reset();
        refused_.reset();
        registered_ = false;
        registration_id_ = 0;
        features_ = 0;
        fault_id_ = 0;
        stop_mirroring_locked();
        unfit_id_ = 0;
        mode_id_ = quota_id_ = targets_id_ = 0;
        if (state_ == SharingState::kRegistered) state_ = SharingState::kWaiting;
        retry_later_locked();
    }
    if (stopping) return;
    if (registration_waits) {
        registration_failed(error);
    } else {
        // Attachers have the error as their result; a registration that stood comes back by itself.
        reporter_.say_once(LogLevel::kInfo, "link: " + error.text, error.to_string());
    }
}

void Session::retry_later_locked() { retry_at_ = Clock::now() + backoff_.next(); }

void Session::send_due() {
    std::vector<Error> refused;
    std::optional<LargeKernel> hopeless;
    bool overflow = false;
    {
        const std::lock_guard lock(mutex_);
        if (link_ != Link::kUp) return;
        send_registration_locked(refused);
        send_partition_wishes_locked();
        if (attach_ && attach_->id == 0) {
            attach_->id = next_id_locked();
            const auto left =
                std::chrono::duration_cast<std::chrono::milliseconds>(attach_->deadline - Clock::now()).count();
            const auto deadline_ms = static_cast<uint32_t>(std::clamp<long long>(left, 1, UINT32_MAX));
            outbox_.push_back(encode_attach(attach_->id, attach_->name, attach_->gpu, attach_->channels, deadline_ms,
                                            attach_->terms, attach_->va_base));
        }
        send_unfit_locked(hopeless);
        for (const std::string& body : outbox_) {
            // Our own messages are far below the limit of a frame.
            overflow = overflow || !output_.add(body) || output_.bytes() > kOutputLimit;
        }
        outbox_.clear();
    }
    for (const Error& error : refused) registration_failed(error);
    if (hopeless) say_unfit(*hopeless, "");
    if (overflow) drop_link(Error{Code::kResourceExhausted, "vudad does not read what it is sent", "restart vudad"});
}

void Session::send_registration_locked(std::vector<Error>& refused) {
    if (sent_ && sent_ != wanted_) {
        if (!wanted_ || wanted_->name != sent_->name)
            outbox_.push_back(encode_unregister(next_id_locked(), sent_->name));
        sent_.reset();
        registration_id_ = 0;
        registered_ = false;
    }
    if (!wanted_ || wanted_ == sent_ || wanted_ == refused_) return;
    if (!valid_name(wanted_->name)) {
        refused_ = wanted_;
        refused.push_back(bad_name(wanted_->name));
        return;
    }
    registration_id_ = next_id_locked();
    outbox_.push_back(encode_register(registration_id_, wanted_->name, wanted_->gpu, wanted_->allow, was_registered_));
    sent_ = wanted_;
}

// True while vudad has not taken everything.
bool Session::flush() {
    if (connection_.get() < 0) return false;
    const bool something = !output_.empty();
    while (!output_.empty()) {
        if (!connection_.intact()) {
            drop_link(closed_by_program());
            return false;
        }
        const Result<bool> sent = output_.send(connection_.get());
        if (!sent) {
            drop_link(sent.error());
            return false;
        }
        if (!*sent) return true;
    }
    if (link_ == Link::kGreeting) {
        VUDA_FAULT_POINT(client_hello_sent);
    } else if (something) {
        VUDA_FAULT_POINT(client_request_sent);
    }
    return false;
}

void Session::read_link() {
    if (!connection_.intact()) return drop_link(closed_by_program());
    char buffer[4096];
    Result<Received> got = receive_some(connection_.get(), buffer, arrived_fds_);
    if (!got) return drop_link(got.error());
    if (got->kind == Received::Kind::kWouldBlock) return;
    if (got->kind == Received::Kind::kEnd) {
        return drop_link(Error{Code::kUnavailable, "vudad closed the connection", "see vudad's log"});
    }
    page_lost_ = page_lost_ || got->fds_lost;
    decoder_.feed({buffer, got->bytes});
    while (connection_.get() >= 0) {
        Result<std::optional<std::string>> frame = decoder_.next();
        if (!frame) {
            Error error = frame.error();
            error.text = "vudad sent garbage: " + error.text;
            error.hint = "check that " + options_.socket + " is vudad's";
            return drop_link(error);
        }
        if (!frame->has_value()) {
            // Only the greeting and control buffers bring descriptors, with their first byte; whatever else comes is
            // closed.
            if (decoder_.buffered() == 0) arrived_fds_.clear();
            return;
        }
        Result<ServerMessage> message = decode_server_message(**frame);
        if (!message) return drop_link(message.error());
        handle(*message);
    }
}

void Session::handle(const ServerMessage& message) {
    {
        // Whatever the answer is: vudad has it.
        const std::lock_guard lock(mutex_);
        if (message.id != 0 && message.id == fault_id_) fault_id_ = 0;
    }
    if (link_ == Link::kGreeting) {
        if (const auto* error = std::get_if<Error>(&message.body)) return drop_link(*error);
        const auto* reply = std::get_if<HelloReply>(&message.body);
        if (reply == nullptr || message.id != hello_id_) {
            return drop_link(Error{Code::kDataLoss, "vudad did not answer the greeting",
                                   "check that " + options_.socket + " is vudad's"});
        }
        take_page(*reply);
        VUDA_FAULT_POINT(client_page_taken);
        return greeted(*reply);
    }
    if (const auto* error = std::get_if<Error>(&message.body)) {
        if (message.id == 0) return drop_link(*error);
        answered(message.id, error, nullptr);
        partition_answered(message.id, error, "");
        mirrors_answered(message.id, error, 0);
        unfit_answered(message.id, error, nullptr);
    } else if (const auto* mode = std::get_if<SetModeReply>(&message.body)) {
        partition_answered(message.id, nullptr, mode->note);
    } else if (const auto* quota = std::get_if<SetQuotaReply>(&message.body)) {
        partition_answered(message.id, nullptr, quota->note);
    } else if (const auto* targets = std::get_if<SetTargetsReply>(&message.body)) {
        partition_answered(message.id, nullptr, targets->note);
    } else if (std::holds_alternative<RegisterReply>(message.body)) {
        answered(message.id, nullptr, nullptr);
    } else if (const auto* reply = std::get_if<AttachReply>(&message.body)) {
        answered(message.id, nullptr, reply);
    } else if (const auto* request = std::get_if<ExportRequest>(&message.body)) {
        serve_export(*request);
    } else if (const auto* update = std::get_if<MirrorUpdate>(&message.body)) {
        mirror(*update);
    } else if (const auto* mirrored = std::get_if<MirrorUpdateReply>(&message.body)) {
        mirrors_answered(message.id, nullptr, mirrored->late);
    } else if (std::holds_alternative<MirrorIdle>(message.body)) {
        const std::lock_guard lock(mutex_);
        stop_mirroring_locked();
    } else if (const auto* unfit = std::get_if<DoesNotFitReply>(&message.body)) {
        unfit_answered(message.id, nullptr, unfit);
    } else if (const auto* others = std::get_if<Subcontexts>(&message.body)) {
        host_.others_subcontexts(*others);
    } else if (std::holds_alternative<Ping>(message.body)) {
        const std::lock_guard lock(mutex_);
        queue_locked(encode_pong());
    } else if (const auto* notice = std::get_if<FaultNotice>(&message.body)) {
        told_of_fault(*notice);
    } else if (const auto* command = std::get_if<DetachCommand>(&message.body)) {
        commanded_to_detach(command->reason);
    }
}

void Session::greeted(const HelloReply& reply) {
    if ((reply.features & kFeatureShare) == 0) {
        return drop_link(Error{Code::kUnimplemented, "vudad " + reply.daemon_version + " offers no sharing",
                               "use client and daemon of one release"});
    }
    const std::lock_guard lock(mutex_);
    link_ = Link::kUp;
    was_connected_ = true;
    ++links_;
    // Where CUDA's addresses are by now they stay.
    if (!va_slot_ && !will_attach_.empty()) va_slot_ = reply.va_slot;
    changed_.notify_all();
    up_since_ = Clock::now();
    features_ = reply.features;
    VUDA_FAULT_POINT(client_greeted);
    if (partition_ && (features_ & kFeatureQuota) != 0) queue_locked(encode_partition_report(*partition_));
    switch (state_) {
        case SharingState::kSharing:
            if (channels_ > 0 && !owner_gone_) {
                queue_share_locked();
                VUDA_FAULT_POINT(client_resume_queued);
            } else {
                queue_locked(encode_state_report(state_, reason_));
            }
            break;
        case SharingState::kUnshared:
        case SharingState::kFaulted: queue_locked(encode_state_report(state_, reason_)); break;
        case SharingState::kUnspecified: state_ = SharingState::kIdle; break;
        default: break;
    }
    if (stuck_since_) queue_stuck_locked(false);
}

void Session::take_page(const HelloReply& reply) {
    if (reply.page_bytes > 0 && (reply.features & kFeatureSharedPage) != 0) {
        Status taken;
        if (!arrived_fds_.empty()) {
            taken = host_.page_received(arrived_fds_.front().get(), reply.page_bytes);
            arrived_fds_.erase(arrived_fds_.begin());
        } else if (page_lost_) {
            taken = errno_error(EMFILE, "no session page, and so no split");
        } else {
            taken = Error{Code::kDataLoss, "vudad announced a session page and sent none", "restart vudad"};
        }
        // Without it the program shares all the same.
        if (!taken) reporter_.say_once(LogLevel::kError, "page", taken.error().to_string());
    }
}

void Session::set_partition_state(const partition::PartitionState& state) {
    const std::lock_guard lock(mutex_);
    partition_ = state;
    if ((features_ & kFeatureQuota) == 0) return;
    queue_locked(encode_partition_report(state));
    wake_locked();
}

void Session::set_mode(partition::Mode mode) {
    const std::lock_guard lock(mutex_);
    mode_ = mode;
    mode_id_ = 0;
    if (thread_running_) wake_locked();
}

void Session::set_quota(const QuotaWish& quota) {
    const std::lock_guard lock(mutex_);
    quota_ = quota;
    quota_id_ = 0;
    if (thread_running_) wake_locked();
}

void Session::set_targets(const TargetsWish& targets) {
    const std::lock_guard lock(mutex_);
    targets_ = targets;
    targets_id_ = 0;
    if (thread_running_) wake_locked();
}

Error Session::partition_answer() const {
    const std::lock_guard lock(mutex_);
    return partition_answer_;
}

// vudad applies them to the TSG that this session owns or shares, so there must be one.
void Session::send_partition_wishes_locked() {
    if (!registered_ && state_ != SharingState::kSharing) return;
    if (targets_ && targets_id_ == 0) {
        targets_id_ = next_id_locked();
        if ((features_ & kFeatureSlo) != 0) {
            outbox_.push_back(encode_set_targets(targets_id_, *targets_));
        } else {
            partition_answer_ = Error{Code::kUnimplemented, "this vudad knows no targets", "use a newer vudad"};
        }
    }
    if ((features_ & kFeatureQuota) == 0) {
        if (mode_ || quota_) {
            partition_answer_ = Error{Code::kUnimplemented, "this vudad cannot split the GPU", "use a newer vudad"};
        }
        return;
    }
    if (mode_ && mode_id_ == 0) {
        mode_id_ = next_id_locked();
        outbox_.push_back(encode_set_mode(mode_id_, *mode_));
    }
    if (quota_ && quota_id_ == 0) {
        quota_id_ = next_id_locked();
        outbox_.push_back(encode_set_quota(quota_id_, *quota_));
    }
}

void Session::partition_answered(uint64_t id, const Error* error, const std::string& note) {
    const std::lock_guard lock(mutex_);
    if (id == 0 || (id != mode_id_ && id != quota_id_ && id != targets_id_)) return;
    partition_answer_ = error != nullptr ? *error : Error{Code::kOk, note, ""};
}

void Session::answered(uint64_t id, const Error* error, const AttachReply* attach) {
    std::optional<Error> refused;
    bool registered = false;
    {
        const std::lock_guard lock(mutex_);
        if (id != 0 && id == registration_id_ && attach == nullptr) {
            registration_id_ = 0;
            if (error == nullptr) {
                registered = true;
                registered_ = was_registered_ = true;
                queue_subcontexts_locked();
                if (channels_ == 0 && !attach_) {
                    state_ = SharingState::kRegistered;
                    reason_ = kNoError;
                }
            } else {
                refused_ = sent_;
                sent_.reset();
                refused = *error;
            }
        } else if (attach_ && attach_->id == id && !attach_->answer && (attach != nullptr || error != nullptr)) {
            attach_->link = links_;
            if (attach != nullptr) {
                attach_->answer.emplace(*attach);
            } else {
                attach_->answer.emplace(*error);
            }
            changed_.notify_all();
        }
    }
    if (registered) {
        VUDA_FAULT_POINT(client_registered);
        host_.registered();
    }
    if (refused) registration_failed(*refused);
}

void Session::serve_export(const ExportRequest& request) {
    const auto time = request.deadline_ms == 0 ? kExportTime
                                               : std::min<std::chrono::milliseconds>(
                                                     std::chrono::milliseconds(request.deadline_ms), kMaxExportTime);
    const Deadline deadline = deadline_in(time);
    VUDA_FAULT_POINT(client_export_asked);
    if (request.live_ms > 0) {
        // Before the set is looked at: what is mapped from now on is in it, or a change of it.
        const std::lock_guard lock(mutex_);
        mirrors_.begin(std::min(request.live_ms, kMirrorWaitLimit));
    }
    // A whole set would bring those who share already what is new as well, but nobody would wait for them. What is not
    // in the set that vudad holds goes out as a change of it, and before the answer (step()).
    const bool follows = request.live_ms > 0 && request.held != 0 && host_.follows_from(request.held);
    HandleSet unchanged;
    unchanged.generation = request.held;
    const Result<HandleSet> set = follows ? std::move(unchanged) : host_.export_host(request.held);
    VUDA_FAULT_POINT(client_exported);
    Status pushed;
    if (!set) {
        pushed = set.error();
    } else if (set->items.empty() && request.held != 0 && set->generation == request.held) {
        const std::lock_guard lock(mutex_);
        if (follows) mirrors_.change();
        return queue_locked(encode_export_current(request.token));
    } else if (pushed = check_export(*set); pushed) {
        // Changes of it must come after it.
        pushed = push_handles(options_.socket, request.token, *set, deadline, (features_ & kFeatureLiveMirror) != 0);
    }
    if (pushed) {
        VUDA_FAULT_POINT(client_pushed);
        return;
    }
    reporter_.say_once(LogLevel::kInfo, "export: " + pushed.error().text,
                       "export failed: " + pushed.error().to_string());
    const std::lock_guard lock(mutex_);
    queue_locked(encode_export_refused(request.token, pushed.error()));
}

void Session::look(bool device_lost) {
    next_look_ = Clock::now() + kLookEvery;
    const SessionHost::Faults faults = host_.look_for_faults();
    if (faults.shared) tsg_died(false, faults.shared_xid);
    if (faults.own || device_lost) tsg_died(true, faults.own_xid);
    if (faults.stuck) stuck(faults.replays);
    if (faults.stuck_over) stuck_over();
}

// One line, and vudad hears of it: who else is in that TSG, and what is to become of its name, it knows best.
void Session::tsg_died(bool own, uint32_t xid) {
    std::string name;
    std::string text;
    {
        const std::lock_guard lock(mutex_);
        if (own) {
            // A TSG that nobody else can have: CUDA in the renderer's process. Or one of which it was said already.
            if (!wanted_ && (state_ != SharingState::kSharing || channels_ > 0)) return;
            if (wanted_) name = wanted_->name;
            // It is not to be registered again; what the program makes next will be.
            wanted_.reset();
            sent_.reset();
            registration_id_ = 0;
            registered_ = was_registered_ = false;
        } else {
            if (channels_ == 0 && !turn_taken_) return;
            name = attach_name_;
            dead_turn_ = turn_taken_;
            channels_ = 0;
        }
        text = "the TSG" + (name.empty() ? "" : " '" + plain_text(name, kNameLimit) + "'") +
               " died: " + (xid != 0 ? rm::describe_xid(xid) : "the device was lost");
        state_ = SharingState::kFaulted;
        stuck_since_.reset();
        reason_ = Error{Code::kFailedPrecondition, text, "docs/faults.md"};
        if ((features_ & kFeatureFaults) != 0 && !name.empty()) {
            if (link_ == Link::kUp) fault_id_ = next_id_locked();
            queue_locked(encode_fault(fault_id_, name, xid));
        } else {
            queue_locked(encode_state_report(state_, reason_));
        }
    }
    reporter_.say(LogLevel::kError, text + "; what this program had in it is lost (docs/faults.md)");
}

void Session::told_of_fault(const FaultNotice& notice) {
    // What can be seen here is reported, whoever else did: vudad puts the words together.
    look(false);
    if (notice.look) return;
    {
        const std::lock_guard lock(mutex_);
        if (notice.name != attach_name_) return;
        const bool news = channels_ > 0;
        if (!news && state_ != SharingState::kFaulted) return;
        channels_ = 0;
        state_ = SharingState::kFaulted;
        stuck_since_.reset();
        reason_ = Error{Code::kFailedPrecondition, notice.text, "docs/faults.md"};
        if (!news) return;
    }
    reporter_.say(LogLevel::kError, notice.text + "; what this program had in it is lost (docs/faults.md)");
}

void Session::commanded_to_detach(const Error& reason) {
    reporter_.say(LogLevel::kInfo, "vudad ended sharing: " + reason.to_string());
    {
        const std::lock_guard lock(mutex_);
        reason_ = reason;
        if (reason.code == Code::kUnavailable) {
            owner_gone_ = true;
        } else {
            wanted_.reset();
            sent_.reset();
            registration_id_ = 0;
            registered_ = was_registered_ = false;
            if (channels_ == 0) state_ = SharingState::kUnshared;
        }
    }
    VUDA_FAULT_POINT(client_told_to_detach);
    host_.detach_command(reason);
}

// Refused, or vudad is not there; the back-off of the link and the next greeting bring the retry.
void Session::registration_failed(const Error& error) {
    std::string name, consequence = "this program runs without sharing";
    {
        const std::lock_guard lock(mutex_);
        reason_ = error;
        if (channels_ == 0) state_ = SharingState::kUnshared;
        if (wanted_) name = plain_text(wanted_->name, kNameLimit);
        queue_locked(encode_state_report(SharingState::kUnshared, error));
        if (channels_ > 0) consequence = "channels that are shared already stay so";
    }
    if (reporter_.say_once(LogLevel::kError, error.text,
                           "cannot register '" + name + "': " + error.to_string() + "; " + consequence)) {
        host_.register_failed(error);
    }
}

}  // namespace vuda::client
