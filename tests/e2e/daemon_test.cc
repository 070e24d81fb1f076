// vudad as a process, without a GPU: its sockets, and what strangers send to them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/e2e/deployment.h"
#include "tests/e2e/frame_client.h"
#include "tests/e2e/remote_peer.h"

namespace vuda::e2e {
namespace {

namespace fs = std::filesystem;

DeploymentOptions no_gpu() {
    DeploymentOptions options;
    options.sim = false;
    return options;
}

UniqueFd listener_at(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(fd.get(), 1), 0);
    return fd;
}

Finished vudad(const std::string& folder) {
    return run({{built("vudad"), "--config", folder + "/vudad.toml", "--socket", folder + "/vudad.sock",
                 "--handle-socket", folder + "/handles.sock"},
                {},
                static_cast<uid_t>(-1)});
}

// What a daemon holds that nobody uses. gRPC opens some of its own only when it first answers.
size_t idle_fds(Deployment& deployment) {
    EXPECT_TRUE(deployment.wait_status([](const Json&) { return true; }));
    size_t before = 0, now = open_fds(deployment.daemon().pid());
    EXPECT_TRUE(eventually([&] {
        before = std::exchange(now, open_fds(deployment.daemon().pid()));
        return now == before;
    }));
    return now;
}

// The daemon still does its work, and holds as many descriptors as before once the strangers are gone.
void expect_healthy(Deployment& deployment, size_t fds_before) {
    EXPECT_TRUE(deployment.daemon().running());
    EXPECT_TRUE(deployment.wait_sessions(0));
    EXPECT_TRUE(eventually([&] { return open_fds(deployment.daemon().pid()) <= fds_before; }))
        << open_fds(deployment.daemon().pid()) << " descriptors, " << fds_before << " before";
}

TEST(DaemonSockets, StaleSocketOfAKilledDaemonIsReplaced) {
    Deployment deployment(no_gpu());
    ASSERT_TRUE(deployment.ready()) << deployment.daemon().err();
    EXPECT_EQ(deployment.stop(SIGKILL), 128 + SIGKILL);
    ASSERT_TRUE(fs::is_socket(deployment.socket()));
    const Finished away = run(deployment.vudactl({"status"}));
    EXPECT_EQ(away.status, 69);
    EXPECT_NE(away.err.find("nobody listens"), std::string::npos) << away.err;

    deployment.start();
    ASSERT_TRUE(deployment.ready()) << deployment.daemon().err();
    EXPECT_EQ(run(deployment.vudactl({"status"})).status, 0);
}

TEST(DaemonSockets, CleanEndRemovesTheSockets) {
    Deployment deployment(no_gpu());
    ASSERT_TRUE(deployment.ready());
    EXPECT_EQ(deployment.stop(SIGTERM), 0);
    EXPECT_FALSE(fs::exists(deployment.socket()));
    EXPECT_FALSE(fs::exists(deployment.handle_socket()));
    const Finished away = run(deployment.vudactl({"status"}));
    EXPECT_EQ(away.status, 69);
    EXPECT_NE(away.err.find("no such socket"), std::string::npos) << away.err;
    EXPECT_EQ(lines(away.err).size(), 1u);
}

TEST(DaemonSockets, SecondDaemonNamesTheFirst) {
    Deployment deployment(no_gpu());
    ASSERT_TRUE(deployment.ready());
    const Finished second = vudad(deployment.folder());
    EXPECT_EQ(second.status, 69) << second.err;
    EXPECT_NE(second.err.find(std::to_string(deployment.daemon().pid())), std::string::npos) << second.err;
    EXPECT_EQ(run(deployment.vudactl({"status"})).status, 0);
}

TEST(DaemonSockets, SymlinkInItsPlaceIsRefusedAndKept) {
    const cli::TestDir dir;
    dir.write("vudad.toml", "");
    dir.write("precious", "data");
    fs::create_symlink(dir.path("precious"), dir.path("vudad.sock"));
    const Finished finished = vudad(dir.root().string());
    EXPECT_EQ(finished.status, 69) << finished.err;
    EXPECT_NE(finished.err.find("vudad.sock"), std::string::npos) << finished.err;
    EXPECT_TRUE(fs::is_symlink(dir.path("vudad.sock")));
    EXPECT_TRUE(fs::exists(dir.path("precious")));

    // Also a link to a socket that looks stale.
    fs::remove(dir.path("vudad.sock"));
    { const UniqueFd closed = listener_at(dir.path("elsewhere")); }
    fs::create_symlink(dir.path("elsewhere"), dir.path("vudad.sock"));
    EXPECT_EQ(vudad(dir.root().string()).status, 69);
    EXPECT_TRUE(fs::is_symlink(dir.path("vudad.sock")));
    EXPECT_TRUE(fs::exists(dir.path("elsewhere")));
}

TEST(DaemonSockets, RegularFileInItsPlaceIsRefusedAndKept) {
    const cli::TestDir dir;
    dir.write("vudad.toml", "");
    dir.write("handles.sock", "data");
    const Finished finished = vudad(dir.root().string());
    EXPECT_EQ(finished.status, 69) << finished.err;
    EXPECT_NE(finished.err.find("handles.sock"), std::string::npos) << finished.err;
    EXPECT_EQ(fs::file_size(dir.path("handles.sock")), 4u);
    EXPECT_FALSE(fs::exists(dir.path("vudad.sock")));
}

TEST(DaemonSockets, UnwritableOrMissingFolder) {
    const cli::TestDir dir;
    dir.write("vudad.toml", "");
    chmod(dir.root().c_str(), 0755);
    fs::create_directory(dir.path("locked"));
    chmod(dir.path("locked").c_str(), 0555);
    const auto in = [&](const std::string& folder, uid_t uid) {
        return run({{built("vudad"), "--config", dir.path("vudad.toml"), "--socket", folder + "/vudad.sock",
                     "--handle-socket", folder + "/handles.sock"},
                    {},
                    uid});
    };
    // Root may write anywhere: there the daemon runs as nobody.
    const Finished locked = in(dir.path("locked"), geteuid() == 0 ? 65534 : static_cast<uid_t>(-1));
    EXPECT_EQ(locked.status, 77) << locked.err;
    EXPECT_NE(locked.err.find("locked/vudad.sock"), std::string::npos) << locked.err;
    const Finished missing = in(dir.path("missing"), static_cast<uid_t>(-1));
    EXPECT_NE(missing.status, 0);
    EXPECT_NE(missing.status, -1);
    EXPECT_NE(missing.err.find("missing"), std::string::npos) << missing.err;
}

TEST(DaemonInput, GarbageOnTheHandleSocket) {
    Deployment deployment(no_gpu());
    ASSERT_TRUE(deployment.ready());
    const size_t before = idle_fds(deployment);
    // Every first byte, then noise: lengths that are too large, and frames that are no messages.
    for (int first = 0; first < 256; ++first) {
        FrameClient client(deployment.handle_socket());
        ASSERT_TRUE(client.connected());
        std::string bytes(64, '\0');
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(first * 31 + static_cast<int>(i) * 7);
        bytes[0] = static_cast<char>(first);
        client.send_bytes(bytes);
        client.shut_down_writing();
        EXPECT_TRUE(client.closed_by_peer()) << first;
    }
    expect_healthy(deployment, before);
}

TEST(DaemonInput, OversizedFrameIsAnsweredAndEnded) {
    Deployment deployment(no_gpu());
    ASSERT_TRUE(deployment.ready());
    const size_t before = idle_fds(deployment);
    for (const std::string& header :
         {std::string("\x01\x00\x01\x00", 4), std::string("\xff\xff\xff\xff", 4), std::string(4, '\0')}) {
        FrameClient client(deployment.handle_socket());
        ASSERT_TRUE(client.send_bytes(header + "xxxx"));
        const std::optional<v1::Frame> answer = client.receive();
        ASSERT_TRUE(answer);
        EXPECT_TRUE(answer->has_error());
        EXPECT_NE(answer->error().text(), "");
        EXPECT_TRUE(client.closed_by_peer());
    }
    expect_healthy(deployment, before);
}

TEST(DaemonInput, TruncatedFrames) {
    Deployment deployment(no_gpu());
    ASSERT_TRUE(deployment.ready());
    const size_t before = idle_fds(deployment);
    v1::Frame hello;
    hello.mutable_client()->set_id(1);
    hello.mutable_client()->mutable_hello()->set_program("cut");
    std::string whole;
    ASSERT_TRUE(append_frame(whole, hello.SerializeAsString()).ok());
    for (size_t size = 0; size < whole.size(); ++size) {
        FrameClient client(deployment.handle_socket());
        client.send_bytes(whole.substr(0, size));
        client.shut_down_writing();
        EXPECT_TRUE(client.closed_by_peer()) << size;
    }
    expect_healthy(deployment, before);
}

TEST(DaemonInput, WrongFirstAndWrongNextMessages) {
    Deployment deployment(no_gpu());
    ASSERT_TRUE(deployment.ready());
    const size_t before = idle_fds(deployment);
    {
        FrameClient client(deployment.handle_socket());
        const auto answer = client.ask(attach_request("game", test_gpu(1)));
        EXPECT_TRUE(client.closed_by_peer());
        EXPECT_FALSE(answer && answer->has_attach_reply());
    }
    {
        FrameClient client(deployment.handle_socket());
        ASSERT_TRUE(client.hello("twice")->has_hello_reply());
        const auto answer = client.hello("twice");
        EXPECT_TRUE(!answer || answer->has_error());
    }
    {
        // Descriptors where none belong do not stay.
        FrameClient client(deployment.handle_socket());
        ASSERT_TRUE(client.hello("fds")->has_hello_reply());
        v1::Frame frame;
        frame.mutable_client()->mutable_state_report()->set_state(v1::SHARING_STATE_IDLE);
        for (int i = 0; i < 100; ++i) {
            if (!client.send(frame, std::vector<int>(32, STDERR_FILENO))) break;
        }
    }
    {
        FrameClient client(deployment.handle_socket());
        v1::Frame pull;
        pull.mutable_pull()->set_token(std::string(16, 'x'));
        ASSERT_TRUE(client.send(pull));
        const auto answer = client.receive();
        ASSERT_TRUE(answer);
        EXPECT_TRUE(answer->has_error());
    }
    expect_healthy(deployment, before);
}

TEST(DaemonInput, GarbageOnTheControlSocket) {
    Deployment deployment(no_gpu());
    ASSERT_TRUE(deployment.ready());
    const size_t before = idle_fds(deployment);
    const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for (const std::string& bytes :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, '\xff'), preface + std::string(64, '\xff'),
          preface.substr(0, 10), preface + std::string("\x00\xff\xff\x04\x00\x00\x00\x00\x00", 9), std::string()}) {
        FrameClient client(deployment.socket());
        ASSERT_TRUE(client.connected());
        client.send_bytes(bytes);
    }
    EXPECT_EQ(run(deployment.vudactl({"status"})).status, 0);
    expect_healthy(deployment, before);
}

