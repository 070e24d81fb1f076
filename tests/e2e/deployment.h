// A vudad with a simulated GPU, in a folder of its own, for one test.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/test_dir.h"
#include "tests/e2e/process.h"

namespace vuda::e2e {

using Json = nlohmann::json;

// Programs and libraries of this build tree.
std::string built(std::string_view name);          // <build>/bin/NAME
std::string built_library(std::string_view name);  // <build>/lib/NAME

struct DeploymentOptions {
    bool sim = true;
    std::string config;  // further TOML
    // Any number of programs in a TSG, of which each may end whenever it likes. As installed it is one, since on a GPU
    // the others may be lost then (docs/compatibility.md); a test in which one ends while another begins would end so,
    // too, now and then. So the test's own vuda-simd does not mind.
    bool several_programs = false;
    // The test's own vuda-simd with these arguments, which outlives the daemon; without it vudad starts one.
    bool own_simd = false;
    std::vector<std::string> simd_arguments;
    std::vector<std::string> daemon_arguments;      // further ones for vudad; '@' in front: below folder()
    std::map<std::string, std::string> daemon_env;  // and its environment
    // Called with folder() before anything is started.
    std::function<void(const std::string& folder)> prepare;
};

class Deployment {
 public:
    // Starts the daemon and waits until it says that it is ready.
    explicit Deployment(DeploymentOptions options = {});
    ~Deployment();

    std::string folder() const { return dir_.root().string(); }
    std::string socket() const { return dir_.path("vudad.sock"); }
    std::string handle_socket() const { return dir_.path("handles.sock"); }
    std::string sim_socket() const { return dir_.path("sim.sock"); }

    Process& daemon() { return *daemon_; }
    pid_t simd_pid() const;
    // Answer of vuda-simctl.
    std::string simctl(std::vector<std::string> arguments) const;
    // Ends the daemon (and the simulated GPU with it, unless it is the test's own): SIGTERM, or SIGKILL for an
    // accident.
    int stop(int signal);
    // Starts it again on the same sockets; another program than this build's vudad where one is given.
    void start(const std::string& vudad = "");
    bool ready() const { return ready_; }

    Command vudactl(std::vector<std::string> arguments) const;
    // `vudactl --socket ... run OPTIONS -- PROGRAM`
    Command wrapped(std::vector<std::string> options, std::vector<std::string> program) const;
    // The program on the simulated GPU without VUDA.
    Command native(std::vector<std::string> program) const;
    // The program under the shim as `vudactl run` would start it, without vudactl: `wishes` are VUDA_ variables.
    Command preloaded(std::map<std::string, std::string> wishes, std::vector<std::string> program) const;

    // `vudactl watch --json` that misses nothing from here on: it has shown a program that came and went for that.
    // Null if it does not come to it.
    std::unique_ptr<Process> watch() const;

    Json status() const;  // of `vudactl status --json`; null if it fails
    // The session of a process, or null.
    Json session_of(pid_t pid) const;
    // Until `condition` holds for the status.
    bool wait_status(const std::function<bool(const Json&)>& condition,
                     std::chrono::milliseconds patience = kPatience) const;
    bool wait_registered(const std::string& name) const;
    bool wait_sessions(size_t count) const;
    // Sessions in this state ("sharing", ...).
    bool wait_state(const std::string& state, size_t count) const;

 private:
    void start_own_simd();

    cli::TestDir dir_;
    DeploymentOptions options_;
    std::string vudad_;
    std::unique_ptr<Process> simd_;
    std::unique_ptr<Process> daemon_;
    bool ready_ = false;
};

}  // namespace vuda::e2e
