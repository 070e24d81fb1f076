// The daemon in this process, with clients that play many processes and one another's enemies.
#include "daemon/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/post.hpp>
#include <future>
#include <thread>

#include "daemon/grpc_test_client.h"
#include "daemon/partition_testing.h"
#include "daemon/test_support.h"

namespace vuda::daemon {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class ServerTest : public ::testing::Test {
 protected:
    void start(std::function<void(ServerOptions&)> change = {}) {
        ServerOptions options;
        options.config.control_socket = dir_.file("c");
        options.config.handle_socket = dir_.file("h");
        options.config.settings.export_limit = 15s;
        options.config.settings.turn_limit = 15s;
        options.config.settings.attach_max = 30s;
        options.config.settings.names_per_uid = 64;
        options.config.settings.programs_per_tsg = 64;
        options.config.settings.same_addresses = true;
        options.peer_reader = test_peer_reader;
        if (change) change(options);
        std::promise<Status> started;
        thread_ = std::thread([&, options = std::move(options)]() mutable {
            loop_.emplace(1);
            server_.emplace(*loop_, std::move(options));
            started.set_value(server_->start());
            loop_->run();
            server_.reset();
            loop_.reset();
        });
        const Status status = started.get_future().get();
        ASSERT_TRUE(status.ok()) << status.error().to_string();
    }

    template <typename Work>
    auto on_loop(Work work) {
        std::packaged_task<decltype(work())()> task(std::move(work));
        auto result = task.get_future();
        boost::asio::post(*loop_, [&task] { task(); });
        return result.get();
    }

    void stop() {
        if (!thread_.joinable()) return;
        on_loop([this] { server_->stop({}); });
        thread_.join();
    }

    void TearDown() override { stop(); }

    // Waits for `condition`, which is asked on the loop. What it waits for is other threads' and the kernel's work.
    template <typename Condition>
    bool eventually(Condition condition) {
        const auto until = std::chrono::steady_clock::now() + kPatience;
        while (!on_loop(condition)) {
            if (std::chrono::steady_clock::now() > until) return false;
            std::this_thread::yield();
        }
        return true;
    }

    FrameClient client(pid_t pid, uid_t uid = 1000) { return FrameClient(dir_.file("h"), {pid, uid}); }

    UniqueFd raw(pid_t pid = 99, uid_t uid = 1000) {
        Result<UniqueFd> socket = connect_as(dir_.file("h"), {pid, uid});
        EXPECT_TRUE(socket.ok());
        return *std::move(socket);
    }

    // Everything vudad has to say on `socket` until it closes it.
    std::vector<v1::Frame> until_closed(int socket) {
        std::vector<v1::Frame> frames;
        FrameReader reader(socket);
        for (;;) {
            Result<std::string> body = reader.read(deadline_in(kPatience));
            if (!body) {
                EXPECT_NE(body.error().code, Code::kDeadlineExceeded) << "vudad does not end the connection";
                return frames;
            }
            frames.emplace_back().ParseFromString(*body);
        }
    }

    // One attach from end to end.
    void share(FrameClient& owner, FrameClient& attacher, const std::string& name, size_t buffers) {
        attacher.send_attach(name);
        const Result<std::string> token = owner.export_token();
        ASSERT_TRUE(token.ok()) << token.error().to_string();
        const Status pushed = owner.push(*token, buffers, name);
        ASSERT_TRUE(pushed.ok()) << pushed.error().to_string();
        const Result<v1::ServerMessage> reply = attacher.receive();
        ASSERT_TRUE(reply.ok()) << reply.error().to_string();
        ASSERT_TRUE(reply->has_attach_reply()) << reply->ShortDebugString();
        EXPECT_EQ(reply->attach_reply().handles(), buffers + 1);
        const Result<FrameClient::Pulled> pulled = attacher.pull(reply->attach_reply().token());
        ASSERT_TRUE(pulled.ok()) << pulled.error().to_string();
        ASSERT_EQ(pulled->fds.size(), buffers + 1);
        for (size_t i = 0; i <= buffers; ++i) {
            ASSERT_EQ(memfd_content(pulled->fds[i].get()), name + std::to_string(i));
            ASSERT_EQ(pulled->handles[i].va(), 0x1000 * i);
        }
        ASSERT_TRUE(attacher.done().ok());
    }

