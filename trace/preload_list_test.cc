#include "trace/preload_list.h"

#include <gtest/gtest.h>

namespace vuda::trace {
namespace {

TEST(PreloadList, AppendsOnceAndKeepsWhatIsThere) {
    EXPECT_EQ(with_library("", "/l/libvuda_trace.so"), "/l/libvuda_trace.so");
    EXPECT_EQ(with_library("/a.so", "/t.so"), "/a.so:/t.so");
    EXPECT_EQ(with_library("/a.so /b.so", "/t.so"), "/a.so:/b.so:/t.so");
    EXPECT_EQ(with_library("::/a.so:", "/t.so"), "/a.so:/t.so");
    EXPECT_EQ(with_library(with_library("/a.so", "/t.so"), "/t.so"), "/a.so:/t.so");
}

TEST(PreloadList, StaysInFrontOfTheSimulatedGpu) {
    EXPECT_EQ(with_library("/p/libvuda_preload.so:/p/libvuda_sim.so", "/t.so"),
              "/p/libvuda_preload.so:/t.so:/p/libvuda_sim.so");
    EXPECT_EQ(with_library("/t.so:/p/libvuda_sim.so", "/t.so"), "/t.so:/p/libvuda_sim.so");
}

}  // namespace
}  // namespace vuda::trace
