#include "cli/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace vuda::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

TEST(Capture, KeepsOutputAndErrorsAndTheStatus) {
    EXPECT_EQ(*capture({"sh", "-c", "echo out; echo err >&2"}), "out\nerr\n");
    EXPECT_EQ(*capture({"sh", "-c", "echo no; exit 3"}), "no\n(exit status 3)\n");
    EXPECT_EQ(capture({"vuda-no-such-program"}).error().code, Code::kNotFound);
}

TEST(Capture, PassesNothingOfItsEnvironmentOn) {
    ::setenv("VUDA_TEST_SECRET", "hunter2", 1);
    const std::string seen = *capture({"env"});
    ::unsetenv("VUDA_TEST_SECRET");
    EXPECT_THAT(seen, Not(HasSubstr("hunter2")));
    EXPECT_THAT(seen, HasSubstr("LC_ALL=C.UTF-8"));
}

TEST(Capture, KeepsTheNewestAndEndsWhatHangs) {
    CaptureLimits limits;
    limits.bytes = 4;
    EXPECT_EQ(*capture({"sh", "-c", "printf 123456789"}, limits), "6789");
    limits = {};
    limits.time = 100ms;
    EXPECT_EQ(*capture({"sh", "-c", "echo begun; exec sleep 600"}, limits), "begun\n\n(ended after 100 ms)\n");
}

}  // namespace
}  // namespace vuda::cli
