// libvuda.so as the preload and a program see it. This program plays the preload: it exports the preload's symbols.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>

#include "client/fake_daemon.h"
#include "client/session_abi.h"
#include "client/test_support.h"
#include "vuda/vuda.h"
#include "vuda/vuda.hpp"

namespace {
std::atomic<int> g_wishes_changed{0};
}

extern "C" {
__attribute__((visibility("default"))) uint32_t vuda_preload_abi_version(void) { return 1; }
__attribute__((visibility("default"))) void vuda_preload_wishes_changed(void) { ++g_wishes_changed; }
// A child that starts its own session makes a thread after a fork of a process with threads, which is the point of
// those tests.
const char* __tsan_default_options() { return "die_after_fork=0"; }
}

namespace vuda::client {
namespace {

using testing::HasSubstr;

constexpr uint8_t kGpu[16] = {1, 2, 3};
constexpr uint32_t kLongMs = 30000;

std::atomic<int> g_exports{0};

int export_two(void*, uint64_t, vuda_private_handles* out, vuda_private_error*) {
    ++g_exports;
    out->items = static_cast<vuda_private_handle*>(std::calloc(2, sizeof(vuda_private_handle)));
    out->count = 2;
    out->channels_in_use = 3;
    out->items[0] = {1, ::open("/dev/zero", O_RDONLY | O_CLOEXEC), 0, 0, 0, 0};
    out->items[1] = {2, ::open("/dev/null", O_RDONLY | O_CLOEXEC), 0x10000, 0x1000, 0, 0};
    return 0;
}

// Runs `body` in a child of fork; its result is the child's exit status.
int in_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int attach_once(uint32_t timeout_ms = kLongMs) {
    vuda_private_handles handles{};
    vuda_private_error error{};
    if (vuda_private_attach("game", kGpu, 2, 0, timeout_ms, &handles, &error) != 0)
        return error.code != 0 ? error.code : 99;
    for (uint32_t i = 0; i < handles.count; ++i) ::close(handles.items[i].fd);
    const bool as_expected = handles.count == 3 && handles.items[0].kind == 1 && handles.channels_in_use == 5;
    std::free(handles.items);
    vuda_private_attach_done(2, 1, 2, 2, 100, nullptr);
    return as_expected ? 0 : 98;
}

void start() {
    vuda_private_callbacks callbacks{};
    callbacks.export_host = export_two;
    vuda_private_start(&callbacks, "580.159.04");
}

// Each test in a process of its own: libvuda keeps its state as long as the process lives. The child forks from a
// single thread.
#define IN_PROCESS(body) EXPECT_EQ(in_child([]() -> int body), 0)

#define CHECK_THAT(condition)                                                    \
    do {                                                                         \
        if (!(condition)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            return 1;                                                            \
        }                                                                        \
    } while (false)

TEST(PublicApi, RecordsWishesAndTellsThePreload) {
    IN_PROCESS({
        vuda_private_wishes wishes;
        CHECK_THAT(vuda_register("game") == VUDA_OK);
        CHECK_THAT(vuda_attach("host") == VUDA_OK);
        CHECK_THAT(vuda_reserve(4) == VUDA_OK);
        CHECK_THAT(g_wishes_changed == 3);
        vuda_private_get_wishes(&wishes);
        CHECK_THAT(std::strcmp(wishes.register_name, "game") == 0);
        CHECK_THAT(std::strcmp(wishes.attach_name, "host") == 0);
        CHECK_THAT(wishes.reserve == 4);
        CHECK_THAT(std::strcmp(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "4") == 0);
        CHECK_THAT(vuda_reserve(128) == VUDA_OK);
        CHECK_THAT(std::strcmp(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32") == 0);
        CHECK_THAT(vuda_reserve(VUDA_ALL_CHANNELS) == VUDA_OK);
        CHECK_THAT(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS") == nullptr);
        ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "6", 1);
        CHECK_THAT(vuda_reserve(2) == VUDA_OK);
        CHECK_THAT(std::strcmp(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "6") == 0);
        CHECK_THAT(vuda_detach() == VUDA_OK);
        vuda_private_get_wishes(&wishes);
        CHECK_THAT(wishes.register_name[0] == 0 && wishes.attach_name[0] == 0);
        CHECK_THAT(vuda_last_error()[0] == 0);
        return 0;
    });
}

TEST(PublicApi, ChecksItsArguments) {
    IN_PROCESS({
        CHECK_THAT(vuda_register(nullptr) == VUDA_E_INVALID);
        CHECK_THAT(vuda_register("") == VUDA_E_INVALID);
        CHECK_THAT(vuda_attach("no spaces") == VUDA_E_INVALID);
        CHECK_THAT(std::strstr(vuda_last_error(), "'no spaces' is not a valid name; use 1 to 64") != nullptr);
        CHECK_THAT(vuda_attach(std::string(65, 'a').c_str()) == VUDA_E_INVALID);
        CHECK_THAT(vuda_reserve(0) == VUDA_E_INVALID);
        CHECK_THAT(vuda_reserve(129) == VUDA_E_INVALID);
        CHECK_THAT(vuda_reserve(128) == VUDA_OK);
        CHECK_THAT(vuda_reserve(VUDA_ALL_CHANNELS) == VUDA_OK);
        CHECK_THAT(vuda_get_state(nullptr) == VUDA_E_INVALID);
        vuda_state state;
        std::memset(&state, 0xee, sizeof state);
        state.size = 100;
        CHECK_THAT(vuda_get_state(&state) == VUDA_E_INVALID);
        state.size = sizeof state + 8;  // a program built against a newer header
        CHECK_THAT(vuda_get_state(&state) == VUDA_OK);
        CHECK_THAT(state.state == VUDA_STATE_NONE && state.channels == 0 && state.reason[0] == 0);
        CHECK_THAT(vuda_version() == VUDA_VERSION);
        return 0;
    });
}

TEST(PublicApi, ChecksWhatItIsAskedOfTheSplit) {
    IN_PROCESS({
        for (const int mode : {-1, 0, 4}) CHECK_THAT(vuda_set_mode(mode) == VUDA_E_INVALID);
        CHECK_THAT(std::strstr(vuda_last_error(), "is no mode") != nullptr);
        CHECK_THAT(vuda_set_mode(VUDA_MODE_INTER_SM) == VUDA_OK);
        CHECK_THAT(vuda_set_quota(0) == VUDA_E_INVALID);
        CHECK_THAT(vuda_set_quota(VUDA_MAX_TPCS + 1) == VUDA_E_INVALID);
        CHECK_THAT(vuda_set_quota(VUDA_QUOTA_AUTO - 1) == VUDA_E_INVALID);
        for (const uint32_t quota : {1u, VUDA_MAX_TPCS, VUDA_QUOTA_AUTO, VUDA_QUOTA_NONE}) {
            CHECK_THAT(vuda_set_quota(quota) == VUDA_OK);
        }
        for (const int policy : {-1, 0, 4}) CHECK_THAT(vuda_set_over_limit(policy) == VUDA_E_INVALID);
        CHECK_THAT(std::strstr(vuda_last_error(), "is no policy") != nullptr);
        for (const int policy : {VUDA_OVER_LIMIT_REJECT, VUDA_OVER_LIMIT_UNSHARE, VUDA_OVER_LIMIT_NATIVE}) {
            CHECK_THAT(vuda_set_over_limit(policy) == VUDA_OK);
        }
        CHECK_THAT(vuda_get_partition(nullptr) == VUDA_E_INVALID);
        vuda_partition partition;
        std::memset(&partition, 0xee, sizeof partition);
        partition.size = 100;
        CHECK_THAT(vuda_get_partition(&partition) == VUDA_E_INVALID);
        partition.size = sizeof partition;
        CHECK_THAT(vuda_get_partition(&partition) == VUDA_OK);
        CHECK_THAT(partition.mode == 0 && partition.backend == VUDA_BACKEND_UNKNOWN && partition.reason[0] == 0);
        vuda_step_begin(1);  // nobody listens
        vuda_step_end(1);
        vuda_step_end(2);
        return 0;
    });
}

// Outside of IN_PROCESS, whose argument may have no comma in braces.
int check_targets() {
    vuda_slo slo{};
    CHECK_THAT(vuda_set_slo(&slo) == VUDA_E_INVALID);  // no size
    slo.size = sizeof slo;
    CHECK_THAT(vuda_set_slo(&slo) == VUDA_OK);
    double* const members[] = {&slo.frame_ms,     &slo.frame_miss, &slo.latency_ms,
                               &slo.latency_miss, &slo.throughput, &slo.weight};
    for (double* member : members) {
        for (const double bad : {-1.0, 1e300, std::nan(""), HUGE_VAL, -HUGE_VAL}) {
            *member = bad;
            CHECK_THAT(vuda_set_slo(&slo) == VUDA_E_INVALID);
            CHECK_THAT(std::strstr(vuda_last_error(), "is out of range") != nullptr);
        }
        *member = 0.5;
        CHECK_THAT(vuda_set_slo(&slo) == VUDA_OK);
    }
    slo.size = sizeof slo + 8;  // a program built against a newer header
    CHECK_THAT(vuda_set_slo(&slo) == VUDA_OK);
    CHECK_THAT(vuda_set_slo(nullptr) == VUDA_OK);
    return 0;
}

TEST(PublicApi, ChecksTargets) {
    IN_PROCESS({ return check_targets(); });
}

// Likewise.
int check_allowed() {
    const std::vector<uint32_t> ids(VUDA_MAX_ALLOWED + 1, 7);
    const uint32_t nobody = UINT32_MAX;
    vuda_allowed allowed{};
    CHECK_THAT(vuda_set_allowed(&allowed) == VUDA_E_INVALID);  // no size
    allowed.size = sizeof allowed;
    CHECK_THAT(vuda_set_allowed(&allowed) == VUDA_OK);
    allowed.uid_count = 1;
    CHECK_THAT(vuda_set_allowed(&allowed) == VUDA_E_INVALID);  // NULL with a count
    allowed.uids = ids.data();
    allowed.uid_count = VUDA_MAX_ALLOWED;
    CHECK_THAT(vuda_set_allowed(&allowed) == VUDA_OK);
    allowed.uid_count = VUDA_MAX_ALLOWED + 1;
    CHECK_THAT(vuda_set_allowed(&allowed) == VUDA_E_INVALID);
    CHECK_THAT(std::strstr(vuda_last_error(), "more than 64") != nullptr);
    allowed.uid_count = UINT32_MAX;
    CHECK_THAT(vuda_set_allowed(&allowed) == VUDA_E_INVALID);
    allowed.uid_count = 0;
    allowed.gids = &nobody;
    allowed.gid_count = 1;
    CHECK_THAT(vuda_set_allowed(&allowed) == VUDA_E_INVALID);
    allowed.gids = ids.data();
    allowed.size = sizeof allowed + 8;  // a program built against a newer header
    CHECK_THAT(vuda_set_allowed(&allowed) == VUDA_OK);
    CHECK_THAT(vuda_set_allowed(nullptr) == VUDA_OK);
    const vuda::api::Outcome many = vuda::api::set_allowed({ids, {}});
    CHECK_THAT(!many && many.code() == VUDA_E_INVALID);
    CHECK_THAT(vuda::api::set_allowed({{1000, 1001}, {44}}));
    CHECK_THAT(vuda::api::clear_allowed());
    return 0;
}

TEST(PublicApi, ChecksWhoMayAttach) {
    IN_PROCESS({ return check_allowed(); });
}

TEST(PublicApi, DisabledByTheEnvironment) {
    IN_PROCESS({
        setenv("VUDA_DISABLE", "1", 1);
        CHECK_THAT(vuda_register("game") == VUDA_E_DISABLED);
        CHECK_THAT(std::strstr(vuda_last_error(), "VUDA_DISABLE=1") != nullptr);
        return 0;
    });
}

TEST(PublicApi, CppWrapper) {
    IN_PROCESS({
        vuda_private_wishes wishes;
        {
            vuda::api::Sharing sharing;
            const vuda::api::Outcome bad = sharing.attach("a b");
            CHECK_THAT(!bad && bad.code() == VUDA_E_INVALID && !bad.message().empty());
            CHECK_THAT(sharing.attach("host"));
            CHECK_THAT(sharing.reserve(3));
            vuda::api::Sharing moved = std::move(sharing);
            vuda_private_get_wishes(&wishes);
            CHECK_THAT(std::strcmp(wishes.attach_name, "host") == 0 && wishes.reserve == 3);
        }
        vuda_private_get_wishes(&wishes);
        CHECK_THAT(wishes.attach_name[0] == 0);
        CHECK_THAT(vuda::api::get_state().state == VUDA_STATE_NONE);
        return 0;
    });
}

TEST(PrivateApi, NothingWorksAndNothingBreaksBeforeStart) {
    IN_PROCESS({
        vuda_private_handles handles{};
        vuda_private_error error{};
        CHECK_THAT(vuda_private_abi() == VUDA_PRIVATE_ABI);
        CHECK_THAT(vuda_private_attach("game", kGpu, 1, 0, 1000, &handles, &error) == -1);
        CHECK_THAT(error.code == 9 && error.text[0] != 0);
        vuda_private_register("game", kGpu);
        vuda_private_attach_done(1, 0, 1, 0, 0, nullptr);
        vuda_private_detached(nullptr);
        vuda_private_report(5, nullptr);
        vuda_private_after_fork_in_child();
        return 0;
    });
}

// With a daemon in the test's process and libvuda used in children of it.
class WithDaemon : public testing::Test {
 protected:
    void SetUp() override {
        setenv("VUDA_HANDLE_SOCKET", path_.c_str(), 1);
#if defined(__SANITIZE_ADDRESS__)
        // The allocator of gcc 12's AddressSanitizer keeps its locks over fork: a child of a process with threads that
        // starts one of its own may wait for a lock whose holder it does not have. Every test here has such a child.
        GTEST_SKIP() << "AddressSanitizer's allocator does not survive fork in a process with threads";
#endif
    }
    void TearDown() override { unsetenv("VUDA_HANDLE_SOCKET"); }

    TempDir dir_;
    const std::string path_ = dir_ / "handles.sock";
    FakeDaemon daemon_{path_};
};

// Commas in braces, see above.
bool registered() { return vuda::api::get_state().state == VUDA_STATE_REGISTERED; }
int register_for_others() {
    ::setenv("VUDA_ALLOW_UIDS", "1000", 1);
    ::setenv("VUDA_ALLOW_GIDS", "44,45", 1);
    start();
    vuda_private_register("game", kGpu);
    while (!registered()) ::sched_yield();  // bounded by the test's time limit
    CHECK_THAT(vuda::api::set_allowed({{1001}, {}}));
    CHECK_THAT(vuda::api::clear_allowed());
    return 0;
}
int register_with_a_bad_list(int err) {
    CHECK_THAT(::dup2(err, STDERR_FILENO) == STDERR_FILENO);
    ::setenv("VUDA_ALLOW_UIDS", "alice", 1);
    ::setenv("VUDA_ALLOW_GIDS", "44", 1);
    start();
    vuda_private_register("game", kGpu);
    while (!registered()) ::sched_yield();
    vuda_private_register("other", kGpu);
    return 0;
}

TEST_F(WithDaemon, RegistersForThoseWhoMayAttach) {
    ASSERT_EQ(in_child(register_for_others), 0);
    // Wishes that come at once may reach vudad as the last of them.
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.sessions == 0; }));
    const auto record = daemon_.record();
    ASSERT_GE(record.registers.size(), 1u);
    EXPECT_THAT(record.registers[0].allow_uids(), testing::ElementsAre(1000u));
    EXPECT_THAT(record.registers[0].allow_gids(), testing::ElementsAre(44u, 45u));
    for (size_t later = 1; later < record.registers.size(); ++later) {
        const auto& uids = record.registers[later].allow_uids();
        EXPECT_TRUE(uids.size() == 1 && (uids[0] == 1000 || uids[0] == 1001));
    }
}

TEST_F(WithDaemon, AListThatIsNoneOpensTheNameToNobodyAndIsSaidOnce) {
    const UniqueFd err(::open((dir_ / "err").c_str(), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600));
    ASSERT_EQ(in_child([&] { return register_with_a_bad_list(err.get()); }), 0);
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.registers.size() >= 1 && r.sessions == 0; }));
    for (const auto& request : daemon_.record().registers) {
        EXPECT_EQ(request.allow_uids_size(), 0);
        EXPECT_EQ(request.allow_gids_size(), 0);
    }
    char text[1024] = {};
    ASSERT_GE(::pread(err.get(), text, sizeof text - 1, 0), 0);
    EXPECT_STREQ(text,
                 "vuda: VUDA_ALLOW_UIDS='alice' is not a list of numeric ids; nobody but this user and root may "
                 "attach; separate numbers by commas, nothing else\n");
}

