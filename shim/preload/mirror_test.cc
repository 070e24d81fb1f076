// The redirector while a renderer maps and unmaps control buffers.
#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <random>
#include <vector>

#include "shim/preload/testing_process.h"

namespace vuda::shim {
namespace {

using testing::kCudaFile;
using testing::kUvmFile;
using testing::kVkFile;
using testing::TestProcess;
using testing::TestRm;

class RedirectorMirrorTest : public ::testing::Test {
 protected:
    RedirectorMirrorTest() { rm.exported[103] = {0, memory_object()}; }

    static Wishes wishes(bool Wishes::*what) {
        Wishes made;
        made.*what = true;
        return made;
    }
    static TestRm::Object memory_object() {
        TestRm::Object memory;
        memory.cls = rm::cls::kMemoryLocalUser;
        return memory;
    }
    void share(TestProcess& cuda) {
        cuda.redirector.set_wishes(wishes(&Wishes::attach));
        cuda.offer_host();
        for (size_t i = 0; i < cuda.offer.buffers.size(); ++i) cuda.offer.buffers[i].mapping = 2 - i;
        cuda.start_context();
    }
    // What Process::apply does. Returns the number of steps that failed.
    int apply(TestProcess& cuda, const MirrorUpdate& update, bool local = false) {
        int failed = 0;
        MirroredSpaces handled;
        for (;;) {
            const MirrorWork work = cuda.redirector.begin_mirror(update, handled, local);
            EXPECT_NE(work.state, MirrorWork::State::kBusy);
            if (work.state != MirrorWork::State::kReady) return failed;
            std::vector<bool> done;
            for (const MirrorWork::Step& step : work.steps) {
                size_t at = 0;
                while (at < step.actions.size() && rm.run(step.actions[at]).status == 0) ++at;
                done.push_back(at == step.actions.size());
                if (done.back()) continue;
                ++failed;
                for (const Action& undo : undo_all(std::span(step.actions).first(at))) rm.run(undo);
            }
            for (const Action& action : cuda.redirector.end_mirror(work, done)) rm.run(action);
            handled.push_back(work.space);
        }
    }
    bool mirrored(uint64_t va, uint64_t length) {
        const auto found = rm.ranges.find({kUvmFile, va});
        return found != rm.ranges.end() && found->second.length == length && found->second.mapped;
    }

