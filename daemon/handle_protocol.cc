#include "daemon/handle_protocol.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/fault_point.h"
#include "daemon/text.h"

namespace vuda::daemon {

std::vector<int> HandleProtocol::Output::fds() const {
    std::vector<int> out;
    if (page) out.push_back(page->get());
    for (const HeldPtr& handle : handles) out.push_back(handle->fd.get());
    return out;
}

HandleProtocol::HandleProtocol(ProtocolContext& context, Peer peer, std::function<void()> changed)
    : context_(context),
      peer_(std::move(peer)),
      changed_(std::move(changed)),
      decoder_(context_.limits.message_bytes),
      deadline_(context_.clock() + context_.limits.first_frame) {}

HandleProtocol::~HandleProtocol() {
    changed_ = {};
    disconnected({Code::kUnavailable, "the connection was closed", ""});
    for (UniqueFd& fd : fds_) context_.reaper.close(std::move(fd));
}

void HandleProtocol::input(std::string_view bytes, std::vector<UniqueFd> fds, bool fds_lost) {
    fds_lost_ = fds_lost_ || fds_lost;
    std::move(fds.begin(), fds.end(), std::back_inserter(fds_));
    // One read brings one frame's descriptors, and those of at most one frame before it can still be unclaimed.
    if (fds_.size() > 2 * kFrameFdLimit) {
        return offend("fd-flood", {Code::kInvalidArgument, "file descriptors that no frame announced", ""});
    }
    decoder_.feed(bytes);
    go_on();
}

void HandleProtocol::go_on() {
    more_ = false;
    for (size_t i = 0; wants_input(); ++i) {
        if (i == context_.limits.frames_per_turn) {
            more_ = true;
            break;
        }
        Result<std::optional<std::string>> frame = decoder_.next();
        if (!frame) return offend("bad-frame", frame.error());
        if (!frame->has_value()) break;
        ++requests_;
        on_frame(**frame);
    }
    // Those of a frame that is not here in full, or whose turn is yet to come, may be.
    const bool awaited = session_fds_ && (more_ || (decoder_.buffered() > 0 && fds_.size() <= kFrameFdLimit));
    if (phase_ == Phase::kSession && !fds_.empty() && !awaited) {
        offend("fd-flood", {Code::kInvalidArgument, "file descriptors that no message announced", ""});
    }
}

void HandleProtocol::input_error(const Error& error) { offend("bad-input", error); }

void HandleProtocol::on_frame(const std::string& body) {
    v1::Frame frame;
    if (!frame.ParseFromString(body))
        return offend("bad-frame", {Code::kInvalidArgument, "the frame is not a vuda.v1.Frame", ""});
    switch (phase_) {
        case Phase::kOpening: return on_first_frame(frame);
        case Phase::kSession:
            if (!frame.has_client()) {
                return offend("bad-frame", {Code::kFailedPrecondition, "a session carries client messages only", ""});
            }
            return on_client(frame.client());
        case Phase::kPush:
            if (!frame.has_push() || frame.push().token() != push_token_) {
                return offend("bad-push", {Code::kFailedPrecondition, "a push goes on with its own frames only", ""});
            }
            return on_push(frame.push());
        case Phase::kPull: return offend("bad-frame", {Code::kFailedPrecondition, "nothing may follow a pull", ""});
        case Phase::kEnding: return;
    }
}

void HandleProtocol::on_first_frame(const v1::Frame& frame) {
    switch (frame.body_case()) {
        case v1::Frame::kClient: {
            if (!frame.client().has_hello()) {
                return offend("no-hello",
                              {Code::kFailedPrecondition, "the first message of a session must be Hello", ""});
            }
            phase_ = Phase::kSession;
            deadline_.reset();
            const v1::Hello& hello = frame.client().hello();
            const Result<SessionId> session = context_.registry.open_session(
                peer_, Transport::kFrames, hello, frame.client().id(), *this, make_page(hello));
            page_.reset();
            if (!session) return offend("session-refused", session.error());
            session_ = *session;
            session_fds_ = (hello.features() & context_.registry.features() & v1::FEATURE_LIVE_MIRROR) != 0;
            return;
        }
        case v1::Frame::kPush: {
            if (context_.reaper.backlog() > context_.limits.reaper_backlog) {
                return fail(
                    {Code::kUnavailable, "vudad cannot close the descriptors it has", "does a file system hang?"});
            }
            const Result<PushTicket> ticket = context_.registry.begin_push(frame.push().token(), peer_);
            if (!ticket) return offend("bad-token", ticket.error());
            phase_ = Phase::kPush;
            deadline_ = context_.clock() + context_.limits.transfer;
            push_ = *ticket;
            push_token_ = frame.push().token();
            pushed_ = std::make_shared<HandleSet>(context_.reaper);
            return on_push(frame.push());
        }
        case v1::Frame::kPull: return begin_pull(frame.pull());
        default:
            return offend("bad-frame",
                          {Code::kFailedPrecondition, "a connection begins with Hello, a push or a pull", ""});
    }
}

void HandleProtocol::on_client(const v1::ClientMessage& message) {
    // An answer to us is no request: a renderer that maps much would use its programs' rate up otherwise.
    if (message.has_mirror_done() && requests_ > 0 &&
        context_.registry.awaits_mirror(session_, message.mirror_done().to()))
        --requests_;
    if (!message.has_mirror_update() || !session_fds_) return context_.registry.receive(session_, message);
    const auto count = static_cast<size_t>(message.mirror_update().added_size());
    if (fds_lost_) {
        fds_lost_ = false;
        for (UniqueFd& fd : fds_) context_.reaper.close(std::move(fd));
        fds_.clear();
        if (const auto held = context_.log_limit.admit(0, "fds-lost")) {
            spdlog::error("{}: {} ({} more like this)", peer_.describe(), fds_lost_error().to_string(), *held);
        }
    }
    if (context_.reaper.backlog() > context_.limits.reaper_backlog) {
        return offend("fd-flood",
                      {Code::kUnavailable, "vudad cannot close the descriptors it has", "does a file system hang?"});
    }
    std::vector<HeldPtr> added;
    if (count > kHandlesPerFrame)
        return offend("bad-mirror", {Code::kInvalidArgument, "more than 64 buffers in one update", ""});
    std::vector<UniqueFd> fds = take_fds(count);
    for (size_t i = 0; i < fds.size(); ++i) {
        added.push_back(std::make_shared<const HeldHandle>(
            context_.reaper, message.mirror_update().added(static_cast<int>(i)), std::move(fds[i])));
    }
    // Too few: our own trouble (above), or the peer's mistake. The registry says so to the owner, who sends it anew.
    context_.registry.receive_mirror(session_, message, std::move(added));
}

// Null when the client wants none, or there is none to be had: splits and samples are then not for it, sharing is.
std::unique_ptr<SessionPage> HandleProtocol::make_page(const v1::Hello& hello) {
    if ((hello.features() & context_.registry.features() & v1::FEATURE_SHARED_PAGE) == 0) return nullptr;
    Result<SessionPage::Made> made = SessionPage::make();
    if (!made) {
        if (const auto held = context_.log_limit.admit(peer_.uid, "no-page")) {
            spdlog::warn("{} gets no session page: {} ({} more like this)", peer_.describe(), made.error().to_string(),
                         *held);
        }
        return nullptr;
    }
    page_ = std::make_shared<const UniqueFd>(std::move(made->fd));
    VUDA_FAULT_POINT(daemon_page_made);
    return std::move(made->page);
}

std::vector<UniqueFd> HandleProtocol::take_fds(size_t count) {
    count = std::min(count, fds_.size());
    std::vector<UniqueFd> out(std::make_move_iterator(fds_.begin()),
                              std::make_move_iterator(fds_.begin() + static_cast<std::ptrdiff_t>(count)));
    fds_.erase(fds_.begin(), fds_.begin() + static_cast<std::ptrdiff_t>(count));
    return out;
}

void HandleProtocol::on_push(const v1::HandleBundle& bundle) {
    if (fds_lost_) {
        // Our trouble and not the peer's offence. Who waits for what it sent is told at once.
        if (const auto held = context_.log_limit.admit(0, "fds-lost")) {
            spdlog::error("{}: {} ({} more like this)", peer_.describe(), fds_lost_error().to_string(), *held);
        }
        return fail({Code::kResourceExhausted, "vudad has no file descriptors left", "raise LimitNOFILE= of vudad"});
    }
    std::vector<UniqueFd> fds = take_fds(static_cast<size_t>(bundle.handles_size()));
    if (Status added = pushed_->append(bundle, std::move(fds), push_->handle_limit); !added)
        return offend("bad-push", added.error());
    VUDA_FAULT_POINT(daemon_fds_received);
    if (!bundle.last()) return;
    if (!fds_.empty() || decoder_.buffered() > 0) {
        return offend("bad-push", {Code::kInvalidArgument, "more came after the last frame of a push", ""});
    }
    const PushTicket ticket = *std::exchange(push_, std::nullopt);
    if (Status stored =
            context_.registry.complete_push(ticket, std::move(pushed_), bundle.channels_in_use(), bundle.generation());
        !stored) {
        return fail(stored.error());
    }
    end();
}

void HandleProtocol::begin_pull(const v1::HandlePull& pull) {
    Result<PullTicket> ticket = context_.registry.redeem_pull(pull.token(), peer_);
    if (!ticket) return offend("bad-token", ticket.error());
    phase_ = Phase::kPull;
    deadline_ = context_.clock() + context_.limits.transfer;
    pull_ = *std::move(ticket);
    pull_token_ = pull.token();
    queue_bundle();
}

// One frame at a time: the next is made when the socket took this one, so a puller that does not read costs one frame.
void HandleProtocol::queue_bundle() {
    const size_t first = pulled_;
    v1::Frame frame;
    v1::HandleBundle& bundle = *frame.mutable_bundle();
    bundle = bundle_of(*pull_.handles, first, kHandlesPerFrame);
    bundle.set_token(pull_token_);
    bundle.set_channels_in_use(pull_.channels_in_use);
    if (bundle.last()) bundle.set_generation(pull_.generation);
    const auto count = static_cast<size_t>(bundle.handles_size());
    pulled_ += count;
    const bool last = bundle.last();
    enqueue(frame);
    const auto begin = pull_.handles->items().begin() + static_cast<std::ptrdiff_t>(first);
    output_.back().handles.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
    if (last) end();
}

HandleProtocol::Output* HandleProtocol::output() { return output_.empty() ? nullptr : &output_.front(); }

void HandleProtocol::output_sent() {
    output_bytes_ -= output_.front().bytes.size();
    output_.pop_front();
    if (phase_ == Phase::kPull && output_.empty()) queue_bundle();
}

void HandleProtocol::enqueue(const v1::Frame& frame) {
    Output out;
    // Ours are far below the limit: errors and replies are bounded, a bundle has 64 handles.
    if (Status framed = append_frame(out.bytes, frame.SerializeAsString()); !framed) {
        spdlog::error("a frame could not be sent: {}", framed.error().to_string());
        return;
    }
    output_bytes_ += out.bytes.size();
    output_.push_back(std::move(out));
    if (changed_) changed_();
}

void HandleProtocol::send_with(const v1::ServerMessage& message, std::vector<HeldPtr> handles) {
    if (phase_ != Phase::kSession) return;
    if (output_bytes_ > context_.limits.output_bytes) {
        // Not a word more, and nothing of what it has not read: it would not read this either. The registry is in the
        // middle of something and hears of it from settle().
        if (const auto held = context_.log_limit.admit(peer_.uid, "slow-reader")) {
            spdlog::warn("{} does not read its session; closed ({} more like this)", peer_.describe(), *held);
        }
        ++context_.protocol_errors;
        output_.clear();
        output_bytes_ = 0;
        return end();
    }
    v1::Frame frame;
    *frame.mutable_server() = message;
    enqueue(frame);
    if (message.has_hello_reply() && message.hello_reply().page_bytes() > 0 && !output_.empty())
        output_.back().page = std::move(page_);
    if (!handles.empty() && !output_.empty()) output_.back().handles = std::move(handles);
}

void HandleProtocol::close(const Error& reason) {
    // Called by the registry only, for a session that it has already forgotten.
    session_ = 0;
    if (phase_ == Phase::kEnding) return;
    fail(reason);
}

void HandleProtocol::offend(const char* cause, const Error& error) {
    ++context_.protocol_errors;
    if (const auto held = context_.log_limit.admit(peer_.uid, cause)) {
        spdlog::warn("{}: {}: {} ({} more like this)", peer_.describe(), cause, error.to_string(), *held);
    }
    fail(error);
}

void HandleProtocol::fail(const Error& error) {
    if (phase_ == Phase::kEnding) return;
    v1::Frame frame;
    // In a session the error is one of the session's messages, elsewhere a frame of its own.
    if (phase_ == Phase::kSession) {
        *frame.mutable_server()->mutable_error() = to_proto(error);
    } else {
        *frame.mutable_error() = to_proto(error);
    }
    enqueue(frame);
    if (push_) context_.registry.abandon_push(*std::exchange(push_, std::nullopt), error);
    if (session_ != 0) context_.registry.close_session(std::exchange(session_, 0), error);
    end();
}

void HandleProtocol::end() {
    phase_ = Phase::kEnding;
    deadline_ = context_.clock() + context_.limits.linger;
    for (UniqueFd& fd : fds_) context_.reaper.close(std::move(fd));
    fds_.clear();
    if (changed_) changed_();
}

void HandleProtocol::end_of_input() {
    if (phase_ == Phase::kPull || phase_ == Phase::kEnding) return;
    disconnected(decoder_.buffered() > 0 ? Error{Code::kDataLoss, "the connection ended inside a frame", ""}
                                         : Error{Code::kUnavailable, "the connection was closed", ""});
}

void HandleProtocol::settle() {
    if (phase_ == Phase::kEnding && session_ != 0) {
        context_.registry.close_session(std::exchange(session_, 0),
                                        {Code::kResourceExhausted, "the process did not read its session", ""});
    }
}

void HandleProtocol::disconnected(const Error& reason) {
    if (push_) context_.registry.abandon_push(*std::exchange(push_, std::nullopt), reason);
    if (session_ != 0) context_.registry.close_session(std::exchange(session_, 0), reason);
    output_.clear();
    output_bytes_ = 0;
    if (phase_ != Phase::kEnding) end();
}

void HandleProtocol::expire() {
    if (!deadline_ || context_.clock() < *deadline_) return;
    switch (phase_) {
        case Phase::kOpening:
            return offend("silent", {Code::kDeadlineExceeded, "the first frame did not come in time", ""});
        case Phase::kPush: return offend("slow-push", {Code::kDeadlineExceeded, "the push took too long", ""});
        case Phase::kPull:
        case Phase::kEnding: return disconnected({Code::kDeadlineExceeded, "the peer does not read", ""});
        case Phase::kSession: return;
    }
}

}  // namespace vuda::daemon
