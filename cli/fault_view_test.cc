#include "cli/fault_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vuda::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::FaultInfo fault_of(const std::string& name) {
    v1::FaultInfo fault;
    fault.set_name(name);
    fault.set_state(v1::FAULT_STATE_QUARANTINED);
    fault.set_xid(13);
    fault.set_text("Xid 13 (graphics engine exception)");
    fault.set_unix_ms(1'700'000'000'000);
    fault.set_age_ms(4000);
    fault.mutable_culprit()->set_program("/usr/bin/py\x1bthon3");
    fault.mutable_culprit()->set_pid(4711);
    fault.mutable_culprit()->set_uid(1000);
    v1::Quarantine& held = *fault.add_quarantines();
    held.set_program(fault.culprit().program());
    held.set_uid(1000);
    held.set_faults(2);
    held.set_left_ms(35'001);
    return fault;
}

TEST(FaultView, NothingDiedNothingIsSaid) { EXPECT_EQ(fault_text(v1::StatusReply()), ""); }

TEST(FaultView, StatusSaysWhatDiedWhoAndWhenItMayComeBack) {
    v1::StatusReply status;
    v1::TsgInfo& tsg = *status.add_tsgs();
    tsg.set_name("game");
    *tsg.mutable_fault() = fault_of("game");
    v1::Quarantine& earlier = *tsg.mutable_fault()->add_quarantines();
    earlier.set_program("/bin/old");
    earlier.set_faults(1);
    earlier.set_left_ms(500);
    v1::Quarantine& over = *tsg.mutable_fault()->add_quarantines();
    over.set_program("/bin/over");
    const std::string text = status_text(status);
    EXPECT_THAT(text, HasSubstr("FAULT OF  STATE"));
    EXPECT_THAT(text, HasSubstr("game      quarantined  Xid 13 (graphics engine exception)  4 s ago  "
                                "/usr/bin/py?thon3, pid 4711, uid 1000"));
    EXPECT_THAT(text, HasSubstr("in 36 s"));
    EXPECT_THAT(text, HasSubstr("/bin/old, uid 0"));
    EXPECT_THAT(text, HasSubstr("in 1 s"));
    EXPECT_THAT(text, Not(HasSubstr("/bin/over")));

    v1::StatusReply gone;
    *gone.add_faults() = fault_of("gone");
    gone.mutable_faults(0)->clear_culprit();
    EXPECT_THAT(fault_text(gone), HasSubstr("nobody"));
}

TEST(FaultView, JsonHasEveryField) {
    v1::StatusReply status;
    status.add_tsgs()->set_name("works");
    *status.add_tsgs()->mutable_fault() = fault_of("game");
    *status.add_faults() = fault_of("gone");
    const Json json = status_json(status);
    EXPECT_TRUE(json["tsgs"][0]["fault"].is_null());
    EXPECT_EQ(json["tsgs"][1]["fault"]["state"], "quarantined");
    const Json& fault = json["faults"][0];
    EXPECT_EQ(fault["name"], "gone");
    EXPECT_EQ(fault["xid"], 13);
    EXPECT_EQ(fault["age_ms"], 4000);
    EXPECT_EQ(fault["culprit"]["pid"], 4711);
    EXPECT_EQ(fault["quarantines"][0]["faults"], 2);
    EXPECT_EQ(fault["quarantines"][0]["left_ms"], 35'001);
}

TEST(FaultView, UnquarantineSaysWhatItDid) {
    v1::UnquarantineReply reply;
    EXPECT_EQ(unquarantine_text(reply), "nobody is held off, and no fault is known\n");
    reply.add_names("game");
    EXPECT_EQ(unquarantine_text(reply), "game: nobody was held off\n");
    reply.set_lifted(1);
    reply.set_note("it is dead");
    EXPECT_EQ(unquarantine_text(reply), "game: 1 program may attach again; it is dead\n");
    reply.add_names("other");
    reply.set_lifted(3);
    EXPECT_EQ(unquarantine_text(reply), "game, other: 3 programs may attach again; it is dead\n");
}

}  // namespace
}  // namespace vuda::cli
