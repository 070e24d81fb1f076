#include "client/messages.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/frame_io.h"
#include "client/names.h"
#include "vuda/v1/session.pb-c.h"

namespace vuda::client {
namespace {

// protobuf-c's structures point at their strings without owning or changing them.
char* borrow(const std::string& text) { return const_cast<char*>(text.c_str()); }

ProtobufCBinaryData borrow(std::span<const uint8_t> bytes) {
    return {bytes.size(), const_cast<uint8_t*>(bytes.data())};
}

// An Error message and the strings that it points at.
class ErrorMessage {
 public:
    explicit ErrorMessage(const Error& error)
        : text_(plain_text(error.text, 255)), hint_(plain_text(error.hint, 159)), present_(error.code != Code::kOk) {
        vuda__v1__error__init(&message_);
        message_.code = static_cast<uint32_t>(error.code);
        message_.text = borrow(text_);
        message_.hint = borrow(hint_);
    }
    ErrorMessage(const ErrorMessage&) = delete;
    ErrorMessage& operator=(const ErrorMessage&) = delete;

    // NULL where there was no error.
    Vuda__V1__Error* get() { return present_ ? &message_ : nullptr; }

 private:
    std::string text_;
    std::string hint_;
    bool present_;
    Vuda__V1__Error message_;
};

std::string pack(const Vuda__V1__Frame& frame) {
    std::string out(vuda__v1__frame__get_packed_size(&frame), '\0');
    vuda__v1__frame__pack(&frame, reinterpret_cast<uint8_t*>(out.data()));
    return out;
}

std::string pack(uint64_t id, Vuda__V1__ClientMessage& message) {
    message.id = id;
    Vuda__V1__Frame frame = VUDA__V1__FRAME__INIT;
    frame.body_case = VUDA__V1__FRAME__BODY_CLIENT;
    frame.client = &message;
    return pack(frame);
}

struct FreeFrame {
    void operator()(Vuda__V1__Frame* frame) const { vuda__v1__frame__free_unpacked(frame, nullptr); }
};
using FramePtr = std::unique_ptr<Vuda__V1__Frame, FreeFrame>;

Error bad(const char* what) {
    return Error{Code::kDataLoss, std::string("vudad sent ") + what, "check that the handle socket is vudad's"};
}

Result<FramePtr> unpack(std::string_view bytes) {
    FramePtr frame(vuda__v1__frame__unpack(nullptr, bytes.size(), reinterpret_cast<const uint8_t*>(bytes.data())));
    if (!frame) return bad("bytes that are no message");
    return frame;
}

Error read_error(const Vuda__V1__Error* message) {
    if (message == nullptr) return Error{Code::kUnknown, "no reason given", ""};
    Error error;
    error.code = message->code >= 1 && message->code <= 16 ? static_cast<Code>(message->code) : Code::kUnknown;
    error.text = plain_text(message->text, 255);
    if (error.text.empty()) error.text = "no reason given";
    error.hint = plain_text(message->hint, 159);
    return error;
}

void write_handle(const HandleInfo& info, Vuda__V1__Handle* out) {
    vuda__v1__handle__init(out);
    out->kind = static_cast<Vuda__V1__HandleKind>(info.kind);
    out->va = info.va;
    out->length = info.length;
    out->offset = info.offset;
    out->mapping = info.mapping;
}

// NULL, or what is wrong with it.
const char* read_handle(const Vuda__V1__Handle& handle, HandleInfo* out) {
    *out = {HandleKind::kTsg, handle.va, handle.length, handle.offset, handle.mapping};
    // protobuf-c stores whatever number came, also one that C++ may not read through the enumeration.
    int32_t kind;
    static_assert(sizeof kind == sizeof handle.kind);
    std::memcpy(&kind, &handle.kind, sizeof kind);
    switch (kind) {
        case VUDA__V1__HANDLE_KIND__HANDLE_KIND_TSG: return nullptr;
        case VUDA__V1__HANDLE_KIND__HANDLE_KIND_CONTROL_BUFFER:
            out->kind = HandleKind::kControlBuffer;
            if (handle.length == 0 || handle.va + handle.length < handle.va ||
                handle.offset + handle.length < handle.offset) {
                return "a control buffer with an impossible range";
            }
            return nullptr;
        default: return "a handle of unknown kind";
    }
}

bool read_token(const ProtobufCBinaryData& bytes, Token& out) {
    if (bytes.len != out.size()) return false;
    std::copy_n(bytes.data, bytes.len, out.begin());
    return true;
}

}  // namespace

std::string encode_hello(uint64_t id, uint64_t features, const std::string& client_version,
                         const std::string& driver_version, const std::string& program, const std::string& executable,
                         const AttachPlace& place) {
    const std::string driver = plain_text(driver_version, 64);
    const std::string name = plain_text(program, 64);
    Vuda__V1__Hello hello = VUDA__V1__HELLO__INIT;
    hello.features = features;
    hello.client_version = borrow(client_version);
    hello.driver_version = borrow(driver);
    hello.program = borrow(name);
    const std::string path = plain_text(executable, 1024);
    hello.executable = borrow(path);
    hello.attach_name = borrow(place.name);
    hello.va_slot = place.held;
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_HELLO;
    message.hello = &hello;
    return pack(id, message);
}

std::string encode_register(uint64_t id, const std::string& name, const Uuid& gpu, const AllowList& allow, bool again) {
    Vuda__V1__RegisterRequest request = VUDA__V1__REGISTER_REQUEST__INIT;
    request.name = borrow(name);
    request.gpu_uuid = borrow(gpu.bytes);
    request.n_allow_uids = allow.uids.size();
    request.allow_uids = const_cast<uint32_t*>(allow.uids.data());
    request.n_allow_gids = allow.gids.size();
    request.allow_gids = const_cast<uint32_t*>(allow.gids.data());
    request.again = again;
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_REGISTER_REQUEST;
    message.register_request = &request;
    return pack(id, message);
}

std::string encode_unregister(uint64_t id, const std::string& name) {
    Vuda__V1__UnregisterRequest request = VUDA__V1__UNREGISTER_REQUEST__INIT;
    request.name = borrow(name);
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_UNREGISTER_REQUEST;
    message.unregister_request = &request;
    return pack(id, message);
}

std::string encode_attach(uint64_t id, const std::string& name, const Uuid& gpu, uint32_t channels,
                          uint32_t deadline_ms, const LimitTerms& terms, uint64_t va_base) {
    Vuda__V1__AttachRequest request = VUDA__V1__ATTACH_REQUEST__INIT;
    request.name = borrow(name);
    request.gpu_uuid = borrow(gpu.bytes);
    request.channels = channels;
    request.deadline_ms = deadline_ms;
    request.over_limit = static_cast<Vuda__V1__OverLimit>(terms.over_limit);
    request.fitted = terms.fitted;
    request.va_base = va_base;
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_ATTACH_REQUEST;
    message.attach_request = &request;
    return pack(id, message);
}

std::string encode_attach_done(uint64_t id, const AttachOutcome& outcome) {
    ErrorMessage reason(outcome.reason);
    Vuda__V1__AttachDone done = VUDA__V1__ATTACH_DONE__INIT;
    done.state = static_cast<Vuda__V1__SharingState>(outcome.state);
    done.channels_moved = outcome.channels_moved;
    done.veid = outcome.veid;
    done.veids = outcome.veids;
    done.control_buffers = outcome.control_buffers;
    done.attach_us = outcome.attach_us;
    done.reason = reason.get();
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_ATTACH_DONE;
    message.attach_done = &done;
    return pack(id, message);
}

std::string encode_detach_notice(const Error& reason) {
    ErrorMessage error(reason);
    Vuda__V1__DetachNotice notice = VUDA__V1__DETACH_NOTICE__INIT;
    notice.reason = error.get();
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_DETACH_NOTICE;
    message.detach_notice = &notice;
    return pack(0, message);
}

std::string encode_state_report(SharingState state, const Error& reason) {
    ErrorMessage error(reason);
    Vuda__V1__StateReport report = VUDA__V1__STATE_REPORT__INIT;
    report.state = static_cast<Vuda__V1__SharingState>(state);
    report.reason = error.get();
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_STATE_REPORT;
    message.state_report = &report;
    return pack(0, message);
}

std::string encode_sharing_report(const std::string& name, const AttachOutcome& outcome, uint64_t va_base) {
    ErrorMessage error(outcome.reason);
    Vuda__V1__StateReport report = VUDA__V1__STATE_REPORT__INIT;
    report.state = VUDA__V1__SHARING_STATE__SHARING_STATE_SHARING;
    report.reason = error.get();
    report.name = borrow(name);
    report.channels_moved = outcome.channels_moved;
    report.veid = outcome.veid;
    report.veids = outcome.veids;
    report.va_base = va_base;
    report.control_buffers = outcome.control_buffers;
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_STATE_REPORT;
    message.state_report = &report;
    return pack(0, message);
}

std::string encode_export_refused(const Token& token, const Error& error) {
    ErrorMessage why(error);
    Vuda__V1__ExportRefused refused = VUDA__V1__EXPORT_REFUSED__INIT;
    refused.token = borrow(token);
    refused.error = why.get();
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_EXPORT_REFUSED;
    message.export_refused = &refused;
    return pack(0, message);
}

std::string encode_export_current(const Token& token) {
    Vuda__V1__ExportCurrent current = VUDA__V1__EXPORT_CURRENT__INIT;
    current.token = borrow(token);
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_EXPORT_CURRENT;
    message.export_current = &current;
    return pack(0, message);
}

std::string encode_push(const Token& token, std::span<const HandleInfo> handles, bool last, uint32_t channels_in_use,
                        uint64_t generation) {
    std::vector<Vuda__V1__Handle> items(handles.size());
    std::vector<Vuda__V1__Handle*> pointers(handles.size());
    for (size_t i = 0; i < handles.size(); ++i) {
        write_handle(handles[i], &items[i]);
        pointers[i] = &items[i];
    }
    Vuda__V1__HandleBundle bundle = VUDA__V1__HANDLE_BUNDLE__INIT;
    bundle.token = borrow(token);
    bundle.n_handles = pointers.size();
    bundle.handles = pointers.data();
    bundle.last = last;
    bundle.channels_in_use = channels_in_use;
    bundle.generation = last ? generation : 0;
    Vuda__V1__Frame frame = VUDA__V1__FRAME__INIT;
    frame.body_case = VUDA__V1__FRAME__BODY_PUSH;
    frame.push = &bundle;
    return pack(frame);
}

std::string encode_pull(const Token& token) {
    Vuda__V1__HandlePull pull = VUDA__V1__HANDLE_PULL__INIT;
    pull.token = borrow(token);
    Vuda__V1__Frame frame = VUDA__V1__FRAME__INIT;
    frame.body_case = VUDA__V1__FRAME__BODY_PULL;
    frame.pull = &pull;
    return pack(frame);
}

std::string encode_mirror_update(uint64_t id, const MirrorChange& change) {
    std::vector<Vuda__V1__Handle> added(change.added.size());
    std::vector<Vuda__V1__Handle*> added_pointers(added.size());
    for (size_t i = 0; i < added.size(); ++i) {
        write_handle(change.added[i].info, &added[i]);
        added_pointers[i] = &added[i];
    }
    std::vector<Vuda__V1__MirrorRange> removed(change.removed.size());
    std::vector<Vuda__V1__MirrorRange*> removed_pointers(removed.size());
    for (size_t i = 0; i < removed.size(); ++i) {
        vuda__v1__mirror_range__init(&removed[i]);
        removed[i].va = change.removed[i].va;
        removed[i].length = change.removed[i].length;
        removed[i].mapping = change.removed[i].mapping;
        removed_pointers[i] = &removed[i];
    }
    Vuda__V1__MirrorUpdate update = VUDA__V1__MIRROR_UPDATE__INIT;
    update.from = change.from;
    update.to = change.to;
    update.n_added = added_pointers.size();
    update.added = added_pointers.data();
    update.n_removed = removed_pointers.size();
    update.removed = removed_pointers.data();
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_MIRROR_UPDATE;
    message.mirror_update = &update;
    return pack(id, message);
}

std::string encode_subcontexts(const Subcontexts& now) {
    Vuda__V1__Subcontexts out = VUDA__V1__SUBCONTEXTS__INIT;
    out.name = borrow(now.name);
    out.taken = now.taken;
    out.stale = now.stale;
    out.channels = now.channels;
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_SUBCONTEXTS;
    message.subcontexts = &out;
    return pack(0, message);
}

std::string encode_mirror_done(uint64_t to, const Error& reason) {
    ErrorMessage error(reason);
    Vuda__V1__MirrorDone done = VUDA__V1__MIRROR_DONE__INIT;
    done.to = to;
    done.reason = error.get();
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_MIRROR_DONE;
    message.mirror_done = &done;
    return pack(0, message);
}

std::string encode_partition_report(const partition::PartitionState& state) {
    const std::vector<partition::Tpc>& tpcs = state.topology.tpcs;
    std::vector<Vuda__V1__Tpc> items(tpcs.size());
    std::vector<Vuda__V1__Tpc*> pointers(tpcs.size());
    for (size_t i = 0; i < tpcs.size(); ++i) {
        vuda__v1__tpc__init(&items[i]);
        items[i].gpc = tpcs[i].gpc;
        items[i].graphics = tpcs[i].graphics;
        items[i].n_sms = tpcs[i].sms.size();
        items[i].sms = const_cast<uint32_t*>(tpcs[i].sms.data());
        pointers[i] = &items[i];
    }
    Vuda__V1__Topology topology = VUDA__V1__TOPOLOGY__INIT;
    topology.n_tpcs = pointers.size();
    topology.tpcs = pointers.data();
    ErrorMessage reason(state.reason);
    Vuda__V1__PartitionReport report = VUDA__V1__PARTITION_REPORT__INIT;
    const std::string native_reason = plain_text(state.native_reason, 255);
    report.shared_memory_limit = state.shared_limit;
    report.over_limit = static_cast<Vuda__V1__OverLimit>(state.over_limit);
    report.native_launches = state.native_launches;
    report.native_reason = borrow(native_reason);
    report.backend = static_cast<Vuda__V1__Backend>(state.backend);
    report.reason = reason.get();
    report.topology = tpcs.empty() ? nullptr : &topology;
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_PARTITION_REPORT;
    message.partition_report = &report;
    return pack(0, message);
}

std::string encode_pong() {
    Vuda__V1__Pong pong = VUDA__V1__PONG__INIT;
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_PONG;
    message.pong = &pong;
    return pack(0, message);
}

std::string encode_fault(uint64_t id, const std::string& name, uint32_t xid) {
    Vuda__V1__Fault fault = VUDA__V1__FAULT__INIT;
    fault.kind = xid != 0 ? VUDA__V1__FAULT_KIND__FAULT_KIND_CHANNEL : VUDA__V1__FAULT_KIND__FAULT_KIND_DEVICE_LOST;
    fault.xid = xid;
    fault.name = borrow(name);
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_FAULT;
    message.fault = &fault;
    return pack(id, message);
}

std::string encode_stuck(uint64_t id, const std::string& name, uint32_t replays, uint32_t age_ms, bool over) {
    const std::string text = over ? "" : std::to_string(replays) + " a second";
    Vuda__V1__Fault fault = VUDA__V1__FAULT__INIT;
    fault.kind = VUDA__V1__FAULT_KIND__FAULT_KIND_STUCK;
    fault.text = borrow(text);
    fault.age_ms = age_ms;
    fault.name = borrow(name);
    fault.over = over;
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_FAULT;
    message.fault = &fault;
    return pack(id, message);
}

std::string encode_does_not_fit(uint64_t id, const std::string& name, const LargeKernel& kernel) {
    Vuda__V1__DoesNotFit said = VUDA__V1__DOES_NOT_FIT__INIT;
    said.name = borrow(name);
    said.bytes = kernel.bytes;
    said.limit = kernel.limit;
    said.fitted = kernel.fitted;
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_DOES_NOT_FIT;
    message.does_not_fit = &said;
    return pack(id, message);
}

std::string encode_set_mode(uint64_t id, partition::Mode mode) {
    Vuda__V1__SetModeRequest request = VUDA__V1__SET_MODE_REQUEST__INIT;
    request.mode = static_cast<Vuda__V1__Mode>(mode);
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_SET_MODE;
    message.set_mode = &request;
    return pack(id, message);
}

std::string encode_set_quota(uint64_t id, const QuotaWish& quota) {
    Vuda__V1__SetQuotaRequest request = VUDA__V1__SET_QUOTA_REQUEST__INIT;
    switch (quota.kind) {
        case QuotaWish::Kind::kTpcs:
            request.quota_case = VUDA__V1__SET_QUOTA_REQUEST__QUOTA_TPCS;
            request.tpcs = quota.tpcs;
            break;
        case QuotaWish::Kind::kAutomatic:
            request.quota_case = VUDA__V1__SET_QUOTA_REQUEST__QUOTA_AUTOMATIC;
            request.automatic = 1;
            break;
        case QuotaWish::Kind::kNone:
            request.quota_case = VUDA__V1__SET_QUOTA_REQUEST__QUOTA_NONE;
            request.none = 1;
            break;
    }
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_SET_QUOTA;
    message.set_quota = &request;
    return pack(id, message);
}

std::string encode_set_targets(uint64_t id, const TargetsWish& targets) {
    Vuda__V1__SetTargetsRequest request = VUDA__V1__SET_TARGETS_REQUEST__INIT;
    request.frame_ms = targets.frame_ms;
    request.frame_miss = targets.frame_miss;
    request.latency_ms = targets.latency_ms;
    request.latency_miss = targets.latency_miss;
    request.throughput = targets.throughput;
    request.weight = targets.weight;
    Vuda__V1__ClientMessage message = VUDA__V1__CLIENT_MESSAGE__INIT;
    message.body_case = VUDA__V1__CLIENT_MESSAGE__BODY_SET_TARGETS;
    message.set_targets = &request;
    return pack(id, message);
}

Result<ServerMessage> decode_server_message(std::string_view bytes) {
    Result<FramePtr> unpacked = unpack(bytes);
    if (!unpacked) return unpacked.error();
    const Vuda__V1__Frame& frame = **unpacked;
    if (frame.body_case == VUDA__V1__FRAME__BODY_ERROR) return ServerMessage{0, read_error(frame.error)};
    if (frame.body_case != VUDA__V1__FRAME__BODY_SERVER) return bad("a frame that does not belong on a session");

    const Vuda__V1__ServerMessage& in = *frame.server;
    const uint64_t id = in.id;
    switch (in.body_case) {
        case VUDA__V1__SERVER_MESSAGE__BODY_ERROR: return ServerMessage{id, read_error(in.error)};
        case VUDA__V1__SERVER_MESSAGE__BODY_HELLO_REPLY:
            return ServerMessage{
                id, HelloReply{in.hello_reply->features, plain_text(in.hello_reply->daemon_version, 64),
                               in.hello_reply->session_id, in.hello_reply->simulated != 0, in.hello_reply->page_bytes,
                               in.hello_reply->va_slot}};
        case VUDA__V1__SERVER_MESSAGE__BODY_REGISTER_REPLY: return ServerMessage{id, RegisterReply{}};
        case VUDA__V1__SERVER_MESSAGE__BODY_UNREGISTER_REPLY: return ServerMessage{id, UnregisterReply{}};
        case VUDA__V1__SERVER_MESSAGE__BODY_ATTACH_REPLY: {
            AttachReply reply;
            if (!read_token(in.attach_reply->token, reply.token)) return bad("a token that is not 16 bytes");
            reply.handles = in.attach_reply->handles;
            if (reply.handles == 0 || reply.handles > kHandleLimit) return bad("an impossible number of handles");
            reply.stale_veids = in.attach_reply->stale_veids;
            reply.unknown_veids = in.attach_reply->unknown_veids;
            return ServerMessage{id, reply};
        }
        case VUDA__V1__SERVER_MESSAGE__BODY_ATTACH_DONE_REPLY: return ServerMessage{id, AttachDoneReply{}};
        case VUDA__V1__SERVER_MESSAGE__BODY_EXPORT_REQUEST: {
            ExportRequest request;
            if (!read_token(in.export_request->token, request.token)) return bad("a token that is not 16 bytes");
            request.deadline_ms = in.export_request->deadline_ms;
            request.held = in.export_request->held;
            request.live_ms = in.export_request->live_ms;
            return ServerMessage{id, request};
        }
        case VUDA__V1__SERVER_MESSAGE__BODY_DETACH_COMMAND:
            return ServerMessage{id, DetachCommand{read_error(in.detach_command->reason)}};
        case VUDA__V1__SERVER_MESSAGE__BODY_SET_MODE_REPLY: {
            SetModeReply reply;
            // As with handle kinds below: whatever number came.
            int32_t mode;
            std::memcpy(&mode, &in.set_mode_reply->applied, sizeof mode);
            reply.applied = static_cast<uint32_t>(mode);
            reply.applied_tpcs = in.set_mode_reply->applied_tpcs;
            reply.note = plain_text(in.set_mode_reply->note, 255);
            return ServerMessage{id, reply};
        }
        case VUDA__V1__SERVER_MESSAGE__BODY_SET_QUOTA_REPLY:
            return ServerMessage{id, SetQuotaReply{in.set_quota_reply->applied_tpcs, in.set_quota_reply->generation,
                                                   plain_text(in.set_quota_reply->note, 255)}};
        case VUDA__V1__SERVER_MESSAGE__BODY_SET_TARGETS_REPLY:
            return ServerMessage{id, SetTargetsReply{plain_text(in.set_targets_reply->note, 255)}};
        case VUDA__V1__SERVER_MESSAGE__BODY_FAULT_NOTICE:
            return ServerMessage{
                id, FaultNotice{plain_text(in.fault_notice->name, 64), plain_text(in.fault_notice->text, 255),
                                in.fault_notice->culprit != 0, in.fault_notice->look != 0}};
        case VUDA__V1__SERVER_MESSAGE__BODY_MIRROR_UPDATE: {
            const Vuda__V1__MirrorUpdate& update = *in.mirror_update;
            MirrorUpdate out{update.from, update.to, {}, {}};
            if (update.n_added > kFrameFdLimit) return bad("too many handles in one frame");
            for (size_t i = 0; i < update.n_added; ++i) {
                if (const char* problem = read_handle(*update.added[i], &out.added.emplace_back())) return bad(problem);
                if (out.added.back().kind != HandleKind::kControlBuffer) return bad("a TSG among control buffers");
            }
            for (size_t i = 0; i < update.n_removed; ++i) {
                const Vuda__V1__MirrorRange& range = *update.removed[i];
                if (range.va + range.length < range.va) return bad("a control buffer with an impossible range");
                out.removed.push_back({range.va, range.length, range.mapping});
            }
            return ServerMessage{id, std::move(out)};
        }
        case VUDA__V1__SERVER_MESSAGE__BODY_MIRROR_UPDATE_REPLY:
            return ServerMessage{id, MirrorUpdateReply{in.mirror_update_reply->mirrored, in.mirror_update_reply->late}};
        case VUDA__V1__SERVER_MESSAGE__BODY_MIRROR_IDLE: return ServerMessage{id, MirrorIdle{}};
        case VUDA__V1__SERVER_MESSAGE__BODY_SUBCONTEXTS:
            return ServerMessage{
                id, Subcontexts{plain_text(in.subcontexts->name, 64), in.subcontexts->taken, in.subcontexts->stale, 0}};
        case VUDA__V1__SERVER_MESSAGE__BODY_DOES_NOT_FIT_REPLY:
            return ServerMessage{id, DoesNotFitReply{in.does_not_fit_reply->held_ms}};
        case VUDA__V1__SERVER_MESSAGE__BODY_PING: return ServerMessage{id, Ping{}};
        default: return ServerMessage{id, std::monostate{}};
    }
}

Result<Bundle> decode_bundle(std::string_view bytes, const Token& token) {
    Result<FramePtr> unpacked = unpack(bytes);
    if (!unpacked) return unpacked.error();
    const Vuda__V1__Frame& frame = **unpacked;
    if (frame.body_case == VUDA__V1__FRAME__BODY_ERROR) return read_error(frame.error);
    if (frame.body_case != VUDA__V1__FRAME__BODY_BUNDLE) return bad("a frame that does not belong on a transfer");

    const Vuda__V1__HandleBundle& in = *frame.bundle;
    Token echoed{};
    if (!read_token(in.token, echoed) || echoed != token) return bad("handles for another token");
    if (in.n_handles > kFrameFdLimit) return bad("too many handles in one frame");
    Bundle out;
    out.last = in.last != 0;
    out.channels_in_use = in.channels_in_use;
    out.generation = in.generation;
    for (size_t i = 0; i < in.n_handles; ++i) {
        HandleInfo info;
        if (const char* problem = read_handle(*in.handles[i], &info)) return bad(problem);
        out.handles.push_back(info);
    }
    return out;
}

}  // namespace vuda::client
