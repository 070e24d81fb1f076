// vudad when the disk, the descriptors or the memory have run out: it serves on, says once what is missing and what
// helps, and is itself again when the cause is gone. By orders to libvuda_faulty_os.so, and for real (prlimit).
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "cli/test_dir.h"
#include "tests/e2e/deployment.h"
#include "tests/e2e/frame_client.h"
#include "tests/e2e/remote_peer.h"
#include "tests/faults/orders.h"

namespace vuda::faults {
namespace {

using e2e::eventually;
using e2e::FrameClient;
using e2e::Json;
using e2e::open_fds;
using e2e::RemotePeer;

std::string text_of(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

class DaemonRunsOut : public testing::Test {
 protected:
    DaemonRunsOut() : os(folder.root().string()) {
        std::filesystem::create_directory(folder.path("state"));
        e2e::DeploymentOptions options;
        options.sim = false;
        options.daemon_env = os.env();
        options.daemon_arguments = {"--state-dir", folder.path("state")};
        deployment = std::make_unique<e2e::Deployment>(std::move(options));
    }
    void SetUp() override { ASSERT_TRUE(deployment->ready()) << deployment->daemon().err(); }

    // How often the log has this, by now.
    size_t said(const std::string& text) {
        deployment->daemon().wait_err(text, std::chrono::milliseconds(0));
        const std::string& log = deployment->daemon().err();
        size_t count = 0;
        for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++count;
        return count;
    }
    bool will_say(const std::string& text) { return deployment->daemon().wait_err(text); }
    e2e::Finished vudactl(std::vector<std::string> arguments) {
        return e2e::run(deployment->vudactl(std::move(arguments)));
    }
    // The whole of an attach, as programs would do it. What the attacher was told, or "ok".
    std::string attach(RemotePeer& owner, RemotePeer& attacher) {
        if (const std::string asked = attacher.start_attach("game"); asked != "ok") return asked;
        const std::string token = owner.export_token();
        const std::string pushed = owner.push(token);
        const std::string answer = attacher.attach_token();
        if (answer.size() != 32 || pushed != "ok") return answer;
        if (attacher.pull(answer) != 2) return "no descriptors";
        return attacher.attach_done(8);
    }
    void serves() {
        EXPECT_TRUE(deployment->daemon().running());
        RemotePeer owner(deployment->handle_socket()), attacher(deployment->handle_socket());
        EXPECT_EQ(owner.open_session(), "ok");
        EXPECT_EQ(owner.register_name("game"), "ok");
        EXPECT_EQ(attacher.open_session(), "ok");
        EXPECT_EQ(attach(owner, attacher), "ok");
        EXPECT_EQ(vudactl({"status"}).status, 0);
    }
    // A greeting that asks for the session page.
    static std::optional<v1::ServerMessage> hello_with_page(FrameClient& client) {
        v1::ClientMessage message;
        message.mutable_hello()->set_features(v1::FEATURE_SHARE | v1::FEATURE_SHARED_PAGE);
        message.mutable_hello()->set_program("page");
        return client.ask(message);
    }

    cli::TestDir folder;
    FaultyOs os;
    std::unique_ptr<e2e::Deployment> deployment;
};

// Targets are answered at once and kept when there is room, though nobody asks again.
TEST_F(DaemonRunsOut, OfDiskForItsState) {
    auto owner = std::make_unique<RemotePeer>(deployment->handle_socket());
    ASSERT_EQ(owner->open_session(), "ok");
    ASSERT_EQ(owner->register_name("game"), "ok");
    const std::string file = folder.path("state/targets");
    for (const Call call : {Call::kWrite, Call::kRename, Call::kOpen}) {
        SCOPED_TRACE(static_cast<int>(call));
        std::filesystem::remove(file);
        os.only_path("targets");
        os.fail(call, ENOSPC);
        const size_t failures = said("No space left on device; free some space there");
        const size_t healings = said("is written again");
        const e2e::Finished set = vudactl({"slo", "game", "--frame-ms", std::to_string(20 + static_cast<int>(call))});
        EXPECT_EQ(set.status, 0) << set.err;
        // Tried again and again, said once.
        EXPECT_TRUE(eventually([&] { return os.done(call) >= 2; }));
        EXPECT_EQ(said("No space left on device; free some space there"), failures + 1);
        EXPECT_FALSE(std::filesystem::exists(file));
        EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(file + ".tmp"); }));
        EXPECT_EQ(vudactl({"status"}).status, 0);
        os.heal();
        EXPECT_TRUE(eventually([&] {
            return text_of(file).find("frames " + std::to_string(20 + static_cast<int>(call))) != std::string::npos;
        }));
        EXPECT_TRUE(eventually([&] { return said("is written again") == healings + 1; }));
    }
    owner.reset();
    ASSERT_TRUE(deployment->wait_sessions(0));
    serves();
}

