#include "shim/partition/launch_hook.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "shim/partition/self_check.h"
#include "shim/partition/testing_cuda.h"

namespace vuda::partition {
namespace {

using testing::card_layout;
using testing::FakeCuda;

constexpr LaunchShape kSome{{100, 1, 1}, {256, 1, 1}};

class Hook : public ::testing::Test {
 protected:
    // The whole way to a working hook.
    void prove() {
        cuda_ = fake_.driver();
        Result<std::unique_ptr<LaunchHook>> hook = LaunchHook::install(cuda_, events_);
        ASSERT_TRUE(hook) << hook.error().to_string();
        hook_ = *std::move(hook);
        Result<Proof> proof = self_check(cuda_, *hook_, layout_, context_);
        ASSERT_TRUE(proof) << proof.error().to_string();
        proof_.emplace(*std::move(proof));
        hook_->start(*proof_->layout, proof_->map, *page_);
        if (proof_->waits) hook_->time_waits();
        if (proof_->refuses) hook_->guard(49'152);
        hook_->approve(context_);
    }

    Error check_error() {
        cuda_ = fake_.driver();
        Result<std::unique_ptr<LaunchHook>> hook = LaunchHook::install(cuda_, events_);
        if (!hook) return hook.error();
        hook_ = *std::move(hook);
        const Result<Proof> proof = self_check(cuda_, *hook_, layout_, context_);
        return proof ? Error{Code::kOk, "proved", ""} : proof.error();
    }

    void publish(uint64_t generation, std::initializer_list<uint32_t> tpcs) {
        page::Split split{generation, page::SplitMode::kInterSm, static_cast<uint32_t>(66 - tpcs.size()), {}};
        for (const uint32_t t : tpcs) split.disable[t / 64] |= uint64_t{1} << (t % 64);
        writer_.publish(split);
    }

    static QmdMask bits_of(std::initializer_list<uint32_t> tpcs) {
        QmdMask mask;
        for (const uint32_t t : tpcs) {
            const uint32_t bit = testing::kCardMaskBits[t];
            mask.words[bit / 64] |= uint64_t{1} << (bit % 64);
        }
        return mask;
    }

    FakeCuda fake_;
    CudaDriver cuda_{};
    const GpuLayout layout_ = card_layout();
    int a_context_ = 0, another_context_ = 0;
    const CuContext context_ = &a_context_;
    std::unique_ptr<page::Page> page_ = std::make_unique<page::Page>();
    page::SplitWriter writer_{page_->daemon};
    std::atomic<uint32_t> events_{0};
    std::optional<Proof> proof_;
    std::unique_ptr<LaunchHook> hook_;
};

TEST_F(Hook, ThePagesMaskGoesIntoEveryLaunch) {
    prove();
    publish(1, {6, 30});
    const auto qmd = fake_.launch(kSome, QmdKind::kGrid, context_);
    EXPECT_TRUE(FakeCuda::has_mask(qmd));
    EXPECT_EQ(FakeCuda::mask_of(qmd), bits_of({6, 30}));
    publish(2, {0, 65});
    EXPECT_EQ(FakeCuda::mask_of(fake_.launch(kSome, QmdKind::kGrid, context_)), bits_of({0, 65}));
    EXPECT_EQ(page_->process.applied.load(), 2u);
    EXPECT_EQ(page::launches(*page_), 2u);
}

// The program lacks what the renderer has gone on to use.
TEST_F(Hook, AKernelWaitsWhileThePageHoldsIt) {
    prove();
    page::hold_launches(page_->daemon, 1);
    std::atomic<bool> released{false};
    std::thread vudad([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        released = true;
        page::release_launches(page_->daemon);
    });
    fake_.launch(kSome, QmdKind::kGrid, context_);
    EXPECT_TRUE(released);
    vudad.join();
    // What does not share is nobody's business.
    page::hold_launches(page_->daemon, 2);
    const auto begin = std::chrono::steady_clock::now();
    fake_.launch(kSome, QmdKind::kGrid, &another_context_);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, page::LaunchHold::kLimit / 2);
    page::release_launches(page_->daemon);
}

TEST_F(Hook, ManagedMemoryIsRefusedToContextsThatShare) {
    prove();
    hook_->settled();
    CuDevicePtr memory = 0;
    EXPECT_EQ(fake_.allocate_managed(context_, &memory), limits::kNotSupported) << "and given back";
    EXPECT_EQ(hook_->managed_refused(), 1u);
    hook_->decline(&another_context_);
    EXPECT_EQ(fake_.allocate_managed(&another_context_, &memory), 0) << "it does not share";
    delete[] reinterpret_cast<uint32_t*>(memory);
    EXPECT_EQ(hook_->managed_refused(), 1u);
}

constexpr int kLibraryGetKernel = 681;
uint32_t kind_of(const std::array<uint8_t, kQmdLookBytes>& qmd) { return load32(qmd.data()) >> 23 & 7; }

TEST_F(Hook, CudaTellsOfLaunchesOnlyAsLongAsKernelsAreNew) {
    prove();
    hook_->settled();
    const auto launch = [&](uint32_t shared) {
        return fake_.call(FakeCuda::kLaunchKernel, context_,
                          [&] { fake_.launch(kSome, QmdKind::kGrid, context_, nullptr, {}, 1, shared); });
    };
    const auto told = [&] { return fake_.calls.count(FakeCuda::kLaunchKernel) != 0; };
    for (int i = 0; i < 4000; ++i) launch(1024);
    EXPECT_TRUE(told());
    for (int i = 0; i < 200; ++i) launch(1024);
    EXPECT_FALSE(told()) << "nothing new";
    publish(1, {6, 30});
    EXPECT_TRUE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, context_))) << "masks go on";
    fake_.call(kLibraryGetKernel, context_, [] {});
    EXPECT_TRUE(told());
    for (int i = 0; i < 4200; ++i) launch(1024);
    EXPECT_FALSE(told());
    hook_->expect_contexts();
    hook_->tell_launches();
    for (int i = 0; i < 4200; ++i) launch(1024);
    EXPECT_TRUE(told()) << "a context may come whose launches have to wait";
    hook_->settled();
    EXPECT_EQ(launch(60'000), limits::kLaunchOutOfResources);
    for (int i = 0; i < 4200; ++i) launch(1024);
    EXPECT_TRUE(told()) << "it may come again";
}

TEST_F(Hook, AKernelThatGrewWhenNobodyWasToldIsNotRunEither) {
    prove();
    hook_->settled();
    const auto launch = [&](uint32_t shared) {
        return fake_.call(FakeCuda::kLaunchKernel, context_,
                          [&] { fake_.launch(kSome, QmdKind::kGrid, context_, nullptr, {}, 1, shared); });
    };
    for (int i = 0; i < 4200; ++i) launch(1024);
    ASSERT_EQ(fake_.calls.count(FakeCuda::kLaunchKernel), 0u);
    std::array<uint8_t, kQmdLookBytes> qmd;
    EXPECT_EQ(fake_.call(FakeCuda::kLaunchKernel, context_,
                         [&] { qmd = fake_.launch(kSome, QmdKind::kGrid, context_, nullptr, {}, 1, 50'176); }),
              0)
        << "its call cannot say so";
    EXPECT_EQ(kind_of(qmd), 1u);
    fake_.wait(FakeCuda::kStreamSynchronize, context_);
    fake_.wait(FakeCuda::kStreamSynchronize, context_);
    EXPECT_EQ(page_->process.refused.load(), 1u);
    EXPECT_EQ(launch(50'176), limits::kLaunchOutOfResources) << "from then on it can";
}

TEST_F(Hook, AContextThatMayShareRunsNoLargeKernelBeforeItIsKnown) {
    prove();
    hook_->settled();
    const auto kind = [&](uint32_t shared) {
        return kind_of(fake_.launch(kSome, QmdKind::kGrid, &another_context_, nullptr, {}, 1, shared));
    };
    EXPECT_EQ(kind(60'000), 2u) << "no context is expected: it does not share";
    hook_->expect_contexts();
    EXPECT_EQ(kind(60'000), 1u);
    EXPECT_EQ(kind(1'024), 2u);
    EXPECT_EQ(page::launches(*page_), 0u) << "none that counts";
}

TEST_F(Hook, ADescriptorWithoutAKindIsMaskedWhereItCannotBeCooperative) {
    fake_.quirks.descriptor_version = 0x30;
    prove();
    EXPECT_FALSE(proof_->refuses) << "it cannot be made one without blocks";
    publish(1, {6, 30, 65});
    const auto plain = [](std::initializer_list<uint32_t> tpcs) {
        QmdMask mask;
        for (const uint32_t t : tpcs) mask.words[t / 64] |= uint64_t{1} << (t % 64);
        return mask;
    };
    const auto mask_of = [&](const LaunchShape& shape, const QmdMask& before = {}) {
        return FakeCuda::old_mask_of(fake_.launch(shape, QmdKind::kGrid, context_, nullptr, before));
    };
    // 132 SMs hold 8 blocks of 256 threads each: more are not cooperative.
    EXPECT_EQ(mask_of({{1057, 1, 1}, {256, 1, 1}}), plain({6, 30, 65}));
    EXPECT_EQ(mask_of({{1056, 1, 1}, {256, 1, 1}}), QmdMask{}) << "it may be, and count on all SMs";
    EXPECT_EQ(hook_->left_alone(), 1u);
    // 126 SMs are left.
    EXPECT_EQ(mask_of({{126, 1, 1}, {1024, 1, 1}}), plain({6, 30, 65})) << "room for all of it at once";
    EXPECT_EQ(mask_of({{127, 1, 1}, {1024, 1, 1}}), QmdMask{});
    EXPECT_EQ(mask_of({{40, 40, 40}, {32, 1, 1}}, plain({2})), plain({2, 6, 30, 65})) << "what CUDA excluded stays so";
}

TEST_F(Hook, OlderMasksHoldNoMoreTpcsThanTheyHaveBits) {
    for (const uint8_t version : {0x23, 0x24}) {
        fake_.quirks.descriptor_version = version;
        EXPECT_NE(check_error().text.find("has no place in a launch descriptor's mask"), std::string::npos)
            << "66 TPCs, 64 bits";
        hook_ = nullptr;
    }
}

TEST_F(Hook, AKernelThatDoesNotFitIsNotRunAndItsCallSaysSo) {
    prove();
    ASSERT_TRUE(proof_->refuses);
    std::array<uint8_t, kQmdLookBytes> qmd;
    const auto launch = [&](uint32_t shared, CuContext context) {
        return fake_.call(FakeCuda::kLaunchKernel, context,
                          [&] { qmd = fake_.launch(kSome, QmdKind::kGrid, context, nullptr, {}, 1, shared); });
    };
    EXPECT_EQ(launch(49'152, context_), 0);
    EXPECT_EQ(kind_of(qmd), 2u);
    EXPECT_EQ(launch(50'176, context_), limits::kLaunchOutOfResources);
    EXPECT_EQ(kind_of(qmd), 1u) << "a grid without blocks";
    EXPECT_EQ(launch(1024, context_), 0) << "the next one runs";
    EXPECT_EQ(kind_of(qmd), 2u);
    hook_->decline(&another_context_);
    EXPECT_EQ(launch(232'448, &another_context_), 0) << "it does not share";
    EXPECT_EQ(kind_of(qmd), 2u);
    EXPECT_EQ(hook_->launch_guard().refusals(), 1u);
    EXPECT_EQ(hook_->launch_guard().first_refused_bytes(), 50'176u);
    EXPECT_EQ(page_->process.refused.load(), 1u);
}

TEST_F(Hook, LaterDescriptorsOfAGraphAreMaskedToo) {
    prove();
    publish(1, {6});
    fake_.quirks.descriptor_offset = 4;
    EXPECT_EQ(FakeCuda::mask_of(fake_.launch(kSome, QmdKind::kGrid, context_)), bits_of({6}));
    EXPECT_EQ(kind_of(fake_.launch(kSome, QmdKind::kGrid, context_, nullptr, {}, 1, 100'352)), 1u);
    EXPECT_FALSE(hook_->off_reason());
}

TEST_F(Hook, AGraphThatHoldsSuchAKernelFailsEachTime) {
    prove();
    std::array<uint8_t, kQmdLookBytes> big, small;
    EXPECT_EQ(fake_.call(FakeCuda::kGraphLaunch, context_,
                         [&] {
                             small = fake_.launch(kSome, QmdKind::kGrid, context_);
                             big = fake_.launch(kSome, QmdKind::kGrid, context_, nullptr, {}, 1, 100'352);
                         }),
              limits::kLaunchOutOfResources);
    const auto again = [&](std::array<uint8_t, kQmdLookBytes>& qmd) {
        return fake_.call(FakeCuda::kGraphLaunch, context_, [&] { fake_.launch_again(qmd, context_); });
    };
    EXPECT_EQ(again(big), limits::kLaunchOutOfResources);
    EXPECT_EQ(again(small), 0);
    EXPECT_EQ(again(big), limits::kLaunchOutOfResources);
}

TEST_F(Hook, AKernelRefusedInNoKnownCallFailsTheNextWait) {
    prove();
    const auto qmd = fake_.launch(kSome, QmdKind::kGrid, context_, nullptr, {}, 1, 100'352);
    EXPECT_EQ(kind_of(qmd), 1u);
    fake_.wait(FakeCuda::kStreamSynchronize, context_);
    EXPECT_EQ(fake_.last_wait_result, static_cast<uint32_t>(limits::kLaunchFailed));
    fake_.wait(FakeCuda::kStreamSynchronize, context_);
    EXPECT_EQ(fake_.last_wait_result, 0u);
}

TEST_F(Hook, WhatIsNotProvedIsNotGuarded) {
    const auto unguarded = [&](auto spoil) {
        fake_.quirks = {};
        spoil(fake_.quirks);
        prove();
        EXPECT_FALSE(proof_->refuses);
        fake_.quirks = {};
        EXPECT_EQ(kind_of(fake_.launch(kSome, QmdKind::kGrid, context_, nullptr, {}, 1, 100'352)), 2u);
        publish(1, {6});
        EXPECT_TRUE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, context_))) << "splits are followed";
        hook_ = nullptr;
        proof_.reset();
    };
    unguarded([](FakeCuda::Quirks& quirks) { quirks.wait_enable_result = 1; });
    unguarded([](FakeCuda::Quirks& quirks) { quirks.wait_parameter_bytes = 0x70; });
    unguarded([](FakeCuda::Quirks& quirks) { quirks.results_are_elsewhere = true; });
    unguarded([](FakeCuda::Quirks& quirks) { quirks.empty_grids_run = true; });
}

TEST_F(Hook, ALaunchInAContextThatNobodyHasLookedAtWaits) {
    prove();
    cuda_.ctx_push(&another_context_);
    std::atomic<bool> launched{false};
    std::thread program([&] {
        cuda_.ctx_push(&another_context_);
        fake_.call(FakeCuda::kLaunchKernel, &another_context_, [&] { launched = true; });
        CuContext popped = nullptr;
        cuda_.ctx_pop(&popped);
    });
    CuContext newcomer = nullptr;
    while (newcomer == nullptr) {
        const uint32_t seen = events_.load();
        newcomer = hook_->take_newcomer();
        if (newcomer == nullptr) events_.wait(seen);
    }
    EXPECT_EQ(newcomer, &another_context_);
    EXPECT_FALSE(launched);
    hook_->approve(newcomer);
    program.join();
    EXPECT_TRUE(launched);
    CuContext popped = nullptr;
    cuda_.ctx_pop(&popped);
}

std::vector<page::Sample> waits_in(page::Page& page) {
    std::vector<page::Sample> found;
    page::SampleReader(page).drain([&](const page::Sample& sample) { found.push_back(sample); });
    return found;
}

TEST_F(Hook, WaitsForTheGpuAreTimed) {
    writer_.want(page::kAllSamples);
    prove();
    EXPECT_TRUE(waits_in(*page_).empty()) << "the probe's own waits are nobody's";
    fake_.wait(FakeCuda::kStreamSynchronize, context_, 2'000'000);
    fake_.wait(17, context_);
    fake_.wait(121, context_);
    fake_.wait(440, context_);
    fake_.wait(FakeCuda::kStreamSynchronize, &another_context_);
    const std::vector<page::Sample> found = waits_in(*page_);
    ASSERT_EQ(found.size(), 4u) << "one for each function, none for a context that does not share";
    EXPECT_EQ(found[0].kind, page::SampleKind::kSync);
    EXPECT_GE(found[0].duration_ns, 2'000'000u);
    EXPECT_LT(found[0].duration_ns, 2'000'000'000u);
}

TEST_F(Hook, WaitsAreNotTimedWhenNobodyListens) {
    prove();
    fake_.wait(FakeCuda::kStreamSynchronize, context_);
    writer_.want(page::kAllSamples);
    EXPECT_TRUE(waits_in(*page_).empty());
}

TEST_F(Hook, WaitsThatCudaDoesNotTellOfAsKnownAreNotTimed) {
    writer_.want(page::kAllSamples);
    const auto refused = [&](auto spoil) {
        fake_.quirks = {};
        spoil(fake_.quirks);
        prove();
        EXPECT_FALSE(proof_->waits);
        fake_.quirks = {};
        fake_.wait(FakeCuda::kStreamSynchronize, context_);
        EXPECT_TRUE(waits_in(*page_).empty());
        publish(1, {6});
        EXPECT_TRUE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, context_)))
            << "launches are followed all the same";
        hook_ = nullptr;
        proof_.reset();
    };
    refused([](FakeCuda::Quirks& quirks) { quirks.wait_enable_result = 1; });
    refused([](FakeCuda::Quirks& quirks) { quirks.wait_parameter_bytes = 0x70; });
    refused([](FakeCuda::Quirks& quirks) { quirks.waits_have_no_end = true; });
}

TEST_F(Hook, AWaitWhoseParametersChangedIsNoSampleAndNoHarm) {
    writer_.want(page::kAllSamples);
    prove();
    ASSERT_TRUE(proof_->waits);
    fake_.quirks.wait_parameter_bytes = 0x70;
    fake_.wait(FakeCuda::kStreamSynchronize, context_);
    fake_.quirks.wait_parameter_bytes = 0x68;
    fake_.quirks.waits_have_no_end = true;
    fake_.wait(FakeCuda::kStreamSynchronize, context_);
    fake_.quirks.waits_have_no_end = false;
    fake_.wait(FakeCuda::kStreamSynchronize, context_);
    EXPECT_EQ(waits_in(*page_).size(), 1u);
}

TEST_F(Hook, WithoutALimitDescriptorsStayAsTheyAre) {
    prove();
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, context_)));
    publish(1, {6});
    publish(2, {});
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, context_)));
    EXPECT_EQ(page_->process.applied.load(), 2u);
}

TEST_F(Hook, LaunchesCanBeLeftUnwatched) {
    prove();
    publish(1, {6});
    EXPECT_TRUE(hook_->watch(false));
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, context_)));
    EXPECT_TRUE(hook_->watch(true));
    EXPECT_TRUE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, context_)));
    EXPECT_EQ(page::launches(*page_), 1u);
    hook_->switch_off("for the test");
    EXPECT_FALSE(hook_->watch(true));
}

TEST_F(Hook, AMaskThatIsThereStays) {
    prove();
    publish(1, {6});
    EXPECT_EQ(FakeCuda::mask_of(fake_.launch(kSome, QmdKind::kGrid, context_, nullptr, bits_of({1, 2}))),
              bits_of({1, 2, 6}));
}

TEST_F(Hook, NothingIsMaskedIntoNeverStarting) {
    prove();
    publish(1, {6, 30});
    // A program that keeps itself to those very TPCs.
    QmdMask others;
    for (uint32_t t = 0; t < 66; ++t) {
        if (t != 6 && t != 30) {
            const uint32_t bit = testing::kCardMaskBits[t];
            others.words[bit / 64] |= uint64_t{1} << (bit % 64);
        }
    }
    EXPECT_EQ(FakeCuda::mask_of(fake_.launch(kSome, QmdKind::kGrid, context_, nullptr, others)), others);
    // Blocks that wait for each other.
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kCooperative, context_)));
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kCooperativeCluster, context_)));
    EXPECT_EQ(hook_->left_alone(), 3u);
}

TEST_F(Hook, ClustersAreMaskedWhereTheyStillFit) {
    prove();
    page::Split split{1, page::SplitMode::kInterSm, 8, {~uint64_t{0xff}, 3}};  // one TPC of each GPC
    writer_.publish(split);
    EXPECT_TRUE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kCluster, context_, nullptr, {}, 2)));
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kCluster, context_, nullptr, {}, 8)));
}

