// The small parts of vuda_daemon_core.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "daemon/access.h"
#include "daemon/fd_reaper.h"
#include "daemon/handle_set.h"
#include "daemon/metrics.h"
#include "daemon/peer.h"
#include "daemon/rate_limiter.h"
#include "daemon/text.h"
#include "daemon/token.h"

namespace vuda::daemon {
namespace {

using namespace std::chrono_literals;

UniqueFd null_fd() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(Text, IsSafeToPrintAndNotCutInsideACharacter) {
    EXPECT_EQ(clean_text("plain", 64), "plain");
    EXPECT_EQ(clean_text("a\x1b[2J\nb\x7f", 64), "a?[2J?b?");
    EXPECT_EQ(clean_text("x\xc2\x9by", 64), "x??y");
    EXPECT_EQ(clean_text("\xc3\xa4\xc3\xb6", 3), "\xc3\xa4");
    EXPECT_EQ(clean_text("\xe2\x82\xac", 2), "");
    EXPECT_EQ(clean_text(std::string(100, 'x'), 64).size(), 64u);
}

TEST(Text, ErrorsCrossTheWire) {
    const Error back = from_proto(to_proto({Code::kNotFound, "text", "hint"}));
    EXPECT_EQ(back.code, Code::kNotFound);
    EXPECT_EQ(back.to_string(), "text; hint");
    v1::Error odd;
    odd.set_code(4000);
    EXPECT_EQ(from_proto(odd).code, Code::kUnknown);
    odd.set_code(0);  // an error that says OK
    EXPECT_EQ(from_proto(odd).code, Code::kUnknown);
}

TEST(Token, FromTheKernelAndNeverTwice) {
    const Token a = random_token();
    EXPECT_NE(a, random_token());
    EXPECT_NE(a, Token{});
}

TEST(Token, CollisionIsDrawnAgain) {
    int drawn = 0;
    TokenTable table([&drawn] {
        Token token{};
        token[0] = drawn++ < 2 ? 1 : 2;
        return token;
    });
    EXPECT_NE(table.issue({}), table.issue({}));
    EXPECT_EQ(table.size(), 2u);
    EXPECT_EQ(drawn, 3);
}

TEST(Token, ExpiresAndIsForgotten) {
    TokenTable table(random_token);
    Peer peer;
    peer.process = {1, 2};
    const TimePoint now(10s);
    const std::string token = token_bytes(table.issue({Grant::Purpose::kPull, peer.process, 0, now, 1}));
    EXPECT_EQ(table.redeem(token, Grant::Purpose::kPull, peer, now).error().code, Code::kUnauthenticated);
    EXPECT_EQ(table.size(), 0u);
}

TEST(Access, ControlIsForTheUserAndRoot) {
    Peer target;
    target.uid = 5;
    Peer caller;
    caller.uid = 5;
    EXPECT_TRUE(may_control(caller, target));
    caller.uid = 0;
    EXPECT_TRUE(may_control(caller, target));
    caller.uid = 6;
    EXPECT_FALSE(may_control(caller, target));
}

TEST(RateLimiter, OneLineForEachUserAndCause) {
    TimePoint now(0s);
    RateLimiter limiter([&now] { return now; }, 1000ms);
    EXPECT_EQ(limiter.admit(1, "a"), 0u);
    EXPECT_EQ(limiter.admit(1, "a"), std::nullopt);
    EXPECT_EQ(limiter.admit(1, "a"), std::nullopt);
    EXPECT_EQ(limiter.admit(1, "b"), 0u);
    EXPECT_EQ(limiter.admit(2, "a"), 0u);
    now += 1000ms;
    EXPECT_EQ(limiter.admit(1, "a"), 2u);
    EXPECT_EQ(limiter.admit(1, "a"), std::nullopt);
    // However many users there are.
    size_t lines = 0;
    for (uid_t uid = 10; uid < 5'000; ++uid) lines += limiter.admit(uid, "c") ? 1 : 0;
    EXPECT_LT(lines, 1100u);
}

TEST(RateLimiter, Bursts) {
    TimePoint now(0s);
    RateLimiter limiter([&now] { return now; }, 1000ms, 3);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(limiter.admit(1, "a"), 0u);
    EXPECT_EQ(limiter.admit(1, "a"), std::nullopt);
    EXPECT_EQ(limiter.admit(1, "a"), std::nullopt);
    EXPECT_EQ(limiter.admit(1, "b"), 0u);
    now += 1000ms;
    EXPECT_EQ(limiter.admit(1, "a"), 2u);
    EXPECT_EQ(limiter.admit(1, "a"), 0u);
    EXPECT_EQ(limiter.admit(1, "a"), 0u);
    EXPECT_EQ(limiter.admit(1, "a"), std::nullopt);
}

TEST(Metrics, TextFormat) {
    MetricsText text;
    text.family("vuda_x", MetricsText::Type::kGauge, "Help with \\ and\nnewline.");
    text.sample(1.5, {{"name", "a\"b\\c\nd"}, {"k", "v"}});
    text.sample(3);
    text.family("vuda_y_total", MetricsText::Type::kCounter, "Y.");
    text.sample(1e15);
    EXPECT_EQ(std::move(text).take(),
              "# HELP vuda_x Help with \\\\ and\\nnewline.\n"
              "# TYPE vuda_x gauge\n"
              "vuda_x{name=\"a\\\"b\\\\c\\nd\",k=\"v\"} 1.5\n"
              "vuda_x 3\n"
              "# HELP vuda_y_total Y.\n"
              "# TYPE vuda_y_total counter\n"
              "vuda_y_total 1e+15\n");
}

TEST(FdReaper, ClosesElsewhereAndWaitsForNobody) {
    std::promise<void> hang;
    std::shared_future<void> released = hang.get_future().share();
    std::atomic<bool> other_thread = false;
    const auto self = std::this_thread::get_id();
    FdReaper reaper([&](UniqueFd fd) {
        other_thread = std::this_thread::get_id() != self;
        released.wait();  // close() on a file system that does not answer
        fd.reset();
    });
    const UniqueFd probe = null_fd();
    const int number = ::fcntl(probe.get(), F_DUPFD_CLOEXEC, 700);
    reaper.close(UniqueFd(number));
    reaper.close(null_fd());
    EXPECT_FALSE(reaper.drain(20ms));
    EXPECT_EQ(reaper.backlog(), 2u);
    EXPECT_NE(::fcntl(number, F_GETFD), -1);
    hang.set_value();
    EXPECT_TRUE(reaper.drain(10s));
    EXPECT_TRUE(other_thread);
    EXPECT_EQ(::fcntl(number, F_GETFD), -1);
    EXPECT_EQ(reaper.backlog(), 0u);
}

class HandleSetTest : public ::testing::Test {
 protected:
    static v1::Handle handle(v1::HandleKind kind, uint64_t va = 0, uint64_t length = 0) {
        v1::Handle out;
        out.set_kind(kind);
        out.set_va(va);
        out.set_length(length);
        return out;
    }
    Status add(std::vector<v1::Handle> items, size_t fds, size_t limit = kHandlesPerSet) {
        v1::HandleBundle bundle;
        for (const v1::Handle& item : items) *bundle.add_handles() = item;
        std::vector<UniqueFd> files;
        for (size_t i = 0; i < fds; ++i) files.push_back(null_fd());
        return set_.append(bundle, std::move(files), limit);
    }
    FdReaper reaper_;
    HandleSet set_{reaper_};
    const v1::Handle tsg_ = handle(v1::HANDLE_KIND_TSG);
    const v1::Handle buffer_ = handle(v1::HANDLE_KIND_CONTROL_BUFFER, 0x51f0000, 0x3000);
};

TEST_F(HandleSetTest, OneTsgFirst) {
    EXPECT_FALSE(add({buffer_}, 1).ok());
    EXPECT_TRUE(add({tsg_, buffer_}, 2).ok());
    EXPECT_FALSE(add({tsg_}, 1).ok());
    EXPECT_TRUE(add({buffer_}, 1).ok());
    EXPECT_FALSE(add({handle(v1::HANDLE_KIND_UNSPECIFIED)}, 1).ok());
    EXPECT_EQ(set_.size(), 3u);
}

TEST_F(HandleSetTest, FieldsMustMakeSense) {
    EXPECT_FALSE(add({handle(v1::HANDLE_KIND_TSG, 1)}, 1).ok());
    ASSERT_TRUE(add({tsg_}, 1).ok());
    EXPECT_FALSE(add({handle(v1::HANDLE_KIND_CONTROL_BUFFER, 0x1000, 0)}, 1).ok());
    EXPECT_FALSE(add({handle(v1::HANDLE_KIND_CONTROL_BUFFER, ~uint64_t{0}, 2)}, 1).ok());
    EXPECT_EQ(set_.size(), 1u);
}

TEST_F(HandleSetTest, AsManyFdsAsHandlesAndNoMoreThanTheLimit) {
    EXPECT_FALSE(add({tsg_}, 0).ok());
    EXPECT_FALSE(add({tsg_}, 2).ok());
    EXPECT_EQ(add({tsg_, buffer_}, 2, 1).error().code, Code::kResourceExhausted);
    EXPECT_FALSE(add(std::vector<v1::Handle>(65, buffer_), 65).ok());
    EXPECT_TRUE(add({}, 0).ok());
    EXPECT_EQ(set_.size(), 0u);
}

TEST_F(HandleSetTest, BundlesCoverTheSet) {
    ASSERT_TRUE(add({tsg_, buffer_, buffer_}, 3).ok());
    EXPECT_FALSE(bundle_of(set_, 0, 2).last());
    EXPECT_EQ(bundle_of(set_, 0, 2).handles_size(), 2);
    EXPECT_TRUE(bundle_of(set_, 2, 64).last());
    EXPECT_EQ(bundle_of(set_, 2, 64).handles(0).va(), 0x51f0000u);
}

TEST(Peer, IsTheProcessAtTheOtherEnd) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd mine(ends[0]);
    const UniqueFd other(ends[1]);
    const Result<Peer> peer = read_peer(mine.get());
    ASSERT_TRUE(peer.ok()) << peer.error().to_string();
    EXPECT_EQ(peer->pid(), ::getpid());
    EXPECT_EQ(peer->uid, ::getuid());
    EXPECT_EQ(peer->gid, ::getgid());
    EXPECT_NE(peer->process.unique, 0u);
    EXPECT_FALSE(peer->program.empty());
    EXPECT_EQ(read_peer(mine.get())->process, peer->process);
}

TEST(Peer, PidfdTellsOfTheEndEvenOfAZombie) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    // The child makes its own pair, so that the credentials are its own, and passes one end over.
    const pid_t child = ::fork();
    if (child == 0) {
        int own[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM, 0, own) != 0) ::_exit(1);
        char control[CMSG_SPACE(sizeof(int))] = {};
        char byte = 'x';
        iovec data{&byte, 1};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* item = CMSG_FIRSTHDR(&message);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(item), &own[0], sizeof(int));
        if (::sendmsg(ends[1], &message, 0) != 1) ::_exit(1);
        ::pause();
        ::_exit(0);
    }
    char control[CMSG_SPACE(sizeof(int))] = {};
    char byte = 0;
    iovec data{&byte, 1};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ASSERT_EQ(::recvmsg(ends[0], &message, MSG_CMSG_CLOEXEC), 1);
    int number = -1;
    std::memcpy(&number, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof number);
    const UniqueFd socket(number);
    const Result<Peer> peer = read_peer(socket.get());
    ASSERT_TRUE(peer.ok()) << peer.error().to_string();
    EXPECT_EQ(peer->pid(), child);
    pollfd entry{peer->pidfd->get(), POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, 0), 0);
    ::kill(child, SIGKILL);
    EXPECT_EQ(::poll(&entry, 1, 10'000), 1);  // not waited for: a zombie
    ::waitpid(child, nullptr, 0);
    ::close(ends[0]);
    ::close(ends[1]);
}

}  // namespace
}  // namespace vuda::daemon
