#include "daemon/live_set.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

namespace vuda::daemon {
namespace {

class LiveSetTest : public ::testing::Test {
 protected:
    static v1::Handle handle(uint64_t va, uint64_t length, uint64_t mapping) {
        v1::Handle out;
        out.set_kind(v1::HANDLE_KIND_CONTROL_BUFFER);
        out.set_va(va);
        out.set_length(length);
        out.set_mapping(mapping);
        return out;
    }
    HeldPtr held(const v1::Handle& handle) {
        return std::make_shared<const HeldHandle>(reaper_, handle, UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
    }
    HandleSetPtr set(const std::vector<v1::Handle>& buffers) {
        v1::Handle tsg;
        tsg.set_kind(v1::HANDLE_KIND_TSG);
        std::vector<HeldPtr> items{held(tsg)};
        for (const v1::Handle& one : buffers) items.push_back(held(one));
        return std::make_shared<const HandleSet>(reaper_, std::move(items));
    }
    static void remove(v1::MirrorUpdate& update, const v1::Handle& handle) {
        v1::MirrorRange& range = *update.add_removed();
        range.set_va(handle.va());
        range.set_length(handle.length());
        range.set_mapping(handle.mapping());
    }
    Status apply(LiveSet& live, const v1::MirrorUpdate& update, size_t limit = 100) {
        std::vector<HeldPtr> added;
        for (const v1::Handle& one : update.added()) added.push_back(held(one));
        return live.update(update, added, limit);
    }
    static std::vector<uint64_t> mappings(const LiveSet& live) {
        std::vector<uint64_t> out;
        const HandleSetPtr set = live.set();
        for (size_t i = 1; set && i < set->size(); ++i) out.push_back(set->items()[i]->mapping);
        return out;
    }

    FdReaper reaper_;
};

using Mappings = std::vector<uint64_t>;

TEST_F(LiveSetTest, AnUpdateTakesAwayAndAddsInOneStep) {
    LiveSet live;
    EXPECT_TRUE(live.empty());
    EXPECT_EQ(live.set(), nullptr);
    live.replace(set({handle(0x1000, 0x1000, 1), handle(0x4000, 0x2000, 2)}), 5);
    const HandleSetPtr before = live.set();
    v1::MirrorUpdate update;
    update.set_from(5);
    update.set_to(6);
    remove(update, handle(0x4000, 0x2000, 2));
    *update.add_added() = handle(0x5000, 0x1000, 3);  // where the other one was
    *update.add_added() = handle(0x2000, 0x1000, 4);
    ASSERT_TRUE(apply(live, update).ok());
    EXPECT_EQ(mappings(live), (Mappings{1, 4, 3}));
    EXPECT_EQ(live.generation(), 6u);
    EXPECT_EQ(live.size(), 4u);
    EXPECT_EQ(live.set(), live.set()) << "made once";
    EXPECT_EQ(before->size(), 3u) << "whoever transfers the set of before goes on with it";
    EXPECT_EQ(before->items()[1], live.set()->items()[1]) << "one descriptor for both";
}

TEST_F(LiveSetTest, WhatDoesNotFitChangesNothing) {
    LiveSet live;
    live.replace(set({handle(0x1000, 0x1000, 1), handle(0x4000, 0x2000, 2)}), 5);
    const auto refused = [&](Code code, const std::function<void(v1::MirrorUpdate&)>& change, size_t limit = 100) {
        v1::MirrorUpdate update;
        update.set_from(5);
        update.set_to(6);
        remove(update, handle(0x1000, 0x1000, 1));
        *update.add_added() = handle(0x8000, 0x1000, 7);
        change(update);
        const Status status = apply(live, update, limit);
        EXPECT_FALSE(status.ok());
        if (!status.ok()) {
            EXPECT_EQ(status.error().code, code) << status.error().text;
        }
        EXPECT_EQ(mappings(live), (Mappings{1, 2}));
        EXPECT_EQ(live.generation(), 5u);
    };
    refused(Code::kFailedPrecondition, [](v1::MirrorUpdate& u) { u.set_from(4); });
    refused(Code::kInvalidArgument, [](v1::MirrorUpdate& u) { u.set_to(5); });
    refused(Code::kInvalidArgument, [](v1::MirrorUpdate& u) { remove(u, handle(0x4000, 0x1000, 2)); });
    refused(Code::kInvalidArgument, [](v1::MirrorUpdate& u) { remove(u, handle(0x4000, 0x2000, 3)); });
    refused(Code::kInvalidArgument, [](v1::MirrorUpdate& u) { remove(u, handle(0x1000, 0x1000, 1)); });
    refused(Code::kInvalidArgument, [](v1::MirrorUpdate& u) { *u.add_added() = handle(0x5000, 0x1000, 8); });
    refused(Code::kInvalidArgument, [](v1::MirrorUpdate& u) { *u.add_added() = handle(0x7000, 0x1001, 8); });
    refused(Code::kInvalidArgument, [](v1::MirrorUpdate& u) { *u.add_added() = handle(0x9000, 0, 8); });
    refused(Code::kInvalidArgument, [](v1::MirrorUpdate& u) { u.add_added()->set_kind(v1::HANDLE_KIND_TSG); });
    refused(
        Code::kResourceExhausted, [](v1::MirrorUpdate& u) { *u.add_added() = handle(0x9000, 1, 8); }, 3);

    v1::MirrorUpdate two;
    two.set_from(5);
    two.set_to(6);
    *two.add_added() = handle(0x9000, 0x1000, 9);
    EXPECT_EQ(live.update(two, {}, 100).error().code, Code::kInvalidArgument) << "descriptors that did not come";
    LiveSet none;
    EXPECT_EQ(apply(none, two).error().code, Code::kFailedPrecondition);
    LiveSet unnumbered;
    unnumbered.replace(set({}), 0);
    two.set_from(0);
    EXPECT_EQ(apply(unnumbered, two).error().code, Code::kFailedPrecondition);
}

// Any row of updates leaves what a plain list of buffers says.
TEST_F(LiveSetTest, FollowsAnOwnerOverAnyRowOfUpdates) {
    for (unsigned seed = 0; seed < 20; ++seed) {
        std::mt19937 random(seed);
        LiveSet live;
        live.replace(set({}), 1);
        std::map<uint64_t, v1::Handle> model;
        uint64_t next = 0;
        for (uint64_t step = 1; step < 60; ++step) {
            v1::MirrorUpdate update;
            update.set_from(step);
            update.set_to(step + 1);
            std::map<uint64_t, v1::Handle> after = model;
            for (const auto& [va, one] : model) {
                if (random() % 3 != 0) continue;
                remove(update, one);
                after.erase(va);
            }
            for (int i = 0; i < 4; ++i) {
                const v1::Handle one = handle(random() % 40 * 0x1000, (1 + random() % 4) * 0x1000, ++next);
                const bool free = std::ranges::none_of(after, [&](const auto& entry) {
                    return entry.second.va() < one.va() + one.length() &&
                           one.va() < entry.second.va() + entry.second.length();
                });
                if (!free) continue;
                *update.add_added() = one;
                after[one.va()] = one;
            }
            ASSERT_TRUE(apply(live, update).ok()) << "seed " << seed << " step " << step;
            model = after;
            Mappings expected;
            for (const auto& [va, one] : model) expected.push_back(one.mapping());
            ASSERT_EQ(mappings(live), expected) << "seed " << seed << " step " << step;
        }
    }
}

}  // namespace
}  // namespace vuda::daemon
