#include "shim/preload/mirror_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "shim/preload/redirector.h"

namespace vuda::shim {
namespace {

OfferedBuffer buffer(uint64_t page, uint64_t pages, uint64_t mapping) {
    return {static_cast<int>(mapping), page * 4096, pages * 4096, 0, mapping};
}

// As the shim does.
void apply(MirrorTable& table, const MirrorUpdate& update) {
    const MirrorTable::Steps steps = table.plan(update);
    for (const MirrorRange& range : steps.drops) table.drop(range.va);
    for (const size_t i : steps.adds) {
        const OfferedBuffer& added = update.added[i];
        for (const auto& [va, entry] : table.entries()) {
            ASSERT_TRUE(va + entry.length <= added.va || added.va + added.length <= va)
                << "UVM refuses a range over another";
        }
        table.put(added.va, {added.length, added.mapping});
    }
}

TEST(MirrorTableTest, WhatIsThereStaysAndWhatIsNewComes) {
    MirrorTable table;
    MirrorUpdate update;
    update.added = {buffer(1, 2, 1), buffer(8, 1, 2)};
    apply(table, update);
    EXPECT_EQ(table.size(), 2u);
    EXPECT_TRUE(table.plan(update).empty()) << "a second time changes nothing";
    EXPECT_TRUE(table.holds(update.added));
    EXPECT_FALSE(table.holds(std::vector{buffer(8, 1, 3)}));
}

TEST(MirrorTableTest, AnAddressThatIsUsedAgainHoldsTheNewBuffer) {
    MirrorTable table;
    apply(table, {{}, {buffer(1, 2, 1), buffer(3, 2, 2), buffer(8, 1, 3)}});
    // The renderer's unmap was not told; its new buffer lies over two old ones.
    apply(table, {{}, {buffer(2, 2, 4)}});
    ASSERT_EQ(table.size(), 2u);
    EXPECT_EQ(table.entries().at(2 * 4096).mapping, 4u);
    EXPECT_EQ(table.entries().at(8 * 4096).mapping, 3u);
}

TEST(MirrorTableTest, OldNewsIsNoNews) {
    MirrorTable table;
    apply(table, {{}, {buffer(2, 2, 4)}});
    apply(table, {{}, {buffer(1, 2, 1)}});
    EXPECT_EQ(table.entries().begin()->second.mapping, 4u);
    // Neither is taking away what came before.
    apply(table, {{{2 * 4096, 2 * 4096, 3}}, {}});
    EXPECT_EQ(table.size(), 1u);
    apply(table, {{{2 * 4096, 2 * 4096, 4}}, {}});
    EXPECT_TRUE(table.empty());
}

TEST(MirrorTableTest, TidyLeavesWholePagesThatDoNotOverlap) {
    std::vector<OfferedBuffer> buffers = {buffer(4, 2, 2), buffer(1, 4, 1), buffer(9, 0, 3)};
    buffers.push_back({1, 20 * 4096 + 8, 4096, 0, 4});
    const std::vector<OfferedBuffer> tidied = tidy(buffers);
    ASSERT_EQ(tidied.size(), 2u);
    EXPECT_EQ(tidied[1].va, 5 * 4096u);
    EXPECT_EQ(tidied[1].offset, 4096u);
}

// What others hold, as they would know it.
class Held {
 public:
    void take(const HostDelta& delta) {
        for (const HostBuffer& gone : delta.removed) {
            const auto found = buffers_.find(gone.va);
            ASSERT_TRUE(found != buffers_.end() && found->second == gone) << "takes away what is not there";
            buffers_.erase(found);
        }
        for (const HostBuffer& come : delta.added) ASSERT_TRUE(buffers_.emplace(come.va, come).second);
    }
    const std::map<uint64_t, HostBuffer>& buffers() const { return buffers_; }