TEST_F(DaemonRunsOut, OfDiskForItsMetrics) {
    const std::string file = folder.path("vuda.prom");
    std::ofstream(deployment->folder() + "/vudad.toml")
        << "[metrics]\ntextfile = \"" << file << "\"\ninterval_ms = 1000\n";
    deployment->daemon().signal(SIGHUP);
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(file); }));
    os.fail(Call::kWrite, ENOSPC);
    EXPECT_TRUE(will_say("metrics.textfile: "));
    EXPECT_TRUE(eventually([&] { return os.done(Call::kWrite) >= 3; }));
    EXPECT_EQ(said("No space left on device"), 1u) << deployment->daemon().err();
    EXPECT_EQ(said("free some space there"), 1u);
    // The old numbers stay; they are whole.
    EXPECT_NE(text_of(file).find("vuda_protocol_errors_total"), std::string::npos);
    // It may be writing just now.
    EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(file + ".tmp"); }));
    serves();
    os.heal();
    EXPECT_TRUE(will_say("is written again"));
    serves();
}

TEST_F(DaemonRunsOut, OfDescriptorsWhenSomebodyConnects) {
    for (const Call call : {Call::kAccept, Call::kPeerPidfd}) {
        SCOPED_TRACE(static_cast<int>(call));
        os.fail(call, EMFILE);
        FrameClient early(deployment->handle_socket());
        EXPECT_TRUE(eventually([&] { return os.done(call) >= 1; }));
        // Who waits in the backlog is served once there is room, unless it had been let in already.
        os.heal();
        if (call == Call::kAccept) {
            EXPECT_TRUE(early.hello("early"));
        } else {
            EXPECT_TRUE(early.closed_by_peer());
        }
        serves();
    }
    EXPECT_EQ(said("no new connections on the handle socket"), 1u) << deployment->daemon().err();
    EXPECT_EQ(said("Too many open files; raise the limit of open files"), 1u);
    EXPECT_EQ(said("already ended"), 0u);
}

TEST_F(DaemonRunsOut, OfDescriptorsWhenAnOwnerHandsOver) {
    RemotePeer owner(deployment->handle_socket()), attacher(deployment->handle_socket());
    ASSERT_EQ(owner.open_session(), "ok");
    ASSERT_EQ(owner.register_name("game"), "ok");
    ASSERT_EQ(attacher.open_session(), "ok");
    const size_t before = open_fds(deployment->daemon().pid());
    os.fail(Call::kReceiveFds, EMFILE);
    const std::string answer = attach(owner, attacher);
    EXPECT_NE(answer.find("vudad has no file descriptors left"), std::string::npos) << answer;
    os.heal();
    EXPECT_EQ(said("file descriptors were lost on receipt: Too many open files; raise the limit"), 1u);
    EXPECT_TRUE(eventually([&] { return open_fds(deployment->daemon().pid()) <= before; }));
    // Both sessions stand, and the next try works.
    EXPECT_EQ(attach(owner, attacher), "ok");
}

