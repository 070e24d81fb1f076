#include "client/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace vuda::client {
namespace {

class OutputTest : public testing::Test {
 protected:
    OutputTest() {
        int pair[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
        ours_ = UniqueFd(pair[0]);
        theirs_ = UniqueFd(pair[1]);
    }
    static std::vector<UniqueFd> fds(size_t count) {
        std::vector<UniqueFd> out;
        for (size_t i = 0; i < count; ++i) out.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        return out;
    }
    UniqueFd ours_, theirs_;
    Output output_;
};

// Each frame's descriptors come with it, whatever stands before and behind it.
TEST_F(OutputTest, DescriptorsTravelWithTheirFrame) {
    ASSERT_TRUE(output_.add("one").ok());
    ASSERT_TRUE(output_.add("two").ok());
    ASSERT_TRUE(output_.add("three", fds(2)).ok());
    ASSERT_TRUE(output_.add("four").ok());
    ASSERT_TRUE(output_.add("five", fds(1)).ok());
    EXPECT_TRUE(output_.has_fds());
    EXPECT_EQ(output_.bytes(), 5 * 4 + 3 + 3 + 5 + 4 + 4u);
    while (!output_.empty()) ASSERT_TRUE(*output_.send(ours_.get()));
    EXPECT_FALSE(output_.has_fds());
    EXPECT_EQ(output_.bytes(), 0u);
    FrameReader reader(theirs_.get());
    const Deadline deadline = deadline_in(std::chrono::seconds(10));
    for (const auto& [text, count] : {std::pair{"one", 0}, {"two", 0}, {"three", 2}, {"four", 0}, {"five", 1}}) {
        const Result<std::string> frame = reader.read(deadline);
        ASSERT_TRUE(frame.ok());
        EXPECT_EQ(*frame, text);
        EXPECT_TRUE(reader.take_fds(static_cast<size_t>(count)).ok()) << text;
    }
    EXPECT_EQ(reader.pending_fds(), 0u);
}

TEST_F(OutputTest, AFullSocketTakesTheRestLater) {
    const std::string body(60'000, 'x');
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(output_.add(body, fds(1)).ok());
    bool full = false;
    for (int i = 0; i < 1000 && !full; ++i) full = !*output_.send(ours_.get());
    ASSERT_TRUE(full);
    FrameReader reader(theirs_.get());
    const Deadline deadline = deadline_in(std::chrono::seconds(10));
    for (int i = 0; i < 20; ++i) {
        while (!output_.empty() && *output_.send(ours_.get())) {
        }
        const Result<std::string> frame = reader.read(deadline);
        ASSERT_TRUE(frame.ok()) << i;
        EXPECT_EQ(frame->size(), body.size());
        EXPECT_TRUE(reader.take_fds(1).ok());
    }
    EXPECT_TRUE(output_.empty());
}

TEST_F(OutputTest, WhatIsThrownAwayIsClosed) {
    std::vector<UniqueFd> one = fds(1);
    const int number = one[0].get();
    ASSERT_TRUE(output_.add("x", std::move(one)).ok());
    output_.clear();
    EXPECT_EQ(::fcntl(number, F_GETFD), -1);
    EXPECT_TRUE(output_.empty());
    EXPECT_FALSE(output_.add("").ok());
    EXPECT_TRUE(output_.empty());
}

TEST_F(OutputTest, APeerThatIsGoneIsAnError) {
    ASSERT_TRUE(output_.add("x").ok());
    theirs_.reset();
    EXPECT_FALSE(output_.send(ours_.get()).ok());
}

}  // namespace
}  // namespace vuda::client