 private:
    std::map<uint64_t, HostBuffer> buffers_;
};

// A renderer maps and unmaps; deltas go out when something was mapped, in parts of any size; the mirror holds what the
// renderer has whenever all of it has arrived, also when it began with a later set and heard of earlier changes again.
TEST(MirrorTableTest, FollowsAnyRenderer) {
    for (unsigned seed = 0; seed < 100; ++seed) {
        std::mt19937 random(seed);
        ToldBuffers renderer;
        MirrorTable mirror;
        Held sent;
        uint64_t mappings = 0;
        std::vector<MirrorUpdate> history;
        for (int step = 0; step < 200; ++step) {
            if (random() % 3 == 0 && !renderer.buffers().empty()) {
                auto at = renderer.buffers().begin();
                std::advance(at, random() % renderer.buffers().size());
                renderer.set(at->first, {});
                continue;  // not told
            }
            const OfferedBuffer wanted = buffer(random() % 30, 1 + random() % 4, ++mappings);
            const bool taken = std::ranges::any_of(renderer.buffers(), [&](const auto& entry) {
                return entry.first < wanted.va + wanted.length && wanted.va < entry.first + entry.second.length;
            });
            if (taken) continue;
            renderer.set(wanted.va, HostBuffer{0, wanted.va, wanted.length, 0, wanted.mapping});
            if (random() % 4 == 0) continue;  // several at once
            for (;;) {
                const HostDelta delta = renderer.untold(1 + random() % 3, 1 + random() % 5, random() % 2);
                if (delta.added.empty() && !delta.more) break;
                MirrorUpdate update;
                for (const HostBuffer& one : delta.removed) update.removed.push_back({one.va, one.length, one.order});
                for (const HostBuffer& one : delta.added)
                    update.added.push_back({0, one.va, one.length, one.offset, one.order});
                renderer.told(delta);
                sent.take(delta);
                history.push_back(update);
                apply(mirror, update);
                if (random() % 10 == 0) apply(mirror, update);
            }
            if (random() % 3 == 0) {
                for (HostDelta piece{{}, {}, false, true}; piece.rest; renderer.told(piece)) {
                    piece = renderer.rest(1 + random() % 3);
                    MirrorUpdate update;
                    for (const HostBuffer& one : piece.removed)
                        update.removed.push_back({one.va, one.length, one.order});
                    sent.take(piece);
                    history.push_back(update);
                    apply(mirror, update);
                }
                ASSERT_TRUE(renderer.all_told());
                ASSERT_EQ(sent.buffers(), renderer.buffers());
            }
            // Nothing is missing, and nothing old lies where something new is.
            for (const auto& [va, one] : renderer.buffers()) {
                const auto found = mirror.entries().find(one.va);
                ASSERT_NE(found, mirror.entries().end()) << "seed " << seed << " step " << step;
                ASSERT_EQ(found->second.mapping, one.order);
                ASSERT_EQ(found->second.length, one.length);
            }
        }
        MirrorTable late;
        MirrorUpdate whole;
        for (const auto& [va, one] : sent.buffers()) whole.added.push_back({0, va, one.length, one.offset, one.order});
        apply(late, whole);
        const size_t from = history.empty() ? 0 : random() % history.size();
        for (size_t i = from; i < history.size(); ++i) apply(late, history[i]);
        for (const auto& [va, one] : renderer.buffers()) {
            if (renderer.is_untold(one)) continue;
            const std::vector<OfferedBuffer> there = {{0, va, one.length, one.offset, one.order}};
            EXPECT_TRUE(late.holds(there)) << "seed " << seed;
        }
    }
}

HostBuffer told_buffer(uint64_t page, uint64_t order) { return {1, page * 4096, 4096, 0, order}; }

TEST(ToldBuffersTest, WhatComesAndGoesUnheardIsNoNews) {
    ToldBuffers buffers;
    EXPECT_TRUE(buffers.set(0x1000, told_buffer(1, 1)));
    EXPECT_FALSE(buffers.set(0x1000, told_buffer(1, 1)));
    EXPECT_TRUE(buffers.set(0x1000, {}));
    EXPECT_FALSE(buffers.set(0x1000, {}));
    EXPECT_TRUE(buffers.all_told());
    buffers.set(0x1000, told_buffer(1, 2));
    buffers.told({told_buffer(1, 2)});
    EXPECT_TRUE(buffers.all_told());
    buffers.set(0x1000, {});
    EXPECT_FALSE(buffers.all_told());
    EXPECT_TRUE(buffers.untold(64, 64).removed.empty()) << "unmapping is not told by itself";
}

// The renderer goes on while a change is on its way.
TEST(ToldBuffersTest, WhatChangedSinceItWasLookedAtIsToldNext) {
    ToldBuffers buffers;
    buffers.set(0x1000, told_buffer(1, 1));
    const HostDelta first = buffers.untold(64, 64);
    ASSERT_EQ(first.added.size(), 1u);
    EXPECT_TRUE(buffers.is_untold(first.added[0]));
    buffers.set(0x1000, told_buffer(1, 2));
    EXPECT_FALSE(buffers.is_untold(first.added[0]));
    buffers.told(first);
    const HostDelta second = buffers.untold(64, 64);
    EXPECT_EQ(second.removed, first.added);
    EXPECT_EQ(second.added, std::vector{told_buffer(1, 2)});
    buffers.told(second);
    EXPECT_TRUE(buffers.all_told());
    // One that was taken away, and is as it was before.
    buffers.set(0x1000, {});
    buffers.set(0x2000, told_buffer(2, 3));
    const HostDelta third = buffers.untold(64, 64);
    EXPECT_EQ(third.removed.size(), 1u);
    buffers.set(0x1000, told_buffer(1, 2));
    buffers.told(third);
    EXPECT_EQ(buffers.untold(64, 64).added, third.removed);
}

TEST(ToldBuffersTest, PartsAreInAddressOrder) {
    ToldBuffers buffers;
    for (uint64_t page = 1; page <= 5; ++page) buffers.set(page * 4096, told_buffer(page, page));
    HostDelta part = buffers.untold(2, 2);
    EXPECT_EQ(part.added, (std::vector{told_buffer(1, 1), told_buffer(2, 2)}));
    EXPECT_TRUE(part.more);
    buffers.told(part);
    part = buffers.untold(3, 2);
    EXPECT_EQ(part.added.size(), 3u);
    EXPECT_FALSE(part.more);
    EXPECT_FALSE(part.rest);
}

// A mapping call waits until others have let go of what is removed.
TEST(ToldBuffersTest, OneMappingWaitsForWhatLiesInItsWayAndOneMore) {
    ToldBuffers buffers;
    std::vector<HostBuffer> held;
    for (uint64_t page = 1; page <= 2000; ++page) held.push_back(told_buffer(page, page));
    buffers.told(held);
    const HostBuffer wide{1, 1000 * 4096 + 2048, 2 * 4096, 0, 3000};  // over three of them
    buffers.set(wide.va, wide);
    const HostDelta change = buffers.untold(64, 1024);
    EXPECT_EQ(change.added, std::vector{wide});
    EXPECT_EQ(change.removed, (std::vector{told_buffer(1, 1), told_buffer(1000, 1000), told_buffer(1001, 1001),
                                           told_buffer(1002, 1002)}));
    EXPECT_FALSE(change.more);
    EXPECT_TRUE(change.rest);
    EXPECT_EQ(buffers.untold(64, 1024, 8).removed.size(), 3u + 8u);
}

TEST(ToldBuffersTest, WhatLiesInItsWayGoesFirstHoweverMuchItIs) {
    ToldBuffers buffers;
    std::vector<HostBuffer> held;
    for (uint64_t page = 1; page <= 5; ++page) held.push_back(told_buffer(page, page));
    held.push_back(told_buffer(9, 9));
    buffers.told(held);
    const HostBuffer wide{1, 4096, 5 * 4096, 0, 10};
    buffers.set(wide.va, wide);
    HostDelta part = buffers.untold(64, 3);
    EXPECT_EQ(part.removed, std::vector(held.begin(), held.begin() + 3));
    EXPECT_TRUE(part.added.empty());
    EXPECT_TRUE(part.more);
    buffers.told(part);
    part = buffers.untold(64, 3);
    EXPECT_EQ(part.removed, std::vector(held.begin() + 3, held.end())) << "and one more";
    EXPECT_EQ(part.added, std::vector{wide});
    EXPECT_FALSE(part.more);
}

TEST(ToldBuffersTest, TheRestIsWhatWasUnmappedBeforeSomethingWasMapped) {
    ToldBuffers buffers;
    for (uint64_t page = 1; page <= 9; ++page) buffers.set(page * 4096, told_buffer(page, page));
    buffers.told(buffers.untold(64, 64));
    for (uint64_t page = 1; page <= 6; ++page) buffers.set(page * 4096, {});
    EXPECT_TRUE(buffers.rest(64).removed.empty()) << "nothing was mapped since";
    EXPECT_FALSE(buffers.untold(64, 64).rest);
    buffers.set(0x20000, told_buffer(0x20, 20));
    EXPECT_TRUE(buffers.rest(64).removed.empty()) << "what was mapped goes first";
    buffers.told(buffers.untold(64, 64));
    buffers.set(7 * 4096, {});  // as when a device is destroyed
    HostDelta piece = buffers.rest(3);
    EXPECT_EQ(piece.removed, (std::vector{told_buffer(2, 2), told_buffer(3, 3), told_buffer(4, 4)}));
    EXPECT_TRUE(piece.added.empty());
    EXPECT_TRUE(piece.rest);
    buffers.told(piece);
    piece = buffers.rest(3);
    EXPECT_EQ(piece.removed, (std::vector{told_buffer(5, 5), told_buffer(6, 6)}));
    EXPECT_FALSE(piece.rest);
    buffers.told(piece);
    EXPECT_TRUE(buffers.rest(3).removed.empty());
    EXPECT_FALSE(buffers.all_told());
    // One that is back as it was is nothing to let go of, in whichever state it was.
    buffers.set(7 * 4096, told_buffer(7, 7));
    EXPECT_TRUE(buffers.all_told());
}

// Unmapping changes what the mapping beside it makes, without a mapping call.
TEST(ToldBuffersTest, WhatIsThereInAnotherShapeDoesNotGoBeforeItComes) {
    ToldBuffers buffers;
    for (uint64_t page = 1; page <= 4; ++page) buffers.set(page * 4096, told_buffer(page, page));
    buffers.told(buffers.untold(64, 64));
    for (const uint64_t page : {1, 2}) buffers.set(page * 4096, {});
    buffers.set(0x20000, told_buffer(0x20, 20));
    buffers.told(buffers.untold(64, 64));
    EXPECT_EQ(buffers.rest(64).removed.size(), 1u);
    const HostBuffer wider{1, 3 * 4096, 2 * 4096, 0, 4};
    buffers.set(3 * 4096, {});
    buffers.set(4 * 4096, wider);
    EXPECT_TRUE(buffers.rest(64).removed.empty());
}

// What others hold, and with it vudad's limit, does not grow beyond the most that there was at a time.
TEST(ToldBuffersTest, ARenewalOfEverythingNeedsNoMoreRoom) {
    ToldBuffers buffers;
    std::vector<HostBuffer> held;
    for (uint64_t page = 1; page <= 3000; ++page) held.push_back(told_buffer(page, page));
    buffers.told(held);
    size_t there = held.size();
    for (uint64_t page = 10'001; page <= 13'000; ++page) {
        buffers.set(page * 4096, told_buffer(page, page));
        if (page % 100 != 0) continue;
        for (HostDelta part{{}, {}, true, false}; part.more; buffers.told(part)) {
            part = buffers.untold(64, 1024);
            there = there + part.added.size() - part.removed.size();
            ASSERT_LE(there, 3000u);
        }
    }
    EXPECT_TRUE(buffers.all_told());
}

TEST(MirrorRuleTest, CoversWhatTheTsgsClientMapsLowInItsAddressSpace) {
    const MirrorRule rule;
    EXPECT_TRUE(rule.covers(true, true, 0x51f0000));
    EXPECT_TRUE(rule.covers(true, true, 0xffff'f000));
    EXPECT_FALSE(rule.covers(true, true, 0x1'0000'0000));
    EXPECT_FALSE(rule.covers(false, true, 0x51f0000));
    EXPECT_FALSE(rule.covers(true, false, 0x51f0000));
}

}  // namespace
}  // namespace vuda::shim