TEST_F(Hook, AContextThatIsNotOursIsLeftAlone) {
    prove();
    publish(1, {6});
    const uint32_t before = events_.load();
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, &another_context_)));
    EXPECT_NE(events_.load(), before);
    EXPECT_EQ(hook_->take_newcomer(), &another_context_);
    hook_->decline(&another_context_);
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, &another_context_)));
    EXPECT_EQ(hook_->take_newcomer(), nullptr) << "asked once";
    hook_->forget_contexts();
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, context_)));
}

TEST_F(Hook, AnotherPageAtTheSameVersionIsNoticed) {
    prove();
    publish(1, {6});
    (void)fake_.launch(kSome, QmdKind::kGrid, context_);
    *reinterpret_cast<page::Word*>(&page_->daemon.version) = 0;
    page::SplitWriter next(page_->daemon);
    next.publish({9, page::SplitMode::kInterSm, 65, {uint64_t{1} << 7}});
    hook_->page_replaced();
    EXPECT_EQ(FakeCuda::mask_of(fake_.launch(kSome, QmdKind::kGrid, context_)), bits_of({7}));
}

TEST_F(Hook, AnythingUnexpectedSwitchesItOffForGood) {
    prove();
    publish(1, {6});
    fake_.quirks.descriptor_version = 0x41;
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, context_)));
    ASSERT_TRUE(hook_->off_reason());
    fake_.quirks.descriptor_version = 0x40;
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, context_)));
}