    TempDir dir_;
    std::optional<boost::asio::io_context> loop_;
    std::optional<Server> server_;
    std::thread thread_;
};

TEST_F(ServerTest, SharesATsgBetweenTwoProcesses) {
    start();
    FrameClient owner = client(1);
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    FrameClient attacher = client(2);
    ASSERT_TRUE(attacher.open().ok());
    share(owner, attacher, "game", 84);
    share(owner, attacher, "game", 2000);
    share(owner, attacher, "game", 0);
    GrpcTestClient control(dir_.file("c"));
    const v1::StatusReply status = control.status();
    ASSERT_EQ(status.tsgs_size(), 1);
    EXPECT_EQ(status.tsgs(0).channels(), 26u);
    EXPECT_EQ(status.sessions_size(), 2);
    EXPECT_EQ(status.daemon().handle_socket(), dir_.file("h"));
    EXPECT_THAT(control.metrics(), HasSubstr("\nvuda_attaches_total{result=\"sharing\"} 3\n"));
}

TEST_F(ServerTest, TenAttachersAtOnceAreAllServed) {
    start();
    FrameClient owner = client(1);
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    std::vector<FrameClient> attachers;
    for (int i = 0; i < 10; ++i) {
        attachers.push_back(client(10 + i));
        ASSERT_TRUE(attachers.back().open().ok());
    }
    for (FrameClient& attacher : attachers) attacher.send_attach("game", 4);
    for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(owner.push(*owner.export_token(), 84, "x").ok());
        // Exactly one of them has its turn.
        std::vector<pollfd> entries;
        for (FrameClient& attacher : attachers) entries.push_back({attacher.fd(), POLLIN, 0});
        ASSERT_EQ(
            ::poll(entries.data(), entries.size(), static_cast<int>(std::chrono::milliseconds(kPatience).count())), 1);
        for (size_t k = 0; k < entries.size(); ++k) {
            if (entries[k].revents == 0) continue;
            const Result<v1::ServerMessage> reply = attachers[k].receive();
            ASSERT_TRUE(reply.ok());
            ASSERT_EQ(attachers[k].pull(reply->attach_reply().token())->fds.size(), 85u);
            ASSERT_TRUE(attachers[k].done(4)->has_attach_done_reply());
        }
    }
    EXPECT_EQ(GrpcTestClient(dir_.file("c")).status().tsgs(0).channels(), 42u);
}

TEST_F(ServerTest, LeaksNoDescriptorAndNoConnection) {
    start();
    const auto round = [&](int i) {
        FrameClient owner = client(100 + i);
        ASSERT_TRUE(owner.open().ok());
        ASSERT_TRUE(owner.register_name("game")->has_register_reply());
        FrameClient attacher = client(200 + i);
        ASSERT_TRUE(attacher.open().ok());
        share(owner, attacher, "game", 84);
        // And a push that stops half-way.
        attacher.send_attach("game");
        UniqueFd half = raw(100 + i);
        v1::Frame frame;
        frame.mutable_push()->set_token(*owner.export_token());
        frame.mutable_push()->add_handles()->set_kind(v1::HANDLE_KIND_TSG);
        const UniqueFd file = memfd("x");
        const int fd = file.get();
        ASSERT_TRUE(send_frame(half.get(), frame.SerializeAsString(), {&fd, 1}, deadline_in(kPatience)).ok());
        half.reset();
        EXPECT_TRUE(attacher.receive()->has_error());
        GrpcTestClient(dir_.file("c")).status();
    };
    round(0);  // gRPC keeps some descriptors from its first call on
    ASSERT_TRUE(eventually([this] { return server_->frame_connections() == 0 && server_->grpc_connections() == 0; }));
    ASSERT_TRUE(server_->reaper().drain(kPatience));
    const size_t before = open_fd_count();
    for (int i = 1; i <= 10; ++i) round(i);
    ASSERT_TRUE(eventually([this] { return server_->frame_connections() == 0 && server_->grpc_connections() == 0; }));
    ASSERT_TRUE(server_->reaper().drain(kPatience));
    // gRPC closes its descriptor of a connection a moment after the connection has ended: some may still have been open
    // before. What is left behind ten times shows all the same.
    EXPECT_TRUE(eventually([before] { return open_fd_count() <= before; }))
        << open_fd_count() << " open, before " << before;
}

TEST_F(ServerTest, TokenStolenReusedOrGuessed) {
    start();
    FrameClient owner = client(1);
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    FrameClient attacher = client(2);
    ASSERT_TRUE(attacher.open().ok());
    attacher.send_attach("game");
    const std::string push_token = *owner.export_token();

    FrameClient thief = client(3);
    FrameClient other_user = client(1, 1001);
    EXPECT_EQ(thief.push(push_token, 0, "evil").error().code, Code::kPermissionDenied);
    EXPECT_EQ(other_user.push(push_token, 0, "evil").error().code, Code::kPermissionDenied);
    EXPECT_EQ(thief.push(std::string(16, 'g'), 0, "evil").error().code, Code::kUnauthenticated);
    EXPECT_TRUE(owner.push(push_token, 1, "good").ok());
    EXPECT_EQ(owner.push(push_token, 0, "again").error().code, Code::kUnauthenticated);

    const std::string pull_token = attacher.receive()->attach_reply().token();
    EXPECT_EQ(thief.pull(pull_token).error().code, Code::kPermissionDenied);
    EXPECT_EQ(client(2, 1001).pull(pull_token).error().code, Code::kPermissionDenied);
    const auto pulled = attacher.pull(pull_token);
    ASSERT_TRUE(pulled.ok());
    EXPECT_EQ(memfd_content(pulled->fds[0].get()), "good0");
    EXPECT_EQ(attacher.pull(pull_token).error().code, Code::kUnauthenticated);
}

