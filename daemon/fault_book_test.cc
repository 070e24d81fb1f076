#include "daemon/fault_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vuda::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

class FaultBookTest : public ::testing::Test {
 protected:
    static Suspect python(uid_t uid = 1000) { return {uid, "/usr/bin/python3"}; }
    static FaultBook::Report report(std::optional<Suspect> culprit = python(), uint32_t xid = 13) {
        return {xid, "Xid 13 (graphics engine exception)", std::move(culprit), 4711, 1'700'000'000'000};
    }
    Milliseconds record(const std::string& name, std::optional<Suspect> culprit = python(), uid_t owner = 1000) {
        return book_.record(name, owner, report(std::move(culprit)), settings_, now_);
    }
    bool held(const std::string& name, const Suspect& who = python()) const {
        return book_.held(name, who, now_) != nullptr;
    }

    bool unfit(const std::string& name, bool fitted = false, const Suspect& who = python()) const {
        return book_.unfit(name, who, fitted, now_) != nullptr;
    }
    Milliseconds does_not_fit(const std::string& name, uint32_t bytes = 65'536, bool fitted = false,
                              uid_t owner = 1000) {
        return book_.does_not_fit(name, owner, python(), {bytes, 49'152, fitted}, unshare_, now_);
    }

    HoldSettings settings_{10s, 4, 1000s, 24h};
    HoldSettings unshare_{600s, 4, 24h, 168h};
    TimePoint now_{100h};
    FaultBook book_;
};

TEST_F(FaultBookTest, BackOffGrowsToItsMaximum) {
    EXPECT_EQ(settings_.hold_for(0), 0ms);
    EXPECT_EQ(settings_.hold_for(1), 10s);
    EXPECT_EQ(settings_.hold_for(2), 40s);
    EXPECT_EQ(settings_.hold_for(3), 160s);
    EXPECT_EQ(settings_.hold_for(4), 640s);
    EXPECT_EQ(settings_.hold_for(5), 1000s);
    EXPECT_EQ(settings_.hold_for(UINT32_MAX), 1000s);
    EXPECT_EQ((HoldSettings{0s, 4, 1000s, 24h}).hold_for(3), 0ms);
    EXPECT_EQ((HoldSettings{10s, 1, 1000s, 24h}).hold_for(3), 10s);
    EXPECT_EQ((HoldSettings{10s, 100, 5s, 24h}).hold_for(1), 5s);
}

TEST_F(FaultBookTest, TheCulpritIsHeldOffFromThatNameOnly) {
    EXPECT_EQ(record("game"), 10s);
    EXPECT_TRUE(held("game"));
    EXPECT_FALSE(held("other"));
    EXPECT_FALSE(held("game", python(1001))) << "another user's python is another program";
    EXPECT_FALSE(held("game", {1000, "/usr/bin/perl"}));
    now_ += 9999ms;
    EXPECT_TRUE(held("game"));
    now_ += 1ms;
    EXPECT_FALSE(held("game"));
}

TEST_F(FaultBookTest, EachFurtherFaultHoldsLongerUntilItIsForgotten) {
    record("game");
    now_ += 1min;
    EXPECT_EQ(record("game"), 40s);
    now_ += 23h;
    EXPECT_EQ(record("game"), 160s);
    now_ += 24h;
    EXPECT_EQ(record("game"), 10s) << "a day without one";
}

TEST_F(FaultBookTest, BlamingAnotherUndoesWhatWasDoneToTheFirst) {
    record("game");
    now_ += 1min;
    record("game");
    EXPECT_EQ(book_.blame("game", {1000, "/bin/spin"}, 12, settings_, now_), 10s);
    EXPECT_TRUE(held("game", {1000, "/bin/spin"}));
    EXPECT_FALSE(held("game"));
    EXPECT_EQ(book_.find("game")->culprit, (Suspect{1000, "/bin/spin"}));
    EXPECT_EQ(book_.find("game")->holds.at(python()).times, 1u) << "its earlier one stays";
    EXPECT_EQ(book_.blame("game", {1000, "/bin/spin"}, 12, settings_, now_), 0ms) << "once";
}

TEST_F(FaultBookTest, AFaultWithoutSharersHoldsNobody) {
    EXPECT_EQ(record("game", std::nullopt), 0ms);
    EXPECT_TRUE(book_.find("game")->dead);
    EXPECT_FALSE(book_.find("game")->held(now_));
    EXPECT_EQ(book_.next_end(), std::nullopt);
    EXPECT_EQ(book_.holds_in_force(now_), 0u);
}

TEST_F(FaultBookTest, NamesAreKeptForTheirUserWhileSomebodyIsHeldOff) {
    record("game");
    EXPECT_EQ(book_.reserved("game", now_), 1000u);
    EXPECT_EQ(book_.reserved("other", now_), std::nullopt);
    now_ += 10s;
    EXPECT_EQ(book_.reserved("game", now_), std::nullopt);
}

TEST_F(FaultBookTest, TheEndOfAQuarantineIsToldOnce) {
    record("a");
    now_ += 1s;
    record("b");
    EXPECT_EQ(book_.next_end(), now_ + 9s);
    EXPECT_THAT(book_.take_ended(settings_, unshare_, now_).faults, IsEmpty());
    now_ += 9s;
    EXPECT_THAT(book_.take_ended(settings_, unshare_, now_).faults, ElementsAre("a"));
    EXPECT_THAT(book_.take_ended(settings_, unshare_, now_).faults, IsEmpty());
    now_ += 1s;
    EXPECT_THAT(book_.take_ended(settings_, unshare_, now_).faults, ElementsAre("b"));
    EXPECT_EQ(book_.next_end(), std::nullopt);
    EXPECT_NE(book_.find("a"), nullptr) << "the next fault is not the first";
    book_.recovered("a");
    now_ += 24h;
    book_.take_ended(settings_, unshare_, now_);
    EXPECT_EQ(book_.find("a"), nullptr);
    EXPECT_NE(book_.find("b"), nullptr) << "it is dead still";
}

TEST_F(FaultBookTest, LiftingForgetsWhatIsNotDead) {
    record("game");
    EXPECT_EQ(book_.lift("game", now_), 1u);
    EXPECT_FALSE(held("game"));
    ASSERT_NE(book_.find("game"), nullptr);
    EXPECT_TRUE(book_.find("game")->dead);
    EXPECT_TRUE(book_.recovered("game"));
    EXPECT_FALSE(book_.recovered("game"));
    EXPECT_EQ(book_.lift("game", now_), 0u);
    EXPECT_EQ(book_.find("game"), nullptr);
    EXPECT_EQ(book_.lift("game", now_), std::nullopt);
    EXPECT_EQ(record("game"), 10s) << "as if it were the first";
}

TEST_F(FaultBookTest, ANumberThatComesLaterIsTakenIn) {
    book_.record("game", 1000, report(python(), 0), settings_, now_);
    book_.complete("game", 31, "Xid 31 (MMU fault)");
    EXPECT_EQ(book_.find("game")->xid, 31u);
    book_.complete("game", 13, "Xid 13");
    EXPECT_EQ(book_.find("game")->text, "Xid 31 (MMU fault)") << "the first word counts";
}

TEST_F(FaultBookTest, AnotherUsersNameIsAnotherName) {
    record("game");
    record("game", Suspect{7, "/bin/x"}, 1001);
    EXPECT_FALSE(held("game"));
    EXPECT_TRUE(held("game", {7, "/bin/x"}));
    EXPECT_EQ(book_.reserved("game", now_), 1001u);
}

TEST_F(FaultBookTest, KeptTextBringsItAllBack) {
    record("game", Suspect{1000, "/home/me/with space\nand % line"});
    record("other", std::nullopt);
    now_ += 4s;
    const std::string text = book_.to_text(now_, 5'000'000);
    FaultBook back;
    const TimePoint later{3s};  // another boot: the monotonic clock began anew
    EXPECT_EQ(back.load(text, settings_, unshare_, later, 5'002'000), 0u) << text;
    const Suspect who{1000, "/home/me/with space\nand % line"};
    ASSERT_NE(back.held("game", who, later), nullptr) << text;
    EXPECT_EQ(back.held("game", who, later)->until, later + 4s) << "6 s were left, 2 s went by";
    EXPECT_EQ(back.held("game", who, later)->times, 1u);
    EXPECT_EQ(back.find("game")->culprit, who);
    EXPECT_EQ(back.find("game")->culprit_pid, 4711);
    EXPECT_EQ(back.find("game")->xid, 13u);
    EXPECT_EQ(back.find("game")->text, "Xid 13 (graphics engine exception)");
    EXPECT_FALSE(back.find("game")->dead) << "the owner says anew what it has";
    EXPECT_EQ(back.next_end(), later + 4s);
    EXPECT_EQ(back.find("other")->culprit, std::nullopt);
}

TEST_F(FaultBookTest, AClockThatJumpedHoldsNobodyForEver) {
    record("game");
    const std::string text = book_.to_text(now_, 9'000'000'000'000);
    FaultBook back;
    EXPECT_EQ(back.load(text, settings_, unshare_, now_, 1000), 0u);
    EXPECT_EQ(back.held("game", python(), now_)->until, now_ + 1000s) << "the maximum from now";
    FaultBook past;
    EXPECT_EQ(past.load(text, settings_, unshare_, now_, 99'000'000'000'000), 0u);
    EXPECT_EQ(past.held("game", python(), now_), nullptr);
}

TEST_F(FaultBookTest, LinesThatMeanNothingAreCountedAndLeftOut) {
    FaultBook book;
    EXPECT_EQ(book.load("", settings_, unshare_, now_, 0), 0u);
    EXPECT_EQ(book.load("something else\nname a 1 2 3 x\n", settings_, unshare_, now_, 0), 1u);
    EXPECT_THAT(book.names(), IsEmpty());
    const std::string text =
        "vuda-faults 1\n"
        "hold 1 1 0 0 /bin/x\n"                        // of no name
        "name ../x 1 2 3 x\n"                          // not a name
        "name good 1 2 3 Xid%2013\n"                   //
        "hold 1 0 0 0 /bin/x\n"                        // no fault
        "hold 1 1 -5 0 /bin/x\n"                       // before time began
        "hold 1 1 0 99999999999999999999999 /bin/x\n"  // no number
        "hold 1 1 5 9223372036854775807 /bin/x%0\n"    // half an escape
        "hold 1 1 5 9223372036854775807 /bin/x\n"      //
        "name worse 1 2 3\n"                           // a word short
        "culprit 1 2 x\n";                             // of no name
    EXPECT_EQ(book.load(text, settings_, unshare_, now_, 1000), 8u);
    ASSERT_NE(book.find("good"), nullptr);
    EXPECT_EQ(book.find("good")->text, "Xid 13");
    EXPECT_EQ(book.held("good", {1, "/bin/x"}, now_)->until, now_ + 1000s);
    EXPECT_EQ(book.names().size(), 1u);
}

TEST_F(FaultBookTest, OneUserCannotFillTheBook) {
    book_.set_limit(4);
    for (int i = 0; i < 100; ++i) {
        now_ += 1ms;
        const std::string name = "n" + std::to_string(i);
        record(name);
        book_.recovered(name);
    }
    EXPECT_EQ(book_.names().size(), 8u);
    EXPECT_NE(book_.find("n99"), nullptr);
    record("mine", python(), 1001);
    EXPECT_EQ(book_.names().size(), 9u);
    for (uid_t uid = 0; uid < 2000; ++uid) record("u" + std::to_string(uid), Suspect{uid, "/bin/x"}, 2000 + uid);
    EXPECT_LE(book_.names().size(), 2009u);
    for (uid_t who = 0; who < 200; ++who) record("mine", Suspect{who, "/bin/x"}, 1001);
    EXPECT_EQ(book_.find("mine")->holds.size(), FaultBook::kHoldsPerName);
}

TEST_F(FaultBookTest, AProgramThatDoesNotFitIsHeldOffFromThatNameOnly) {
    EXPECT_EQ(does_not_fit("game"), 600s);
    EXPECT_TRUE(unfit("game"));
    EXPECT_FALSE(unfit("other"));
    EXPECT_FALSE(unfit("game", false, python(1001)));
    EXPECT_FALSE(held("game")) << "no fault";
    EXPECT_FALSE(book_.find("game")->fault());
    EXPECT_FALSE(book_.reserved("game", now_)) << "another user may have the name";
    EXPECT_EQ(book_.holds_in_force(now_), 0u);
    EXPECT_EQ(book_.unfit_in_force(now_), 1u);
    EXPECT_EQ(book_.next_end(), now_ + 600s);
    now_ += 600s;
    EXPECT_FALSE(unfit("game"));
    EXPECT_EQ(book_.unfit_in_force(now_), 0u);
    FaultBook::Over over = book_.take_ended(settings_, unshare_, now_);
    EXPECT_THAT(over.unfit, ElementsAre("game"));
    EXPECT_THAT(over.faults, IsEmpty());
    EXPECT_THAT(book_.take_ended(settings_, unshare_, now_).unfit, IsEmpty());
    EXPECT_NE(book_.find("game"), nullptr) << "the next time is the second one";
    now_ += 168h;
    book_.take_ended(settings_, unshare_, now_);
    EXPECT_EQ(book_.find("game"), nullptr);
}

TEST_F(FaultBookTest, NotFittingHoldsLongerEachTimeThatItComesBack) {
    does_not_fit("game", 50'000);
    now_ += 100s;
    EXPECT_EQ(does_not_fit("game", 70'000), 500s) << "a process that was in already";
    EXPECT_EQ(does_not_fit("game", 60'000), 500s);
    EXPECT_EQ(book_.find("game")->unfit.at(python()).times, 1u);
    EXPECT_EQ(book_.find("game")->unfit.at(python()).bytes, 70'000u) << "the most of all";
    now_ += 500s;
    EXPECT_EQ(does_not_fit("game"), 2400s);
    now_ += 2400s;
    EXPECT_EQ(does_not_fit("game"), 9600s);
    for (int i = 0; i < 3; ++i) {
        now_ += 24h;
        does_not_fit("game");
    }
    EXPECT_EQ(book_.find("game")->unfit.at(python()).until, now_ + 24h);
    now_ += 168h;
    EXPECT_EQ(does_not_fit("game"), 600s) << "forgotten";
}

TEST_F(FaultBookTest, ToldTheLimitItIsLetInUnlessThatDidNotHelp) {
    does_not_fit("game");
    EXPECT_TRUE(unfit("game", false));
    EXPECT_FALSE(unfit("game", true));
    does_not_fit("game", 65'536, true);
    EXPECT_TRUE(unfit("game", true));
}

TEST_F(FaultBookTest, NobodyIsHeldOffWhereThatIsSwitchedOff) {
    unshare_.first = 0s;
    EXPECT_EQ(does_not_fit("game"), 0s);
    EXPECT_EQ(book_.find("game"), nullptr);
}

TEST_F(FaultBookTest, FaultsAndProgramsThatDoNotFitKeepApart) {
    record("game");
    book_.recovered("game");
    does_not_fit("game");
    EXPECT_TRUE(held("game"));
    EXPECT_TRUE(unfit("game"));
    EXPECT_EQ(book_.find("game")->xid, 13u);
    now_ += 10s;
    FaultBook::Over over = book_.take_ended(settings_, unshare_, now_);
    EXPECT_THAT(over.faults, ElementsAre("game"));
    EXPECT_THAT(over.unfit, IsEmpty());
    EXPECT_FALSE(held("game"));
    EXPECT_TRUE(unfit("game"));
    record("game");
    EXPECT_EQ(book_.lift("game", now_), 2u);
    EXPECT_FALSE(unfit("game"));
    EXPECT_FALSE(book_.next_end());
    EXPECT_NE(book_.find("game"), nullptr) << "it is dead";
    // Another user's name by now.
    does_not_fit("mine");
    does_not_fit("mine", 65'536, false, 1001);
    EXPECT_EQ(book_.find("mine")->uid, 1001u);
    EXPECT_EQ(book_.find("mine")->unfit.at(python()).times, 1u);
}

TEST_F(FaultBookTest, WhoDoesNotFitOutlivesARestart) {
    does_not_fit("game", 70'000, true);
    now_ += 100s;
    const std::string text = book_.to_text(now_, 5'000'000'000);
    EXPECT_NE(text.find("unfit 1000 1 "), std::string::npos) << text;
    FaultBook back;
    const TimePoint later{7h};
    EXPECT_EQ(back.load(text, settings_, unshare_, later, 5'000'000'000 + 200'000), 0u) << text;
    const Unfit* known = back.unfit("game", python(), true, later);
    ASSERT_NE(known, nullptr);
    EXPECT_EQ(known->bytes, 70'000u);
    EXPECT_EQ(known->limit, 49'152u);
    EXPECT_EQ(known->until, later + 300s);
    EXPECT_EQ(back.next_end(), later + 300s);
    EXPECT_FALSE(back.find("game")->fault());
    EXPECT_THAT(back.take_ended(settings_, unshare_, later + 300s).unfit, ElementsAre("game"));
    // A clock that went back by years holds nobody longer than the settings say.
    FaultBook past;
    EXPECT_EQ(past.load(text, settings_, unshare_, now_, 1000), 0u);
    EXPECT_LE(past.unfit("game", python(), true, now_)->until, now_ + unshare_.max);
}

TEST_F(FaultBookTest, LinesOfProgramsThatDoNotFitThatMeanNothing) {
    const std::string head = "vuda-faults 1\nname game 1000 0 0 %\n";
    for (const char* line : {
             "unfit",
             "unfit 1000 1 1000 2000 /bin/a 70000 49152",
             "unfit 1000 1 1000 2000 /bin/a 70000 49152 2",
             "unfit 1000 0 1000 2000 /bin/a 70000 49152 0",
             "unfit 1000 1 -1 2000 /bin/a 70000 49152 0",
             "unfit 1000 1 1000 2000 /bin/a x 49152 0",
             "unfit 1000 1 1000 2000 %zz 70000 49152 0",
             "unfit 1000 1 1000 2000 /bin/a 70000 49152 0 0",
         }) {
        FaultBook book;
        EXPECT_EQ(book.load(head + line + "\n", settings_, unshare_, now_, 1000), 1u) << line;
        EXPECT_EQ(book.unfit_in_force(now_), 0u) << line;
    }
    FaultBook book;
    EXPECT_EQ(book.load(head + "unfit 1000 1 1000 2000 /bin/a 70000 49152 0\n", settings_, unshare_, now_, 1000), 0u);
    EXPECT_EQ(book.unfit_in_force(now_), 1u);
}

}  // namespace
}  // namespace vuda::daemon
