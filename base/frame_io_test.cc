#include "base/frame_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <thread>

namespace vuda {
namespace {

using namespace std::chrono_literals;

std::array<UniqueFd, 2> socket_pair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

size_t open_fds() {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
}

std::string framed(std::string_view body) {
    std::string out;
    EXPECT_TRUE(append_frame(out, body).ok());
    return out;
}

class TempDir {
 public:
    TempDir() {
        char name[] = "/tmp/vuda-test-XXXXXX";
        path_ = mkdtemp(name);
    }
    ~TempDir() { std::filesystem::remove_all(path_); }
    std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
    std::string path_;
};

UniqueFd listen_at(const std::string& path, int backlog) {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(fd.get(), backlog), 0);
    return fd;
}

TEST(AppendFrame, LengthIsLittleEndianAndLimited) {
    EXPECT_EQ(framed("abc"), std::string("\3\0\0\0abc", 7));
    EXPECT_EQ(framed(std::string(0x1234, 'x')).substr(0, 4), std::string("\x34\x12\0\0", 4));
    EXPECT_EQ(framed(std::string(kFrameLimit, 'x')).size(), kFrameLimit + 4);
    std::string out = "kept";
    EXPECT_EQ(append_frame(out, "").error().code, Code::kInvalidArgument);
    EXPECT_EQ(append_frame(out, std::string(kFrameLimit + 1, 'x')).error().code, Code::kResourceExhausted);
    EXPECT_EQ(out, "kept");
}

TEST(FrameDecoder, SameFramesHoweverTheStreamIsCut) {
    const std::vector<std::string> bodies{"a", std::string(kFrameLimit, 'b'), std::string("\0\1\2", 3), "d"};
    std::string stream;
    for (const std::string& body : bodies) ASSERT_TRUE(append_frame(stream, body).ok());
    for (const size_t step : {size_t{1}, size_t{3}, size_t{4}, size_t{4095}, size_t{65540}, stream.size()}) {
        FrameDecoder decoder;
        std::vector<std::string> got;
        for (size_t at = 0; at < stream.size(); at += step) {
            decoder.feed(std::string_view(stream).substr(at, step));
            for (;;) {
                auto frame = decoder.next();
                ASSERT_TRUE(frame.ok());
                if (!frame->has_value()) break;
                got.push_back(**frame);
            }
        }
        EXPECT_EQ(got, bodies) << "step " << step;
        EXPECT_EQ(decoder.buffered(), 0u);
    }
}

TEST(FrameDecoder, TruncatedFrameIsVisible) {
    FrameDecoder decoder;
    decoder.feed(framed("hello").substr(0, 6));
    auto frame = decoder.next();
    ASSERT_TRUE(frame.ok());
    EXPECT_FALSE(frame->has_value());
    EXPECT_EQ(decoder.buffered(), 6u);
}

TEST(FrameDecoder, BadLengthEndsTheStream) {
    for (const std::string& bad :
         {std::string("\0\0\0\0", 4), std::string("\1\0\1\0", 4), std::string("GET / HTTP/1.1")}) {
        FrameDecoder decoder;
        decoder.feed(framed("good") + bad);
        ASSERT_EQ(*decoder.next(), "good");
        EXPECT_EQ(decoder.next().error().code, Code::kDataLoss);
        decoder.feed(framed("later"));
        EXPECT_EQ(decoder.next().error().code, Code::kDataLoss);
        EXPECT_EQ(decoder.buffered(), 0u);
    }
}

TEST(FrameIo, FramesAndDescriptorsArriveInOrder) {
    auto [a, b] = socket_pair();
    std::vector<UniqueFd> files;
    std::vector<int> numbers;
    for (size_t i = 0; i < kFrameFdLimit; ++i) {
        files.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
        numbers.push_back(files.back().get());
    }
    UniqueFd zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
    const int zero_number = zero.get();
    ASSERT_TRUE(send_frame(a.get(), "plain", {}, deadline_in(5s)).ok());
    ASSERT_TRUE(send_frame(a.get(), "first", numbers, deadline_in(5s)).ok());
    ASSERT_TRUE(send_frame(a.get(), "second", {&zero_number, 1}, deadline_in(5s)).ok());

    FrameReader reader(b.get());
    EXPECT_EQ(*reader.read(deadline_in(5s)), "plain");
    EXPECT_EQ(*reader.read(deadline_in(5s)), "first");
    auto first = reader.take_fds(kFrameFdLimit);
    ASSERT_TRUE(first.ok());
    for (const UniqueFd& fd : *first) EXPECT_TRUE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
    EXPECT_EQ(*reader.read(deadline_in(5s)), "second");
    auto second = reader.take_fds(1);
    ASSERT_TRUE(second.ok());
    struct stat null_status, zero_status;
    fstat(first->back().get(), &null_status);
    fstat(second->front().get(), &zero_status);
    EXPECT_NE(null_status.st_rdev, zero_status.st_rdev);
    EXPECT_EQ(reader.pending_fds(), 0u);
    EXPECT_EQ(reader.take_fds(1).error().code, Code::kDataLoss);
}

TEST(FrameIo, LargeFrameThroughASmallBuffer) {
    auto [a, b] = socket_pair();
    const int small = 4096;
    setsockopt(a.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    const std::string body(kFrameLimit, 'z');
    std::thread sender([fd = a.get(), &body] { EXPECT_TRUE(send_frame(fd, body, {}, deadline_in(20s)).ok()); });
    FrameReader reader(b.get());
    EXPECT_EQ(*reader.read(deadline_in(20s)), body);
    sender.join();
}

TEST(FrameIo, DeadlinesHold) {
    auto [a, b] = socket_pair();
    FrameReader reader(b.get());
    EXPECT_EQ(reader.read(deadline_in(20ms)).error().code, Code::kDeadlineExceeded);
    const std::string body(kFrameLimit, 'z');
    Status sent;
    while (sent.ok()) sent = send_frame(a.get(), body, {}, deadline_in(20ms));
    EXPECT_EQ(sent.error().code, Code::kDeadlineExceeded);
}

TEST(FrameIo, PeerGone) {
    {
        auto [a, b] = socket_pair();
        a.reset();
        FrameReader reader(b.get());
        EXPECT_EQ(reader.read(deadline_in(5s)).error().code, Code::kUnavailable);
        EXPECT_EQ(send_frame(b.get(), "x", {}, deadline_in(5s)).error().code, Code::kUnavailable);
    }
    auto [a, b] = socket_pair();
    ASSERT_TRUE(send_some(a.get(), framed("hello").substr(0, 5)).ok());
    a.reset();
    FrameReader reader(b.get());
    EXPECT_EQ(reader.read(deadline_in(5s)).error().code, Code::kDataLoss);
}

TEST(FrameIo, TooManyDescriptorsAreRefusedAndClosed) {
    auto [a, b] = socket_pair();
    const size_t before = open_fds();
    {
        // What send_some refuses, a foreign peer can still send.
        std::vector<int> numbers(kFrameFdLimit + 1, a.get());
        EXPECT_EQ(send_some(a.get(), "x", numbers).error().code, Code::kInvalidArgument);
        std::vector<char> control(CMSG_SPACE(numbers.size() * sizeof(int)));
        char byte = 'x';
        iovec data{&byte, 1};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* item = CMSG_FIRSTHDR(&message);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(numbers.size() * sizeof(int));
        memcpy(CMSG_DATA(item), numbers.data(), numbers.size() * sizeof(int));
        ASSERT_EQ(sendmsg(a.get(), &message, MSG_NOSIGNAL), 1);
        std::vector<UniqueFd> fds;
        char buffer[16];
        EXPECT_EQ(receive_some(b.get(), buffer, fds).error().code, Code::kInvalidArgument);
        EXPECT_TRUE(fds.empty());
    }
    EXPECT_EQ(open_fds(), before);
}

TEST(FrameIo, RunningOutOfDescriptorsIsAnErrorAndLeaksNothing) {
    auto [a, b] = socket_pair();
    const int number = a.get();
    const std::array<int, 8> numbers{number, number, number, number, number, number, number, number};
    ASSERT_TRUE(send_frame(a.get(), "x", numbers, deadline_in(5s)).ok());
    const size_t before = open_fds();
    rlimit old_limit;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old_limit), 0);
    UniqueFd highest(fcntl(number, F_DUPFD_CLOEXEC, 0));
    rlimit low = old_limit;
    low.rlim_cur = static_cast<rlim_t>(highest.get()) + 3;  // room for two of the eight, if the table is dense
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    FrameReader reader(b.get());
    const auto frame = reader.read(deadline_in(5s));
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old_limit), 0);
    highest.reset();
    ASSERT_FALSE(frame.ok());
    EXPECT_EQ(frame.error().code, Code::kResourceExhausted);
    EXPECT_EQ(open_fds(), before);
}

