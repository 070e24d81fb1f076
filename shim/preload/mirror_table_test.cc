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

std::vector<HostBuffer> host_of(const MirrorTable& table) {
    std::vector<HostBuffer> out;
    for (const auto& [va, entry] : table.entries()) out.push_back({0, va, entry.length, 0, entry.mapping});
    return out;
}

// A renderer maps and unmaps; deltas go out when something was mapped, in parts of any size; the mirror holds what the
// renderer has whenever all of it has arrived, also when it began with a later set and heard of earlier changes again.
TEST(MirrorTableTest, FollowsAnyRenderer) {
    for (unsigned seed = 0; seed < 100; ++seed) {
        std::mt19937 random(seed);
        MirrorTable renderer;
        MirrorTable mirror;
        std::vector<HostBuffer> sent;
        uint64_t mappings = 0;
        std::vector<MirrorUpdate> history;
        for (int step = 0; step < 200; ++step) {
            if (random() % 3 == 0 && !renderer.empty()) {
                auto at = renderer.entries().begin();
                std::advance(at, random() % renderer.size());
                renderer.drop(at->first);
                continue;  // not told
            }
            const OfferedBuffer wanted = buffer(random() % 30, 1 + random() % 4, ++mappings);
            const bool taken = std::ranges::any_of(renderer.entries(), [&](const auto& entry) {
                return entry.first < wanted.va + wanted.length && wanted.va < entry.first + entry.second.length;
            });
            if (taken) continue;
            renderer.put(wanted.va, {wanted.length, wanted.mapping});
            if (random() % 4 == 0) continue;  // several at once
            const std::vector<HostBuffer> now = host_of(renderer);
            for (;;) {
                HostDelta delta = host_delta(sent, now);
                if (delta.added.empty()) break;
                const size_t part = 1 + random() % 3;
                delta.added.resize(std::min(part, delta.added.size()));
                MirrorUpdate update;
                for (const HostBuffer& one : delta.removed) update.removed.push_back({one.va, one.length, one.order});
                for (const HostBuffer& one : delta.added)
                    update.added.push_back({0, one.va, one.length, one.offset, one.order});
                sent = after_delta(sent, delta);
                history.push_back(update);
                apply(mirror, update);
                if (random() % 10 == 0) apply(mirror, update);
            }
            ASSERT_EQ(sent, now);
            // Nothing is missing, and nothing old lies where something new is.
            for (const HostBuffer& one : now) {
                const auto found = mirror.entries().find(one.va);
                ASSERT_NE(found, mirror.entries().end()) << "seed " << seed << " step " << step;
                ASSERT_EQ(found->second.mapping, one.order);
                ASSERT_EQ(found->second.length, one.length);
            }
        }
        MirrorTable late;
        MirrorUpdate whole;
        for (const HostBuffer& one : sent) whole.added.push_back({0, one.va, one.length, one.offset, one.order});
        apply(late, whole);
        const size_t from = history.empty() ? 0 : random() % history.size();
        for (size_t i = from; i < history.size(); ++i) apply(late, history[i]);
        EXPECT_TRUE(late.holds(whole.added)) << "seed " << seed;
    }
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
