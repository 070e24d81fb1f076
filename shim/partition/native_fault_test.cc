#include "shim/partition/native_fault.h"

#include <thread>

#include "shim/partition/testing_native_program.h"

namespace vuda::partition {
namespace {

using testing::FakeNative;
constexpr CuResult kIllegalAddress = 700;

class NativeFaults : public testing::NativeProgram {
 protected:
    void SetUp() override {
        NativeProgram::SetUp();
        prove();
        library_ = fake_.make_library();
        good_ = fake_.kernel_of(library_, "vuda_native");
        bad_ = fake_.kernel_of(library_, "bad");
    }
    // A kernel that faults is on its way, and the program does not know yet.
    void begin_fault() {
        ASSERT_EQ(launch(good_, kLarge), 0) << why();
        hook_->watch_all_calls();
        fake_.faulting = "bad";
        ASSERT_EQ(launch(bad_, kLarge), 0) << why();
        ASSERT_TRUE(fake_.is_stuck(&stream_));
    }
    CuResult call(int function) {
        return fake_.call(function, context_, [] {});
    }
    CuLibrary library_ = nullptr;
    CuKernel good_ = nullptr, bad_ = nullptr;
};

TEST_F(NativeFaults, AProgramThatWaitsIsToldAndAllItsCallsAfterwards) {
    begin_fault();
    EXPECT_EQ(fake_.synchronize(&stream_), kIllegalAddress) << "let go by the thread that looks after it";
    EXPECT_EQ(fake_.synchronize(&stream_), kIllegalAddress);
    for (const int function : {120 /* cuEventQuery */, 125 /* cuStreamQuery */, 281 /* cuMemcpyDtoDAsync */,
                               243 /* cuMemAlloc_v2 */, 23 /* cuModuleGetFunction */, 514 /* cuGraphLaunch */}) {
        SCOPED_TRACE(function);
        EXPECT_EQ(call(function), kIllegalAddress);
    }
    EXPECT_EQ(call(322), 0) << "cuCtxDestroy_v2: the context can be ended";
    EXPECT_EQ(launch(good_, kLarge), kIllegalAddress);
    EXPECT_EQ(launch(good_, kSmall), kIllegalAddress);
    EXPECT_FALSE(ran_at_home()) << "nothing of the program runs any more";
    EXPECT_EQ(hook_->launch_guard().refusals(), 0u);
}

TEST_F(NativeFaults, AQuestionThatSaysNotYetIsAnsweredWithTheErrorToo) {
    begin_fault();
    EXPECT_EQ(fake_.synchronize(&stream_), kIllegalAddress);
    EXPECT_EQ(fake_.call(125, context_, []() -> CuResult { return 600; }), kIllegalAddress);
    EXPECT_EQ(fake_.call(125, context_, []() -> CuResult { return 2; }), 2) << "an error of CUDA's own stays";
}

TEST_F(NativeFaults, ItIsToldWhenItShowsAndNotBefore) {
    fake_.fault_shows = false;
    begin_fault();
    std::atomic<bool> returned{false};
    CuResult result = 0;
    std::thread waits([&] {
        cuda_.ctx_push(context_);
        result = fake_.synchronize(&stream_);
        returned = true;
    });
    // Several looks at what is only slow.
    std::this_thread::sleep_for(5 * NativeFault::kInterval);
    EXPECT_FALSE(returned);
    fake_.fault_shows = true;
    waits.join();
    EXPECT_EQ(result, kIllegalAddress);
}

TEST_F(NativeFaults, OtherContextsAndTheNextOneOfTheProgramAreNotTouched) {
    begin_fault();
    EXPECT_EQ(fake_.synchronize(&stream_), kIllegalAddress);
    int other = 0;
    hook_->decline(&other);
    EXPECT_EQ(fake_.call(125, &other, [] {}), 0);
    hook_->forget_contexts();
    hook_->approve(context_);
    hook_->settled();
    EXPECT_EQ(call(125), 0);
    EXPECT_EQ(launch(good_, kSmall), 0);
    EXPECT_TRUE(ran_at_home());
    EXPECT_EQ(launch(good_, kLarge), limits::kLaunchOutOfResources) << "our context stays lost";
    EXPECT_NE(why().find("failed on the program's own TSG (CUDA error 700)"), std::string::npos) << why();
}

TEST_F(NativeFaults, AGraphsKernelThatFaultsIsToldAsWell) {
    FakeNative::Graph* const graph = fake_.make_graph();
    auto memory = reinterpret_cast<CuDevicePtr>(out_.data());
    void* parameters[] = {&memory};
    fake_.add_kernel(graph, {nullptr, {4, 1, 1}, {32, 1, 1}, kLarge, parameters, nullptr, bad_, context_});
    CuGraphExec exec = nullptr;
    ASSERT_EQ(fake_.instantiate(&exec, graph), 0);
    ASSERT_EQ(fake_.launch_graph(exec, &stream_), 0) << why();
    fake_.faulting = "bad";
    ASSERT_EQ(fake_.launch_graph(exec, &stream_), 0) << why();
    EXPECT_EQ(fake_.synchronize(&stream_), kIllegalAddress);
}

TEST_F(NativeFaults, WhereNumbersDoNotWorkEventsDo) {
    fake_.unlike.numbers_do_not_work = true;
    ASSERT_EQ(launch(good_, kLarge), 0) << why();
    ASSERT_EQ(launch(good_, kLarge), 0) << why();
    const auto steps = fake_.program_steps();
    ASSERT_EQ(steps.size(), 5u);
    EXPECT_EQ(steps[3].what, "record");
    EXPECT_EQ(steps[4].what, "wait");
    EXPECT_EQ(steps[4].event, steps[3].event);
}

TEST_F(NativeFaults, AStreamThatCannotWaitForNumbersWaitsForAnEvent) {
    fake_.unlike.numbers_do_not_work_on = &stream_;
    ASSERT_EQ(launch(good_, kLarge), 0) << why();
    const int waits = fake_.synchronized;
    ASSERT_EQ(launch(good_, kLarge), 0) << why();
    const auto steps = fake_.program_steps();
    ASSERT_EQ(steps.size(), 6u);
    EXPECT_EQ(steps[3].what, "write");
    EXPECT_EQ(steps[4].what, "record");
    EXPECT_EQ(steps[5].what, "wait");
    EXPECT_EQ(steps[5].stream, &stream_);
    EXPECT_EQ(fake_.synchronized, waits) << "nobody has to wait for it";
}

TEST_F(NativeFaults, AHookThatGoesIsNotToldAnyMore) {
    fake_.fault_shows = false;
    begin_fault();
    hook_ = nullptr;
    fake_.fault_shows = true;
    const auto deadline = monotonic_ns() + 20'000'000'000;
    while (fake_.is_stuck(&stream_) && monotonic_ns() < deadline) std::this_thread::yield();
    EXPECT_FALSE(fake_.is_stuck(&stream_)) << "let go all the same";
}

}  // namespace
}  // namespace vuda::partition
