#include "trace/diff.h"

#include <gtest/gtest.h>

#include <string>

#include "trace/describe.h"
#include "trace/format.h"

namespace vuda::trace {
namespace {

// A client, its device, a TSG and a channel; handles and the channel's flags as the caller likes.
Trace small(uint32_t client, uint32_t base, uint32_t flags, const char* time = "0.000001") {
    char text[2048];
    std::snprintf(text, sizeof text,
                  "vuda-trace 1\ndriver 580.159.04\n"
                  "%s 3:nvidiactl ioctl c030462b 0 48:*3,41>2=%x\n"
                  "%s 3:nvidiactl ioctl c030462b 0 48:%x,%x,%x,80,1000,7f00 56:\n"
                  "%s 3:nvidiactl ioctl c030462b 0 48:%x,%x,%x,a06c,1000,7f00 20:*3,1\n"
                  "%s 3:nvidiactl ioctl c030462b 0 48:%x,%x,%x,c86f,1000,7f00 368/224:0,0,0,0,400,%x\n"
                  "%s 3:nvidiactl ioctl c020462a 0 32:%x,%x,a06c0101,0,1000,7f00,3 3:1\n",
                  time, client, time, client, client, base, time, client, base, base + 1, time, client, base + 1,
                  base + 2, flags, time, client, base + 1);
    auto trace = parse(text);
    EXPECT_TRUE(trace.ok()) << trace.error().text;
    return *std::move(trace);
}

TEST(Diff, HandlesAndTimesDoNotMatter) {
    const auto lines = diff(small(0xc1d00019, 0x5c000001, 0x10), small(0xc1d00077, 0xbeef0000, 0x10, "7.654321"));
    ASSERT_TRUE(lines.ok());
    EXPECT_TRUE(lines->empty()) << lines->front().text;
}

TEST(Diff, AChangedFieldShowsBothSides) {
    const auto lines = diff(small(0xc1d00019, 0x5c000001, 0), small(0xc1d00077, 0xbeef0000, 0x10));
    ASSERT_TRUE(lines.ok());
    ASSERT_EQ(lines->size(), 2u);
    EXPECT_EQ((*lines)[0].side, DiffLine::Side::kOnlyA);
    EXPECT_EQ((*lines)[0].record, 3u);
    EXPECT_NE((*lines)[0].text.find("flags=0x0 "), std::string::npos);
    EXPECT_EQ((*lines)[1].side, DiffLine::Side::kOnlyB);
    EXPECT_NE((*lines)[1].text.find("flags=0x10 "), std::string::npos);
    EXPECT_NE((*lines)[1].text.find("parent=KEPLER_CHANNEL_GROUP_A#1"), std::string::npos);
}

TEST(Diff, MissingAndAddedRecords) {
    const Trace a = small(0xc1d00019, 0x5c000001, 0);
    Trace b = a;
    b.records.erase(b.records.begin() + 4);
    auto lines = diff(a, b);
    ASSERT_TRUE(lines.ok());
    ASSERT_EQ(lines->size(), 1u);
    EXPECT_EQ(lines->front().side, DiffLine::Side::kOnlyA);
    lines = diff(b, a);
    ASSERT_EQ(lines->size(), 1u);
    EXPECT_EQ(lines->front().side, DiffLine::Side::kOnlyB);
    lines = diff(Trace{}, a);
    EXPECT_EQ(lines->size(), a.records.size());
    lines = diff(a, Trace{});
    EXPECT_EQ(lines->size(), a.records.size());
    EXPECT_TRUE(diff(Trace{}, Trace{})->empty());
}

TEST(Diff, StatusMatters) {
    Trace a = small(0xc1d00019, 0x5c000001, 0);
    Trace b = a;
    b.records[4].arg.after[28] = 0x40;
    const auto lines = diff(a, b);
    ASSERT_EQ(lines->size(), 2u);
    EXPECT_NE(lines->back().text.find("ERR_INVALID_STATE"), std::string::npos);
}

TEST(Diff, GivesUpPastItsLimit) {
    const auto lines = diff(small(1, 2, 0), Trace{}, 3);
    ASSERT_FALSE(lines.ok());
    EXPECT_EQ(lines.error().code, Code::kResourceExhausted);
}

TEST(Describe, RawShowsHandles) {
    const Trace trace = small(0xc1d00019, 0x5c000001, 0x50);
    Describer describer(abi_of(trace.header), Handles::kRaw);
    for (int i = 0; i < 3; ++i) (void)describer.describe(trace.records[static_cast<size_t>(i)]);
    EXPECT_EQ(
        describer.describe(trace.records[3]),
        "nvidiactl:3 RM_ALLOC HOPPER_CHANNEL_GPFIFO_A 0x5c000003 client=0xc1d00019 parent=0x5c000002 {notifier=none "
        "gpfifo=0x0 entries=0x400 flags=0x50 ctxshare=none vaspace=none engine=0x0} = OK");
}

TEST(Describe, AFreedHandleLosesItsName) {
    Trace trace = small(0xc1d00019, 0x5c000001, 0);
    Describer describer(abi_of(trace.header), Handles::kNamed);
    for (const Record& r : trace.records) (void)describer.describe(r);
    const Record free = *parse_record("1.000000 3:nvidiactl ioctl c0104629 0 16:c1d00019,5c000001,5c000002");
    EXPECT_EQ(describer.describe(free), "RM_FREE KEPLER_CHANNEL_GROUP_A#1 client=client#1 = OK");
    EXPECT_EQ(describer.describe(free), "RM_FREE object? client=client#1 = OK");
}

TEST(Describe, UnknownDriverIsReadWithTheTestedLayout) {
    Header header;
    EXPECT_EQ(&abi_of(header), &rm::abi_580());
    header.driver = "999.99";
    EXPECT_EQ(&abi_of(header), &rm::abi_580());
    header.driver = "570.133.20";
    EXPECT_EQ(abi_of(header).name, "570");
}

}  // namespace
}  // namespace vuda::trace
