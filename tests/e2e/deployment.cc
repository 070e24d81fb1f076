#include "tests/e2e/deployment.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <fstream>

#include "tests/e2e/remote_peer.h"

namespace vuda::e2e {
namespace {

// systemd's side of the readiness protocol (sd_notify(3)).
class NotifySocket {
 public:
    explicit NotifySocket(const std::string& path) {
        unlink(path.c_str());
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
        fd_.reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
    }
    bool wait_ready(Process& process) {
        const auto deadline = Clock::now() + kPatience;
        std::array<char, 4096> text;
        while (Clock::now() < deadline && process.running()) {
            const ssize_t got = recv(fd_.get(), text.data(), text.size(), 0);
            if (got > 0 &&
                std::string_view(text.data(), static_cast<size_t>(got)).find("READY=1") != std::string_view::npos) {
                return true;
            }
            pollfd wait{fd_.get(), POLLIN, 0};
            if (got <= 0) poll(&wait, 1, 100);
        }
        return false;
    }

 private:
    UniqueFd fd_;
};

}  // namespace

std::string built(std::string_view name) { return std::string(VUDA_BUILD_BIN) + "/" + std::string(name); }
std::string built_library(std::string_view name) { return std::string(VUDA_BUILD_LIB) + "/" + std::string(name); }

Deployment::Deployment(DeploymentOptions options) : options_(std::move(options)) {
    // Other users reach the sockets in it.
    chmod(folder().c_str(), 0755);
    if (options_.prepare) options_.prepare(folder());
    if (options_.several_programs) {
        options_.config += "\n[limits]\nprograms_per_tsg = 64\nsame_addresses = true\n";
        options_.own_simd = true;
        options_.simd_arguments.insert(options_.simd_arguments.end(), {"--quiet", "--break", "fault.stale-veid"});
    }
    std::ofstream(dir_.path("vudad.toml")) << options_.config;
    vudad_ = built("vudad");
    if (options_.own_simd) start_own_simd();
    start();
}

// vudad starts the vuda-simd that lies beside it. It gets a folder with a vuda-simd which only says that all is well,
// since the real one listens there already.
void Deployment::start_own_simd() {
    Command command;
    command.argv = {built("vuda-simd"), "--socket", sim_socket()};
    command.argv.insert(command.argv.end(), options_.simd_arguments.begin(), options_.simd_arguments.end());
    simd_ = std::make_unique<Process>(command);
    eventually([&] { return std::filesystem::exists(sim_socket()) || !simd_->running(); });

    vudad_ = dir_.path("bin/vudad");
    const std::string script = dir_.write("bin/vuda-simd", R"(#!/bin/sh
while [ $# -gt 0 ]; do
    [ "$1" = --ready-fd ] && echo > "/proc/self/fd/$2"
    shift
done
exec sleep 1000000
)");
    chmod(script.c_str(), 0755);
    std::error_code failed;
    std::filesystem::create_hard_link(built("vudad"), vudad_, failed);
    if (failed) std::filesystem::copy_file(built("vudad"), vudad_);
}

Deployment::~Deployment() { stop(SIGTERM); }

void Deployment::start(const std::string& vudad) {
    NotifySocket notify(dir_.path("notify.sock"));
    Command command;
    command.argv = {vudad.empty() ? vudad_ : vudad,
                    "--config",
                    dir_.path("vudad.toml"),
                    "--socket",
                    socket(),
                    "--handle-socket",
                    handle_socket()};
    for (const std::string& argument : options_.daemon_arguments)
        command.argv.push_back(argument.starts_with('@') ? dir_.path(argument.substr(1)) : argument);
    command.env = options_.daemon_env;
    if (options_.sim) command.argv.emplace_back("--sim");
    command.env["NOTIFY_SOCKET"] = dir_.path("notify.sock");
    daemon_ = std::make_unique<Process>(command);
    ready_ = notify.wait_ready(*daemon_);
}

int Deployment::stop(int signal) {
    if (!daemon_) return -1;
    daemon_->signal(signal);
    const int status = daemon_->wait();
    daemon_.reset();
    return status;
}

pid_t Deployment::simd_pid() const {
    if (simd_) return simd_->pid();
    // Each thread lists its own children.
    std::error_code failed;
    const std::filesystem::path tasks = "/proc/" + std::to_string(daemon_->pid()) + "/task";
    for (std::filesystem::directory_iterator it(tasks, failed), end; !failed && it != end; it.increment(failed)) {
        std::ifstream in(it->path() / "children");
        pid_t pid = 0;
        if (in >> pid) return pid;
    }
    return 0;
}

Command Deployment::vudactl(std::vector<std::string> arguments) const {
    Command command;
    command.argv = {built("vudactl"), "--socket", socket()};
    command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
    return command;
}

Command Deployment::wrapped(std::vector<std::string> options, std::vector<std::string> program) const {
    std::vector<std::string> arguments = {"run"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.emplace_back("--");
    arguments.insert(arguments.end(), program.begin(), program.end());
    return vudactl(std::move(arguments));
}

Command Deployment::native(std::vector<std::string> program) const {
    Command command;
    command.argv = std::move(program);
    command.env = {{"LD_PRELOAD", built_library("libvuda_sim.so")}, {"VUDA_SIM_SOCKET", sim_socket()}};
    return command;
}

Command Deployment::preloaded(std::map<std::string, std::string> wishes, std::vector<std::string> program) const {
    Command command = native(std::move(program));
    command.env["LD_PRELOAD"] = built_library("libvuda_preload.so") + ":" + built_library("libvuda_sim.so");
    command.env["VUDA_SOCKET"] = socket();
    command.env["VUDA_HANDLE_SOCKET"] = handle_socket();
    command.env.merge(wishes);
    return command;
}

std::string Deployment::simctl(std::vector<std::string> arguments) const {
    Command command;
    command.argv = {built("vuda-simctl"), "--socket", sim_socket()};
    command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
    return run(command).out;
}

std::unique_ptr<Process> Deployment::watch() const {
    auto watch = std::make_unique<Process>(vudactl({"watch", "--json"}));
    const auto shown = [&](std::string_view kind) {
        return watch->wait_out("\"kind\":\"" + std::string(kind) + "\"", std::chrono::milliseconds(200));
    };
    const bool listens = eventually([&] {
        RemotePeer visitor(handle_socket());
        return visitor.open_session() == "ok" && shown("session-open");
    });
    return listens && eventually([&] { return shown("session-close"); }) ? std::move(watch) : nullptr;
}

Json Deployment::status() const {
    const Finished finished = run(vudactl({"status", "--json"}));
    if (finished.status != 0) return nullptr;
    return Json::parse(finished.out, nullptr, false);
}

Json Deployment::session_of(pid_t pid) const {
    const Json now = status();
    if (now.is_null()) return nullptr;
    for (const Json& session : now["sessions"]) {
        if (session["peer"]["pid"] == pid) return session;
    }
    return nullptr;
}

bool Deployment::wait_status(const std::function<bool(const Json&)>& condition,
                             std::chrono::milliseconds patience) const {
    return eventually(
        [&] {
            const Json now = status();
            return now.is_object() && condition(now);
        },
        patience);
}

bool Deployment::wait_registered(const std::string& name) const {
    return wait_status([&](const Json& now) {
        return std::any_of(now["tsgs"].begin(), now["tsgs"].end(),
                           [&](const Json& tsg) { return tsg["name"] == name; });
    });
}

bool Deployment::wait_sessions(size_t count) const {
    return wait_status([&](const Json& now) { return now["sessions"].size() == count; });
}

bool Deployment::wait_state(const std::string& state, size_t count) const {
    return wait_status([&](const Json& now) {
        const auto matches = [&](const Json& session) { return session["state"] == state; };
        return static_cast<size_t>(std::count_if(now["sessions"].begin(), now["sessions"].end(), matches)) == count;
    });
}

}  // namespace vuda::e2e