// A renderer with a made-up TSG, and a program that asks to attach to it.
class TokenTest : public testing::Test {
 protected:
    TokenTest() : deployment(no_gpu()), owner(deployment.handle_socket()), attacher(deployment.handle_socket()) {
        if (!deployment.ready()) return;
        before = idle_fds(deployment);
        EXPECT_EQ(owner.open_session(), "ok");
        EXPECT_EQ(owner.register_name("game"), "ok");
        EXPECT_EQ(attacher.open_session(), "ok");
        EXPECT_EQ(attacher.start_attach("game"), "ok");
        push_token = owner.export_token();
    }
    // The owner does its part; the attacher's token.
    std::string pull_token() {
        EXPECT_EQ(push_token.size(), 32u) << push_token;
        EXPECT_EQ(owner.push(push_token), "ok");
        const std::string token = attacher.attach_token();
        EXPECT_EQ(token.size(), 32u) << token;
        return token;
    }

    Deployment deployment;
    size_t before = 0;
    RemotePeer owner;
    RemotePeer attacher;
    std::string push_token;
};

TEST_F(TokenTest, GoodOnceAndOnlyOnce) {
    const std::string token = pull_token();
    EXPECT_EQ(attacher.pull(token), 2u);
    EXPECT_EQ(attacher.pull(token), 0u);
    EXPECT_EQ(attacher.pull(push_token), 0u);
    EXPECT_EQ(attacher.attach_done(8), "ok");
    const Json session = deployment.session_of(attacher.pid());
    ASSERT_TRUE(session.is_object());
    EXPECT_EQ(session["state"], "sharing");
    EXPECT_EQ(session["channels_moved"], 8);
}