TEST(FrameIo, UnannouncedDescriptorsAreBounded) {
    auto [a, b] = socket_pair();
    const std::vector<int> numbers(kFrameFdLimit, a.get());
    FrameReader reader(b.get());
    Result<std::string> frame = std::string();
    for (int i = 0; i < 4 && frame.ok(); ++i) {
        ASSERT_TRUE(send_frame(a.get(), "x", numbers, deadline_in(5s)).ok());
        frame = reader.read(deadline_in(5s));
    }
    ASSERT_FALSE(frame.ok());
    EXPECT_EQ(frame.error().code, Code::kResourceExhausted);
}

TEST(ConnectUnix, SaysWhatIsWrong) {
    TempDir dir;
    const std::string path = dir / "s";
    EXPECT_EQ(connect_unix(path, deadline_in(1s)).error().code, Code::kNotFound);
    EXPECT_EQ(connect_unix("", deadline_in(1s)).error().code, Code::kInvalidArgument);
    EXPECT_EQ(connect_unix(std::string(200, 'x'), deadline_in(1s)).error().code, Code::kInvalidArgument);

    const std::string file = dir / "file";
    UniqueFd(open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    EXPECT_EQ(connect_unix(file, deadline_in(1s)).error().code, Code::kFailedPrecondition);

    {
        UniqueFd listener = listen_at(path, 4);
        EXPECT_TRUE(connect_unix(path, deadline_in(5s)).ok());
        const std::string link = dir / "link";
        ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
        EXPECT_EQ(connect_unix(link, deadline_in(1s)).error().code, Code::kFailedPrecondition);
    }
    EXPECT_EQ(connect_unix(path, deadline_in(1s)).error().code, Code::kUnavailable);  // stale: nobody listens
}

TEST(ConnectUnix, FullBacklogEndsAtTheDeadline) {
    TempDir dir;
    const std::string path = dir / "s";
    UniqueFd listener = listen_at(path, 0);
    std::vector<UniqueFd> waiting;
    for (int i = 0; i < 8; ++i) {
        Result<UniqueFd> fd = connect_unix(path, deadline_in(50ms));
        if (!fd) {
            EXPECT_EQ(fd.error().code, Code::kDeadlineExceeded);
            return;
        }
        waiting.push_back(*std::move(fd));
    }
    FAIL() << "the backlog never filled";
}

}  // namespace
}  // namespace vuda
