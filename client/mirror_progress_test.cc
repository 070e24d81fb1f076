#include "client/mirror_progress.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace vuda::client {
namespace {

TEST(MirrorProgressTest, AChangeIsReachedWhenTheLastPartOfItIsAnswered) {
    MirrorProgress progress;
    EXPECT_FALSE(progress.on());
    EXPECT_TRUE(progress.reached(1)) << "nobody follows";
    progress.begin(50);
    const uint64_t change = progress.change();
    EXPECT_TRUE(progress.due());
    EXPECT_FALSE(progress.reached(change));
    progress.sent(7);
    progress.sent(8);
    progress.covered(change);
    EXPECT_FALSE(progress.due());
    EXPECT_TRUE(progress.answered(7));
    EXPECT_FALSE(progress.reached(change));
    EXPECT_TRUE(progress.answered(8));
    EXPECT_TRUE(progress.reached(change));
    EXPECT_FALSE(progress.answered(8)) << "spent";
    EXPECT_FALSE(progress.answered(0));
}

TEST(MirrorProgressTest, AChangeThatWasInASetAlreadyIsReachedAtOnce) {
    MirrorProgress progress;
    progress.begin(50);
    const uint64_t change = progress.change();
    progress.covered(progress.newest());
    EXPECT_TRUE(progress.reached(change));
}

TEST(MirrorProgressTest, AChangeThatAnUpdateOnItsWayHoldsWaitsForThatOne) {
    MirrorProgress progress;
    progress.begin(50);
    progress.sent(1);
    progress.covered(progress.change());
    const uint64_t second = progress.change();
    progress.covered(second);  // nothing new was found
    EXPECT_FALSE(progress.reached(second));
    progress.answered(1);
    EXPECT_TRUE(progress.reached(second));
}

TEST(MirrorProgressTest, WhoWaitedInVainWaitsNoMoreUntilAllIsAnswered) {
    MirrorProgress progress;
    progress.begin(50);
    progress.sent(1);
    progress.covered(progress.change());
    progress.waited_in_vain();
    EXPECT_FALSE(progress.worth_waiting());
    progress.sent(2);
    progress.covered(progress.change());
    progress.answered(1);
    EXPECT_FALSE(progress.worth_waiting());
    progress.answered(2);
    EXPECT_TRUE(progress.worth_waiting());
}

TEST(MirrorProgressTest, TheEndFreesEverybody) {
    MirrorProgress progress;
    progress.begin(50);
    const uint64_t change = progress.change();
    progress.sent(1);
    progress.covered(change);
    progress.end();
    EXPECT_TRUE(progress.reached(change));
    EXPECT_FALSE(progress.worth_waiting());
    EXPECT_FALSE(progress.answered(1)) << "of a link that is gone";
    progress.begin(20);
    EXPECT_FALSE(progress.due()) << "the set of the next export holds it";
    EXPECT_TRUE(progress.reached(change));
}

TEST(MirrorProgressTest, WhatIsLeftGoesWhenNothingElseIsOnItsWay) {
    MirrorProgress progress;
    progress.rest(true);
    EXPECT_FALSE(progress.may_rest()) << "nobody follows";
    progress.begin(50);
    progress.change();
    EXPECT_FALSE(progress.may_rest()) << "a mapping call waits";
    progress.sent(1);
    progress.covered(progress.newest());
    EXPECT_FALSE(progress.may_rest());
    progress.answered(1);
    EXPECT_TRUE(progress.may_rest());
    progress.sent(2);
    EXPECT_FALSE(progress.may_rest()) << "one piece at a time";
    progress.answered(2, true);
    EXPECT_FALSE(progress.may_rest()) << "somebody is late";
    progress.rest(true);
    EXPECT_TRUE(progress.may_rest());
    progress.end();
    progress.begin(50);
    EXPECT_FALSE(progress.may_rest());
}

// Whatever order answers come in: a change is reached exactly when it and all before it are answered.
TEST(MirrorProgressTest, AnswersInAnyOrder) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        MirrorProgress progress;
        progress.begin(50);
        std::vector<uint64_t> out;                         // ids without an answer
        std::vector<std::pair<uint64_t, uint64_t>> waits;  // change, the last id that it needs
        uint64_t last_id = 0;
        for (int step = 0; step < 200; ++step) {
            if (random() % 2 == 0) {
                const uint64_t change = progress.change();
                for (unsigned parts = random() % 3; parts > 0; --parts) {
                    progress.sent(++last_id);
                    out.push_back(last_id);
                }
                progress.covered(change);
                waits.emplace_back(change, last_id);
            } else if (!out.empty()) {
                const size_t at = random() % out.size();
                ASSERT_TRUE(progress.answered(out[at]));
                out.erase(out.begin() + static_cast<std::ptrdiff_t>(at));
            }
            for (const auto& [change, id] : waits) {
                const bool answered = out.empty() || out.front() > id;
                ASSERT_EQ(progress.reached(change), answered) << "seed " << seed << " step " << step;
            }
        }
    }
}

}  // namespace
}  // namespace vuda::client
