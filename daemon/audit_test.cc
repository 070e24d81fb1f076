#include "daemon/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/result.h"

namespace vuda::daemon {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::StartsWith;

v1::Event event(const char* kind) {
    v1::Event out;
    out.set_kind(kind);
    out.mutable_peer()->set_pid(4711);
    out.mutable_peer()->set_uid(1000);
    out.mutable_peer()->set_gid(100);
    out.mutable_peer()->set_program("infer");
    return out;
}

TEST(Audit, GrantHasWhoAndWhat) {
    v1::Event attach = event("attach");
    attach.set_name("game");
    attach.set_session_id(7);
    EXPECT_EQ(audit_text(attach), "attach game session 7 pid 4711 (infer) uid 1000");
    EXPECT_THAT(audit_fields(attach),
                ElementsAre("VUDA_EVENT=attach", "VUDA_NAME=game", "VUDA_SESSION=7", "VUDA_CLIENT_PID=4711",
                            "VUDA_CLIENT_UID=1000", "VUDA_CLIENT_GID=100", "VUDA_CLIENT_PROGRAM=infer"));
    EXPECT_EQ(audit_level(attach), spdlog::level::info);
}

TEST(Audit, RefusalHasItsReasonAndIsAWarning) {
    v1::Event refused = event("partition-refused");
    refused.set_name("game");
    refused.mutable_reason()->set_code(static_cast<uint32_t>(Code::kPermissionDenied));
    refused.mutable_reason()->set_text("uid 1000 may not split a TSG of uid 0");
    EXPECT_EQ(audit_text(refused),
              "partition-refused game pid 4711 (infer) uid 1000: uid 1000 may not split a TSG of uid 0");
    EXPECT_THAT(audit_fields(refused), Contains("VUDA_CODE=PERMISSION_DENIED"));
    EXPECT_THAT(audit_fields(refused), Contains("VUDA_REASON=uid 1000 may not split a TSG of uid 0"));
    EXPECT_THAT(audit_fields(refused), Not(Contains(StartsWith("VUDA_SESSION"))));
    EXPECT_EQ(audit_level(refused), spdlog::level::warn);
    for (const char* kind : {"attach-failed", "faulted", "stuck", "session-refused", "register-refused"})
        EXPECT_EQ(audit_level(event(kind)), spdlog::level::warn) << kind;
    EXPECT_EQ(audit_level(event("session-open")), spdlog::level::debug);
}

TEST(Audit, UnknownCodeIsShown) {
    v1::Event odd = event("attach-failed");
    odd.mutable_reason()->set_code(99);
    EXPECT_THAT(audit_fields(odd), Contains("VUDA_CODE=UNKNOWN"));
}

}  // namespace
}  // namespace vuda::daemon