    TestRm rm;
};

TEST_F(RedirectorMirrorTest, ABufferThatComesLaterIsMappedAndGoesWithTheContext) {
    TestProcess cuda(rm);
    share(cuda);
    const size_t objects = rm.objects.size();
    EXPECT_EQ(apply(cuda, {{}, {{103, 0x7000000, 0x3000, 0, 9}}}), 0);
    EXPECT_TRUE(mirrored(0x7000000, 0x3000));
    EXPECT_EQ(rm.ranges.size(), 3u);
    EXPECT_EQ(rm.objects.size(), objects) << "UVM holds the memory, no handle is left";
    EXPECT_EQ(cuda.free_object(kCudaFile, cuda.cu, cuda.cu_tsg), 0u);
    EXPECT_TRUE(rm.ranges.empty());
}

TEST_F(RedirectorMirrorTest, ABufferThatIsUnmappedGivesWayToTheNextAtItsAddress) {
    TestProcess cuda(rm);
    share(cuda);
    EXPECT_EQ(apply(cuda, {{{0x51f0000, 0x3000, 1}}, {{103, 0x51f1000, 0x1000, 0, 9}}}), 0);
    EXPECT_FALSE(mirrored(0x51f0000, 0x3000));
    EXPECT_TRUE(mirrored(0x51f1000, 0x1000));
    EXPECT_EQ(apply(cuda, {{}, {{103, 0x51f0000, 0x3000, 0, 10}}}), 0) << "also when nobody said that it went";
    EXPECT_TRUE(mirrored(0x51f0000, 0x3000));
    EXPECT_EQ(rm.ranges.size(), 2u);
}

TEST_F(RedirectorMirrorTest, WhereCudaHasSomethingTheOthersAreMirroredAllTheSame) {
    TestProcess cuda(rm);
    share(cuda);
    rm.ranges[{kUvmFile, 0x7000000}].length = 0x10000;  // not ours
    EXPECT_EQ(apply(cuda, {{}, {{103, 0x7001000, 0x1000, 0, 9}, {103, 0x8000000, 0x1000, 0, 10}}}), 1);
    EXPECT_TRUE(mirrored(0x8000000, 0x1000));
    EXPECT_EQ(cuda.free_object(kCudaFile, cuda.cu, cuda.cu_tsg), 0u);
    EXPECT_EQ(rm.ranges.size(), 1u) << "what is not ours stays";
}

TEST_F(RedirectorMirrorTest, AFailedMapLeavesNothing) {
    TestProcess cuda(rm);
    share(cuda);
    const size_t objects = rm.objects.size();
    rm.fail = [](const std::string& what) {
        return what == "map 7000000" ? std::optional<uint32_t>(0x51) : std::nullopt;
    };
    EXPECT_EQ(apply(cuda, {{}, {{103, 0x7000000, 0x3000, 0, 9}}}), 1);
    EXPECT_EQ(rm.ranges.size(), 2u);
    EXPECT_EQ(rm.objects.size(), objects);
    rm.fail = nullptr;
    EXPECT_EQ(apply(cuda, {{}, {{103, 0x7000000, 0x3000, 0, 9}}}), 0);
    EXPECT_TRUE(mirrored(0x7000000, 0x3000));
}

TEST_F(RedirectorMirrorTest, WhoSharesNothingHasNothingToFollow) {
    TestProcess cuda(rm);
    cuda.start_context();
    EXPECT_EQ(apply(cuda, {{}, {{103, 0x7000000, 0x3000, 0, 9}}}), 0);
    EXPECT_TRUE(rm.ranges.empty());
    EXPECT_FALSE(cuda.redirector.attaching());
    EXPECT_FALSE(cuda.redirector.shares_locally());
}

TEST_F(RedirectorMirrorTest, AMergeAndAnUpdateTakeTurns) {
    TestProcess cuda(rm);
    share(cuda);
    // A second context in the same address space while the mirrors are being changed.
    const MirrorWork work = cuda.redirector.begin_mirror({{}, {{103, 0x7000000, 0x3000, 0, 9}}}, {}, false);
    ASSERT_EQ(work.state, MirrorWork::State::kReady);
    EXPECT_EQ(cuda.redirector.begin_mirror({}, {}, false).state, MirrorWork::State::kBusy);
    bool ended = false;
    cuda.on_wait = [&] {
        EXPECT_FALSE(ended);
        ended = true;
        for (const Action& action : work.steps.at(0).actions) EXPECT_EQ(rm.run(action).status, 0u);
        EXPECT_TRUE(cuda.redirector.end_mirror(work, {true}).empty());
        return true;
    };
    EXPECT_EQ(cuda.free_object(kCudaFile, cuda.cu, cuda.cu_tsg), 0u);
    EXPECT_TRUE(ended);
    EXPECT_TRUE(rm.ranges.empty()) << "the end of the merge saw what the update had made";
}

TEST_F(RedirectorMirrorTest, AnUpdateThatTheContextDidNotWaitForCleansUp) {
    TestProcess cuda(rm);
    share(cuda);
    const MirrorWork work = cuda.redirector.begin_mirror({{}, {{103, 0x7000000, 0x3000, 0, 9}}}, {}, false);
    ASSERT_EQ(work.state, MirrorWork::State::kReady);
    cuda.on_wait = [] { return false; };  // for too long
    EXPECT_FALSE(Redirector::has_left(work));
    EXPECT_EQ(cuda.free_object(kCudaFile, cuda.cu, cuda.cu_tsg), 0u);
    EXPECT_TRUE(Redirector::has_left(work));
    for (const Action& action : work.steps.at(0).actions) EXPECT_EQ(rm.run(action).status, 0u);
    for (const Action& action : cuda.redirector.end_mirror(work, {true})) EXPECT_EQ(rm.run(action).status, 0u);
    EXPECT_TRUE(rm.ranges.empty());
}

// What fails then is nobody's mistake: the ranges went with the context.
TEST_F(RedirectorMirrorTest, FilesThatAreClosedWhileTheirMirrorsFollow) {
    TestProcess cuda(rm);
    share(cuda);
    const OfferedBuffer held = cuda.offer.buffers.at(0);
    const MirrorWork work = cuda.redirector.begin_mirror({{{held.va, held.length, held.mapping}}, {}}, {}, false);
    ASSERT_EQ(work.state, MirrorWork::State::kReady);
    ASSERT_EQ(work.steps.size(), 1u);
    for (const Action& action : cuda.redirector.file_closed(kCudaFile)) EXPECT_EQ(rm.run(action).status, 0u);
    EXPECT_NE(rm.run(work.steps[0].actions.at(0)).status, 0u);
    EXPECT_TRUE(cuda.redirector.end_mirror(work, {false}).empty());
    EXPECT_TRUE(Redirector::has_left(work));
}

// While vudad is asked for the TSG of a second context, the first one follows on.
TEST_F(RedirectorMirrorTest, AnAttachThatWaitsForItsTurnDoesNotHoldUpdatesBack) {
    TestProcess cuda(rm);
    share(cuda);
    class Asking : public Attacher {
     public:
        std::function<Offer()> answer;
        Offer attach(const AttachWish&) override { return answer(); }
        void release(Offer*) override {}
    } asking;
    bool asked = false;
    asking.answer = [&] {
        asked = true;
        EXPECT_TRUE(cuda.redirector.attaching());
        EXPECT_EQ(apply(cuda, {{}, {{103, 0x7000000, 0x3000, 0, 9}}}), 0);
        return cuda.offer;
    };
    uint32_t second = 0x5c000099;
    ASSERT_EQ(
        cuda.alloc(kCudaFile, cuda.cu, cuda.cu_device, &second, rm::cls::kChannelGroup, TestProcess::group_params(0)),
        0u);
    TestProcess::Memory memory;
    memory.process = &cuda;
    memory.file = kCudaFile;
    memory.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kAlloc, sizeof(rm::AllocArgs)));
    rm::AllocArgs args{};
    args.hRoot = cuda.cu;
    args.hObjectParent = second;
    args.hObjectNew = 0x5c00009a;
    args.hClass = rm::cls::kContextShare;
    args.pAllocParms = testing::kFakePointer;
    memory.arg = TestProcess::bytes_of(args);
    memory.params = TestProcess::words({cuda.cu_space, 1, 0});
    const std::vector<uint8_t> arg = memory.arg, params = memory.params;
    Call call;
    call.file = kCudaFile;
    call.role = FileRole::kControl;
    call.request = memory.request;
    call.now_ns = cuda.now_ns;
    call.arg = arg;
    call.params = params;
    EXPECT_EQ(run_call(cuda, rm, asking, memory, call), 0);
    EXPECT_TRUE(asked);
    EXPECT_TRUE(mirrored(0x7000000, 0x3000));
    EXPECT_FALSE(cuda.redirector.attaching());
}

