#include "cli/preload_list.h"

#include <gtest/gtest.h>

namespace vuda::cli {
namespace {

const std::string kShim = "/opt/vuda/lib/libvuda_preload.so";
const std::string kSim = "/opt/vuda/lib/libvuda_sim.so";

std::string plain(std::string_view current) { return edit_preload(current, {kShim, SimEntry::kKeep, ""}); }
std::string simulated(std::string_view current) { return edit_preload(current, {kShim, SimEntry::kInsert, kSim}); }
std::string hardware(std::string_view current) { return edit_preload(current, {kShim, SimEntry::kRemove, ""}); }

TEST(PreloadList, SplitsAtColonsAndSpaces) {
    EXPECT_EQ(split_preload("/a.so:/b.so  /c.so: :"), (std::vector<std::string>{"/a.so", "/b.so", "/c.so"}));
    EXPECT_TRUE(split_preload("").empty());
    EXPECT_TRUE(split_preload(" : ").empty());
}

TEST(PreloadList, AppendsAndKeepsWhatIsThere) {
    EXPECT_EQ(plain(""), kShim);
    EXPECT_EQ(plain("/a.so"), "/a.so:" + kShim);
    EXPECT_EQ(plain("/a.so /b.so"), "/a.so:/b.so:" + kShim);
    EXPECT_EQ(plain(":/a.so::libb.so "), "/a.so:libb.so:" + kShim);
}

TEST(PreloadList, TwiceWrappedContainsItOnce) {
    for (const char* start : {"", "/a.so", "/a.so:/b.so"}) {
        EXPECT_EQ(plain(plain(start)), plain(start)) << start;
        EXPECT_EQ(simulated(simulated(start)), simulated(start)) << start;
        EXPECT_EQ(hardware(hardware(start)), hardware(start)) << start;
    }
}

TEST(PreloadList, AnotherBuildsShimIsReplacedInItsPlace) {
    EXPECT_EQ(plain("/old/libvuda_preload.so:/a.so"), kShim + ":/a.so");
    EXPECT_EQ(plain("/a.so:libvuda_preload.so:/b.so:/old/libvuda_preload.so"), "/a.so:" + kShim + ":/b.so");
}

TEST(PreloadList, SimStandsDirectlyBehindTheShim) {
    EXPECT_EQ(simulated("/a.so"), "/a.so:" + kShim + ":" + kSim);
    EXPECT_EQ(simulated(kShim + ":/a.so"), kShim + ":" + kSim + ":/a.so");
    EXPECT_EQ(simulated(kSim + ":/a.so:" + kShim), "/a.so:" + kShim + ":" + kSim);
    // A sim that was there before the shim: in its place, with the shim before it.
    EXPECT_EQ(plain("/a.so:/x/libvuda_sim.so:/b.so"), "/a.so:" + kShim + ":/x/libvuda_sim.so:/b.so");
}

TEST(PreloadList, HardwareDaemonDropsTheSim) {
    EXPECT_EQ(hardware(simulated("/a.so")), "/a.so:" + kShim);
    EXPECT_EQ(hardware(kSim), kShim);
}

TEST(PreloadList, OtherNamesThatLookAlikeAreKept) {
    EXPECT_EQ(plain("/a/libvuda_preload.so.bak:/b/xlibvuda_sim.so"),
              "/a/libvuda_preload.so.bak:/b/xlibvuda_sim.so:" + kShim);
}

TEST(PreloadList, PathsThatLdSoWouldTearApart) {
    EXPECT_TRUE(fits_preload_list(kShim));
    for (const char* bad :
         {"", "/my projects/libvuda_preload.so", "/a:b/libvuda_preload.so", "/$LIB/libvuda_preload.so"}) {
        EXPECT_FALSE(fits_preload_list(bad)) << bad;
    }
}

}  // namespace
}  // namespace vuda::cli
