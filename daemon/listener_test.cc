#include "daemon/listener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "daemon/test_support.h"

namespace vuda::daemon {
namespace {

using ::testing::HasSubstr;

class ListenerTest : public ::testing::Test {
 protected:
    // A listening socket without a lock, as another program would make it. Closing it leaves a stale socket.
    UniqueFd foreign_socket() {
        UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path_.data(), path_.size());
        EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        EXPECT_EQ(::listen(fd.get(), 1), 0);
        return fd;
    }
    bool connects() { return connect_unix(path_, deadline_in(kPatience)).ok(); }

    TempDir dir_;
    const std::string path_ = dir_.file("s");
};

TEST_F(ListenerTest, ListensWithItsModeAndCleansUp) {
    {
        Result<Listener> listener = Listener::bind(path_, 0640);
        ASSERT_TRUE(listener.ok()) << listener.error().to_string();
        struct stat st {};
        ASSERT_EQ(::lstat(path_.c_str(), &st), 0);
        EXPECT_TRUE(S_ISSOCK(st.st_mode));
        EXPECT_EQ(st.st_mode & 07777, 0640u);
        EXPECT_TRUE(connects());
        EXPECT_EQ(::fcntl(listener->fd(), F_GETFD), FD_CLOEXEC);
    }
    EXPECT_NE(::access(path_.c_str(), F_OK), 0);
    EXPECT_TRUE(Listener::bind(path_, 0600).ok());
}

TEST_F(ListenerTest, TakesOverAStaleSocket) {
    foreign_socket().reset();
    ASSERT_EQ(::access(path_.c_str(), F_OK), 0);
    EXPECT_FALSE(connects());
    const Result<Listener> listener = Listener::bind(path_, 0600);
    ASSERT_TRUE(listener.ok()) << listener.error().to_string();
    EXPECT_TRUE(connects());
}

TEST_F(ListenerTest, LeavesAnotherProgramsSocketAlone) {
    const UniqueFd other = foreign_socket();
    const Result<Listener> listener = Listener::bind(path_, 0600);
    ASSERT_FALSE(listener.ok());
    EXPECT_EQ(exit_status(listener.error().code), 69);
    EXPECT_THAT(listener.error().text, HasSubstr("another program"));
    EXPECT_TRUE(connects());
}

TEST_F(ListenerTest, SecondDaemonIsToldThePidOfTheFirst) {
    const Result<Listener> first = Listener::bind(path_, 0600);
    ASSERT_TRUE(first.ok());
    const Result<Listener> second = Listener::bind(path_, 0600);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(exit_status(second.error().code), 69);
    EXPECT_THAT(second.error().text, HasSubstr("pid " + std::to_string(::getpid())));
    EXPECT_TRUE(connects());
}

TEST_F(ListenerTest, KilledDaemonLeavesNothingInTheWay) {
    const pid_t child = ::fork();
    if (child == 0) {
        Result<Listener> listener = Listener::bind(path_, 0600);
        ::_exit(listener.ok() ? 0 : 1);  // without destructors, as kill -9
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
    ASSERT_EQ(::access(path_.c_str(), F_OK), 0);
    const Result<Listener> listener = Listener::bind(path_, 0600);
    ASSERT_TRUE(listener.ok()) << listener.error().to_string();
    EXPECT_TRUE(connects());
}

TEST_F(ListenerTest, RefusesWhatIsNoSocket) {
    const std::string victim = dir_.file("victim");
    std::ofstream(victim) << "precious";
    ASSERT_EQ(::symlink(victim.c_str(), path_.c_str()), 0);
    EXPECT_THAT(Listener::bind(path_, 0600).error().text, HasSubstr("symbolic link"));
    ASSERT_EQ(::unlink(path_.c_str()), 0);
    ASSERT_EQ(::link(victim.c_str(), path_.c_str()), 0);
    EXPECT_THAT(Listener::bind(path_, 0600).error().text, HasSubstr("not a socket"));
    std::string content;
    std::ifstream(victim) >> content;
    EXPECT_EQ(content, "precious");
}

TEST_F(ListenerTest, RefusesASymlinkToALiveSocket) {
    const std::string real = dir_.file("real");
    const Result<Listener> other = Listener::bind(real, 0600);
    ASSERT_TRUE(other.ok());
    ASSERT_EQ(::symlink(real.c_str(), path_.c_str()), 0);
    EXPECT_FALSE(Listener::bind(path_, 0600).ok());
}

TEST_F(ListenerTest, RefusesASymlinkAsLockFile) {
    const std::string victim = dir_.file("victim");
    std::ofstream(victim) << "precious";
    ASSERT_EQ(::symlink(victim.c_str(), (path_ + ".lock").c_str()), 0);
    const Result<Listener> listener = Listener::bind(path_, 0600);
    ASSERT_FALSE(listener.ok());
    EXPECT_THAT(listener.error().text, HasSubstr(".lock is a symbolic link"));
    std::string content;
    std::ifstream(victim) >> content;
    EXPECT_EQ(content, "precious");
}

TEST_F(ListenerTest, LeavesASocketThatIsNotItsOwnAnyMore) {
    UniqueFd other;
    {
        const Result<Listener> listener = Listener::bind(path_, 0600);
        ASSERT_TRUE(listener.ok());
        ASSERT_EQ(::unlink(path_.c_str()), 0);
        other = foreign_socket();
    }
    EXPECT_TRUE(connects());
}

TEST_F(ListenerTest, BadAddresses) {
    for (const std::string& bad :
         {std::string(), std::string("@vuda"), std::string("\0vuda", 5), std::string(108, 'x')}) {
        const Result<Listener> listener = Listener::bind(bad, 0600);
        ASSERT_FALSE(listener.ok());
        EXPECT_EQ(exit_status(listener.error().code), 64);
    }
}

TEST_F(ListenerTest, MissingDirectoryIsNamed) {
    const Result<Listener> listener = Listener::bind(dir_.file("no/s"), 0600);
    ASSERT_FALSE(listener.ok());
    EXPECT_THAT(listener.error().text, HasSubstr("directory " + dir_.file("no")));
}

TEST_F(ListenerTest, UnwritableDirectoryIsNamed) {
    if (::getuid() != 0) GTEST_SKIP() << "needs root, to become a user that may not write";
    ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        if (::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
        const Result<Listener> listener = Listener::bind(path_, 0600);
        const bool right = !listener.ok() && exit_status(listener.error().code) == 77 &&
                           listener.error().hint.find(dir_.path()) != std::string::npos;
        ::_exit(right ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST_F(ListenerTest, AdoptsAPassedSocketAndLeavesItsPathAlone) {
    {
        Result<Listener> listener = Listener::adopt(foreign_socket());
        ASSERT_TRUE(listener.ok()) << listener.error().to_string();
        EXPECT_EQ(listener->path(), path_);
        EXPECT_NE(::fcntl(listener->fd(), F_GETFL) & O_NONBLOCK, 0);
    }
    EXPECT_EQ(::access(path_.c_str(), F_OK), 0);
}

TEST_F(ListenerTest, RefusesToAdoptWhatDoesNotFit) {
    EXPECT_FALSE(Listener::adopt(memfd("x")).ok());
    EXPECT_FALSE(Listener::adopt(UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))).ok());
    UniqueFd abstract(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ASSERT_EQ(::bind(abstract.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)), 0);  // autobind
    ASSERT_EQ(::listen(abstract.get(), 1), 0);
    EXPECT_THAT(Listener::adopt(std::move(abstract)).error().text, HasSubstr("abstract"));
}

TEST_F(ListenerTest, PassedSocketsArePickedByNameThenByPath) {
    std::vector<PassedSocket> passed;
    passed.push_back({memfd("a"), "unknown", "/p"});
    passed.push_back({memfd("b"), "control", "/q"});
    const UniqueFd by_name = pick_socket(passed, "control", "/p");
    EXPECT_EQ(memfd_content(by_name.get()), "b");
    EXPECT_FALSE(pick_socket(passed, "handles", "/other").valid());
    const UniqueFd by_path = pick_socket(passed, "handles", "/p");
    EXPECT_EQ(memfd_content(by_path.get()), "a");
    EXPECT_TRUE(passed.empty());
}

}  // namespace
}  // namespace vuda::daemon