TEST_F(RedirectorMirrorTest, CudaInTheRenderersProcessFollowsToo) {
    TestProcess both(rm);
    both.redirector.set_wishes(wishes(&Wishes::share_in_process));
    both.start_renderer();
    both.start_context();
    EXPECT_TRUE(both.redirector.shares_locally());
    both.map_dma(kVkFile, both.vk, both.vk_device, 0x50, 0x7000000, 0x3000);
    EXPECT_TRUE(both.maps_control);
    HostDelta change;
    const MirrorUpdate update = both.redirector.local_update(&change);
    EXPECT_EQ(update.added.size(), 1u) << "the others came with the context";
    EXPECT_EQ(apply(both, update, true), 0);
    EXPECT_TRUE(mirrored(0x7000000, 0x3000));
    EXPECT_EQ(rm.ranges.size(), 3u);
    EXPECT_EQ(both.redirector.local_update(&change).added.size(), 1u) << "until it is said that they have it";
    both.redirector.local_told(change);
    EXPECT_TRUE(both.redirector.local_update(&change).added.empty());
    EXPECT_EQ(apply(both, {{}, {{103, 0x8000000, 0x3000, 0, 9}}}), 0) << "vudad has nothing to do with it";
    EXPECT_EQ(rm.ranges.size(), 3u);
}