TEST_F(Hook, OtherParametersSwitchItOff) {
    prove();
    publish(1, {6});
    fake_.quirks.parameter_bytes = 0x60;
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, context_)));
    EXPECT_TRUE(hook_->off_reason());
}

TEST_F(Hook, BeforeTheProofNoLaunchIsTouched) {
    cuda_ = fake_.driver();
    Result<std::unique_ptr<LaunchHook>> hook = LaunchHook::install(cuda_, events_);
    ASSERT_TRUE(hook);
    (*hook)->approve(context_);
    publish(1, {6});
    cuda_.ctx_push(context_);
    EXPECT_FALSE(FakeCuda::has_mask(fake_.launch(kSome, QmdKind::kGrid, context_)));
    EXPECT_EQ((*hook)->take_newcomer(), context_) << "and it tells where to prove it";
    CuContext popped;
    cuda_.ctx_pop(&popped);
}

TEST_F(Hook, ChangesUnderLoadAreAllOrNothing) {
    prove();
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> launches{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&] {
            const QmdMask even = bits_of({0, 2, 64}), odd = bits_of({1, 3, 65});
            do {
                const QmdMask got = FakeCuda::mask_of(fake_.launch(kSome, QmdKind::kGrid, context_));
                if (!(got == even) && !(got == odd) && !(got == QmdMask{}))
                    ADD_FAILURE() << "a mask that nobody asked for";
                launches.fetch_add(1);
            } while (!stop.load());
        });
    }
    for (uint64_t g = 1; g <= 20000 || launches.load() < 1000; ++g) {
        if (g % 2 == 0) {
            publish(g, {0, 2, 64});
        } else {
            publish(g, {1, 3, 65});
        }
    }
    stop.store(true);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(page::launches(*page_), launches.load());
}

