// The production redirector against the simulator: what it makes of NVIDIA's sequences obeys the rules, and whatever
// programs do, shim and simulator agree on every handle and leave nothing behind.
#include <gtest/gtest.h>

#include "sim/rm/test_monkey.h"
#include "sim/shim_process.h"

namespace vuda::sim {
namespace {

shim::Wishes in_process() {
    shim::Wishes wishes;
    wishes.share_in_process = true;
    return wishes;
}

shim::Wishes from_daemon() {
    shim::Wishes wishes;
    wishes.attach = true;
    return wishes;
}

// Both kinds of work in flight at once in one TSG, and what a fault would need is mirrored.
void expect_shared_work(ResourceManager& rm, RendererRig& renderer, ComputeRig& compute) {
    renderer.queue.control_buffer(renderer.control_address, RendererRig::kControlBytes).frame(10'000'000).submit();
    run_gpu(rm, 1'000'000);
    compute.queue.method(1, work::kSetShaderLocalMemoryA, 1)
        .kernel(work::kLaunchControlState | work::kLaunchLocalMemory)
        .submit();
    run_gpu(rm, 2'000'000);
    EXPECT_TRUE(compute.queue.done()) << "the kernel waited for the frame: not shared";
    EXPECT_FALSE(renderer.queue.done());
    run_gpu(rm);
    EXPECT_TRUE(renderer.queue.done());
    EXPECT_EQ(rm.log().xids(), 0u) << (rm.log().lines().empty() ? "" : rm.log().lines().back());
}

TEST(SimRedirect, InOneProcess) {
    const auto rm = make_rm();
    {
        ShimProcess process(*rm, 10, 1000, in_process());
        RendererRig renderer(process, rm::kZcullModeSeparateBuffer);  // as Vulkan binds it; the shim must change it
        ComputeRig compute(process);
        ASSERT_EQ(compute.start_as_cuda_does(), 0u) << (rm->log().lines().empty() ? "" : rm->log().lines().back());
        EXPECT_EQ(process.moved(), 1u);
        EXPECT_EQ(compute.veid, 63u);
        EXPECT_GT(process.mirrored(), 0u);
        expect_shared_work(*rm, renderer, compute);
        EXPECT_EQ(process.disagreement(), "");
        EXPECT_EQ(rm->audit(), "");
        // CUDA's clean-up, in its order.
        EXPECT_EQ(compute.unregister_channel(), 0u);
        for (const rm::Handle handle :
             {ComputeRig::kCompute, ComputeRig::kChannel, ComputeRig::kShare, ComputeRig::kTsg})
            EXPECT_EQ(compute.client.free(handle), 0u);
        EXPECT_EQ(process.disagreement(), "");
        renderer.queue.frame(1000).submit();
        run_gpu(*rm);
        EXPECT_TRUE(renderer.queue.done()) << "the renderer runs on without CUDA";
    }
    EXPECT_EQ(rm->counts(), ResourceManager::Counts{});
    EXPECT_EQ(ShimProcess::take_leftovers(), 0u);
}

TEST(SimRedirect, WithoutWishesNothingIsShared) {
    const auto rm = make_rm();
    ShimProcess process(*rm, 10, 1000, {});
    RendererRig renderer(process);
    ComputeRig compute(process);
    ASSERT_EQ(compute.start_as_cuda_does(), 0u);
    EXPECT_EQ(process.moved(), 0u);
    renderer.queue.frame(10'000'000).submit();
    run_gpu(*rm, 1'000'000);
    compute.queue.kernel().submit();
    run_gpu(*rm, 2'000'000);
    EXPECT_FALSE(compute.queue.done()) << "time slicing: the kernel waits for the frame";
    run_gpu(*rm);
    EXPECT_TRUE(compute.queue.done());
}

TEST(SimRedirect, AcrossProcesses) {
    const auto rm = make_rm();
    {
        TestProcess owner(*rm, 10);
        RendererRig renderer(owner);
        const FileId tsg = owner.open(FileKind::kControl);
        const FileId buffer = owner.open(FileKind::kControl);
        ASSERT_EQ(renderer.client.export_to(RendererRig::kTsg, tsg), 0u);
        ASSERT_EQ(renderer.client.export_to(RendererRig::kControl, buffer), 0u);
        ShimProcess process(*rm, 11, 1000, from_daemon());
        process.offer({true,
                       static_cast<int>(tsg),
                       1,
                       {{static_cast<int>(buffer), renderer.control_address, RendererRig::kControlBytes, 0}}});
        ComputeRig compute(process);
        ASSERT_EQ(compute.start_as_cuda_does(), 0u) << (rm->log().lines().empty() ? "" : rm->log().lines().back());
        EXPECT_EQ(process.moved(), 1u);
        EXPECT_EQ(process.mirrored(), 1u);
        expect_shared_work(*rm, renderer, compute);
        // The renderer dies; compute runs on.
        owner.close(renderer.client.control_file);
        compute.queue.kernel().submit();
        run_gpu(*rm);
        EXPECT_TRUE(compute.queue.done());
        EXPECT_EQ(process.disagreement(), "");
    }
    EXPECT_EQ(rm->counts(), ResourceManager::Counts{});
}

// Each rule that sharing depends on: broken towards the program, the program still gets its context, unshared.
TEST(SimRedirect, FallsBackWhenTheResourceManagerRefuses) {
    for (const char* refusal : {"esc:34=0x33", "ctl:3d06=0x1b", "ctl:3d05=0x56"}) {
        const auto rm = make_rm();
        ASSERT_TRUE(rm->inject(refusal));
        {
            ShimProcess process(*rm, 10, 1000, in_process());
            RendererRig renderer(process);
            ComputeRig compute(process);
            EXPECT_EQ(compute.start_as_cuda_does(), 0u) << refusal;
            compute.queue.kernel().submit();
            run_gpu(*rm);
            EXPECT_TRUE(compute.queue.done()) << refusal;
            EXPECT_EQ(process.disagreement(), "") << refusal;
        }
        EXPECT_EQ(rm->counts(), ResourceManager::Counts{}) << refusal;
    }
}

// Every allocation, and every other call, of the sharing path fails once: the program runs all the same, and nothing is
// left over.
TEST(SimRedirect, AnyOneFailureIsSurvived) {
    for (const char* call : {"alloc:9067", "alloc:c86f", "alloc:cbc0", "alloc:a06c", "esc:34", "ctl:3d05", "ctl:3d06",
                             "ctl:a06f0103", "ctl:a06c0101", "ctl:20801210", "ctl:20801208"}) {
        for (int nth = 1; nth <= 3; nth++) {
            const auto rm = make_rm();
            ASSERT_TRUE(rm->inject(std::string(call) + "=0x40@" + std::to_string(nth)));
            {
                ShimProcess process(*rm, 10, 1000, in_process());
                RendererRig renderer(process);
                ComputeRig compute(process);
                (void)compute.start_as_cuda_does();
                EXPECT_EQ(process.disagreement(), "") << call << " " << nth;
                EXPECT_EQ(rm->audit(), "") << call << " " << nth;
            }
            EXPECT_EQ(rm->counts(), ResourceManager::Counts{}) << call << " " << nth;
        }
    }
}

class SimRedirectProperty : public testing::TestWithParam<uint32_t> {};

TEST_P(SimRedirectProperty, ShimAndSimulatorAgreeOnEveryHandle) {
    constexpr int kSequences = 15;
    constexpr int kSteps = 200;
    uint32_t moved = 0;
    for (uint32_t sequence = 0; sequence < kSequences; sequence++) {
        Dice dice(GetParam() * 7777 + sequence);
        const auto rm = make_rm("580.159.04", {"h200", "h200"});
        ASSERT_NE(rm, nullptr);
        {
            std::vector<std::unique_ptr<Monkey>> monkeys;
            std::vector<ShimProcess*> processes;
            for (pid_t pid = 10; pid < 13; pid++) {
                auto process =
                    std::make_unique<ShimProcess>(*rm, pid, 1000, dice.chance(80) ? in_process() : shim::Wishes{});
                processes.push_back(process.get());
                monkeys.push_back(std::make_unique<Monkey>(*rm, std::move(process), dice));
            }
            for (int step = 0; step < kSteps; step++) {
                monkeys[dice.below(3)]->act(monkeys);
                ASSERT_EQ(rm->audit(), "") << "sequence " << sequence << ", step " << step;
                for (ShimProcess* process : processes)
                    ASSERT_EQ(process->disagreement(), "") << "sequence " << sequence << ", step " << step;
            }
            for (ShimProcess* process : processes) moved += process->moved();
        }
        ASSERT_EQ(rm->counts(), ResourceManager::Counts{}) << "sequence " << sequence;
    }
    EXPECT_EQ(ShimProcess::take_leftovers(), 0u);
    EXPECT_GT(moved, 0u) << "no sequence got as far as sharing";
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimRedirectProperty, testing::Range(1u, 9u));

}  // namespace
}  // namespace vuda::sim