TEST_F(RedirectorMirrorTest, InOneProcessWhatWasUnmappedGoesALittleAtATime) {
    TestProcess both(rm);
    both.redirector.set_wishes(wishes(&Wishes::share_in_process));
    both.start_renderer();
    const auto map = [&](uint32_t i) {
        both.map_dma(kVkFile, both.vk, both.vk_device, 0x1000 + i, 0x10000000 + i * 0x10000, 0x1000);
    };
    for (uint32_t i = 0; i < 100; ++i) map(i);
    both.start_context();
    const auto update = [&] {
        HostDelta change;
        const MirrorUpdate made = both.redirector.local_update(&change);
        EXPECT_EQ(apply(both, made, true), 0);
        both.redirector.local_told(change);
        return made.removed.size();
    };
    update();
    const size_t before = rm.ranges.size();
    for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(both.free_object(kVkFile, both.vk, 0x1000 + i), 0u);
    EXPECT_EQ(update(), 0u) << "nothing was mapped";
    map(50);
    EXPECT_EQ(update(), 9u) << "the one that was there before, and a few more";
    EXPECT_TRUE(mirrored(0x10000000 + 50 * 0x10000, 0x1000));
    EXPECT_EQ(rm.ranges.size(), before - 8);
    for (uint32_t i = 0; i < 12; ++i) {
        map(200 + i);
        EXPECT_LE(update(), 8u);
    }
    EXPECT_EQ(rm.ranges.size(), before - 100 + 13);
}

TEST_F(RedirectorMirrorTest, OnlyControlBuffersOfTheTsgsClientAreTold) {
    TestProcess renderer(rm);
    renderer.redirector.set_wishes(wishes(&Wishes::share_renderer));
    renderer.start_renderer();
    EXPECT_FALSE(renderer.maps_control) << "the last call mapped nothing";
    renderer.map_dma(kVkFile, renderer.vk, renderer.vk_device, 0x50, 0x7000000, 0x3000);
    EXPECT_TRUE(renderer.maps_control);
    renderer.map_dma(kVkFile, renderer.vk, renderer.vk_device, 0x51, 0x1'0000'0000, 0x3000);
    EXPECT_FALSE(renderer.maps_control) << "above the driver's own heap";
    uint32_t other = 0;
    ASSERT_EQ(renderer.alloc(kVkFile, 0, 0, &other, rm::cls::kRootClient), 0u);
    renderer.map_dma(kVkFile, other, 1, 0x50, 0x7100000, 0x3000);
    EXPECT_FALSE(renderer.maps_control) << "another client";
}

TEST_F(RedirectorMirrorTest, OthersAreToldOfTheTsgThatWasExportedAndOfNoOther) {
    TestProcess renderer(rm);
    renderer.start_renderer();
    EXPECT_EQ(renderer.redirector.told_host().client, 0u) << "nothing was exported yet";
    const Host host = renderer.redirector.host();
    renderer.redirector.told(host.order + 1, host.buffers);
    EXPECT_EQ(renderer.redirector.told_host().client, 0u);
    renderer.redirector.told(host.order, host.buffers);
    EXPECT_EQ(renderer.redirector.told_host().tsg, host.tsg);
    EXPECT_TRUE(renderer.redirector.all_told());
    renderer.map_dma(kVkFile, renderer.vk, renderer.vk_device, 0x50, 0x7000000, 0x3000);
    EXPECT_FALSE(renderer.redirector.all_told());
    const HostDelta change = renderer.redirector.untold(64, 64);
    ASSERT_EQ(change.added.size(), 1u);
    EXPECT_EQ(change.added[0].va, 0x7000000u);
    EXPECT_TRUE(renderer.redirector.is_untold(change.added[0]));
    renderer.redirector.told(change);
    EXPECT_TRUE(renderer.redirector.all_told());
    EXPECT_EQ(renderer.free_object(kVkFile, renderer.vk, renderer.vk_tsg), 0u);
    ASSERT_EQ(renderer.alloc(kVkFile, renderer.vk, renderer.vk_device, &renderer.vk_tsg, rm::cls::kChannelGroup,
                             TestProcess::group_params(renderer.vk_space)),
              0u);
    EXPECT_EQ(renderer.redirector.told_host().client, 0u) << "another one under its handle";
    EXPECT_FALSE(renderer.redirector.all_told());
}