// The requirement is 100 ns; processor time, so that other load on the machine does not count.
TEST_F(Hook, ALaunchCostsLessThan100Nanoseconds) {
    prove();
    publish(1, {6, 30});
    const auto cost = [&](bool enabled) {
        fake_.enabled = enabled;
        timespec begin, end;
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        for (int i = 0; i < 1 << 18; ++i) (void)fake_.launch(kSome, QmdKind::kGrid, context_);
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        return (static_cast<double>(end.tv_sec - begin.tv_sec) * 1e9 +
                static_cast<double>(end.tv_nsec - begin.tv_nsec)) /
               (1 << 18);
    };
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
        const double with = cost(true);
        best = std::min(best, with - cost(false));
    }
    RecordProperty("nanoseconds_a_launch", std::to_string(best));
#if !defined(VUDA_SANITIZED) && defined(__OPTIMIZE__)
    EXPECT_LT(best, 100);
#endif
}

TEST_F(Hook, WhatIsNotAsKnownIsRefused) {
    fake_.quirks.version = 13010;
    EXPECT_NE(check_error().text.find("CUDA 13.1"), std::string::npos);
    fake_.quirks = {};
    fake_.quirks.no_export_table = true;
    EXPECT_EQ(check_error().code, Code::kFailedPrecondition);
    fake_.quirks = {};
    fake_.quirks.subscribe_result = 210;
    EXPECT_NE(check_error().text.find("profiler"), std::string::npos);
    fake_.quirks = {};
    fake_.quirks.enable_result = 1;
    EXPECT_EQ(check_error().code, Code::kFailedPrecondition);
}