TEST_F(ServerTest, ExpiredTokenIsRefused) {
    start([](ServerOptions& options) { options.config.settings.export_limit = 50ms; });
    FrameClient owner = client(1);
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    FrameClient attacher = client(2);
    ASSERT_TRUE(attacher.open().ok());
    const auto reply = attacher.attach("game");  // nobody exports: waits for the deadline
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply->error().code(), 4u);
    EXPECT_EQ(owner.push(*owner.export_token(), 0, "late").error().code, Code::kUnauthenticated);
}

TEST_F(ServerTest, GarbageEndsItsConnectionOnly) {
    start();
    FrameClient bystander = client(1);
    ASSERT_TRUE(bystander.open().ok());
    const auto send = [&](std::string bytes) {
        UniqueFd socket = raw();
        EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
        ::shutdown(socket.get(), SHUT_WR);
        return until_closed(socket.get());
    };
    EXPECT_EQ(send(std::string("\0\0\0\0", 4)).at(0).error().code(), 15u);             // empty frame
    EXPECT_EQ(send(std::string("\1\0\1\0", 4)).at(0).error().code(), 15u);             // 65537 bytes
    EXPECT_EQ(send(std::string("\xff\xff\xff\xff", 4)).at(0).error().code(), 15u);     // 4 GiB
    EXPECT_EQ(send(std::string("\3\0\0\0\xff\xff\xff", 7)).at(0).error().code(), 3u);  // no protobuf
    EXPECT_TRUE(send(std::string("\20\0\0\0abc", 7)).empty());                         // truncated
    EXPECT_TRUE(send("").empty());
    const auto frame = [](const v1::Frame& message) {
        std::string bytes;
        EXPECT_TRUE(append_frame(bytes, message.SerializeAsString()).ok());
        return bytes;
    };
    v1::Frame message;
    message.mutable_client()->mutable_register_request()->set_name("x");
    EXPECT_EQ(send(frame(message)).at(0).error().code(), 9u);  // no Hello
    message.mutable_server();
    EXPECT_EQ(send(frame(message)).at(0).error().code(), 9u);  // not a client's to say
    message.mutable_client()->mutable_hello();
    v1::Frame push;
    push.mutable_push();
    const std::vector<v1::Frame> answers = send(frame(message) + frame(push));
    ASSERT_EQ(answers.size(), 1u);  // id 0: Hello is not answered
    EXPECT_EQ(answers[0].server().error().code(), 9u);
    ASSERT_TRUE(bystander.register_name("still-here")->has_register_reply());
}

TEST_F(ServerTest, ByteByByteIsAsGoodAsAtOnce) {
    start();
    UniqueFd socket = raw();
    v1::Frame message;
    message.mutable_client()->set_id(1);
    message.mutable_client()->mutable_hello();
    std::string bytes;
    ASSERT_TRUE(append_frame(bytes, message.SerializeAsString()).ok());
    for (const char byte : bytes) ASSERT_EQ(::send(socket.get(), &byte, 1, 0), 1);
    FrameReader reader(socket.get());
    v1::Frame answer;
    ASSERT_TRUE(answer.ParseFromString(*reader.read(deadline_in(kPatience))));
    EXPECT_TRUE(answer.server().has_hello_reply());
}

TEST_F(ServerTest, UnexpectedDescriptorsAreClosed) {
    start();
    ASSERT_TRUE(eventually([this] { return server_->frame_connections() == 0; }));
    const size_t before = open_fd_count();
    {
        const UniqueFd file = memfd("x");
        const std::vector<int> many(kFrameFdLimit, file.get());
        v1::Frame hello;
        hello.mutable_client()->mutable_hello();
        UniqueFd with_hello = raw(11);
        ASSERT_TRUE(send_frame(with_hello.get(), hello.SerializeAsString(), many, deadline_in(kPatience)).ok());
        EXPECT_EQ(until_closed(with_hello.get()).at(0).server().error().code(), 3u);

        // Later in a session they never even arrive.
        FrameClient session = client(12);
        ASSERT_TRUE(session.open().ok());
        v1::Frame report;
        report.mutable_client()->mutable_state_report();
        for (int i = 0; i < 50; ++i) {
            ASSERT_TRUE(send_frame(session.fd(), report.SerializeAsString(), many, deadline_in(kPatience)).ok());
        }
        ASSERT_TRUE(session.register_name("fine")->has_register_reply());

        // Bytes that never become a frame, with descriptors each.
        UniqueFd flood = raw(13);
        const std::string header("\0\1\0\0", 4);
        for (int i = 0; i < 4; ++i) {
            const Result<size_t> sent = send_some(flood.get(), header.substr(static_cast<size_t>(i), 1), many);
            if (!sent) break;
        }
        EXPECT_EQ(until_closed(flood.get()).at(0).error().code(), 3u);
    }
    ASSERT_TRUE(eventually([this] { return server_->frame_connections() == 0; }));
    ASSERT_TRUE(server_->reaper().drain(kPatience));
    EXPECT_EQ(open_fd_count(), before);
}