// A context brings what there was when it began. What the renderer maps before it shares may have reached all others;
// it must not be forgotten for that one.
TEST_F(RedirectorMirrorTest, WhatIsMappedWhileAContextIsAboutToShareIsToldAgain) {
    TestProcess both(rm);
    both.redirector.set_wishes(wishes(&Wishes::share_in_process));
    both.start_renderer();
    both.start_cuda();
    HostDelta change;
    bool mapped = false;
    rm.fail = [&](const std::string& what) -> std::optional<uint32_t> {
        if (mapped || !what.starts_with("alloc 9067")) return std::nullopt;
        mapped = true;
        EXPECT_TRUE(both.redirector.attaching());
        both.map_dma(kVkFile, both.vk, both.vk_device, 0x50, 0x7000000, 0x3000);
        EXPECT_EQ(both.redirector.local_update(&change).added.size(), 1u);
        both.redirector.local_told(change);
        return std::nullopt;
    };
    ASSERT_EQ(both.cuda_ctxshare(), 0u);
    EXPECT_TRUE(mapped);
    EXPECT_TRUE(both.redirector.shares_locally());
    EXPECT_EQ(apply(both, both.redirector.local_update(&change), true), 0);
    EXPECT_TRUE(mirrored(0x7000000, 0x3000));
}

TEST_F(RedirectorMirrorTest, AMappingGoesWithItsMemoryAndNotWithWhatWasThereBefore) {
    TestProcess renderer(rm);
    renderer.start_renderer();
    const size_t before = renderer.redirector.host().buffers.size();
    renderer.map_dma(kVkFile, renderer.vk, renderer.vk_device, 0x50, 0x7000000, 0x1000);
    renderer.map_dma(kVkFile, renderer.vk, renderer.vk_device, 0x51, 0x7000000, 0x1000);
    renderer.map_dma(kVkFile, renderer.vk, renderer.vk_device, 0x51, 0x7010000, 0x1000);
    EXPECT_EQ(renderer.redirector.host().buffers.size(), before + 2);
    rm.objects[{renderer.vk, 0xcaf00050}] = memory_object();  // its addresses
    EXPECT_EQ(renderer.free_object(kVkFile, renderer.vk, 0xcaf00050), 0u);
    EXPECT_EQ(renderer.free_object(kVkFile, renderer.vk, 0x50), 0u);
    EXPECT_EQ(renderer.redirector.host().buffers.size(), before + 2);
    EXPECT_EQ(renderer.free_object(kVkFile, renderer.vk, 0x51), 0u);
    EXPECT_EQ(renderer.redirector.host().buffers.size(), before);
}

