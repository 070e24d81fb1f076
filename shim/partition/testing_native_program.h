// A program with a hook and a native side on FakeNative, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "shim/partition/launch_hook.h"
#include "shim/partition/self_check.h"
#include "shim/partition/testing_native.h"

namespace vuda::partition::testing {

class NativeProgram : public ::testing::Test, public NativeSide::Host {
 protected:
    using Out = std::array<uint32_t, 4>;
    using Words2 = FakeNative::Words2;
    static constexpr unsigned kLarge = 100'000, kSmall = 1'000;

    void unshared_contexts(bool on) override { fake_.unshared = on; }

    void SetUp() override {
        cuda_ = fake_.native_driver();
        cuda_.ctx_push(context_);
    }
    // A working hook with a native side.
    void prove() {
        Result<std::unique_ptr<LaunchHook>> hook = LaunchHook::install(cuda_, events_);
        ASSERT_TRUE(hook) << hook.error().to_string();
        hook_ = *std::move(hook);
        go_on();
    }
    void go_on() {
        Result<Proof> proof = self_check(cuda_, *hook_, layout_, context_);
        ASSERT_TRUE(proof) << proof.error().to_string();
        proof_.emplace(*std::move(proof));
        ASSERT_TRUE(proof_->refuses);
        ASSERT_TRUE(proof_->arguments);
        hook_->start(*proof_->layout, proof_->map, *page_);
        hook_->trust_arguments();
        hook_->guard(49'152);
        hook_->approve(context_);
        hook_->settled();
        side_ = std::make_unique<NativeSide>(cuda_, *proof_->layout, *this, hook_->modules());
        hook_->run_natively(side_.get());
    }
    void TearDown() override {
        hook_ = nullptr;
        side_ = nullptr;
        CuContext popped = nullptr;
        cuda_.ctx_pop(&popped);
    }
    CuResult launch(CuFunction function, unsigned shared) {
        auto memory = reinterpret_cast<CuDevicePtr>(out_.data());
        void* parameters[] = {&memory};
        const CuLaunchConfig config{{4, 1, 1}, {32, 1, 1}, shared, &stream_, nullptr, 0};
        fake_.steps.clear();
        return fake_.launch_one(config, function, parameters, nullptr);
    }
    bool ran_natively() {
        const auto steps = fake_.program_steps();
        return std::any_of(steps.begin(), steps.end(), [&](const auto& step) {
            return (step.what == "launch" || step.what == "graph") && fake_.is_made(step.context);
        });
    }
    bool ran_at_home() {
        const auto steps = fake_.program_steps();
        return std::any_of(steps.begin(), steps.end(), [&](const auto& step) {
            return (step.what == "launch" || step.what == "graph") && step.context == context_;
        });
    }
    std::string why() const { return hook_->not_native() ? hook_->not_native()->text : ""; }

    FakeNative fake_;
    CudaDriver cuda_{};
    const GpuLayout layout_ = card_layout();
    int a_context_ = 0, stream_ = 0;
    const CuContext context_ = &a_context_;
    std::unique_ptr<page::Page> page_ = std::make_unique<page::Page>();
    std::atomic<uint32_t> events_{0};
    std::optional<Proof> proof_;
    std::unique_ptr<NativeSide> side_;
    std::unique_ptr<LaunchHook> hook_;
    Out out_{};
};

}  // namespace vuda::partition::testing
