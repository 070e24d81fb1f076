#include "shim/partition/native_side.h"

#include <gtest/gtest.h>

#include <memory>

#include "shim/partition/launch_hook.h"
#include "shim/partition/self_check.h"
#include "shim/partition/testing_cuda.h"

namespace vuda::partition {
namespace {

using testing::card_layout;
using testing::FakeCuda;

class Native : public ::testing::Test, public NativeSide::Host {
 protected:
    void unshared_contexts(bool on) override { fake_.unshared = on; }

    void prove() {
        cuda_ = fake_.driver();
        Result<std::unique_ptr<LaunchHook>> hook = LaunchHook::install(cuda_, events_);
        ASSERT_TRUE(hook) << hook.error().to_string();
        hook_ = *std::move(hook);
        Result<Proof> proof = self_check(cuda_, *hook_, layout_, context_);
        ASSERT_TRUE(proof) << proof.error().to_string();
        proof_.emplace(*std::move(proof));
        ASSERT_TRUE(proof_->refuses);
        ASSERT_TRUE(has_module_banks(*proof_->layout));
        hook_->start(*proof_->layout, proof_->map, *page_);
        hook_->guard(49'152);
        hook_->approve(context_);
        side_ = std::make_unique<NativeSide>(cuda_, *proof_->layout, *this, hook_->modules());
        hook_->run_natively(side_.get());
    }
    void TearDown() override {
        hook_ = nullptr;
        side_ = nullptr;
    }

    // As the program launches: in its context, on its stream.
    CuResult launch(unsigned shared, unsigned attribute = 0, CuStream stream = nullptr) {
        CuContext popped = nullptr;
        cuda_.ctx_push(context_);
        out_ = {};
        CuLaunchAttribute said{attribute, 0, {1}};
        const CuLaunchConfig config{
            {4, 1, 1}, {32, 1, 1}, shared, stream == nullptr ? &stream_ : stream, &said, attribute == 0 ? 0u : 1u};
        auto memory = reinterpret_cast<CuDevicePtr>(out_.data());
        void* parameters[] = {&memory};
        fake_.steps.clear();
        const CuResult launched = fake_.launch_native(config, &kernel_, parameters);
        cuda_.ctx_pop(&popped);
        return launched;
    }
    // A large kernel that is on its way, and every call is told of.
    void begin_chain() {
        prove();
        ASSERT_EQ(launch(100'000), 0) << why();
        hook_->watch_all_calls();
        fake_.native_work_is_done = false;
        ASSERT_EQ(launch(100'000), 0) << why();
    }
    bool runs_at_home() const { return fake_.steps.size() == 1 && fake_.steps[0].context == context_; }
    bool runs_in_chain() {
        const auto& s = fake_.steps;
        return s.size() == 3 && s[0].what == "launch" && s[0].context == own() && s[1].what == "record" &&
               s[1].stream == s[0].stream && s[2] == FakeCuda::Step{"wait", context_, &stream_, s[1].event};
    }
    std::string why() const { return hook_->not_native() ? hook_->not_native()->text : ""; }
    CuContext own() const { return fake_.made_contexts.at(0).get(); }

    FakeCuda fake_;
    CudaDriver cuda_{};
    const GpuLayout layout_ = card_layout();
    int a_context_ = 0, stream_ = 0, kernel_ = 0;
    const CuContext context_ = &a_context_;
    std::unique_ptr<page::Page> page_ = std::make_unique<page::Page>();
    std::atomic<uint32_t> events_{0};
    std::optional<Proof> proof_;
    std::unique_ptr<NativeSide> side_;
    std::unique_ptr<LaunchHook> hook_;
    std::array<uint32_t, 4> out_{};
};

TEST_F(Native, AKernelThatDoesNotFitRunsInAContextOfOurOwnAtItsPlace) {
    prove();
    ASSERT_EQ(launch(100'000), 0) << why();
    ASSERT_EQ(fake_.made_contexts.size(), 1u);
    EXPECT_TRUE(fake_.made_unshared[0]);
    EXPECT_FALSE(fake_.unshared) << "contexts of the program may share again";
    fake_.variables[nullptr] = {{77, 88}};
    ASSERT_EQ(launch(100'000), 0);
    EXPECT_EQ(out_, (std::array<uint32_t, 4>{77, 88, 32, 0})) << "the program's variables, not our context's";
    ASSERT_EQ(fake_.steps.size(), 5u);
    const auto& s = fake_.steps;
    EXPECT_EQ(s[0].what, "record");
    EXPECT_EQ(s[0].context, context_);
    EXPECT_EQ(s[0].stream, &stream_);
    EXPECT_EQ(s[1].what, "wait");
    EXPECT_EQ(s[1].event, s[0].event);
    EXPECT_EQ(s[2], (FakeCuda::Step{"launch", own(), s[1].stream, nullptr}));
    EXPECT_EQ(s[3].what, "record");
    EXPECT_EQ(s[3].stream, s[1].stream);
    EXPECT_EQ(s[4], (FakeCuda::Step{"wait", context_, &stream_, s[3].event}));
    EXPECT_EQ(fake_.made_contexts.size(), 1u) << "one for all kernels";
    EXPECT_EQ(hook_->native_launches(), 2u);
    EXPECT_EQ(page_->process.native.load(), 2u);
    EXPECT_EQ(page_->process.refused.load(), 0u);
    EXPECT_EQ(hook_->launch_guard().refusals(), 0u);
    EXPECT_FALSE(hook_->not_native());
}

TEST_F(Native, AKernelThatFitsStaysWhereItIs) {
    prove();
    ASSERT_EQ(launch(48'000), 0);
    ASSERT_EQ(fake_.steps.size(), 1u);
    EXPECT_EQ(fake_.steps[0].context, context_);
    EXPECT_TRUE(fake_.made_contexts.empty()) << "made when it is needed";
}

TEST_F(Native, SharedMemoryThatWasAskedForInOneContextIsAskedForInTheOther) {
    prove();
    fake_.shared_was_asked_for = false;
    EXPECT_EQ(launch(100'000), 0) << why();
    EXPECT_TRUE(fake_.shared_was_asked_for);
    EXPECT_EQ(hook_->native_launches(), 1u);
}

TEST_F(Native, StacksAreAsLargeAsTheProgramMadeThem) {
    prove();
    fake_.stack_limits[context_] = 65'536;
    ASSERT_EQ(launch(100'000), 0) << why();
    EXPECT_EQ(fake_.stack_limits[own()], 65'536u);
}

TEST_F(Native, AttributesThatOnlyGiveHastePassAndEventsOfTheProgramDoNot) {
    prove();
    EXPECT_EQ(launch(100'000, 4), 0) << why();
    EXPECT_EQ(launch(100'000, 6), 0) << why();
    EXPECT_EQ(launch(100'000, 7), limits::kLaunchOutOfResources) << "programmatic event";
    EXPECT_EQ(launch(100'000, 12), limits::kLaunchOutOfResources) << "launch completion event";
    EXPECT_EQ(launch(100'000, 99), limits::kLaunchOutOfResources) << "not known";
    EXPECT_EQ(launch(100'000), 0) << "the next one";
    EXPECT_EQ(page_->process.refused.load(), 3u);
    EXPECT_EQ(hook_->native_launches(), 3u);
}

TEST_F(Native, AGraphsKernelIsRefused) {
    prove();
    EXPECT_EQ(fake_.call(FakeCuda::kGraphLaunch, context_,
                         [&] {
                             fake_.launch({{4, 1, 1}, {32, 1, 1}}, QmdKind::kGrid, context_, nullptr, {}, 1, 60'000);
                         }),
              limits::kLaunchOutOfResources);
    EXPECT_EQ(why(), "it was not launched on its own");
    EXPECT_EQ(launch(100'000), 0);
}

TEST_F(Native, AModulesKernelIsRefusedAndALibrarysStillRuns) {
    prove();
    fake_.quirks.kernel_is_of_a_module = true;
    EXPECT_EQ(launch(100'000), limits::kLaunchOutOfResources);
    EXPECT_EQ(why(), "this CUDA does not tell of which module a kernel is");
    EXPECT_TRUE(fake_.steps.empty() || fake_.steps.back().what != "launch");
    fake_.quirks.kernel_is_of_a_module = false;
    EXPECT_EQ(launch(100'000), 0);
}

TEST_F(Native, NothingGoesThatWayWhereTheProofFails) {
    const auto refused = [&](const char* text) {
        EXPECT_EQ(launch(100'000), limits::kLaunchOutOfResources);
        EXPECT_NE(why().find(text), std::string::npos) << why();
        const size_t contexts = fake_.made_contexts.size();
        fake_.quirks = {};
        EXPECT_EQ(launch(100'000), limits::kLaunchOutOfResources) << "for good";
        EXPECT_EQ(fake_.made_contexts.size(), contexts);
        TearDown();
    };
    for (const auto& [quirk, text] : std::initializer_list<std::pair<void (*)(FakeCuda::Quirks&), const char*>>{
             {[](auto& q) { q.context_create_result = 2; }, "no second context (CUDA error 2)"},
             {[](auto& q) { q.banks_are_ignored = true; }, "does not see its program's variables"},
             {[](auto& q) { q.banks_differ_in_size = true; }, "not alike in two contexts"},
             {[](auto& q) { q.arguments_are_elsewhere = true; }, "does not tell of its launches"},
             {[](auto& q) { q.event_record_result = 1; }, "records no event"},
         }) {
        SCOPED_TRACE(text);
        prove();
        quirk(fake_.quirks);
        if (fake_.quirks.arguments_are_elsewhere) {
            // What is read of the program's own call is as bad as what the proof reads.
            EXPECT_EQ(launch(100'000), limits::kLaunchOutOfResources);
            EXPECT_EQ(hook_->native_launches(), 0u);
            fake_.quirks = {};
            TearDown();
            continue;
        }
        refused(text);
        fake_.made_contexts.clear();
    }
}

TEST_F(Native, WhatFollowsNeverOvertakesAKernelThatIsOnItsWay) {
    prove();
    ASSERT_EQ(launch(100'000), 0);
    fake_.quirks.wait_event_result_after = 1;
    fake_.calls.insert(FakeCuda::kStreamSynchronize);
    const int waits = fake_.synchronized;
    EXPECT_EQ(launch(100'000), 0) << "it ran";
    EXPECT_EQ(fake_.synchronized, waits + 1) << "the thread waited for it instead";
}

TEST_F(Native, TextureObjectsEndIt) {
    prove();
    ASSERT_EQ(launch(100'000), 0);
    fake_.call(339, context_, [] {});
    EXPECT_EQ(launch(100'000), limits::kLaunchOutOfResources);
    EXPECT_NE(why().find("texture"), std::string::npos);
}

TEST_F(Native, TextureObjectsThatAreThereBeforeEndItToo) {
    prove();
    hook_->run_natively(nullptr);
    fake_.call(343, context_, [] {});
    hook_->run_natively(side_.get());
    EXPECT_EQ(launch(100'000), limits::kLaunchOutOfResources);
}

TEST_F(Native, WithoutItKernelsAreRefused) {
    prove();
    hook_->run_natively(nullptr);
    EXPECT_EQ(launch(100'000), limits::kLaunchOutOfResources);
    EXPECT_TRUE(fake_.made_contexts.empty());
    EXPECT_EQ(hook_->launch_guard().refusals(), 1u);
}

TEST_F(Native, WhatWouldWaitForAKernelThereFollowsIt) {
    begin_chain();
    fake_.variables[nullptr] = {{77, 88}};
    EXPECT_EQ(launch(1'000), 0);
    EXPECT_TRUE(runs_in_chain()) << "its place is behind the one before, and needs no event";
    EXPECT_EQ(out_, (std::array<uint32_t, 4>{77, 88, 32, 0}));
    fake_.call(304, context_, [] {});  // cuCtxGetCurrent
    fake_.wait(FakeCuda::kStreamSynchronize, context_);
    EXPECT_EQ(launch(100'000), 0);
    EXPECT_TRUE(runs_in_chain()) << "neither puts work into a stream";
    EXPECT_EQ(hook_->native_launches(), 4u);
    EXPECT_EQ(hook_->launch_guard().refusals(), 0u);
    fake_.native_work_is_done = true;
    EXPECT_EQ(launch(1'000), 0);
    EXPECT_TRUE(runs_at_home()) << "nothing to wait for";
}

TEST_F(Native, AChainEndsWithAnyOtherWork) {
    begin_chain();
    for (const int function : {216 /* cuMemsetD8Async */, 281 /* cuMemcpyDtoDAsync_v2 */, 147 /* cuStreamWaitEvent */,
                               1000 /* one that nobody has heard of */, FakeCuda::kGraphLaunch}) {
        SCOPED_TRACE(function);
        fake_.call(function, context_, [] {});
        EXPECT_EQ(launch(1'000), 0);
        EXPECT_TRUE(runs_at_home());
        EXPECT_EQ(launch(100'000), 0);
        EXPECT_EQ(fake_.steps.size(), 5u) << "its place is not known without an event";
    }
    int other = 0;
    EXPECT_EQ(launch(1'000, 0, &other), 0);
    EXPECT_TRUE(runs_at_home()) << "of another stream";
    EXPECT_EQ(launch(1'000), 0);
    EXPECT_TRUE(runs_at_home()) << "which may be one that this waits for";
}

TEST_F(Native, ThereIsNoChainUntilEveryCallIsToldOf) {
    prove();
    fake_.native_work_is_done = false;
    EXPECT_EQ(launch(100'000), 0);
    EXPECT_EQ(launch(1'000), 0);
    EXPECT_TRUE(runs_at_home());
}

TEST_F(Native, AKernelThatCannotFollowRunsWhereItWas) {
    begin_chain();
    fake_.quirks.kernel_is_of_a_module = true;
    EXPECT_EQ(launch(1'000), 0);
    EXPECT_TRUE(runs_at_home());
    fake_.quirks.kernel_is_of_a_module = false;
    EXPECT_EQ(launch(100'000), 0);
    EXPECT_EQ(launch(1'000), 0);
    EXPECT_TRUE(runs_in_chain());
    // Found out too late: it is withheld already.
    fake_.quirks.banks_differ_in_size = true;
    EXPECT_EQ(launch(1'000), 0);
    ASSERT_FALSE(fake_.steps.empty());
    EXPECT_EQ(fake_.steps.back(), (FakeCuda::Step{"launch", context_, &stream_, nullptr}));
    EXPECT_EQ(page_->process.refused.load(), 0u) << "it fits";
    EXPECT_EQ(launch(100'000), limits::kLaunchOutOfResources) << "and this does not";
}

TEST_F(Native, EventsOfAContextThatIsGoneAreNotUsed) {
    prove();
    ASSERT_EQ(launch(100'000), 0);
    const CuEvent before = fake_.steps.front().event;
    hook_->forget_contexts();
    hook_->approve(context_);
    ASSERT_EQ(launch(100'000), 0) << why();
    EXPECT_NE(fake_.steps.front().event, before);
}

TEST(LaunchCall, IsReadFromTheArgumentsOfEachKindOfLaunch) {
    int function = 0, stream = 0, parameters = 0, extra = 0;
    struct {
        void* function;
        unsigned shape[7];
        void* stream;
        void* parameters;
        void* extra;
    } plain{&function, {1, 2, 3, 4, 5, 6, 7}, nullptr, &parameters, &extra};
    const auto call = read_launch_call(307, &plain);
    ASSERT_TRUE(call);
    EXPECT_EQ(call->function, &function);
    EXPECT_EQ(call->grid[2], 3u);
    EXPECT_EQ(call->block[0], 4u);
    EXPECT_EQ(call->shared_bytes, 7u);
    EXPECT_EQ(call->stream, nullptr);
    EXPECT_EQ(static_cast<void*>(call->parameters), &parameters);
    EXPECT_EQ(static_cast<void*>(call->extra), &extra);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read_launch_call(442, &plain)->stream), 2u) << "the thread's own";
    plain.stream = &stream;
    EXPECT_EQ(read_launch_call(442, &plain)->stream, &stream);
    const auto cooperative = read_launch_call(477, &plain);
    ASSERT_EQ(cooperative->attribute_count, 1u);
    EXPECT_EQ(cooperative->attributes[0].id, 2u);
    EXPECT_EQ(cooperative->extra, nullptr);
    EXPECT_FALSE(read_launch_call(514, &plain)) << "a graph";
    EXPECT_FALSE(read_launch_call(307, nullptr));
    EXPECT_FALSE(read_launch_call(652, reinterpret_cast<void*>(0x10)));
}

}  // namespace
}  // namespace vuda::partition
