#include "cli/sharing_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/fake_daemon.h"

namespace vuda::cli {
namespace {

v1::Event event(const std::string& kind, uint64_t session, int pid, const std::string& reason = "") {
    v1::Event event;
    event.set_kind(kind);
    event.set_session_id(session);
    event.mutable_peer()->set_pid(static_cast<uint32_t>(pid));
    event.mutable_reason()->set_text(reason);
    return event;
}

TEST(SharingRecord, OnlyTheTreeCounts) {
    SharingRecord record;
    const auto member = [](pid_t pid) { return pid == 10; };
    record.take(event("session-open", 1, 99), member);
    record.take(event("attach", 1, 99), member);
    EXPECT_FALSE(record.attached());
    EXPECT_FALSE(record.saw_session());
    record.take(event("session-open", 2, 10), member);
    EXPECT_TRUE(record.has_open_session());
    record.take(event("attach-failed", 2, 10, "TSG full"), member);
    EXPECT_EQ(record.last_refusal(), "TSG full");
    // The process may be gone by now; its session is known.
    const auto nobody = [](pid_t) { return false; };
    record.take(event("attach", 2, 10), nobody);
    record.take(event("session-close", 2, 10), nobody);
    EXPECT_TRUE(record.attached());
    EXPECT_FALSE(record.registered());
    EXPECT_FALSE(record.has_open_session());
    EXPECT_TRUE(record.saw_session());
}

TEST(SharingWatch, FollowsEventsOfTheProgramsTree) {
    FakeDaemon daemon;
    Result<DaemonClient> client = DaemonClient::connect(daemon.socket());
    ASSERT_TRUE(client.ok());
    SharingWatch watch;
    watch.start(*client);
    watch.set_root(getppid());  // we are its descendant
    daemon.send(event("session-open", 1, getpid()));
    daemon.send(event("attach", 1, getpid()));
    RunOptions options;
    options.attach_name = "game";
    EXPECT_TRUE(watch.shared(options));
    options.register_name = "other";
    daemon.send(event("session-close", 1, getpid()));
    EXPECT_FALSE(watch.shared(options));
}

TEST(SharingWatch, SaysWhyNot) {
    FakeDaemon daemon;
    Result<DaemonClient> client = DaemonClient::connect(daemon.socket());
    ASSERT_TRUE(client.ok());
    RunOptions options;
    options.attach_name = "game";
    {
        SharingWatch watch;
        watch.start(*client);
        watch.set_root(getpid());
        EXPECT_FALSE(watch.shared(options));
        EXPECT_NE(watch.why_not("prog").find("no GPU context"), std::string::npos);
    }
    SharingWatch watch;
    watch.start(*client);
    watch.set_root(getpid());
    daemon.send(event("attach-failed", 7, getpid(), "TSG full"));
    daemon.end_watch();
    EXPECT_FALSE(watch.shared(options));
    EXPECT_EQ(watch.why_not("prog"), "prog ended without having shared the GPU, and --require was given: TSG full");
}

TEST(DescendsFrom, SelfParentAndStrangers) {
    EXPECT_TRUE(descends_from(getpid(), getpid()));
    EXPECT_TRUE(descends_from(getpid(), getppid()));
    EXPECT_FALSE(descends_from(getppid(), getpid()));
    EXPECT_FALSE(descends_from(0, getpid()));
    const pid_t gone = fork();
    if (gone == 0) _exit(0);
    waitpid(gone, nullptr, 0);
    EXPECT_FALSE(descends_from(gone, getpid()));
}

}  // namespace
}  // namespace vuda::cli
