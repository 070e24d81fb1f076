#include "cli/daemon_client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/unique_fd.h"
#include "cli/fake_daemon.h"
#include "cli/test_dir.h"

namespace vuda::cli {
namespace {

UniqueFd listener_at(const std::string& path, bool listening) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    if (listening) {
        EXPECT_EQ(listen(fd.get(), 8), 0);
    }
    return fd;
}

Error connect_error(const std::string& path) {
    const Result<DaemonClient> client = DaemonClient::connect(path, std::chrono::milliseconds(300));
    return client ? Error{Code::kOk, "connected", ""} : client.error();
}

TEST(DaemonClient, HandshakeAndCalls) {
    const FakeDaemon daemon;
    Result<DaemonClient> client = DaemonClient::connect(daemon.socket());
    ASSERT_TRUE(client.ok()) << client.error().to_string();
    EXPECT_EQ(client->handshake().daemon_version(), "9.9");

    const auto status = client->call(&v1::Vuda::Stub::GetStatus, v1::StatusRequest());
    ASSERT_TRUE(status.ok());
    EXPECT_EQ(status->daemon().version(), "9.9");

    const auto quota = client->call(&v1::Vuda::Stub::SetQuota, v1::SetQuotaRequest());
    ASSERT_FALSE(quota.ok());
    EXPECT_EQ(quota.error().code, Code::kUnimplemented);
    EXPECT_EQ(quota.error().text, "no partitioner in this daemon");
    EXPECT_EQ(exit_status(quota.error().code), 69);
}

TEST(DaemonClient, EveryWayOfNotBeingThereIsNamed) {
    const TestDir dir;
    EXPECT_NE(connect_error(dir.path("none")).text.find("no such socket"), std::string::npos);
    EXPECT_NE(connect_error(dir.path("none")).hint.find("systemctl start vudad"), std::string::npos);

    const UniqueFd stale = listener_at(dir.path("stale"), false);
    EXPECT_NE(connect_error(dir.path("stale")).text.find("nobody listens"), std::string::npos);
    EXPECT_NE(connect_error(dir.write("file", "")).text.find("nobody listens"), std::string::npos);

    EXPECT_NE(connect_error(dir.path(std::string(200, 'x'))).text.find("too long"), std::string::npos);
    EXPECT_NE(connect_error("").text.find("too long"), std::string::npos);

    for (const Error& error : {connect_error(dir.path("none")), connect_error(dir.path("stale"))}) {
        EXPECT_EQ(error.code, Code::kUnavailable);
        EXPECT_EQ(exit_status(error.code), 69);
        EXPECT_NE(error.hint, "");
    }
}

TEST(DaemonClient, PermissionDeniedNamesTheGroup) {
    if (geteuid() == 0 && setegid(65534) != 0) FAIL();
    const bool was_root = geteuid() == 0;
    const TestDir dir;
    const UniqueFd fd = listener_at(dir.path("private"), true);
    ASSERT_EQ(chmod(dir.path("private").c_str(), 0), 0);
    chmod(dir.root().c_str(), 0755);
    if (was_root) {
        ASSERT_EQ(seteuid(65534), 0);
    }
    const Error error = connect_error(dir.path("private"));
    if (was_root) {
        ASSERT_EQ(seteuid(0) | setegid(0), 0);
    }
    EXPECT_NE(error.text.find("permission denied"), std::string::npos) << error.text;
    EXPECT_NE(error.hint.find("usermod -aG"), std::string::npos) << error.hint;
    EXPECT_EQ(exit_status(error.code), 69);
}

TEST(DaemonClient, SomethingElseListensThere) {
    const TestDir dir;
    const UniqueFd fd = listener_at(dir.path("silent"), true);
    const Error error = connect_error(dir.path("silent"));  // accepted by the kernel, never answered
    EXPECT_EQ(error.code, Code::kUnavailable);
    EXPECT_NE(error.text.find("does not answer"), std::string::npos) << error.text;
}

TEST(DaemonClient, SocketPathsBecomeAbsolute) {
    EXPECT_EQ(absolute_socket("/run/vuda/vudad.sock"), "/run/vuda/vudad.sock");
    EXPECT_EQ(absolute_socket("unix:/x/../y.sock"), "/y.sock");
    EXPECT_EQ(absolute_socket("rel.sock"), (std::filesystem::current_path() / "rel.sock").string());
}

}  // namespace
}  // namespace vuda::cli