TEST_F(ServerTest, BadPushesFailTheAttachAtOnce) {
    start();
    FrameClient owner = client(1);
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    FrameClient attacher = client(2);
    ASSERT_TRUE(attacher.open().ok());
    const UniqueFd file = memfd("x");
    const std::vector<int> one(1, file.get());

    struct Case {
        const char* what;
        std::function<void(v1::HandleBundle&)> change;
        std::vector<int> fds;
    };
    const std::vector<Case> cases = {
        {"more handles than descriptors",
         [](v1::HandleBundle& bundle) { bundle.add_handles()->set_kind(v1::HANDLE_KIND_CONTROL_BUFFER); }, one},
        {"more descriptors than handles", [](v1::HandleBundle&) {}, {file.get(), file.get()}},
        {"no TSG",
         [](v1::HandleBundle& bundle) { bundle.mutable_handles(0)->set_kind(v1::HANDLE_KIND_CONTROL_BUFFER); }, one},
        {"nothing", [](v1::HandleBundle& bundle) { bundle.clear_handles(); }, {}},
    };
    for (const Case& one_case : cases) {
        SCOPED_TRACE(one_case.what);
        attacher.send_attach("game");
        v1::Frame frame;
        v1::HandleBundle& bundle = *frame.mutable_push();
        bundle.set_token(*owner.export_token());
        bundle.add_handles()->set_kind(v1::HANDLE_KIND_TSG);
        bundle.set_last(true);
        one_case.change(bundle);
        UniqueFd socket = raw(1);
        ASSERT_TRUE(send_frame(socket.get(), frame.SerializeAsString(), one_case.fds, deadline_in(kPatience)).ok());
        EXPECT_EQ(until_closed(socket.get()).at(0).error().code(), 3u);
        const auto reply = attacher.receive();
        ASSERT_TRUE(reply.ok());
        EXPECT_THAT(reply->error().text(), HasSubstr("could not hand over"));
    }
    share(owner, attacher, "game", 3);
}

