#include "shim/partition/module_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace vuda::partition {
namespace {

using Care = ModuleWatch::Care;

constexpr uint32_t kLimit = 49'152;
constexpr char kManagedPtx[] = ".version 9.0\n.global .attribute(.managed) .align 4 .u32 counter;\n";
constexpr char kPlainPtx[] = ".version 9.0\n";
constexpr char kLaunchingPtx[] = ".version 9.0\n.extern .func cudaLaunchDeviceV2\n";

// Handles: any addresses.
const void* handle(uintptr_t number) { return reinterpret_cast<const void*>(number); }

class ModuleWatchTest : public testing::Test {
 protected:
    template <typename... Arguments>
    void left(int function, Arguments... arguments) {
        const uint64_t block[] = {uint64_t(arguments)...};
        watch_.on_left(function, block);
    }
    static uint64_t at(const void* address) { return reinterpret_cast<uintptr_t>(address); }
    void load(const void* code, const char* image, int function = 19) {
        const void* given = code;
        left(function, at(&given), at(image), 0, 0, 0);
    }
    void get(const void* function, const void* code, int call = 23) {
        const void* given = function;
        left(call, at(&given), at(code), at("kernel"));
    }
    void raise_function(const void* function, int attribute, int value) {
        left(481, at(function), static_cast<uint64_t>(static_cast<uint32_t>(value)) << 32 | uint32_t(attribute));
    }
    void raise_kernel(const void* kernel, int attribute, int value) {
        left(687, static_cast<uint64_t>(static_cast<uint32_t>(value)) << 32 | uint32_t(attribute), at(kernel), 0);
    }
    void unload(const void* code, int function = 22) {
        const uint64_t block[] = {at(code)};
        watch_.on_entered(function, block);
    }
    Care care(const void* function, uint32_t limit = kLimit) { return watch_.care_of(function, limit); }

    const void* const module_ = handle(0x1000);
    const void* const library_ = handle(0x2000);
    const void* const function_ = handle(0x3000);
    const void* const kernel_ = handle(0x4000);
    ModuleWatch watch_;
};

TEST_F(ModuleWatchTest, KernelsOfAModuleWithManagedVariables) {
    for (const int load_call : {19, 20, 21}) {
        load(module_, kManagedPtx, load_call);
        get(function_, module_);
        EXPECT_TRUE(watch_.any());
        EXPECT_EQ(care(function_), Care::kFaults);
        EXPECT_EQ(care(function_, 0), Care::kFaults) << "whatever the limit";
        EXPECT_EQ(care(kernel_), Care::kNone) << "another one";
        unload(module_);
        EXPECT_FALSE(watch_.any());
        EXPECT_EQ(care(function_), Care::kNone);
    }
}

TEST_F(ModuleWatchTest, OtherCodeNeedsNone) {
    load(module_, kPlainPtx);
    get(function_, module_);
    EXPECT_FALSE(watch_.any());
    EXPECT_EQ(care(function_), Care::kNone);
    EXPECT_EQ(care(nullptr), Care::kNone);
}

TEST_F(ModuleWatchTest, AnAddressThatIsUsedAgain) {
    load(module_, kManagedPtx);
    get(function_, module_);
    load(module_, kPlainPtx);
    EXPECT_FALSE(watch_.any());
    EXPECT_EQ(care(function_), Care::kNone);
}

TEST_F(ModuleWatchTest, EachWayToAKernelOfALibrary) {
    const void* const of_kernel = handle(0x5000);
    const void* const of_module = handle(0x6000);
    const void* const listed[2] = {handle(0x7000), handle(0x8000)};
    load(library_, kManagedPtx, 678);
    get(kernel_, library_, 681);
    EXPECT_EQ(care(kernel_), Care::kFaults);
    get(of_kernel, kernel_, 683);
    EXPECT_EQ(care(of_kernel), Care::kFaults);
    get(module_, library_, 682);
    get(of_module, module_, 23);
    EXPECT_EQ(care(of_module), Care::kFaults);
    left(740, at(listed), 2, at(library_));
    EXPECT_EQ(care(listed[0]), Care::kFaults);
    EXPECT_EQ(care(listed[1]), Care::kFaults);
    unload(library_, 680);
    for (const void* function : {kernel_, of_kernel, of_module, listed[0]}) EXPECT_EQ(care(function), Care::kNone);
    EXPECT_FALSE(watch_.any());
}

TEST_F(ModuleWatchTest, ALibraryThatAManagedVariableIsAskedOf) {
    load(library_, "\x50\xed\x55\xba", 678);
    get(kernel_, library_, 681);
    EXPECT_EQ(care(kernel_), Care::kNone);
    uint64_t memory = 0;
    left(685, at(&memory), 0, at(library_), at("counter"));
    EXPECT_EQ(care(kernel_), Care::kFaults) << "although it was got before";
}

TEST_F(ModuleWatchTest, KernelsThatLaunchOnesThatAreTooLarge) {
    load(library_, kLaunchingPtx, 678);
    get(kernel_, library_, 681);
    EXPECT_EQ(care(kernel_), Care::kNone) << "small ones share";
    raise_kernel(kernel_, 9, 100'000);
    raise_kernel(kernel_, 8, 40'000);
    raise_kernel(handle(0x9000), 8, 100'000);
    EXPECT_EQ(care(kernel_), Care::kNone) << "another attribute, less, somebody else's kernel";
    raise_kernel(kernel_, 8, 100'000);
    uint32_t bytes = 0;
    EXPECT_EQ(watch_.care_of(kernel_, kLimit, &bytes), Care::kChildren);
    EXPECT_EQ(bytes, 101'024u);
    EXPECT_EQ(care(kernel_, 0), Care::kNone) << "no limit";
    raise_kernel(kernel_, 8, 100);
    EXPECT_EQ(care(kernel_), Care::kChildren) << "graphs may keep what was";
    load(module_, kLaunchingPtx);
    get(function_, module_);
    EXPECT_EQ(care(function_), Care::kNone);
    raise_function(function_, 8, 60'000);
    EXPECT_EQ(care(function_), Care::kChildren);
}

TEST_F(ModuleWatchTest, FilesAreLookedInto) {
    char path[] = "/tmp/vuda-watch-XXXXXX";
    const int file = ::mkstemp(path);
    ASSERT_GE(file, 0);
    ASSERT_EQ(::write(file, kManagedPtx, sizeof kManagedPtx), static_cast<ssize_t>(sizeof kManagedPtx));
    ::close(file);
    load(module_, path, 18);
    load(library_, path, 679);
    ::unlink(path);
    get(function_, module_);
    get(kernel_, library_, 681);
    EXPECT_EQ(care(function_), Care::kFaults);
    EXPECT_EQ(care(kernel_), Care::kFaults);
    load(module_, path, 18);
    EXPECT_EQ(care(function_), Care::kNone) << "it is gone";
    load(module_, "/dev/null", 18);
    load(module_, std::string(10'000, 'x').c_str(), 18);
}

TEST_F(ModuleWatchTest, ArgumentsThatAreNotThere) {
    for (int function = 0; function < 1024; ++function) {
        if (!ModuleWatch::is_watched(function)) continue;
        watch_.on_entered(function, nullptr);
        watch_.on_left(function, nullptr);
        left(function, 8, 8, 8, 8, 8);
        left(function, 0, 0, 0, 0, 0);
    }
    EXPECT_EQ(care(handle(8)), Care::kNone);
}

}  // namespace
}  // namespace vuda::partition
