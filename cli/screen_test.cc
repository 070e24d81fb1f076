#include "cli/screen.h"

#include <gtest/gtest.h>

namespace vuda::cli {
namespace {

TEST(Screen, SendsOnlyLinesThatChanged) {
    EXPECT_EQ(screen_update({"a", "b", "c"}, {"a", "B", "c"}, false), "\x1b[2;1HB\x1b[K");
    EXPECT_EQ(screen_update({"a", "b"}, {"a", "b"}, false), "");
    EXPECT_EQ(screen_update({"a"}, {"a", "b"}, false), "\x1b[2;1Hb\x1b[K");
    EXPECT_EQ(screen_update({"a", "b"}, {"a"}, false), "\x1b[2;1H\x1b[K");
}

TEST(Screen, SendsEverythingWhenTheTerminalsContentIsUnknown) {
    EXPECT_EQ(screen_update({"a", "b"}, {"a", "", "c"}, true), "\x1b[H\x1b[2J\x1b[1;1Ha\x1b[3;1Hc");
}

}  // namespace
}  // namespace vuda::cli