TEST_F(ServerTest, SessionThatDoesNotReadIsClosedAndHoldsNobodyUp) {
    start([](ServerOptions& options) { options.protocol_limits.output_bytes = 32 * 1024; });
    FrameClient deaf = client(1);
    ASSERT_TRUE(deaf.open().ok());
    ASSERT_TRUE(deaf.register_name("deaf")->has_register_reply());
    // Each request is refused with a text; none is read.
    v1::ClientMessage message;
    message.set_id(1);
    message.mutable_unregister_request()->set_name(std::string(64, 'x'));
    Status sent;
    for (int i = 0; i < 100'000 && sent; ++i) sent = deaf.send(message);
    ASSERT_FALSE(sent.ok());
    EXPECT_EQ(sent.error().code, Code::kUnavailable);
    FrameClient other = client(2);
    ASSERT_TRUE(other.open().ok());
    EXPECT_EQ(other.attach("deaf")->error().code(), 5u);
}

TEST_F(ServerTest, PullerThatDoesNotReadIsDropped) {
    start([](ServerOptions& options) { options.protocol_limits.transfer = 300ms; });
    FrameClient owner = client(1);
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    FrameClient attacher = client(2);
    ASSERT_TRUE(attacher.open().ok());
    attacher.send_attach("game");
    ASSERT_TRUE(owner.push(*owner.export_token(), 2000, "x").ok());
    v1::Frame frame;
    frame.mutable_pull()->set_token(attacher.receive()->attach_reply().token());
    UniqueFd socket = raw(2);
    ASSERT_TRUE(send_frame(socket.get(), frame.SerializeAsString(), {}, deadline_in(kPatience)).ok());
    ASSERT_TRUE(eventually([this] { return server_->frame_connections() == 2; }));
    // A truncated transfer, never one that looks complete.
    for (const v1::Frame& part : until_closed(socket.get())) EXPECT_FALSE(part.bundle().last());
    ASSERT_TRUE(attacher.done(0)->has_attach_done_reply());
}

TEST_F(ServerTest, SilentConnectionIsClosed) {
    start([](ServerOptions& options) { options.protocol_limits.first_frame = 50ms; });
    UniqueFd socket = raw();
    EXPECT_EQ(until_closed(socket.get()).at(0).error().code(), 4u);
}

TEST_F(ServerTest, ConnectionLimits) {
    start([](ServerOptions& options) { options.config.connections = {8, 3}; });
    std::vector<FrameClient> open;
    for (pid_t pid = 1; pid <= 3; ++pid) {
        open.push_back(client(pid));
        ASSERT_TRUE(open.back().open().ok());
    }
    FrameClient fourth = client(4);
    EXPECT_FALSE(fourth.open().ok());
    FrameClient other_user = client(5, 1001);
    EXPECT_TRUE(other_user.open().ok());
    open.pop_back();
    ASSERT_TRUE(eventually([this] { return server_->frame_connections() == 3; }));
    EXPECT_TRUE(fourth.open().ok());
}

// How long the flood takes at least is certain; how fast the others are is not, but they need not wait for its end.
TEST_F(ServerTest, WhoAsksTooFastWaitsAndOthersDoNot) {
    constexpr int kRequests = 600;
    start([](ServerOptions& options) { options.config.requests_per_s = 200; });
    FrameClient fast = client(1);
    FrameClient other_user = client(2, 1001);
    ASSERT_TRUE(fast.open().ok());
    ASSERT_TRUE(other_user.open().ok());
    const auto begun = std::chrono::steady_clock::now();
    v1::ClientMessage message;
    message.mutable_unregister_request()->set_name("nobody");
    std::thread flood([&] {
        for (int i = 1; i <= kRequests; ++i) {
            message.set_id(static_cast<uint64_t>(i));
            if (!fast.send(message)) return;
        }
    });
    v1::ClientMessage question;
    question.mutable_unregister_request()->set_name("nobody");
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(other_user.call(question).ok());
    for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(fast.receive().ok());
    flood.join();
    // A second's worth at once, less what connecting costs; the last turn of the loop may take sixteen on credit.
    EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::seconds(kRequests - 200 - 32) / 200);
    EXPECT_EQ(fast.session(), 1u);  // waits, and keeps its session
    GrpcTestClient control(dir_.file("c"));
    EXPECT_THAT(control.metrics(), ::testing::Not(HasSubstr("\nvuda_requests_delayed_total 0\n")));
}

TEST_F(ServerTest, CallsBeyondTheRateAreRefusedInTheEnd) {
    start([](ServerOptions& options) { options.config.requests_per_s = 1; });
    // The connection alone is worth more than a second's requests.
    GrpcTestClient control(dir_.file("c"));
    EXPECT_EQ(control.detach(77), 8);
    on_loop([this] {
        Config config;
        config.requests_per_s = 0;
        server_->reload(config);
    });
    EXPECT_EQ(control.detach(77), 5);
}

