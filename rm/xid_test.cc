#include "rm/xid.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "rm/abi.h"

namespace vuda::rm {
namespace {

TEST(Xid, IsDescribedByNumberAndText) {
    EXPECT_EQ(describe_xid(13), "Xid 13 (graphics engine exception)");
    EXPECT_EQ(describe_xid(31), "Xid 31 (MMU fault)");
    EXPECT_EQ(describe_xid(999), "Xid 999");
    EXPECT_EQ(describe_xid(0), "an error that the driver did not number");
}

TEST(Xid, AChannelThatIsStoppedIsNoFault) {
    EXPECT_FALSE(is_fault(45));
    for (const uint32_t xid : {0u, 13u, 31u, 44u, 46u, 109u}) EXPECT_TRUE(is_fault(xid)) << xid;
}

TEST(Xid, TheNotifierIsSixteenBytesWithItsStatusLast) {
    EXPECT_EQ(sizeof(Notification), 16u);
    EXPECT_EQ(offsetof(Notification, info32), 8u);
    EXPECT_EQ(offsetof(Notification, status), 14u);
}

}  // namespace
}  // namespace vuda::rm
