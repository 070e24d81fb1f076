// The executable, from outside: start, stop, signals, activation, and clients that die at every step.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "daemon/fake_notify.h"
#include "daemon/grpc_test_client.h"
#include "daemon/handle_set.h"
#include "daemon/test_support.h"

namespace vuda::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

// A child of this test; killed when forgotten.
class Process {
 public:
    Process() = default;
    explicit Process(pid_t pid) : pid_(pid), pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
    Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)) {}
    Process& operator=(Process&& other) noexcept {
        end();
        pid_ = std::exchange(other.pid_, -1);
        pidfd_ = std::move(other.pidfd_);
        return *this;
    }
    ~Process() { end(); }
    pid_t pid() const { return pid_; }
    void kill(int signal) const { ::kill(pid_, signal); }
    // Exit status; 128 + signal; -1 when it does not end.
    int wait() {
        pollfd entry{pidfd_.get(), POLLIN, 0};
        if (::poll(&entry, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) != 1) return -1;
        int status = 0;
        ::waitpid(std::exchange(pid_, -1), &status, 0);
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }

 private:
    void end() {
        if (pid_ < 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    }
    pid_t pid_ = -1;
    UniqueFd pidfd_;
};

// Runs in a child of the test: no gtest assertions there, the exit status is the verdict.
[[noreturn]] void check(bool good, const char* what) {
    if (!good) std::fprintf(stderr, "client %d: failed: %s\n", static_cast<int>(::getpid()), what);
    ::_exit(good ? 0 : 1);
}
#define NEED(condition)                             \
    do {                                            \
        if (!(condition)) check(false, #condition); \
    } while (false)

class VudadTest : public ::testing::Test {
 protected:
    VudadTest() : manager_(dir_.file("notify")) { ::chmod(dir_.path().c_str(), 0755); }

    // Starts vudad on the test's sockets. Its log goes to log().
    Process launch(std::vector<std::string> arguments = {}, std::function<void()> in_child = {}) {
        // Deadlines are the registry's own tests' business; here a busy machine must not meet them.
        std::ofstream(dir_.file("patient.toml"))
            << "[limits]\nprograms_per_tsg = 64\nsame_addresses = true\n[attach]\nmax_ms = 60000\nexport_ms = "
               "60000\nturn_ms = 60000\n";
        arguments.insert(arguments.begin(), {VUDA_VUDAD, "--socket", control_, "--handle-socket", handles_});
        if (std::find(arguments.begin(), arguments.end(), "--config") == arguments.end()) {
            arguments.insert(arguments.end(), {"--config", dir_.file("patient.toml")});
        }
        return launch_exactly(std::move(arguments), std::move(in_child));
    }
    Process launch_exactly(std::vector<std::string> arguments, std::function<void()> in_child = {}) {
        const pid_t pid = ::fork();
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // however the test ends
            ::setenv("NOTIFY_SOCKET", manager_.address().c_str(), 1);
            const int out = ::open(dir_.file("log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
            ::dup2(out, STDOUT_FILENO);
            ::dup2(out, STDERR_FILENO);
            if (in_child) in_child();
            std::vector<char*> raw;
            for (std::string& argument : arguments) raw.push_back(argument.data());
            raw.push_back(nullptr);
            ::execv(raw[0], raw.data());
            ::_exit(126);
        }
        return Process(pid);
    }
    Process start(std::vector<std::string> arguments = {}, std::function<void()> in_child = {}) {
        Process process = launch(std::move(arguments), std::move(in_child));
        EXPECT_THAT(manager_.next().value_or("nothing"), StartsWith("READY=1\n")) << log();
        return process;
    }
    std::string log() {
        std::ifstream in(dir_.file("log"));
        return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }

    // A process of its own that speaks to vudad.
    template <typename Body>
    Process client(Body body) {
        const pid_t pid = ::fork();
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            FrameClient frames(handles_);
            body(frames);
            check(true, "");
        }
        return Process(pid);
    }

    // Children that have come to a certain point write a byte here; waiting for it is waiting for them.
    struct Gate {
        Gate() {
            int fds[2];
            if (::pipe2(fds, O_CLOEXEC) != 0) std::abort();
            reader = UniqueFd(fds[0]);
            writer = UniqueFd(fds[1]);
        }
        void open() const { NEED(::write(writer.get(), "x", 1) == 1); }
        bool wait() const {
            char byte;
            return wait_readable(reader.get(), deadline_in(kPatience)).ok() && ::read(reader.get(), &byte, 1) == 1;
        }
        UniqueFd reader, writer;
    };

    // Asks vudad until the answer fits; each question is a round trip.
    template <typename Condition>
    bool status_becomes(Condition condition) {
        GrpcTestClient control(control_);
        const auto until = std::chrono::steady_clock::now() + kPatience;
        do {
            last_ = control.status();
            if (condition(last_)) return true;
        } while (std::chrono::steady_clock::now() < until);
        ADD_FAILURE() << last_.DebugString();
        return false;
    }

    TempDir dir_;
    const std::string control_ = dir_.file("c");
    const std::string handles_ = dir_.file("h");
    FakeNotify manager_;
    v1::StatusReply last_;
};

TEST_F(VudadTest, IsReadyOnlyWhenBothSocketsListen) {
    Process vudad = launch();
    ASSERT_THAT(manager_.next().value_or("nothing"), StartsWith("READY=1\nSTATUS=0 sessions")) << log();
    EXPECT_TRUE(connect_unix(control_, deadline_in(0ms)).ok());
    EXPECT_TRUE(connect_unix(handles_, deadline_in(0ms)).ok());
    vudad.kill(SIGTERM);
    EXPECT_THAT(manager_.next().value_or("nothing"), StartsWith("STOPPING=1"));
    EXPECT_EQ(vudad.wait(), 0);
    EXPECT_NE(::access(control_.c_str(), F_OK), 0);
    EXPECT_NE(::access(handles_.c_str(), F_OK), 0);
}

TEST_F(VudadTest, SigintStopsToo) {
    Process vudad = start();
    vudad.kill(SIGINT);
    EXPECT_EQ(vudad.wait(), 0);
}

TEST_F(VudadTest, AbstractNotifySocket) {
    FakeNotify abstract("@" + dir_.path());
    Process vudad = launch({}, [&] { ::setenv("NOTIFY_SOCKET", abstract.address().c_str(), 1); });
    EXPECT_THAT(abstract.next().value_or("nothing"), StartsWith("READY=1\n"));
}

TEST_F(VudadTest, SecondDaemonEndsAndNamesTheFirst) {
    Process first = start();
    Process second = launch();
    EXPECT_EQ(second.wait(), 69);
    EXPECT_THAT(log(), HasSubstr("another vudad (pid " + std::to_string(first.pid()) + ")"));
    EXPECT_TRUE(connect_unix(control_, deadline_in(kPatience)).ok());
}

TEST_F(VudadTest, StartsAgainAfterKill) {
    Process first = start();
    first.kill(SIGKILL);
    EXPECT_EQ(first.wait(), 128 + SIGKILL);
    Process second = start();
    EXPECT_TRUE(status_becomes([](const v1::StatusReply&) { return true; }));
}

TEST_F(VudadTest, ExitStatusSaysWhatIsWrong) {
    EXPECT_EQ(launch_exactly({VUDA_VUDAD, "--socket", "@vuda"}).wait(), 64);
    EXPECT_EQ(launch_exactly({VUDA_VUDAD, "--bogus"}).wait(), 64);
    EXPECT_EQ(launch_exactly({VUDA_VUDAD, "--log-level", "loud"}).wait(), 64);
    EXPECT_EQ(launch_exactly({VUDA_VUDAD, "--config", dir_.file("none")}).wait(), 66);
    EXPECT_EQ(launch_exactly({VUDA_VUDAD, "--socket", dir_.file("x/c"), "--handle-socket", handles_}).wait(), 66);
    EXPECT_EQ(launch_exactly({VUDA_VUDAD, "--socket", handles_, "--handle-socket", handles_}).wait(), 64);
    std::ofstream(dir_.file("bad.toml")) << "[log]\nlevel = 1\n";
    EXPECT_EQ(launch({"--config", dir_.file("bad.toml")}).wait(), 78);
    EXPECT_EQ(launch({"--config", dir_.file("bad.toml"), "--check-config"}).wait(), 78);
    EXPECT_THAT(log(), HasSubstr("bad.toml:2: log.level: must be a string"));
    EXPECT_EQ(launch({"--config", VUDA_SHIPPED_CONFIG, "--check-config"}).wait(), 0);
    EXPECT_EQ(launch({"--version"}).wait(), 0);
    EXPECT_EQ(launch({"--help"}).wait(), 0);
    EXPECT_THAT(log(), HasSubstr("--handle-socket PATH"));
    // Alone in a folder it finds no simulator beside itself.
    const std::string alone = dir_.file("vudad");
    std::filesystem::copy_file(VUDA_VUDAD, alone);
    EXPECT_NE(launch_exactly({alone, "--sim", "--socket", control_, "--handle-socket", handles_}).wait(), 0);
    EXPECT_THAT(log(), HasSubstr("vuda-simd"));
}

TEST_F(VudadTest, SymlinkInTheSocketsPlace) {
    ASSERT_EQ(::symlink("/nonexistent", control_.c_str()), 0);
    EXPECT_EQ(launch().wait(), 69);
    EXPECT_THAT(log(), HasSubstr("symbolic link"));
}

TEST_F(VudadTest, HangupReloadsAndWarnsOfWhatItCannotChange) {
    const std::string config = dir_.file("vudad.toml");
    std::ofstream(config) << "[limits]\nsessions_per_uid = 100\n";
    Process vudad = start({"--config", config});
    std::ofstream(config) << "[limits]\nsessions_per_uid = 1\n[socket]\nhandles_mode = 0o600\n";
    vudad.kill(SIGHUP);
    EXPECT_THAT(manager_.next().value_or("nothing"), StartsWith("RELOADING=1\nMONOTONIC_USEC="));
    EXPECT_THAT(manager_.next().value_or("nothing"), StartsWith("READY=1"));
    EXPECT_THAT(log(), HasSubstr("socket.handles_mode changed; that takes effect at the next start"));
    FrameClient here(handles_);
    ASSERT_TRUE(here.open().ok());
    Process second = client([](FrameClient& frames) {
        const auto hello = frames.open();
        NEED(!hello.ok() && hello.error().code == Code::kResourceExhausted);
    });
    EXPECT_EQ(second.wait(), 0);
    // A broken file changes nothing and ends nothing.
    std::ofstream(config) << "[limits\n";
    vudad.kill(SIGHUP);
    EXPECT_TRUE(here.register_name("still")->has_register_reply());
    vudad.kill(SIGTERM);
    EXPECT_EQ(vudad.wait(), 0);
    EXPECT_THAT(log(), HasSubstr("not reloaded: " + config + ":1: "));
}

TEST_F(VudadTest, TakesSocketsFromItsManager) {
    for (const bool named : {true, false}) {
        SCOPED_TRACE(named);
        const auto listening = [](const std::string& path) {
            ::unlink(path.c_str());
            UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
            sockaddr_un address{};
            address.sun_family = AF_UNIX;
            std::memcpy(address.sun_path, path.data(), path.size());
            EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
            EXPECT_EQ(::listen(fd.get(), 16), 0);
            return fd;
        };
        // Named ones may be anywhere; the others are known by their path.
        const std::string c = named ? dir_.file("elsewhere-c") : control_;
        const std::string h = named ? dir_.file("elsewhere-h") : handles_;
        const UniqueFd control = listening(c);
        const UniqueFd handles = listening(h);
        const UniqueFd early = *connect_unix(c, deadline_in(kPatience));  // before there is a daemon
        Process vudad = start({}, [&] {
            const int high_h = ::fcntl(handles.get(), F_DUPFD, 100);
            const int high_c = ::fcntl(control.get(), F_DUPFD, 100);
            ::dup2(high_h, 3);
            ::dup2(high_c, 4);
            ::setenv("LISTEN_FDS", "2", 1);
            ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
            if (named) ::setenv("LISTEN_FDNAMES", "handles:control", 1);
        });
        GrpcTestClient client(c);
        EXPECT_EQ(client.status().daemon().handle_socket(), h);
        FrameClient frames(h);
        EXPECT_TRUE(frames.open().ok());
        EXPECT_TRUE(wait_readable(early.get(), deadline_in(kPatience)).ok());  // gRPC's greeting
        vudad.kill(SIGTERM);
        manager_.next();  // STATUS or STOPPING
        EXPECT_EQ(vudad.wait(), 0);
        while (manager_.next(0ms)) {
        }
        EXPECT_EQ(::access(c.c_str(), F_OK), 0);  // the manager's, not ours to remove
    }
}

TEST_F(VudadTest, KnowsEachProcessByTheKernelsWord) {
    if (::getuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    Process vudad = start();
    Gate opened;
    Process other = client([&](FrameClient& frames) {
        const gid_t groups[] = {4242};
        NEED(::setgroups(1, groups) == 0 && ::setresgid(65534, 65534, 65534) == 0 &&
             ::setresuid(65534, 65534, 65534) == 0);
        NEED(frames.open().ok());
        opened.open();
        ::pause();
    });
    ASSERT_TRUE(opened.wait());
    const v1::StatusReply status = GrpcTestClient(control_).status();
    ASSERT_EQ(status.sessions_size(), 1);
    EXPECT_EQ(status.sessions(0).peer().pid(), static_cast<uint32_t>(other.pid()));
    EXPECT_EQ(status.sessions(0).peer().uid(), 65534u);
    EXPECT_EQ(status.sessions(0).peer().gid(), 65534u);
}

TEST_F(VudadTest, KnowsAProcessOfAnotherPidNamespaceByTheHostsPid) {
    if (::getuid() != 0) GTEST_SKIP() << "needs root, to make a PID namespace";
    Process vudad = start();
    Gate opened;
    int pids[2];
    ASSERT_EQ(::pipe2(pids, O_CLOEXEC), 0);
    const UniqueFd reader(pids[0]);
    const UniqueFd writer(pids[1]);
    Process outer = client([&](FrameClient& frames) {
        NEED(::unshare(CLONE_NEWPID) == 0);
        const pid_t inner = ::fork();
        if (inner == 0) {
            NEED(::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
            NEED(::getpid() == 1 && frames.open().ok());
            opened.open();
            ::pause();
        }
        NEED(::write(writer.get(), &inner, sizeof inner) == sizeof inner);
        ::pause();
    });
    pid_t inner = 0;
    ASSERT_EQ(::read(reader.get(), &inner, sizeof inner), static_cast<ssize_t>(sizeof inner));
    ASSERT_TRUE(opened.wait()) << log();
    EXPECT_TRUE(status_becomes([&](const v1::StatusReply& status) {
        return status.sessions_size() == 1 && status.sessions(0).peer().pid() == static_cast<uint32_t>(inner);
    }));
}

TEST_F(VudadTest, AnotherUserMayAttachOnlyWhenAllowed) {
    if (::getuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    Process vudad = start();
    FrameClient owner(handles_);
    ASSERT_TRUE(owner.open().ok());
    const auto as_nobody = [](FrameClient& frames, gid_t group) {
        NEED(::setgroups(1, &group) == 0 && ::setresgid(65534, 65534, 65534) == 0 &&
             ::setresuid(65534, 65534, 65534) == 0);
        NEED(frames.open().ok());
    };
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    Process stranger = client([&](FrameClient& frames) {
        as_nobody(frames, 4242);
        const auto reply = frames.attach("game");
        NEED(reply.ok() && reply->error().code() == 7);
    });
    EXPECT_EQ(stranger.wait(), 0);
    v1::ClientMessage again;
    again.mutable_register_request()->set_name("game");
    again.mutable_register_request()->set_gpu_uuid(kTestGpu);
    again.mutable_register_request()->add_allow_gids(4242);
    ASSERT_TRUE(owner.call(again)->has_register_reply());
    Process member = client([&](FrameClient& frames) {
        as_nobody(frames, 4242);  // a supplementary group
        const auto reply = frames.attach("game");
        NEED(reply.ok() && reply->has_attach_reply());
        NEED(frames.pull(reply->attach_reply().token()).ok());
        NEED(frames.done()->has_attach_done_reply());
    });
    EXPECT_TRUE(owner.push(*owner.export_token(), 84, "g").ok());
    EXPECT_EQ(member.wait(), 0);
}

TEST_F(VudadTest, TokenStolenByAnotherUserIsWorthless) {
    if (::getuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    Process vudad = start();
    FrameClient owner(handles_);
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    FrameClient self(handles_);
    Process attacher = client([](FrameClient& frames) {
        NEED(frames.open().ok());
        NEED(frames.attach("game")->has_attach_reply());
    });
    const std::string token = *owner.export_token();
    Process thief = client([&](FrameClient& frames) {
        NEED(::setresuid(65534, 65534, 65534) == 0);
        NEED(frames.push(token, 0, "evil").error().code == Code::kPermissionDenied);
    });
    EXPECT_EQ(thief.wait(), 0);
    Process other_process = client([&](FrameClient& frames) {  // same user, another process
        NEED(frames.push(token, 0, "evil").error().code == Code::kPermissionDenied);
    });
    EXPECT_EQ(other_process.wait(), 0);
    EXPECT_TRUE(owner.push(token, 1, "good").ok());
    EXPECT_EQ(attacher.wait(), 0);
}

TEST_F(VudadTest, TenProcessesAttachAtOnce) {
    Process vudad = start();
    FrameClient owner(handles_);
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    std::vector<Process> attachers;
    for (int i = 0; i < 10; ++i) {
        attachers.push_back(client([](FrameClient& frames) {
            NEED(frames.open().ok());
            const auto reply = frames.attach("game");
            NEED(reply.ok() && reply->has_attach_reply());
            const auto pulled = frames.pull(reply->attach_reply().token());
            NEED(pulled.ok() && pulled->fds.size() == 85 && memfd_content(pulled->fds[84].get()) == "g84");
            NEED(frames.done()->has_attach_done_reply());
        }));
    }
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(owner.push(*owner.export_token(), 84, "g").ok());
    for (Process& attacher : attachers) EXPECT_EQ(attacher.wait(), 0) << log();
    EXPECT_TRUE(status_becomes([](const v1::StatusReply& status) { return status.tsgs(0).channels() == 2; }));
}

TEST_F(VudadTest, OwnerKilledAtEachStep) {
    Process vudad = start();
    for (int step = 0; step < 4; ++step) {
        SCOPED_TRACE(step);
        Gate reached;
        Process owner = client([&](FrameClient& frames) {
            NEED(frames.open().ok() && frames.register_name("game")->has_register_reply());
            if (step == 0) {  // registered
                reached.open();
                ::pause();
            }
            const std::string token = *frames.export_token();
            if (step == 2) {  // half-way through its push
                v1::Frame frame;
                frame.mutable_push()->set_token(token);
                frame.mutable_push()->add_handles()->set_kind(v1::HANDLE_KIND_TSG);
                const UniqueFd file = memfd("x");
                const int fd = file.get();
                static UniqueFd socket;
                socket = *connect_as(frames.path(), {});
                NEED(send_frame(socket.get(), frame.SerializeAsString(), {&fd, 1}, deadline_in(kPatience)).ok());
            } else if (step == 3) {  // after it
                NEED(frames.push(token, 2, "g").ok());
            }
            if (step > 0) reached.open();
            ::pause();
        });
        FrameClient attacher(handles_);
        ASSERT_TRUE(attacher.open().ok());
        if (step == 0) {
            ASSERT_TRUE(reached.wait());
            owner.kill(SIGKILL);
            ASSERT_TRUE(status_becomes([](const v1::StatusReply& status) { return status.tsgs_size() == 0; }));
            EXPECT_EQ(attacher.attach("game")->error().code(), 5u);
            continue;
        }
        ASSERT_TRUE(status_becomes([](const v1::StatusReply& status) { return status.tsgs_size() == 1; }));
        attacher.send_attach("game");
        ASSERT_TRUE(reached.wait());
        owner.kill(SIGKILL);
        const auto answer = attacher.receive();
        ASSERT_TRUE(answer.ok());
        if (step < 3) {
            EXPECT_EQ(answer->error().code(), 14u) << answer->ShortDebugString();
        } else {
            ASSERT_TRUE(answer->has_attach_reply());
            ASSERT_TRUE(status_becomes([](const v1::StatusReply& status) { return status.tsgs_size() == 0; }));
            EXPECT_FALSE(attacher.pull(answer->attach_reply().token()).ok());
        }
        ASSERT_TRUE(status_becomes([](const v1::StatusReply& status) { return status.tsgs_size() == 0; }));
    }
}

TEST_F(VudadTest, AttacherKilledAtEachStep) {
    Process vudad = start();
    FrameClient owner(handles_);
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    for (int step = 0; step < 4; ++step) {
        SCOPED_TRACE(step);
        Gate reached;
        Process victim = client([&](FrameClient& frames) {
            NEED(frames.open().ok());
            frames.send_attach("game");
            if (step == 0) reached.open();  // waiting
            const auto reply = frames.receive();
            if (step == 0) ::pause();
            NEED(reply.ok() && reply->has_attach_reply());
            if (step == 2) NEED(frames.pull(reply->attach_reply().token()).ok());
            if (step == 3)
                NEED(frames.pull(reply->attach_reply().token()).ok() && frames.done()->has_attach_done_reply());
            reached.open();
            ::pause();
        });
        std::string token = *owner.export_token();
        if (step > 0) {
            ASSERT_TRUE(owner.push(token, 84, "g").ok());
        }
        ASSERT_TRUE(reached.wait());
        victim.kill(SIGKILL);
        EXPECT_EQ(victim.wait(), 128 + SIGKILL);
        ASSERT_TRUE(status_becomes([](const v1::StatusReply& status) {
            return status.sessions_size() == 1 && status.tsgs(0).attached_sessions_size() == 0;
        }));
        // The next one gets its turn at once, not after a deadline.
        Process next = client([](FrameClient& frames) {
            NEED(frames.open().ok());
            const auto reply = frames.attach("game");
            NEED(reply.ok() && reply->has_attach_reply());
            NEED(frames.pull(reply->attach_reply().token()).ok() && frames.done()->has_attach_done_reply());
        });
        ASSERT_TRUE(owner.push(*owner.export_token(), 84, "g").ok());
        EXPECT_EQ(next.wait(), 0) << log();
    }
}

TEST_F(VudadTest, ProcessThatEndedIsForgottenThoughItsSocketLivesOn) {
    Process vudad = start();
    Gate forked;
    Gate release;
    Process owner = client([&](FrameClient& frames) {
        NEED(frames.open().ok() && frames.register_name("game")->has_register_reply());
        if (::fork() == 0) {  // keeps the connection open, as a daemonised child might
            forked.open();
            release.wait();
            ::_exit(0);
        }
        ::pause();
    });
    ASSERT_TRUE(forked.wait());
    owner.kill(SIGKILL);  // and stays a zombie until waited for
    EXPECT_TRUE(status_becomes(
        [](const v1::StatusReply& status) { return status.sessions_size() == 0 && status.tsgs_size() == 0; }));
    release.open();
}

TEST_F(VudadTest, ExecInTheSameProcessLeavesOneSession) {
    Process vudad = start();
    Process program = launch_exactly({VUDA_EXEC_CLIENT, handles_, "3"});
    EXPECT_TRUE(status_becomes([&](const v1::StatusReply& status) {
        return status.sessions_size() == 1 && status.tsgs_size() == 1 &&
               status.tsgs(0).owner().program() == "generation-0" &&
               status.tsgs(0).owner().pid() == static_cast<uint32_t>(program.pid());
    })) << log();
}

TEST_F(VudadTest, RestartedDaemonTakesTheNamesAgain) {
    Process first = start();
    FrameClient owner(handles_);
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    first.kill(SIGKILL);
    first.wait();
    EXPECT_FALSE(owner.receive().ok());  // sees the end at once
    while (manager_.next(0ms)) {
    }
    Process second = start();
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    Process attacher = client([](FrameClient& frames) {
        NEED(frames.open().ok());
        const auto reply = frames.attach("game");
        NEED(reply.ok() && reply->has_attach_reply());
    });
    EXPECT_TRUE(owner.push(*owner.export_token(), 84, "g").ok());
    EXPECT_EQ(attacher.wait(), 0);
}

// As long as it grows, nobody who maps a control buffer goes on.
TEST_F(VudadTest, TheTableOfDescriptorsIsThereBeforeItIsNeeded) {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    Process vudad = start();
    std::ifstream status("/proc/" + std::to_string(vudad.pid()) + "/status");
    size_t size = 0;
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("FDSize:")) size = std::stoul(line.substr(7));
    }
    EXPECT_GE(size, std::min<size_t>(kHandlesPerSet, limit.rlim_max));
}

TEST_F(VudadTest, MoreHandlesThanTheDefaultLimitOfOpenFiles) {
    Process vudad = start();
    FrameClient owner(handles_);
    ASSERT_TRUE(owner.open().ok());
    ASSERT_TRUE(owner.register_name("game")->has_register_reply());
    Process attacher = client([](FrameClient& frames) {
        NEED(frames.open().ok());
        const auto reply = frames.attach("game");
        NEED(reply.ok() && reply->has_attach_reply());
    });
    EXPECT_TRUE(owner.push(*owner.export_token(), 4095, "g").ok()) << log();
    EXPECT_EQ(attacher.wait(), 0);
    EXPECT_TRUE(status_becomes([](const v1::StatusReply& status) { return status.tsgs(0).control_buffers() == 4095; }));
}

}  // namespace
}  // namespace vuda::daemon