TEST_F(ServerTest, LargestMessageIsConfigured) {
    start([](ServerOptions& options) { options.config.message_bytes = 16'384; });
    const UniqueFd socket = raw();
    std::string frame;
    ASSERT_TRUE(append_frame(frame, std::string(16'385, 'x')).ok());
    ASSERT_TRUE(send_some(socket.get(), frame).ok());
    const std::vector<v1::Frame> said = until_closed(socket.get());
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0].error().code(), static_cast<uint32_t>(Code::kDataLoss));
    EXPECT_THAT(said[0].error().text(), HasSubstr("outside 1..16384"));
}

TEST_F(ServerTest, SecondSessionOfAProcessReplacesTheFirst) {
    start();
    FrameClient before = client(1);
    ASSERT_TRUE(before.open().ok());
    ASSERT_TRUE(before.register_name("game")->has_register_reply());
    FrameClient after = client(1);
    ASSERT_TRUE(after.open().ok());
    EXPECT_EQ(before.receive()->error().code(), 10u);
    EXPECT_FALSE(before.receive().ok());
    EXPECT_TRUE(after.register_name("game")->has_register_reply());
}

TEST_F(ServerTest, SessionOverGrpcIsTheSame) {
    start();
    GrpcTestClient control(dir_.file("c"), {1, 1000});
    GrpcTestSession owner(control);
    v1::ClientMessage hello;
    hello.set_id(1);
    hello.mutable_hello()->set_driver_version("580.159.04");
    ASSERT_TRUE(owner.write(hello));
    ASSERT_TRUE(owner.read()->has_hello_reply());
    v1::ClientMessage request;
    request.set_id(2);
    request.mutable_register_request()->set_name("game");
    request.mutable_register_request()->set_gpu_uuid(kTestGpu);
    ASSERT_TRUE(owner.write(request));
    ASSERT_TRUE(owner.read()->has_register_reply());

    FrameClient attacher = client(2);
    ASSERT_TRUE(attacher.open().ok());
    attacher.send_attach("game");
    const auto exported = owner.read();
    ASSERT_TRUE(exported && exported->has_export_request());
    ASSERT_TRUE(client(1).push(exported->export_request().token(), 84, "g").ok());
    const auto reply = attacher.receive();
    ASSERT_TRUE(reply->has_attach_reply()) << reply->ShortDebugString();
    EXPECT_EQ(attacher.pull(reply->attach_reply().token())->fds.size(), 85u);
    ASSERT_TRUE(attacher.done()->has_attach_done_reply());
    EXPECT_EQ(control.status().sessions(0).transport(), "grpc");

    owner.finish();
    EXPECT_EQ(attacher.receive()->detach_command().reason().code(), 14u);
}

TEST_F(ServerTest, GrpcSessionMustBeginWithHello) {
    start();
    GrpcTestClient control(dir_.file("c"), {1, 1000});
    GrpcTestSession session(control);
    v1::ClientMessage request;
    request.mutable_register_request();
    ASSERT_TRUE(session.write(request));
    EXPECT_FALSE(session.read().has_value());
    EXPECT_EQ(session.finish(), 9);
}

TEST_F(ServerTest, GrpcRefusesLargeMessages) {
    start();
    GrpcTestClient control(dir_.file("c"), {1, 1000});
    GrpcTestSession session(control);
    v1::ClientMessage request;
    request.mutable_hello()->set_program(std::string(100'000, 'x'));
    session.write(request);
    EXPECT_FALSE(session.read().has_value());
    EXPECT_EQ(session.finish(), 8);
}

TEST_F(ServerTest, WatchTellsWhatHappens) {
    start();
    GrpcTestClient control(dir_.file("c"));
    GrpcTestWatch watch(control);
    FrameClient owner = client(1);
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    EXPECT_EQ(watch.next()->kind(), "session-open");
    const auto event = watch.next();
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->kind(), "register");
    EXPECT_EQ(event->name(), "game");
    EXPECT_EQ(event->peer().pid(), 1u);
}

TEST_F(ServerTest, RefusalsAreEventsToo) {
    start([](ServerOptions& options) { options.config.settings.sessions_per_uid = 1; });
    GrpcTestClient control(dir_.file("c"), {50, 0});
    GrpcTestWatch watch(control);
    const auto next = [&watch](const char* kind) -> v1::Event {
        while (auto event = watch.next()) {
            if (event->kind() == kind) return *event;
        }
        ADD_FAILURE() << "no event " << kind;
        return {};
    };
    FrameClient owner = client(1);
    ASSERT_TRUE(owner.open().ok());
    EXPECT_FALSE(owner.register_name("no/name")->has_register_reply());
    const v1::Event bad = next("register-refused");
    EXPECT_EQ(bad.peer().pid(), 1u);
    EXPECT_EQ(bad.name(), "");
    EXPECT_EQ(bad.reason().code(), 3u);

    FrameClient second = client(2);
    EXPECT_FALSE(second.open().ok());
    EXPECT_EQ(next("session-refused").reason().code(), 8u);

    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    GrpcTestClient stranger(dir_.file("c"), {7, 1001});
    EXPECT_EQ(stranger.detach(owner.session()), 7);
    const v1::Event detach = next("detach-refused");
    EXPECT_EQ(detach.name(), "game");
    EXPECT_EQ(detach.peer().uid(), 1001u);
    EXPECT_EQ(detach.session_id(), owner.session());
}

TEST_F(ServerTest, MetricsAreWrittenToTheFileWhileItRuns) {
    const std::string path = dir_.file("vuda.prom");
    start([&](ServerOptions& options) {
        options.config.metrics_textfile = path;
        options.config.metrics_interval = 1s;
    });
    EXPECT_TRUE(eventually([&] { return ::access(path.c_str(), F_OK) == 0; }));
    Config elsewhere;
    elsewhere.metrics_textfile = dir_.file("other.prom");
    on_loop([&] { server_->reload(elsewhere); });
    EXPECT_TRUE(eventually([&] { return ::access(elsewhere.metrics_textfile.c_str(), F_OK) == 0; }));
    EXPECT_TRUE(eventually([&] { return ::access(path.c_str(), F_OK) != 0; }));
    stop();
    EXPECT_NE(::access(elsewhere.metrics_textfile.c_str(), F_OK), 0);
}

TEST_F(ServerTest, DetachAskedByOthersIsRefused) {
    start();
    FrameClient owner = client(1, 1000);
    ASSERT_TRUE(owner.open().ok());
    GrpcTestClient stranger(dir_.file("c"), {7, 1001});
    EXPECT_EQ(stranger.detach(owner.session()), 7);
    EXPECT_EQ(stranger.detach(4711), 5);
    GrpcTestClient self(dir_.file("c"), {8, 1000});
    EXPECT_EQ(self.detach(owner.session()), 0);
    EXPECT_EQ(owner.receive()->detach_command().reason().code(), 1u);
}

// Set over gRPC, kept in the state folder, there again after a restart.
TEST_F(ServerTest, TargetsSurviveARestart) {
    const std::string state = dir_.file("state");
    ASSERT_EQ(::mkdir(state.c_str(), 0700), 0);
    const auto keep = [&state](ServerOptions& options) { options.state_dir = state; };
    const auto register_game = [](FrameClient& owner) {
        ASSERT_TRUE(owner.open().ok());
        ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    };
    v1::SetSloRequest request;
    request.set_name("game");
    request.set_frame_ms(16.67);
    request.set_frame_miss(0.01);
    start(keep);
    {
        FrameClient owner = client(1);
        register_game(owner);
        GrpcTestClient control(dir_.file("c"));
        const Result<v1::SetSloReply> reply = control.set_slo(request);
        ASSERT_TRUE(reply.ok()) << reply.error().to_string();
        EXPECT_EQ(reply->slo().targets_size(), 1);
        request.set_frame_ms(-1);
        EXPECT_EQ(control.set_slo(request).error().code, Code::kInvalidArgument);
        request.set_name("nobody");
        EXPECT_EQ(control.set_slo(request).error().code, Code::kNotFound);
    }
    stop();
    EXPECT_EQ(::access((state + "/targets").c_str(), F_OK), 0) << "written before the end";
    start(keep);
    FrameClient owner = client(1);
    register_game(owner);
    GrpcTestClient control(dir_.file("c"));
    const v1::StatusReply status = control.status();
    ASSERT_EQ(status.tsgs_size(), 1);
    ASSERT_EQ(status.tsgs(0).slo().targets_size(), 1) << status.ShortDebugString();
    EXPECT_EQ(status.tsgs(0).slo().targets(0).bound(), 16.67);
    EXPECT_TRUE(status.tsgs(0).partition().automatic());
}

// The page travels with HelloReply; a quota from the control socket is in it at once, samples come back through it.
TEST_F(ServerTest, SplitsAndSamplesGoThroughThePage) {
    start();
    FrameClient owner = client(1);
    FrameClient cuda = client(2);
    owner.set_features(~uint64_t{v1::FEATURE_SUBCONTEXTS});
    cuda.set_features(~uint64_t{v1::FEATURE_SUBCONTEXTS});
    ASSERT_TRUE(owner.open().ok());
    const Result<v1::HelloReply> hello = cuda.open();
    ASSERT_TRUE(hello.ok());
    ASSERT_EQ(hello->page_bytes(), page::kPageBytes);
    Result<std::vector<UniqueFd>> fds = cuda.take_fds(1);
    ASSERT_TRUE(fds.ok()) << fds.error().to_string();
    Result<page::PageMapping> mapped = page::PageMapping::of_received(fds->front().get(), hello->page_bytes());
    ASSERT_TRUE(mapped.ok()) << mapped.error().to_string();
    fds->clear();
    page::Page& page = **mapped;

    ASSERT_TRUE(owner.register_name("game").ok());
    const Result<std::string> ahead = owner.export_token();
    ASSERT_TRUE(ahead.ok());
    ASSERT_TRUE(owner.push(*ahead, 2, "game").ok());
    share(owner, cuda, "game", 2);
    ASSERT_TRUE(cuda.send(partition_report(v1::BACKEND_QMD_MASK, partition::testing::h200())).ok());
    GrpcTestClient control(dir_.file("c"));
    GrpcTestWatch watch(control);
    ASSERT_TRUE(eventually([&] {
        page::Split split;
        return page::read_split(page.daemon, split) && split.applied_tpcs == 64;
    }));

    v1::SetQuotaRequest request;
    request.set_name("game");
    request.set_tpcs(16);
    const Result<v1::SetQuotaReply> reply = control.set_quota(request);
    ASSERT_TRUE(reply.ok()) << reply.error().to_string();
    page::Split split;
    ASSERT_TRUE(page::read_split(page.daemon, split));
    EXPECT_EQ(split.applied_tpcs, 16u);
    EXPECT_EQ(split.generation, reply->generation());
    EXPECT_EQ(control.set_mode("game", v1::MODE_SLICED).error().code, Code::kFailedPrecondition);
    EXPECT_EQ(control.set_mode("nobody", v1::MODE_INTER_SM).error().code, Code::kNotFound);
    EXPECT_EQ(control.set_mode("game", v1::MODE_INTER_SM)->applied_tpcs(), 16u);
    for (;;) {
        const std::optional<v1::Event> event = watch.next();
        ASSERT_TRUE(event);
        if (event->kind() == "partition" && event->reason().text().find("quota 16") != std::string::npos) break;
    }

    page::SampleWriter writer(page);
    writer.set_applied(split.generation);
    for (uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(writer.push({page::SampleKind::kSync, i, 0, 1000}));
    ASSERT_TRUE(eventually([&] { return page.daemon.tail.load() == 100; })) << "the timer takes them out";
    const v1::StatusReply status = control.status();
    for (const v1::SessionInfo& session : status.sessions()) {
        if (session.session_id() != cuda.session()) continue;
        EXPECT_EQ(session.samples(), 100u);
        EXPECT_EQ(session.applied_generation(), reply->generation());
    }
    EXPECT_THAT(control.metrics(), HasSubstr("vuda_tsg_compute_tpcs{name=\"game\"} 16\n"));
}

TEST_F(ServerTest, WhoWantsNoPageGetsNone) {
    start();
    FrameClient old = client(1);
    const Result<v1::HelloReply> hello = old.open();
    ASSERT_TRUE(hello.ok());
    EXPECT_EQ(hello->page_bytes(), 0u);
    EXPECT_EQ(hello->features(), static_cast<uint64_t>(v1::FEATURE_SHARE));
    GrpcTestClient control(dir_.file("c"), {5, 1000});
    GrpcTestSession session(control);
    v1::ClientMessage message;
    message.set_id(1);
    message.mutable_hello()->set_features(~uint64_t{0});
    ASSERT_TRUE(session.write(message));
    const std::optional<v1::ServerMessage> reply = session.read();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->hello_reply().page_bytes(), 0u) << "gRPC carries no descriptors";
    EXPECT_EQ(reply->hello_reply().features() & v1::FEATURE_SHARED_PAGE, 0u);
    EXPECT_NE(reply->hello_reply().features() & v1::FEATURE_QUOTA, 0u);
}

TEST_F(ServerTest, IdleGrpcConnectionIsClosed) {
    start([](ServerOptions& options) { options.grpc_idle_ms = 100; });
    Result<UniqueFd> socket = connect_as(dir_.file("c"), {});
    ASSERT_TRUE(socket.ok());
    // gRPC sends its settings, then nothing, then the end.
    std::array<char, 4096> buffer;
    ssize_t got = 1;
    while (got > 0) {
        ASSERT_TRUE(wait_readable(socket->get(), deadline_in(kPatience)).ok());
        got = ::recv(socket->get(), buffer.data(), buffer.size(), 0);
    }
    ASSERT_TRUE(eventually([this] { return server_->grpc_connections() == 0; }));
}

TEST_F(ServerTest, GrpcGarbageEndsItsConnectionOnly) {
    start();
    for (const std::string& bytes :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(1000, '\xff'), std::string(1, 'P')}) {
        Result<UniqueFd> socket = connect_as(dir_.file("c"), {});
        ASSERT_TRUE(socket.ok());
        ASSERT_EQ(::send(socket->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
        ::shutdown(socket->get(), SHUT_WR);
        pollfd entry{socket->get(), POLLIN, 0};
        char buffer[4096];
        for (;;) {  // gRPC answers with its settings before it gives up
            ASSERT_EQ(::poll(&entry, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())), 1);
            if (::recv(socket->get(), buffer, sizeof buffer, 0) <= 0) break;
        }
    }
    ASSERT_TRUE(eventually([this] { return server_->grpc_connections() == 0; }));
    EXPECT_EQ(GrpcTestClient(dir_.file("c")).status().sessions_size(), 0);
}

TEST_F(ServerTest, StopEndsEverythingThatIsOpen) {
    start();
    FrameClient session = client(1);
    ASSERT_TRUE(session.open().ok());
    GrpcTestClient control(dir_.file("c"), {2, 1000});
    GrpcTestSession stream(control);
    v1::ClientMessage hello;
    hello.set_id(1);
    hello.mutable_hello();
    ASSERT_TRUE(stream.write(hello));
    ASSERT_TRUE(stream.read().has_value());
    GrpcTestWatch watch(control);
    stop();
    EXPECT_FALSE(session.receive().ok());
    EXPECT_EQ(stream.finish(), 14);
    EXPECT_NE(::access(dir_.file("c").c_str(), F_OK), 0);
    EXPECT_NE(::access(dir_.file("h").c_str(), F_OK), 0);
}

TEST_F(ServerTest, ReloadChangesLimitsAtOnce) {
    start();
    FrameClient owner = client(1);
    ASSERT_TRUE(owner.open().ok());
    on_loop([this] {
        Config config;
        config.settings.sessions_per_uid = 1;
        config.log_level = "error";
        server_->reload(config);
    });
    FrameClient second = client(2);
    const auto refused = second.open();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
}

}  // namespace
}  // namespace vuda::daemon
