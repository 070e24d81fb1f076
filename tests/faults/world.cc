#include "tests/faults/world.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "base/unique_fd.h"

namespace vuda::faults {
namespace {

namespace fs = std::filesystem;
using e2e::Clock;
using e2e::eventually;
using e2e::Json;
using e2e::open_fds;

// What "at once" may take on a machine that is busy with other tests. The report has what it took.
constexpr std::chrono::seconds kRecovery{20};

double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::set<std::string> names_of(const Json& status) {
    std::set<std::string> names;
    for (const Json& tsg : status["tsgs"]) names.insert(tsg["name"]);
    return names;
}

// Programs with a sanitizer write their reports into the world's folder: none may be there at its end, whatever becomes
// of their output and exit status. Without symbols: the symbolizer would get the shim preloaded, which is instrumented,
// and not start; llvm-symbolizer --obj=LIBRARY OFFSET has them. Of an option that is given twice the last one counts.
void send_reports_to(const std::string& folder) {
    static const auto before = [] {
        std::map<std::string, std::string> options;
        for (const char* name : {"ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"}) {
            const char* value = std::getenv(name);
            options[name] = value != nullptr ? std::string(value) + ":" : "";
        }
        return options;
    }();
    for (const auto& [name, options] : before) {
        std::string value = options;
        value += "symbolize=0:print_stacktrace=1:log_path=" + folder + "/sanitizer";
        ::setenv(name.c_str(), value.c_str(), 1);
    }
}

}  // namespace

std::string text_of(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::string path_of(Binary binary) {
    switch (binary) {
        case Binary::kDaemon: return e2e::built("vudad");
        case Binary::kClient: return e2e::built_library("libvuda.so.0");
        case Binary::kShim: return e2e::built_library("libvuda_preload.so");
    }
    return "";
}

Tally& tally() {
    static Tally all;
    return all;
}

const std::vector<std::string>& short_compute() {
    static const std::vector<std::string> argv = {e2e::built("vuda-sim-compute"), "--kernels", "5", "--kernel-ms",
                                                  "0.1"};
    return argv;
}

const std::vector<std::string>& held_compute() {
    static const std::vector<std::string> argv = {
        e2e::built("vuda-sim-compute"), "--kernels", "3", "--kernel-ms", "0.1", "--hold"};
    return argv;
}

const std::vector<std::string>& held_renderer() {
    static const std::vector<std::string> argv = {
        e2e::built("vuda-sim-renderer"), "--frames", "3", "--frame-ms", "1", "--hold"};
    return argv;
}

const std::vector<std::string>& mapping_renderer() {
    static const std::vector<std::string> argv = {
        e2e::built("vuda-sim-renderer"), "--frame-ms", "2", "--map-every", "1", "--seconds", "600"};
    return argv;
}

bool says_it_shares(const e2e::Process& process) { return process.err().find("vuda: sharing: ") != std::string::npos; }

World::World() {
    e2e::DeploymentOptions options;
    options.several_programs = true;
    options.sim = false;
    // On a loaded machine nobody is late.
    options.config = "[attach]\nexport_ms = 20000\nmirror_ms = 20000\n";
    options.daemon_arguments = {"--state-dir", "@state"};
    options.prepare = send_reports_to;
    deployment_ = std::make_unique<e2e::Deployment>(std::move(options));
    for (const char* folder : {"ready", "state", "metrics"}) fs::create_directory(vuda().folder() + "/" + folder);
    EXPECT_TRUE(vuda().ready()) << vuda().daemon().err();
    if (!vuda().ready()) return;

    renderer_ = start_held(
        program("VUDA_REGISTER", "game",
                {e2e::built("vuda-sim-renderer"), "--seconds", "600", "--frame-ms", "1", "--fps", "30", "--hold"}));
    const bool registered = vuda().wait_registered("game");
    EXPECT_TRUE(registered) << renderer_->err();
    compute_ = start_held(program(
        "VUDA_ATTACH", "game",
        {e2e::built("vuda-sim-compute"), "--seconds", "600", "--kernel-ms", "0.5", "--gap-ms", "20", "--hold"}));
    const bool sharing = vuda().wait_state("sharing", 1);
    EXPECT_TRUE(sharing) << compute_->err();
    // The first that comes and goes leaves what is made once.
    const e2e::Finished once = e2e::run(program("VUDA_ATTACH", "game", short_compute()));
    EXPECT_EQ(once.status, 0) << once.out << once.err;
    EXPECT_TRUE(vuda().wait_sessions(2));
    daemon_fds_ = open_fds(vuda().daemon().pid());
    counts_ = gpu_counts();
    files_ = files();
    ready_ = registered && sharing && once.status == 0;
}

World::~World() {
    // Everybody's end is part of the test: leaks are looked for then.
    compute_.reset();
    renderer_.reset();
    vuda().stop(SIGTERM);
    const std::string reports = sanitizer_reports();
    EXPECT_TRUE(reports.empty()) << reports;
}

std::string World::sanitizer_reports() const {
    std::string text;
    for (const auto& entry : fs::directory_iterator(deployment_->folder())) {
        const std::string name = entry.path().filename();
        if (name.starts_with("sanitizer.")) text += name + ":\n" + text_of(entry.path());
    }
    return text;
}

std::set<std::string> World::files() const {
    std::set<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(deployment_->folder())) {
        const std::string name = fs::relative(entry.path(), deployment_->folder());
        if (!name.starts_with("ready") && !name.starts_with("victim") && !name.starts_with("bin")) found.insert(name);
    }
    // What vudad writes where it is told to, once there is something to write.
    found.erase("state/targets");
    found.erase("metrics/vuda.prom");
    return found;
}

void World::keep_targets(const std::string& frame_ms) {
    const e2e::Finished set = e2e::run(vuda().vudactl({"slo", "game", "--frame-ms", frame_ms}));
    EXPECT_EQ(set.status, 0) << set.err;
    EXPECT_TRUE(eventually([&] { return text_of(state_file()).find("frames " + frame_ms) != std::string::npos; }))
        << text_of(state_file());
}

e2e::Command World::program(const std::string& wish, const std::string& name, std::vector<std::string> argv) const {
    return deployment_->preloaded({{wish, name}, {"VUDA_LOG", "info"}}, std::move(argv));
}

e2e::Command World::victim(const std::string& wish, const std::string& name, std::vector<std::string> argv,
                           Binary binary, const std::string& point, Deed deed) {
    // libvuda_preload.so takes the libvuda.so that lies beside it.
    victims_ = vuda().folder() + "/victim/" + std::to_string(++serial_) + "/";
    const std::string shim = victims_ + "libvuda_preload.so";
    const std::string client = victims_ + "libvuda.so.0";
    for (const auto& [kind, copy] : {std::pair(Binary::kShim, shim), std::pair(Binary::kClient, client)}) {
        if (kind == binary) {
            const Status patched = patch_copy(path_of(kind), copy, point, deed);
            EXPECT_TRUE(patched.ok()) << patched.error().to_string();
        } else {
            std::error_code failed;
            fs::create_directories(victims_, failed);
            fs::copy_file(path_of(kind), copy, failed);
            EXPECT_FALSE(failed) << failed.message();
        }
    }
    e2e::Command command = program(wish, name, std::move(argv));
    command.env["LD_PRELOAD"] = shim + ":" + e2e::built_library("libvuda_sim.so");
    return command;
}

std::unique_ptr<e2e::Process> World::start(e2e::Command command) {
    ready_file_ = vuda().folder() + "/ready/" + std::to_string(++serial_);
    command.argv.insert(command.argv.end(), {"--ready-file", ready_file_});
    return std::make_unique<e2e::Process>(command);
}

void World::wait_worked(e2e::Process& process) {
    EXPECT_TRUE(eventually([&] { return fs::exists(ready_file_) || !process.running(); })) << process.err();
}

std::unique_ptr<e2e::Process> World::start_held(e2e::Command command) {
    auto process = start(std::move(command));
    wait_worked(*process);
    return process;
}

void World::let_go(e2e::Process& process, Binary binary, const std::string& point) {
    const std::string name = binary == Binary::kShim ? "libvuda_preload.so" : "libvuda.so.0";
    const Status undone = patch_process(process.pid(), victims_ + name, point, Deed::kNothing);
    EXPECT_TRUE(undone.ok()) << undone.error().to_string();
    release(process.pid());
}

void World::expect_ends_well(e2e::Process& process) {
    process.signal(SIGTERM);
    const int status = process.wait();
    const Json json = Json::parse(process.out(), nullptr, false);
    const bool well = status == 0 && json.is_object() && json["verified"] == true && json["device_lost"] == false;
    if (!well) ++tally().disturbed;
    EXPECT_TRUE(well) << "status " << status << "\n" << process.out() << process.err();
}

void World::expect_undisturbed() {
    for (e2e::Process* process : {compute_.get(), renderer_.get()}) {
        if (!process->running()) ++tally().disturbed;
        EXPECT_TRUE(process->running()) << process->out() << process->err();
        expect_ends_well(*process);
    }
}

void World::arm_daemon(const std::string& point, Deed deed) {
    // A clone of the file has another inode; the one that runs is what counts.
    const std::string running = "/proc/" + std::to_string(vuda().daemon().pid()) + "/exe";
    const Status armed = patch_process(vuda().daemon().pid(), running, point, deed);
    ASSERT_TRUE(armed.ok()) << armed.error().to_string();
}

void World::daemon_died(const std::string& point) {
    const int status = vuda().daemon().wait();
    ASSERT_EQ(status, 128 + SIGKILL) << point << " was not reached; " << vuda().daemon().err();
    ++tally().kills;
    EXPECT_TRUE(renderer_->running() && compute_->running()) << point;
    for (const std::string& path : {vuda().socket(), vuda().handle_socket()}) {
        const UniqueFd lock(::open((path + ".lock").c_str(), O_RDWR | O_CLOEXEC));
        if (!lock) continue;  // it did not get that far
        const bool held = ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
        if (held) ++tally().stale_files;
        EXPECT_FALSE(held) << point << ": " << path << ".lock is held";
    }
    vuda().start();
    ASSERT_TRUE(vuda().ready()) << point << ": " << vuda().daemon().err();
    back_ = Clock::now();
}

void World::start_daemon_that_dies(const std::string& point) {
    vuda().stop(SIGKILL);
    const std::string copy = vuda().folder() + "/bin/vudad-that-dies";
    const Status patched = patch_copy(path_of(Binary::kDaemon), copy, point, Deed::kKill);
    ASSERT_TRUE(patched.ok()) << patched.error().to_string();
    vuda().start(copy);
}

void World::expect_recovered(const std::string& point, Clock::time_point died) {
    if (back_ > died) died = back_;
    ASSERT_TRUE(vuda().daemon().running()) << point;
    // The two are back, and nobody else is there.
    Json status;
    const auto as_before = [&] {
        status = vuda().status();
        if (!status.is_object() || status["sessions"].size() != 2 || status["tsgs"].size() != 1) return false;
        const Json& tsg = status["tsgs"][0];
        return tsg["name"] == "game" && tsg["attached_sessions"].size() == 1 && tsg["exported"] == true &&
               vuda().session_of(compute_->pid())["state"] == "sharing";
    };
    const bool back = eventually(as_before, kRecovery);
    if (!back && status.is_object()) {
        if (names_of(status) != std::set<std::string>{"game"}) ++tally().stale_names;
        const Json& tsgs = status["tsgs"];
        if (tsgs.empty() || tsgs[0]["attached_sessions"].size() != 1) ++tally().lost_grants;
    }
    EXPECT_TRUE(back) << point << ": " << status.dump(2);

    const e2e::Finished next = e2e::run(program("VUDA_ATTACH", "game", short_compute()));
    EXPECT_EQ(next.status, 0) << point << ": " << next.out << next.err;
    EXPECT_NE(next.err.find("vuda: sharing: "), std::string::npos) << point << ": " << next.err;
    if (const double took = ms_since(died); took > tally().slowest_ms) {
        tally().slowest_ms = took;
        tally().slowest = point;
    }

    const bool gpu = eventually([&] { return gpu_counts() == counts_; }, kRecovery);
    const bool fds = eventually([&] { return open_fds(vuda().daemon().pid()) <= daemon_fds_; }, kRecovery);
    if (!gpu || !fds) ++tally().stale_descriptors;
    EXPECT_TRUE(gpu) << point << ": " << counts_ << gpu_counts();
    EXPECT_TRUE(fds) << point << ": " << daemon_fds_ << " descriptors, now " << open_fds(vuda().daemon().pid());
    std::set<std::string> left;
    const bool clean = eventually([&] { return (left = files()) == files_; });
    if (!clean) ++tally().stale_files;
    EXPECT_TRUE(clean) << point << ": " << testing::PrintToString(left);
}

void World::expect_agreement(const std::string& point, e2e::Process& process) {
    process.wait_err("sharing: ", std::chrono::milliseconds(0));  // reads what is there; "not sharing: " as well
    const bool shares = says_it_shares(process);
    const bool agreed = eventually(
        [&] {
            const Json session = vuda().session_of(process.pid());
            if (!session.is_object()) return !shares;
            return (session["state"] == "sharing" && session["channels_moved"] == 8) == shares;
        },
        kRecovery);
    if (!agreed) ++tally().lost_grants;
    EXPECT_TRUE(agreed) << point << ": the program " << (shares ? "shares" : "does not share") << ", vudad says "
                        << vuda().session_of(process.pid()).dump(2);
    if (!shares) return;
    // And its channels count; the renderer's own two do once it has exported to this vudad.
    Json tsg;
    const bool counted = eventually(
        [&] {
            const Json status = vuda().status();
            if (!status.is_object() || status["tsgs"].empty()) return false;
            tsg = status["tsgs"][0];
            return tsg["attached_sessions"].size() == 2 && tsg["channels"] == 2 + 2 * 8;
        },
        kRecovery);
    if (!counted) ++tally().lost_grants;
    EXPECT_TRUE(counted) << point << ": " << tsg.dump(2);
}

}  // namespace vuda::faults
