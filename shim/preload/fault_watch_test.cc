#include "shim/preload/fault_watch.h"

#include <gtest/gtest.h>

#include "rm/abi.h"
#include "rm/xid.h"

namespace vuda::shim {
namespace {

std::optional<uint32_t> read(uint16_t status, uint32_t xid) {
    rm::Notification written{};
    written.info32 = xid;
    written.status = status;
    return FaultWatch::read(reinterpret_cast<const uint8_t*>(&written));
}

TEST(FaultWatch, ReadsTheNumberOfAFault) {
    EXPECT_EQ(read(rm::kNotificationError, 13), 13u);
    EXPECT_EQ(read(rm::kNotificationError, 0), 0u) << "one that the driver did not number";
    EXPECT_EQ(read(rm::kNotificationError, rm::kXidLimit), rm::kXidLimit);
}

TEST(FaultWatch, WhatIsNoFaultIsNoFault) {
    EXPECT_EQ(read(0, 0), std::nullopt);
    EXPECT_EQ(read(0, 13), std::nullopt) << "the status comes last";
    EXPECT_EQ(read(rm::kNotificationError, rm::kXidLimit + 1), std::nullopt) << "not the driver's writing";
    EXPECT_EQ(read(rm::kNotificationError, rm::kXidStopped), std::nullopt)
        << "a channel that is stopped, as each is when its program ends";
}

}  // namespace
}  // namespace vuda::shim
