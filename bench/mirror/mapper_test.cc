// Mapper against a resource manager that this test plays: its ioctl() stands before libc's.
#include "bench/mirror/mapper.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

namespace vuda::bench {
namespace {

using namespace std::chrono_literals;

constexpr int kPlayed = 1000;  // no descriptor of this process

std::atomic<int> g_mapped, g_maps, g_objects;
std::atomic<int> g_refuse_from{1 << 30};  // the how manieth mapping is refused

int play(unsigned long request, void* arg) {
    if (request == rm::rm_request(rm::escape::kVidHeapControl, sizeof(rm::VidHeapArgs))) {
        auto& args = *static_cast<rm::VidHeapArgs*>(arg);
        if (args.allocSize.hMemory == 0) args.allocSize.hMemory = 0x1234;
        args.status = 0;
        ++g_objects;
    } else if (request == rm::rm_request(rm::escape::kMapMemoryDma, sizeof(rm::MapDmaArgs))) {
        auto& args = *static_cast<rm::MapDmaArgs*>(arg);
        args.dmaOffset = 0x4000000;
        args.status = ++g_maps >= g_refuse_from ? 0x51 : 0;
        if (args.status == 0) ++g_mapped;
    } else if (request == rm::rm_request(rm::escape::kUnmapMemoryDma, sizeof(rm::UnmapDmaArgs))) {
        static_cast<rm::UnmapDmaArgs*>(arg)->status = 0;
        --g_mapped;
    } else if (request == rm::rm_request(rm::escape::kFree, sizeof(rm::FreeArgs))) {
        static_cast<rm::FreeArgs*>(arg)->status = 0;
        --g_objects;
    } else {
        errno = ENOTTY;
        return -1;
    }
    return 0;
}

class MapperTest : public testing::Test {
 protected:
    void SetUp() override {
        g_mapped = g_maps = g_objects = 0;
        g_refuse_from = 1 << 30;
    }
    static MappingRecipe recipe(int fd = kPlayed) {
        MappingRecipe made;
        made.fd = fd;
        return made;
    }
    static void wait_for_maps(int count) {
        for (int i = 0; i < 5000 && g_maps < count; ++i) std::this_thread::sleep_for(2ms);
    }
};

TEST_F(MapperTest, WhatIsMappedIsUnmappedAndFreedAgain) {
    Mapper mapper(recipe(), 1ms);
    wait_for_maps(11);
    const Result<Mapper::Figures> figures = mapper.stop();
    ASSERT_TRUE(figures) << figures.error().to_string();
    EXPECT_GE(figures->maps, 10u) << "1, 2, 3 and 4 of them, and again";
    EXPECT_EQ(figures->maps, static_cast<uint64_t>(g_maps.load()));
    EXPECT_EQ(g_mapped, 0);
    EXPECT_EQ(g_objects, 0);
}

TEST_F(MapperTest, ARefusalEndsItAndIsTold) {
    g_refuse_from = 3;
    Mapper mapper(recipe(), 1ms);
    wait_for_maps(3);
    const Result<Mapper::Figures> figures = mapper.stop();
    ASSERT_FALSE(figures);
    EXPECT_NE(figures.error().to_string().find("0x51"), std::string::npos) << figures.error().to_string();
    EXPECT_EQ(g_maps, 3);
    EXPECT_EQ(g_mapped, 0) << "those before it are gone";
    EXPECT_EQ(g_objects, 0);
}

TEST_F(MapperTest, ADescriptorThatIsNone) {
    Mapper mapper(recipe(-1), 1h);
    EXPECT_FALSE(mapper.stop());
}

TEST_F(MapperTest, ItEndsByItself) {
    const Mapper mapper(recipe(), 1h);
    wait_for_maps(1);
    EXPECT_EQ(g_maps, 1);
}

}  // namespace
}  // namespace vuda::bench

// NOLINTNEXTLINE(cert-dcl50-cpp): libc's own signature.
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
    va_list args;
    va_start(args, request);
    void* const arg = va_arg(args, void*);
    va_end(args);
    if (fd == vuda::bench::kPlayed) return vuda::bench::play(request, arg);
    errno = EBADF;
    return -1;
}