TEST_F(WithDaemon, RegisterExportAttachDetach) {
    daemon_.script([](auto& s) { s.export_on_register = true; });
    ASSERT_EQ(in_child([]() -> int {
                  start();
                  vuda_private_register("game", kGpu);
                  while (g_exports == 0) ::sched_yield();  // bounded by the test's time limit
                  CHECK_THAT(attach_once() == 0);
                  vuda_state state{};
                  state.size = sizeof state;
                  CHECK_THAT(vuda_get_state(&state) == VUDA_OK);
                  CHECK_THAT(state.state == VUDA_STATE_SHARING && state.channels == 2 &&
                             std::strcmp(state.name, "game") == 0);
                  const vuda_private_error reason{1, "context destroyed", ""};
                  vuda_private_detached(&reason);
                  CHECK_THAT(vuda_detach() == VUDA_OK);
                  vuda_private_report(77, nullptr);  // not a state: ignored
                  vuda_private_report(5, &reason);
                  CHECK_THAT(attach_once() == 0);
                  return 0;
              }),
              0);
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.attaches.size() == 2 && r.sessions == 0; }));
    const auto record = daemon_.record();
    EXPECT_EQ(record.registers.size(), 1u);
    EXPECT_TRUE(record.push_complete);
    EXPECT_EQ(record.pushed_fds, 2u);
    EXPECT_EQ(record.pushed_channels, 3u);
    EXPECT_EQ(record.hellos[0].program(), "client_api_test");
    ASSERT_GE(record.dones.size(), 1u);
    EXPECT_EQ(record.dones[0].attach_us(), 100u);
    EXPECT_EQ(record.notices, 1u);
    ASSERT_EQ(record.unregisters.size(), 1u);
    EXPECT_EQ(record.reports.front().reason().text(), "context destroyed");
}