struct Quirk {
    const char* name;
    void (*set)(FakeCuda::Quirks&);
    Code code;
};

class SelfCheck : public Hook, public ::testing::WithParamInterface<Quirk> {};

TEST_P(SelfCheck, Refuses) {
    GetParam().set(fake_.quirks);
    const Error error = check_error();
    EXPECT_EQ(error.code, GetParam().code) << error.to_string();
    EXPECT_NE(error.text, "");
}

INSTANTIATE_TEST_SUITE_P(
    Quirks, SelfCheck,
    ::testing::Values(
        Quirk{"NoCallback", [](FakeCuda::Quirks& q) { q.never_calls_back = true; }, Code::kFailedPrecondition},
        Quirk{"ParameterSize", [](FakeCuda::Quirks& q) { q.parameter_bytes = 0x50; }, Code::kFailedPrecondition},
        Quirk{"ContextSlot", [](FakeCuda::Quirks& q) { q.wrong_context_slot = true; }, Code::kFailedPrecondition},
        Quirk{"UnmappedDescriptor", [](FakeCuda::Quirks& q) { q.descriptor_is_nowhere = true; },
              Code::kFailedPrecondition},
        Quirk{"DescriptorVersion", [](FakeCuda::Quirks& q) { q.descriptor_version = 0x22; }, Code::kFailedPrecondition},
        Quirk{"OtherGrid", [](FakeCuda::Quirks& q) { q.other_grid = true; }, Code::kFailedPrecondition},
        Quirk{"MaskWithoutEffect", [](FakeCuda::Quirks& q) { q.ignores_mask = true; }, Code::kFailedPrecondition},
        Quirk{"OtherNumbering", [](FakeCuda::Quirks& q) { q.numbers_plainly = true; }, Code::kFailedPrecondition},
        Quirk{"UnprovedTpc", [](FakeCuda::Quirks& q) { q.one_sm_never_runs = true; }, Code::kFailedPrecondition},
        Quirk{"NoModule", [](FakeCuda::Quirks& q) { q.module_load_result = 209; }, Code::kUnavailable}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace vuda::partition