// A session without a page shares without splits.
TEST_F(DaemonRunsOut, OfWhatASessionPageNeeds) {
    const auto status = [&] { return vudactl({"status"}).status; };
    for (const auto& [call, error] :
         {std::pair(Call::kMemfd, EMFILE), {Call::kMemfd, ENOMEM}, {Call::kMapShared, ENOMEM}}) {
        SCOPED_TRACE(error);
        ASSERT_EQ(status(), 0);
        const size_t before = open_fds(deployment->daemon().pid());
        os.fail(call, error);
        {
            FrameClient client(deployment->handle_socket());
            const auto reply = hello_with_page(client);
            os.heal();
            ASSERT_TRUE(reply && reply->has_hello_reply());
            EXPECT_EQ(reply->hello_reply().page_bytes(), 0u);
            EXPECT_EQ(reply->hello_reply().features() & v1::FEATURE_SHARED_PAGE, 0u);
            EXPECT_GE(os.done(call), 1u);
        }
        EXPECT_TRUE(eventually([&] { return open_fds(deployment->daemon().pid()) <= before; }));
        FrameClient next(deployment->handle_socket());
        const auto reply = hello_with_page(next);
        ASSERT_TRUE(reply && reply->has_hello_reply());
        EXPECT_GT(reply->hello_reply().page_bytes(), 0u);
    }
    EXPECT_EQ(said("gets no session page"), 1u) << deployment->daemon().err();
    serves();
}

// The end of a process that cannot be watched shows by its connection.
TEST_F(DaemonRunsOut, OfDescriptorsToWatchAProcess) {
    {
        os.fail(Call::kDup, EMFILE);
        RemotePeer peer(deployment->handle_socket());
        EXPECT_EQ(peer.open_session(), "ok");
        EXPECT_EQ(peer.register_name("game"), "ok");
        EXPECT_GE(os.done(Call::kDup), 1u);
        os.heal();
        EXPECT_GE(said("cannot watch"), 1u) << deployment->daemon().err();
    }
    EXPECT_TRUE(deployment->wait_sessions(0));
    serves();
}

// Not one call that fails, but a table that is full, under everything at once.
TEST_F(DaemonRunsOut, OfDescriptorsForReal) {
    serves();
    ASSERT_TRUE(deployment->wait_sessions(0));
    const pid_t pid = deployment->daemon().pid();
    RemotePeer owner(deployment->handle_socket()), attacher(deployment->handle_socket());
    ASSERT_EQ(owner.open_session(), "ok");
    ASSERT_EQ(owner.register_name("game"), "ok");
    ASSERT_EQ(attacher.open_session(), "ok");
    const size_t before = open_fds(pid);
    rlimit usual{};
    ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, nullptr, &usual), 0);
    // Room for 0, 2, 4 ... more numbers than the highest in the lower half: the attach breaks off at another place each
    // time.
    int highest = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
        const int number = std::stoi(entry.path().filename());
        if (number < 1000) highest = std::max(highest, number);
    }
    for (rlim_t room = 0; room < 8; room += 2) {
        SCOPED_TRACE(room);
        const rlimit low{static_cast<rlim_t>(highest) + 1 + room, usual.rlim_max};
        ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, &low, nullptr), 0);
        FrameClient stranger(deployment->handle_socket());
        ASSERT_EQ(attacher.start_attach("game"), "ok");
        const std::string token = owner.export_token();
        // A connection that vudad cannot take waits: not for this test.
        if (room > 4) owner.push(token);
        ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, &usual, nullptr), 0);
        const std::string answer = attacher.attach_token();
        EXPECT_NE(answer, "closed");
        if (answer.size() == 32) {
            EXPECT_EQ(attacher.attach_done(8), "ok");
        }
        EXPECT_TRUE(deployment->daemon().running());
        EXPECT_EQ(vudactl({"status"}).status, 0);
    }
    EXPECT_TRUE(eventually([&] { return open_fds(pid) <= before + 2; })) << before << " " << open_fds(pid);
    EXPECT_LE(said("Too many open files"), 3u) << deployment->daemon().err();
}

}  // namespace
}  // namespace vuda::faults