TEST_F(TokenTest, PushTokenCannotBeReused) {
    pull_token();
    const size_t held = open_fds(deployment.daemon().pid());
    EXPECT_NE(owner.push(push_token), "ok");
    EXPECT_NE(attacher.push(push_token), "ok");
    EXPECT_TRUE(eventually([&] { return open_fds(deployment.daemon().pid()) <= held; }));
}

TEST_F(TokenTest, StolenByAnotherProcessOrUser) {
    const std::string token = pull_token();
    EXPECT_EQ(owner.pull(token), 0u);
    if (getuid() == 0) {
        RemotePeer thief(deployment.handle_socket(), 65534);
        EXPECT_EQ(thief.pull(token), 0u);
        EXPECT_NE(thief.push(push_token), "ok");
    }
    // The thief has not spent it for its owner.
    EXPECT_EQ(attacher.pull(token), 2u);
}

TEST_F(TokenTest, StrangersAreNotLetIn) {
    if (getuid() != 0) return;  // an ordinary user has no second user to be
    RemotePeer stranger(deployment.handle_socket(), 65534);
    ASSERT_EQ(stranger.open_session(), "ok");
    ASSERT_EQ(stranger.start_attach("game"), "ok");
    EXPECT_NE(stranger.attach_token().find("65534"), std::string::npos);
    const Json session = deployment.session_of(stranger.pid());
    EXPECT_EQ(session["reason"]["code"], "PERMISSION_DENIED");
}

TEST_F(TokenTest, NameTakenNamesTheOwner) {
    RemotePeer second(deployment.handle_socket());
    ASSERT_EQ(second.open_session(), "ok");
    const std::string answer = second.register_name("game");
    EXPECT_NE(answer.find(std::to_string(owner.pid())), std::string::npos) << answer;
}

TEST_F(TokenTest, AttachEndsWhenTheOwnerDies) {
    kill(owner.pid(), SIGKILL);
    const std::string answer = attacher.attach_token();
    EXPECT_NE(answer.find("went away"), std::string::npos) << answer;
}

TEST_F(TokenTest, AnOwnerThatDoesNotAnswerCostsALimitedTime) {
    const auto start = Clock::now();
    const std::string answer = attacher.attach_token();  // nobody pushes
    EXPECT_NE(answer.size(), 32u) << answer;
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
    EXPECT_EQ(deployment.session_of(attacher.pid())["reason"]["code"], "DEADLINE_EXCEEDED");
}

TEST_F(TokenTest, EndsOfBothSidesLeaveNothing) {
    pull_token();
    kill(owner.pid(), SIGKILL);
    kill(attacher.pid(), SIGKILL);
    expect_healthy(deployment, before);
}

}  // namespace
}  // namespace vuda::e2e