// The child of a process with a session: with the handler of pthread_atfork, and without it (clone).
class Fork : public WithDaemon, public testing::WithParamInterface<bool> {};

TEST_P(Fork, TheChildStartsAfresh) {
    const bool handler = GetParam();
    ASSERT_EQ(
        in_child([&]() -> int {
            start();
            vuda_private_register("game", kGpu);
            CHECK_THAT(attach_once() == 0);
            CHECK_THAT(vuda_attach("host") == VUDA_OK);
            const size_t parent_fds = open_fds();
            CHECK_THAT(in_child([&]() -> int {
                           if (handler) vuda_private_after_fork_in_child();
                           vuda_private_wishes wishes;
                           vuda_private_get_wishes(&wishes);
                           CHECK_THAT(wishes.attach_name[0] == 0);
                           CHECK_THAT(open_fds() == parent_fds - 3);  // the session's connection and pipe are closed
                           vuda_state state{};
                           state.size = sizeof state;
                           CHECK_THAT(vuda_get_state(&state) == VUDA_OK && state.state == VUDA_STATE_NONE &&
                                      state.channels == 0);
                           start();
                           CHECK_THAT(attach_once() == 0);
                           CHECK_THAT(open_fds() == parent_fds);
                           // And a grandchild.
                           CHECK_THAT(in_child([&]() -> int {
                                          if (handler) vuda_private_after_fork_in_child();
                                          start();
                                          return attach_once();
                                      }) == 0);
                           return 0;
                       }) == 0);
            // The parent's session has not noticed.
            CHECK_THAT(open_fds() == parent_fds);
            CHECK_THAT(attach_once() == 0);
            return 0;
        }),
        0);
    EXPECT_TRUE(daemon_.wait_for([](const auto& r) { return r.sessions == 0; }));
    EXPECT_EQ(daemon_.record().hellos.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(AtFork, Fork, testing::Bool(),
                         [](const auto& info) { return info.param ? "Handler" : "NoHandler"; });

// A sandbox that allows no sockets: an error, not a crash and not a wait.
TEST_F(WithDaemon, SeccompForbidsSockets) {
    ASSERT_EQ(in_child([]() -> int {
                  sock_filter program[] = {
                      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                  };
                  const sock_fprog filter{std::size(program), program};
                  CHECK_THAT(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
                  CHECK_THAT(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
                  start();
                  CHECK_THAT(attach_once() == 7);  // PERMISSION_DENIED
                  vuda_state state{};
                  state.size = sizeof state;
                  CHECK_THAT(vuda_get_state(&state) == VUDA_OK && state.state == VUDA_STATE_UNSHARED);
                  CHECK_THAT(std::strstr(state.reason, "Operation not permitted") != nullptr);
                  return 0;
              }),
              0);
}

// UndefinedBehaviorSanitizer itself needs a pipe for some of its checks and reports an error when it gets none.
#ifndef VUDA_UBSAN
TEST_F(WithDaemon, NoDescriptorsLeft) {
    ASSERT_EQ(in_child([]() -> int {
                  start();
                  rlimit before{};
                  CHECK_THAT(::getrlimit(RLIMIT_NOFILE, &before) == 0);
                  rlimit none = before;
                  none.rlim_cur = 3;
                  CHECK_THAT(::setrlimit(RLIMIT_NOFILE, &none) == 0);
                  CHECK_THAT(attach_once() == 8);  // RESOURCE_EXHAUSTED
                  CHECK_THAT(::setrlimit(RLIMIT_NOFILE, &before) == 0);
                  CHECK_THAT(attach_once() == 0);
                  return 0;
              }),
              0);
}
#endif

TEST_F(WithDaemon, TheSessionTakesNoSignals) {
    ASSERT_EQ(in_child([]() -> int {
                  static std::atomic<pid_t> taken_by{0};
                  struct sigaction action {};
                  action.sa_handler = [](int) { taken_by = static_cast<pid_t>(::syscall(SYS_gettid)); };
                  ::sigaction(SIGUSR1, &action, nullptr);
                  start();
                  CHECK_THAT(attach_once() == 0);
                  for (int i = 0; i < 100; ++i) {
                      taken_by = 0;
                      ::kill(::getpid(), SIGUSR1);  // to any thread that does not block it
                      while (taken_by == 0) ::sched_yield();
                      CHECK_THAT(taken_by == ::getpid());
                  }
                  return 0;
              }),
              0);
}

}  // namespace
}  // namespace vuda::client