// Mappings that begin and end within pages, of several address spaces, over others whose end went by unseen: whatever
// comes, who was told has what a look at everything gives.
TEST_F(RedirectorMirrorTest, WhatOthersAreToldLeadsToWhatIsThere) {
    for (unsigned seed = 0; seed < 60; ++seed) {
        std::mt19937 random(seed);
        TestRm own;
        TestProcess renderer(own);
        renderer.start_renderer();
        uint32_t other = 0xbeef0400;
        ASSERT_EQ(renderer.alloc(kVkFile, renderer.vk, renderer.vk_device, &other, rm::cls::kVaSpace,
                                 TestProcess::space_params(2)),
                  0u);
        const auto call = [&](uint32_t escape, const auto& args) {
            TestProcess::Memory m;
            m.file = kVkFile;
            m.request = static_cast<uint32_t>(rm::rm_request(escape, sizeof args));
            m.arg = TestProcess::bytes_of(args);
            renderer.call(m);
        };
        std::map<uint64_t, HostBuffer> held;
        const auto know = [&](const std::vector<HostBuffer>& buffers) {
            held.clear();
            for (const HostBuffer& buffer : buffers) held[buffer.va] = buffer;
        };
        const Host first = renderer.redirector.host();
        renderer.redirector.told(first.order, first.buffers);
        know(first.buffers);
        for (int step = 0; step < 150; ++step) {
            const uint64_t va = 0x7000000 + random() % 64 * 0x400;
            const unsigned what = random() % 16;
            if (what < 9) {
                rm::MapDmaArgs args{};
                args.hClient = renderer.vk;
                args.hDevice = renderer.vk_device;
                const uint32_t spaces[] = {renderer.vk_space, renderer.vk_space, other, 0xcaf00001};
                args.hDma = spaces[random() % 4];
                args.hMemory = 0x60 + random() % 8;
                args.length = random() % 12 * 0x400;
                args.offset = random() % 2 * 0x1000 + (random() % 4 != 0 ? va % 0x1000 : 0);
                args.dmaOffset = va;
                call(rm::escape::kMapMemoryDma, args);
            } else if (what < 13) {
                rm::UnmapDmaArgs args{};
                args.hClient = renderer.vk;
                args.dmaOffset = va;
                call(rm::escape::kUnmapMemoryDma, args);
            } else if (what < 15 || random() % 8 != 0) {
                rm::FreeArgs args{};
                args.hRoot = renderer.vk;
                args.hObjectOld = 0x60 + random() % 8;
                own.objects[{renderer.vk, args.hObjectOld}] = memory_object();
                call(rm::escape::kFree, args);
            } else {
                // The TSG's address space is not known any more: everything may be in it.
                uint32_t gone = renderer.vk_space;
                renderer.free_object(kVkFile, renderer.vk, gone);
            }
            if (random() % 2 == 0) continue;
            HostDelta delta;
            do {
                delta = renderer.redirector.untold(1 + random() % 4, 1 + random() % 4);
                for (const HostBuffer& buffer : delta.removed) {
                    ASSERT_EQ(held.at(buffer.va), buffer) << "seed " << seed << " step " << step;
                    held.erase(buffer.va);
                }
                for (const HostBuffer& buffer : delta.added) ASSERT_TRUE(held.emplace(buffer.va, buffer).second);
                renderer.redirector.told(delta);
            } while (delta.more);
            while (random() % 3 != 0 && delta.rest) {
                delta = renderer.redirector.untold_rest(1 + random() % 4);
                for (const HostBuffer& buffer : delta.removed) {
                    ASSERT_EQ(held.at(buffer.va), buffer) << "seed " << seed << " step " << step;
                    held.erase(buffer.va);
                }
                renderer.redirector.told(delta);
                for (const HostBuffer& buffer : renderer.redirector.host().buffers)
                    ASSERT_TRUE(held.contains(buffer.va)) << "a piece takes away nothing that is there";
            }
            if (renderer.redirector.all_told()) {
                const std::map<uint64_t, HostBuffer> told = held;
                know(renderer.redirector.host().buffers);
                ASSERT_EQ(told, held) << "seed " << seed << " step " << step;
            }
        }
    }
}

// A renderer with thousands of control buffers must not pay for them with each further one.
TEST_F(RedirectorMirrorTest, OneMoreMappingLooksAtNoOther) {
    const auto looks = [&](uint32_t others) {
        TestRm own;
        TestProcess renderer(own);
        renderer.start_renderer();
        const auto map = [&](uint32_t i) {
            renderer.map_dma(kVkFile, renderer.vk, renderer.vk_device, 0x1000 + i, 0x10000000 + i * 0x10000, 0x1000);
        };
        for (uint32_t i = 0; i < others; ++i) map(2 * i);
        const Host host = renderer.redirector.host();
        renderer.redirector.told(host.order, host.buffers);
        const uint64_t before = renderer.redirector.looks();
        map(others | 1);  // between two others
        EXPECT_EQ(renderer.redirector.told_host().order, host.order);
        const HostDelta change = renderer.redirector.untold(64, 64);
        EXPECT_EQ(change.added.size(), 1u);
        renderer.redirector.told(change);
        EXPECT_TRUE(renderer.redirector.all_told());
        return renderer.redirector.looks() - before;
    };
    EXPECT_EQ(looks(8192), looks(10));
    EXPECT_LE(looks(8192), 4u);
}

