// Kernels that must not share whatever their size, from the code that the program loads to what becomes of their
// launches.
#include "shim/partition/testing_native_program.h"

namespace vuda::partition {
namespace {

using testing::FakeNative;

constexpr char kManaged[] = ".version 9.0\n.global .attribute(.managed) .align 4 .u32 counter;\n";
constexpr char kLaunching[] = ".version 9.0\n.extern .func cudaLaunchDeviceV2\n";

class ModuleCare : public testing::NativeProgram {
 protected:
    // A kernel of a module whose code says so.
    CuFunction load(const char* image) {
        load_module();
        CuModule* const out = &module_;
        const uint64_t load_arguments[] = {at(out), at(image)};
        tell(19, load_arguments);
        return get();
    }
    // A kernel of code that was loaded before anybody looked, and turns out to have managed variables.
    CuFunction managed() {
        load_module();
        CuDevicePtr memory = 0;
        size_t bytes = 0;
        const uint64_t arguments[] = {at(&memory), at(&bytes), at(module_), at("counter")};
        tell(685, arguments);
        return get();
    }
    void load_module() {
        EXPECT_EQ(fake_.load_module(&module_), 0);
        fake_.words_of({module_, context_}) = {77, 88};
    }
    CuFunction get() {
        CuFunction function = fake_.function_of(module_, "vuda_native");
        const uint64_t get_arguments[] = {at(&function), at(module_), at("vuda_native")};
        tell(23, get_arguments);
        return function;
    }
    void raise(CuFunction function, int bytes) {
        const uint64_t arguments[] = {at(function), static_cast<uint64_t>(bytes) << 32 | 8};
        tell(481, arguments);
    }
    template <size_t kCount>
    void tell(int function, const uint64_t (&arguments)[kCount]) {
        EXPECT_EQ(ask(function, context_, arguments), 0);
    }
    template <size_t kCount>
    CuResult ask(int function, CuContext context, const uint64_t (&arguments)[kCount]) {
        uint64_t block[kCount];
        std::copy(std::begin(arguments), std::end(arguments), block);
        return fake_.call(
            function, context, [this] { ++calls_; }, block);
    }
    static uint64_t at(const void* address) { return reinterpret_cast<uintptr_t>(address); }
    CuFunction plain() {
        CuModule module = nullptr;
        EXPECT_EQ(fake_.load_module(&module), 0);
        fake_.words_of({module, context_}) = {5, 6};
        return fake_.function_of(module, "vuda_native");
    }
    CuModule module_ = nullptr;
    int calls_ = 0;  // that CUDA carried out
};

// CUDA itself would fetch the variables, in the context that shares.
TEST_F(ModuleCare, CodeWithManagedVariablesIsNotLoadedWhileSharing) {
    prove();
    CuModule* const out = &module_;
    const uint64_t arguments[] = {at(out), at(kManaged)};
    uint64_t refused = 0;
    for (const int function : {19, 20, 21, 678}) {
        EXPECT_EQ(ask(function, context_, arguments), limits::kNotSupported) << function;
        EXPECT_EQ(hook_->managed_refused(), ++refused);
    }
    EXPECT_EQ(calls_, 0);
    const uint64_t plain_arguments[] = {at(out), at(".version 9.0\n")};
    EXPECT_EQ(ask(19, context_, plain_arguments), 0);
    EXPECT_EQ(calls_, 1);
    // A context of the program that shares with nobody.
    int elsewhere = 0;
    hook_->decline(&elsewhere);
    EXPECT_EQ(ask(19, &elsewhere, arguments), 0);
    EXPECT_EQ(calls_, 2);
    fake_.quirks.skip_slot_holds = 0x7f00'0000'1234;
    EXPECT_EQ(ask(19, context_, arguments), 0) << "nothing is written where it was not expected";
    EXPECT_EQ(hook_->managed_refused(), refused);
}

TEST_F(ModuleCare, KernelsWithManagedVariablesRunNatively) {
    prove();
    const CuFunction other = plain();
    const CuFunction kernel = managed();
    EXPECT_EQ(launch(kernel, kSmall), 0) << why();
    EXPECT_TRUE(ran_natively());
    EXPECT_FALSE(ran_at_home());
    EXPECT_EQ(out_, (Out{77, 88, 32, 0}));
    EXPECT_EQ(launch(other, kSmall), 0);
    EXPECT_TRUE(ran_at_home()) << "the rest shares";
    EXPECT_FALSE(ran_natively());
    EXPECT_EQ(launch(kernel, kLarge), 0);
    EXPECT_TRUE(ran_natively());
    EXPECT_EQ(hook_->managed_refused(), 0u);
}

TEST_F(ModuleCare, WhereThatCannotBeTheyAreRefused) {
    prove();
    hook_->run_natively(nullptr);
    const CuFunction kernel = managed();
    EXPECT_EQ(launch(kernel, kSmall), limits::kNotSupported);
    EXPECT_FALSE(ran_at_home());
    EXPECT_EQ(hook_->managed_refused(), 1u);
    EXPECT_EQ(hook_->launch_guard().refusals(), 0u) << "it is not its size";
    EXPECT_EQ(launch(plain(), kSmall), 0);
    EXPECT_TRUE(ran_at_home());
}

TEST_F(ModuleCare, TheyNeverFallBackToTheSharedTsg) {
    prove();
    const CuFunction kernel = managed();
    side_->close("for some reason");
    EXPECT_EQ(launch(kernel, kSmall), limits::kNotSupported);
    EXPECT_FALSE(ran_at_home());
    EXPECT_FALSE(ran_natively());
}

TEST_F(ModuleCare, KernelsWhoseChildrenMayBeTooLargeAreRefused) {
    prove();
    const CuFunction kernel = load(kLaunching);
    EXPECT_EQ(launch(kernel, kSmall), 0);
    EXPECT_TRUE(ran_at_home()) << "small children share";
    raise(kernel, 60'000);
    EXPECT_EQ(launch(kernel, kSmall), limits::kLaunchOutOfResources);
    EXPECT_FALSE(ran_at_home() || ran_natively());
    EXPECT_EQ(hook_->launch_guard().refusals(), 1u);
    EXPECT_EQ(hook_->launch_guard().first_refused_bytes(), 61'024u);
    EXPECT_NE(why().find("launch kernels"), std::string::npos) << why();
    EXPECT_EQ(launch(plain(), kSmall), 0);
    EXPECT_TRUE(ran_at_home());
}

TEST_F(ModuleCare, GraphsWithSuchKernelsAreNotMade) {
    prove();
    const CuFunction kernel = managed();
    FakeNative::Graph* const graph = fake_.make_graph();
    auto memory = reinterpret_cast<CuDevicePtr>(out_.data());
    void* parameters[] = {&memory};
    fake_.add_kernel(graph, {plain(), {4, 1, 1}, {32, 1, 1}, kSmall, parameters, nullptr, nullptr, nullptr});
    CuGraphExec exec = nullptr;
    EXPECT_EQ(fake_.instantiate(&exec, graph), 0);
    fake_.add_kernel(graph, {kernel, {4, 1, 1}, {32, 1, 1}, kSmall, parameters, nullptr, nullptr, nullptr});
    EXPECT_EQ(fake_.instantiate(&exec, graph), limits::kNotSupported);
    EXPECT_FALSE(static_cast<FakeNative::Exec*>(exec)->alive);
    EXPECT_EQ(hook_->managed_refused(), 1u);
}

TEST_F(ModuleCare, CodeThatIsUnloadedMattersNoMore) {
    prove();
    const CuFunction kernel = managed();
    ASSERT_EQ(launch(kernel, kSmall), 0) << why();
    EXPECT_TRUE(ran_natively());
    ASSERT_EQ(fake_.unload_module(module_), 0);
    EXPECT_EQ(launch(plain(), kSmall), 0);
    EXPECT_TRUE(ran_at_home());
}

}  // namespace
}  // namespace vuda::partition
