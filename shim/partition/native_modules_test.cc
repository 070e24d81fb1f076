#include "shim/partition/native_modules.h"

#include "shim/partition/testing_native_program.h"

namespace vuda::partition {
namespace {

using testing::FakeNative;

class NativeModule : public testing::NativeProgram {
 protected:
    // A kernel of a module that the program loaded, with variables of its own.
    CuFunction load(const char* name = "vuda_native") {
        EXPECT_EQ(fake_.load_module(&module_), 0);
        fake_.words_of({module_, context_}) = {77, 88};
        return fake_.function_of(module_, name);
    }
    CuModule module_ = nullptr;
};

TEST_F(NativeModule, AKernelRunsAsALibrarysAndSeesItsOwnVariables) {
    prove();
    const CuFunction kernel = load();
    EXPECT_EQ(launch(kernel, kLarge), 0) << why();
    EXPECT_TRUE(ran_natively());
    EXPECT_EQ(out_, (Out{77, 88, 32, 0})) << "those of the program's module";
    fake_.words_of({module_, context_}) = {99, 11};
    EXPECT_EQ(launch(kernel, kLarge), 0);
    EXPECT_EQ(out_, (Out{99, 11, 32, 0}));
    EXPECT_EQ(hook_->native_launches(), 2u);
    EXPECT_EQ(launch(kernel, kSmall), 0);
    EXPECT_TRUE(ran_at_home());
}

TEST_F(NativeModule, OneThatWasLoadedBeforeAnythingWasProvedIsKnown) {
    Result<std::unique_ptr<LaunchHook>> hook = LaunchHook::install(cuda_, events_);
    ASSERT_TRUE(hook);
    hook_ = *std::move(hook);
    const CuFunction kernel = load();
    go_on();
    EXPECT_EQ(launch(kernel, kLarge), 0) << why();
    EXPECT_EQ(out_[0], 77u);
}

TEST_F(NativeModule, OneThatNobodySawIsRefused) {
    const CuFunction kernel = load();
    prove();
    EXPECT_EQ(launch(kernel, kLarge), limits::kLaunchOutOfResources);
    EXPECT_NE(why().find("VUDA did not look"), std::string::npos) << why();
    EXPECT_EQ(hook_->native_launches(), 0u);
    hook_->modules().keep(false);
    EXPECT_EQ(launch(load(), kLarge), limits::kLaunchOutOfResources) << "it is not wanted";
    hook_->modules().keep(true);
    EXPECT_EQ(launch(load(), kLarge), 0) << why();
}

TEST_F(NativeModule, OptionsThatMakeTheCodeCarryOverAndBuffersOfTheProgramDoNot) {
    prove();
    char log[64] = "untouched";
    ASSERT_EQ(fake_.load_module(&module_, {0, 3, 4, 7},
                                {reinterpret_cast<void*>(32), log, reinterpret_cast<void*>(64), nullptr}),
              0);
    EXPECT_EQ(launch(fake_.function_of(module_, "vuda_native"), kLarge), 0) << why();
    EXPECT_EQ(fake_.libraries().at(0)->options, (std::vector<int>{0, 7}));
    ASSERT_EQ(fake_.load_module(&module_, {17}, {nullptr}), 0);
    EXPECT_EQ(launch(fake_.function_of(module_, "vuda_native"), kLarge), limits::kLaunchOutOfResources)
        << "symbols of the program's: not to be had a second time";
}

TEST_F(NativeModule, OneFromAFileIsLoadedFromThatFile) {
    prove();
    ASSERT_EQ(fake_.load_module_file(&module_, "code.cubin"), 0);
    EXPECT_EQ(launch(fake_.function_of(module_, "vuda_native"), kLarge), 0) << why();
}

TEST_F(NativeModule, ItsLibraryGoesWithIt) {
    prove();
    ASSERT_EQ(launch(load(), kLarge), 0) << why();
    const size_t before = fake_.libraries().size();
    ASSERT_EQ(fake_.unload_module(module_), 0);
    EXPECT_FALSE(fake_.libraries().at(0)->loaded);
    ASSERT_EQ(launch(load(), kLarge), 0) << why();
    EXPECT_EQ(fake_.libraries().size(), before + 1);
    size_t loaded = 0;
    for (const auto& library : fake_.libraries()) loaded += library->loaded ? 1 : 0;
    EXPECT_EQ(loaded, 1u) << "the proofs' are gone, too";
}

TEST_F(NativeModule, LoadingGoesOnWhereTheLibraryCannotBeLoaded) {
    prove();
    fake_.unlike.load_library_result = 2;
    CuFunction kernel = nullptr;
    ASSERT_NO_FATAL_FAILURE(kernel = load());
    fake_.unlike.load_library_result = 0;
    EXPECT_EQ(launch(kernel, kSmall), 0);
    EXPECT_EQ(launch(kernel, kLarge), limits::kLaunchOutOfResources);
}

TEST_F(NativeModule, NoneGoesThatWayWhereTheProofFails) {
    prove();
    const CuFunction kernel = load();
    const CuLibrary library = fake_.make_library();
    ASSERT_EQ(launch(fake_.kernel_of(library, "vuda_native"), kLarge), 0) << why();
    fake_.quirks.banks_are_ignored = true;
    EXPECT_EQ(launch(kernel, kLarge), limits::kLaunchOutOfResources);
    EXPECT_NE(why().find("does not see its program's variables"), std::string::npos) << why();
    fake_.quirks = {};
    EXPECT_EQ(launch(kernel, kLarge), limits::kLaunchOutOfResources) << "for good";
    EXPECT_EQ(launch(fake_.kernel_of(library, "vuda_native"), kLarge), 0) << "libraries' go on";
}

TEST_F(NativeModule, AFunctionOfALibrarysKernelIsFoundByWhatTheProgramAskedFor) {
    prove();
    const CuLibrary library = fake_.make_library();
    fake_.words_of({library, context_}) = {5, 6};
    const CuKernel kernel = fake_.kernel_in(library, "vuda_native");
    CuFunction function = nullptr;
    ASSERT_EQ(fake_.function_in(&function, kernel, context_), 0);
    EXPECT_EQ(launch(function, kLarge), limits::kLaunchOutOfResources) << "of its kernel CUDA tells nothing";
    struct {
        CuFunction* function;
        CuKernel kernel;
    } said{&function, kernel};
    EXPECT_EQ(fake_.call(
                  683, context_, [] {}, &said),
              0);
    EXPECT_EQ(launch(function, kLarge), 0) << why();
    EXPECT_EQ(out_, (Out{5, 6, 32, 0}));
    // The library goes: its function may come to be another's.
    struct {
        CuLibrary library;
    } gone{library};
    EXPECT_EQ(fake_.call(
                  680, context_, [] {}, &gone),
              0);
    EXPECT_EQ(launch(function, kLarge), limits::kLaunchOutOfResources);
    fake_.kernel_of(library, "vuda_native");
    EXPECT_EQ(launch(function, kLarge), 0) << "by its name: " << why();
}

TEST_F(NativeModule, WhatIsNoImageIsNotLoadedAgain) {
    NativeModules modules(cuda_);
    struct {
        CuModule* module;
        const void* image;
    } said{&module_, "\x01\x02\x03\x04"};
    module_ = &modules;
    modules.on_left(19, &said);
    said.image = nullptr;
    modules.on_left(19, &said);
    modules.on_left(19, nullptr);
    modules.on_left(18, &said);
    EXPECT_TRUE(fake_.libraries().empty());
    said.image = FakeNative::kImage;
    modules.on_left(19, &said);
    EXPECT_EQ(fake_.libraries().size(), 1u);
}

}  // namespace
}  // namespace vuda::partition