TEST_F(RedirectorMirrorTest, InOneProcessNeitherDoesIt) {
    const auto work = [&](uint32_t others) {
        TestRm own;
        TestProcess both(own);
        both.redirector.set_wishes(wishes(&Wishes::share_in_process));
        both.start_renderer();
        const auto map = [&](uint32_t i) {
            both.map_dma(kVkFile, both.vk, both.vk_device, 0x1000 + i, 0x10000000 + i * 0x10000, 0x1000);
        };
        for (uint32_t i = 0; i < others; ++i) map(2 * i);
        both.start_context();
        const uint64_t before = both.redirector.looks();
        map(others | 1);
        HostDelta change;
        const MirrorUpdate update = both.redirector.local_update(&change);
        const MirrorWork work = both.redirector.begin_mirror(update, {}, true);
        EXPECT_EQ(work.steps.size(), 1u);
        both.redirector.end_mirror(work, {true});
        both.redirector.local_told(change);
        return both.redirector.looks() - before + update.added.size();
    };
    EXPECT_EQ(work(8192), work(10));
}

// Searches count no looks: time of this thread does, which no load of the machine changes much.
TEST_F(RedirectorMirrorTest, OneLessLooksAtNoOther) {
    const auto took = [&](uint32_t others) {
        TestRm own;
        TestProcess renderer(own);
        renderer.start_renderer();
        const auto map = [&](uint32_t i) {
            renderer.map_dma(kVkFile, renderer.vk, renderer.vk_device, 0x10000 + i, 0x10000000 + i * 0x1000, 0x1000);
        };
        for (uint32_t i = 0; i < others; ++i) {
            map(i);
            own.objects.erase({renderer.vk, 0x10000 + i});  // the fake one looks at all
        }
        timespec begin{}, end{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        for (uint32_t i = 0; i < 500; ++i) {
            map(others + i);
            EXPECT_EQ(renderer.free_object(kVkFile, renderer.vk, 0x10000 + others + i), 0u);
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        return static_cast<double>(end.tv_sec - begin.tv_sec) * 1e9 + static_cast<double>(end.tv_nsec - begin.tv_nsec);
    };
    took(64);
    EXPECT_LT(took(16'384), 10 * took(64));
}

// Same client, low address, but reserved in an address space that the TSG does not run in.
TEST_F(RedirectorMirrorTest, AnotherAddressSpaceOfTheClientIsNotMirrored) {
    TestProcess renderer(rm);
    renderer.start_renderer();
    uint32_t space = 0xbeef0400;
    ASSERT_EQ(renderer.alloc(kVkFile, renderer.vk, renderer.vk_device, &space, rm::cls::kVaSpace,
                             TestProcess::space_params(2)),
              0u);
    const auto reserve = [&](uint32_t in, uint32_t memory) {
        TestProcess::Memory m;
        m.file = kVkFile;
        m.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kVidHeapControl, sizeof(rm::VidHeapArgs)));
        rm::VidHeapArgs args{};
        args.hRoot = renderer.vk;
        args.hObjectParent = renderer.vk_device;
        args.function = rm::kVidHeapAllocSize;
        args.hVASpace = in;
        args.allocSize.hMemory = 0xcaf00000 | memory;
        m.arg = TestProcess::bytes_of(args);
        renderer.call(m);
    };
    const size_t before = renderer.redirector.host().buffers.size();
    reserve(space, 0x60);
    renderer.map_dma(kVkFile, renderer.vk, renderer.vk_device, 0x60, 0x7000000, 0x3000);
    EXPECT_FALSE(renderer.maps_control);
    EXPECT_EQ(renderer.redirector.host().buffers.size(), before);
    reserve(renderer.vk_space, 0x61);
    renderer.map_dma(kVkFile, renderer.vk, renderer.vk_device, 0x61, 0x7100000, 0x3000);
    EXPECT_TRUE(renderer.maps_control);
    EXPECT_EQ(renderer.redirector.host().buffers.size(), before + 1);
}

}  // namespace
}  // namespace vuda::shim
