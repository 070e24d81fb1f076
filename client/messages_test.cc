#include "client/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vuda/v1/session.pb.h"

// Both renderings of the schema must agree: what protobuf-c writes protobuf reads, and the other way round.
namespace vuda::client {
namespace {

v1::Frame parse(const std::string& body) {
    v1::Frame frame;
    EXPECT_TRUE(frame.ParseFromString(body));
    return frame;
}

const Token kToken{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0};
const std::string kTokenBytes(reinterpret_cast<const char*>(kToken.data()), kToken.size());

TEST(Messages, FaultsGoOutAndNoticesComeIn) {
    const v1::Frame dead = parse(encode_fault(7, "game", 31));
    EXPECT_EQ(dead.client().id(), 7u);
    EXPECT_EQ(dead.client().fault().kind(), v1::FAULT_KIND_CHANNEL);
    EXPECT_EQ(dead.client().fault().xid(), 31u);
    EXPECT_EQ(dead.client().fault().name(), "game");
    EXPECT_EQ(parse(encode_fault(7, "game", 0)).client().fault().kind(), v1::FAULT_KIND_DEVICE_LOST);
    const v1::Frame stuck = parse(encode_stuck(8, "game", 45'000, 120, false));
    EXPECT_EQ(stuck.client().id(), 8u);
    EXPECT_EQ(stuck.client().fault().kind(), v1::FAULT_KIND_STUCK);
    EXPECT_EQ(stuck.client().fault().name(), "game");
    EXPECT_EQ(stuck.client().fault().text(), "45000 a second");
    EXPECT_EQ(stuck.client().fault().age_ms(), 120u);
    EXPECT_EQ(stuck.client().fault().xid(), 0u);
    EXPECT_FALSE(stuck.client().fault().over());
    const v1::Frame over = parse(encode_stuck(9, "game", 45'000, 0, true));
    EXPECT_EQ(over.client().fault().kind(), v1::FAULT_KIND_STUCK);
    EXPECT_TRUE(over.client().fault().over());

    v1::Frame frame;
    v1::FaultNotice& notice = *frame.mutable_server()->mutable_fault_notice();
    notice.set_name("game");
    notice.set_text("it \x1b[31mdied");
    notice.set_culprit(true);
    const Result<ServerMessage> read = decode_server_message(frame.SerializeAsString());
    ASSERT_TRUE(read.ok());
    const auto* seen = std::get_if<FaultNotice>(&read->body);
    ASSERT_NE(seen, nullptr);
    EXPECT_EQ(seen->name, "game");
    EXPECT_EQ(seen->text.find('\x1b'), std::string::npos);
    EXPECT_TRUE(seen->culprit);
    EXPECT_FALSE(seen->look);
}

TEST(Messages, ClientMessagesReadBack) {
    const v1::Frame hello =
        parse(encode_hello(1, 3, "0.1.0", "580.159.04", std::string("pro\xff") + std::string(99, 'g')));
    EXPECT_EQ(hello.client().id(), 1u);
    EXPECT_EQ(hello.client().hello().features(), 3u);
    EXPECT_EQ(hello.client().hello().driver_version(), "580.159.04");
    EXPECT_EQ(hello.client().hello().program(), "pro?" + std::string(60, 'g'));

    Uuid gpu;
    gpu.bytes[3] = 7;
    EXPECT_EQ(parse(encode_hello(1, 3, "", "", "", "/opt/a b/game")).client().hello().executable(), "/opt/a b/game");
    const v1::Frame registration = parse(encode_register(2, "game", gpu, {{1000, 0}, {44}}));
    EXPECT_EQ(registration.client().register_request().name(), "game");
    EXPECT_EQ(registration.client().register_request().gpu_uuid(), std::string("\0\0\0\7\0\0\0\0\0\0\0\0\0\0\0\0", 16));
    EXPECT_THAT(registration.client().register_request().allow_uids(), testing::ElementsAre(1000u, 0u));
    EXPECT_THAT(registration.client().register_request().allow_gids(), testing::ElementsAre(44u));
    const v1::Frame closed = parse(encode_register(2, "game", gpu, {}));
    EXPECT_EQ(
        closed.client().register_request().allow_uids_size() + closed.client().register_request().allow_gids_size(), 0);
    EXPECT_EQ(parse(encode_unregister(3, "game")).client().unregister_request().name(), "game");

    const v1::Frame attach = parse(encode_attach(4, "game", gpu, 8, 1500));
    EXPECT_EQ(attach.client().attach_request().channels(), 8u);
    EXPECT_EQ(attach.client().attach_request().deadline_ms(), 1500u);

    AttachOutcome outcome{SharingState::kSharing, 8, 2, 5, 1234, {Code::kOk, "", ""}};
    const v1::Frame done = parse(encode_attach_done(5, outcome));
    EXPECT_EQ(done.client().attach_done().state(), v1::SHARING_STATE_SHARING);
    EXPECT_EQ(done.client().attach_done().veid(), 2u);
    EXPECT_EQ(done.client().attach_done().attach_us(), 1234u);
    EXPECT_FALSE(done.client().attach_done().has_reason());
    outcome.reason = Error{Code::kAborted, "import refused\x7f", "hint"};
    EXPECT_EQ(parse(encode_attach_done(5, outcome)).client().attach_done().reason().text(), "import refused?");

    EXPECT_FALSE(parse(encode_detach_notice({Code::kOk, "", ""})).client().detach_notice().has_reason());
    EXPECT_EQ(
        parse(encode_state_report(SharingState::kFaulted, {Code::kAborted, "x", ""})).client().state_report().state(),
        v1::SHARING_STATE_FAULTED);
    EXPECT_EQ(parse(encode_export_refused(kToken, {Code::kInternal, "x", ""})).client().export_refused().token(),
              kTokenBytes);
    EXPECT_EQ(parse(encode_pull(kToken)).pull().token(), kTokenBytes);

    const std::vector<HandleInfo> handles{{HandleKind::kTsg, 0, 0, 0},
                                          {HandleKind::kControlBuffer, 0x1000, 0x2000, 0x10}};
    const v1::Frame push = parse(encode_push(kToken, handles, true, 6, 9));
    ASSERT_EQ(push.push().handles_size(), 2);
    EXPECT_EQ(push.push().handles(1).kind(), v1::HANDLE_KIND_CONTROL_BUFFER);
    EXPECT_EQ(push.push().handles(1).length(), 0x2000u);
    EXPECT_TRUE(push.push().last());
    EXPECT_EQ(push.push().channels_in_use(), 6u);
    EXPECT_EQ(push.push().generation(), 9u);
    EXPECT_EQ(parse(encode_push(kToken, handles, false, 6, 9)).push().generation(), 0u);
}

Result<ServerMessage> decode(const v1::ServerMessage& message) {
    v1::Frame frame;
    *frame.mutable_server() = message;
    return decode_server_message(frame.SerializeAsString());
}

TEST(Messages, ServerMessagesAreReadAndChecked) {
    v1::ServerMessage message;
    message.set_id(9);
    message.mutable_hello_reply()->set_features(3);
    auto decoded = decode(message);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(decoded->id, 9u);
    EXPECT_EQ(std::get<HelloReply>(decoded->body).features, 3u);

    message.mutable_attach_reply()->set_token(kTokenBytes);
    EXPECT_FALSE(decode(message).ok()) << "no handles";
    message.mutable_attach_reply()->set_handles(kHandleLimit + 1);
    EXPECT_FALSE(decode(message).ok());
    message.mutable_attach_reply()->set_handles(2);
    decoded = decode(message);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(std::get<AttachReply>(decoded->body).token, kToken);
    message.mutable_attach_reply()->set_token("short");
    EXPECT_FALSE(decode(message).ok());

    message.mutable_export_request()->set_token("");
    EXPECT_FALSE(decode(message).ok());

    message.mutable_error()->set_code(99);
    message.mutable_error()->set_text("bad\x1b[2J");
    decoded = decode(message);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(std::get<Error>(decoded->body).code, Code::kUnknown);
    EXPECT_EQ(std::get<Error>(decoded->body).text, "bad?[2J");
    message.mutable_detach_command();  // without a reason
    EXPECT_EQ(std::get<DetachCommand>(decode(message)->body).reason.text, "no reason given");
}

TEST(Messages, WhatDoesNotBelongHereIsRefused) {
    v1::Frame frame;
    frame.mutable_pull()->set_token(kTokenBytes);
    EXPECT_EQ(decode_server_message(frame.SerializeAsString()).error().code, Code::kDataLoss);
    EXPECT_EQ(decode_server_message("").error().code, Code::kDataLoss);
    EXPECT_EQ(decode_server_message("\x0a\xff garbage").error().code, Code::kDataLoss);
    EXPECT_EQ(decode_bundle(frame.SerializeAsString(), kToken).error().code, Code::kDataLoss);

    // A newer vudad's message: field 100 of ServerMessage.
    const auto newer = decode_server_message(std::string("\x12\x03\xa2\x06\x00", 5));
    ASSERT_TRUE(newer.ok());
    EXPECT_TRUE(std::holds_alternative<std::monostate>(newer->body));
}

TEST(Messages, BundlesAreChecked) {
    const auto decode_with = [](const std::function<void(v1::HandleBundle&)>& change) {
        v1::Frame frame;
        v1::HandleBundle& bundle = *frame.mutable_bundle();
        bundle.set_token(kTokenBytes);
        bundle.set_last(true);
        bundle.add_handles()->set_kind(v1::HANDLE_KIND_TSG);
        v1::Handle& buffer = *bundle.add_handles();
        buffer.set_kind(v1::HANDLE_KIND_CONTROL_BUFFER);
        buffer.set_va(0x1000);
        buffer.set_length(0x1000);
        change(bundle);
        return decode_bundle(frame.SerializeAsString(), kToken);
    };
    const auto good = decode_with([](v1::HandleBundle&) {});
    ASSERT_TRUE(good.ok());
    EXPECT_EQ(good->handles.size(), 2u);
    EXPECT_FALSE(decode_with([](v1::HandleBundle& b) { b.set_token("0123456789abcdef"); }).ok());
    EXPECT_FALSE(
        decode_with([](v1::HandleBundle& b) { b.mutable_handles(0)->set_kind(static_cast<v1::HandleKind>(7)); }).ok());
    EXPECT_FALSE(decode_with([](v1::HandleBundle& b) { b.mutable_handles(1)->set_length(0); }).ok());
    EXPECT_FALSE(decode_with([](v1::HandleBundle& b) { b.mutable_handles(1)->set_va(UINT64_MAX); }).ok());
    EXPECT_FALSE(decode_with([](v1::HandleBundle& b) { b.mutable_handles(1)->set_offset(UINT64_MAX); }).ok());
    EXPECT_FALSE(decode_with([](v1::HandleBundle& b) {
                     for (int i = 0; i < 64; ++i) *b.add_handles() = b.handles(1);
                 }).ok());
    v1::Frame frame;
    frame.mutable_error()->set_code(7);
    frame.mutable_error()->set_text("not yours");
    EXPECT_EQ(decode_bundle(frame.SerializeAsString(), kToken).error().code, Code::kPermissionDenied);
}

}  // namespace
}  // namespace vuda::client
