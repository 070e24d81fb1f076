// vudad: owns named graphics timeslice groups and decides who may join them.
#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "daemon/config.h"
#include "daemon/handle_set.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/sim_process.h"

namespace {

using namespace vuda;
using namespace vuda::daemon;

// <sysexits.h>
constexpr int kExitUsage = 64;
constexpr int kExitConfig = 78;

const char kDefaultConfig[] = VUDA_SYSCONF_DIR "/vuda/vudad.toml";

struct Flags {
    std::string config;
    std::optional<std::string> socket;
    std::optional<std::string> handle_socket;
    std::optional<std::string> log_level;
    bool sim = false;
    std::optional<std::string> state_dir;
    bool check = false;
};

// The file (the default one may be missing), with the command line on top.
Result<Config> configuration(const Flags& flags) {
    Config config;
    const bool given = !flags.config.empty();
    if (given || ::access(kDefaultConfig, F_OK) == 0) {
        Result<Config> loaded = load_config(given ? flags.config : kDefaultConfig);
        if (!loaded) return loaded.error();
        config = *std::move(loaded);
    }
    if (flags.socket) config.control_socket = *flags.socket;
    if (flags.handle_socket) config.handle_socket = *flags.handle_socket;
    if (flags.log_level) config.log_level = *flags.log_level;
    if (flags.sim) config.sim = true;
    return config;
}

// Handles are descriptors, thousands of them at times. More than 65536 would only make the kernel's table larger.
void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, 65536);
    if (limit.rlim_cur >= wanted) return;
    limit.rlim_cur = wanted;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) spdlog::warn("cannot raise the limit of open files to {}", wanted);
}

// The kernel's table for the handles of a whole set (128 KiB). While there are no threads it grows at once; later it
// would wait for an RCU grace period each time it doubles, and a renderer's mapping call with it.
void grow_descriptor_table() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == 0) return;
    const auto highest = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kHandlesPerSet) - 1);
    const UniqueFd any(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const UniqueFd far(::fcntl(any.get(), F_DUPFD_CLOEXEC, highest));
}

int fail(const Error& error, int status) {
    spdlog::critical("{}", error.to_string());
    return status;
}

int serve(const Flags& flags, const Config& config) {
    ::signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    grow_descriptor_table();
    // Before anything that another program would see.
    for (const std::string& path : {config.control_socket, config.handle_socket}) {
        if (Status ok = check_socket_path(path); !ok) return fail(ok.error(), exit_status(ok.error().code));
    }
    ServerOptions options;
    options.config = config;
    // systemd's StateDirectory=; of several folders the first.
    const char* given = ::getenv("STATE_DIRECTORY");
    options.state_dir = flags.state_dir ? *flags.state_dir : given != nullptr ? given : "";
    options.state_dir.resize(std::min(options.state_dir.find(':'), options.state_dir.size()));
    if (config.sim) {
        Result<std::string> simd = find_simd();
        if (!simd) return fail(simd.error(), exit_status(Code::kUnavailable));
        options.simd = *std::move(simd);
    }
    Result<std::vector<PassedSocket>> passed = take_passed_sockets();
    if (!passed) return fail(passed.error(), exit_status(Code::kUnavailable));
    options.passed = *std::move(passed);

    boost::asio::io_context loop(1);
    Server server(loop, std::move(options));
    int status = 0;
    boost::asio::signal_set signals(loop, SIGTERM, SIGINT, SIGHUP);
    const auto stop = [&] {
        boost::system::error_code ignored;
        signals.cancel(ignored);
        server.stop({});
    };
    std::function<void()> wait_signal = [&] {
        signals.async_wait([&](const boost::system::error_code& error, int signal) {
            if (error) return;
            if (signal != SIGHUP) {
                spdlog::info("stopping: signal {}", signal);
                return stop();
            }
            if (const Result<Config> wanted = configuration(flags)) {
                server.reload(*wanted);
            } else {
                spdlog::error("not reloaded: {}", wanted.error().to_string());
            }
            wait_signal();
        });
    };
    wait_signal();
    if (Status started = server.start({},
                                      [&](const Error& error) {
                                          status = fail(error, exit_status(Code::kUnavailable));
                                          stop();
                                      });
        !started) {
        return fail(started.error(), exit_status(started.error().code));
    }
    loop.run();
    // A peer's descriptor may hang in close(); the process's end must not wait for it.
    if (!server.reaper().drain(std::chrono::seconds(1))) {
        spdlog::warn("descriptors from peers could not be closed in time; leaving them to the kernel");
        spdlog::shutdown();
        ::_exit(status);
    }
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("vudad: lets Vulkan and CUDA programs share one NVIDIA GPU at the same time", "vudad");
    app.footer(
        "Signals: TERM and INT stop, HUP reads the configuration again.\n"
        "Exit status: 0 stopped; 64 usage; 69 unavailable (another vudad runs); 77 no permission; 78 configuration.\n"
        "See vudad(8).");
    Flags flags;
    app.add_option("--config", flags.config,
                   std::string("Configuration file (default ") + kDefaultConfig + ", if there is one)")
        ->type_name("FILE");
    app.add_option("--socket", flags.socket, "Control socket (gRPC)")->type_name("PATH");
    app.add_option("--handle-socket", flags.handle_socket, "Socket for programs that share")->type_name("PATH");
    app.add_option("--state-dir", flags.state_dir,
                   "Folder that keeps targets over a restart (default $STATE_DIRECTORY, or none)")
        ->type_name("DIR");
    app.add_flag("--sim", flags.sim, "Start and serve a simulated GPU");
    app.add_option("--log-level", flags.log_level, "trace, debug, info, warning, error, critical or off")
        ->type_name("L");
    app.add_flag("--check-config", flags.check, "Check the configuration and exit");
    app.set_version_flag("--version", std::string("vudad ") + VUDA_VERSION);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kExitUsage;
    }
    start_log("info");
    if (flags.log_level && !valid_log_level(*flags.log_level)) {
        return fail({Code::kInvalidArgument, "--log-level " + *flags.log_level + " is unknown", "see --help"},
                    kExitUsage);
    }
    const Result<Config> config = configuration(flags);
    if (!config) {
        const bool content = config.error().code == Code::kInvalidArgument;
        return fail(config.error(), content ? kExitConfig : exit_status(config.error().code));
    }
    set_log_level(config->log_level);
    if (flags.check) {
        for (const std::string& path : {config->control_socket, config->handle_socket}) {
            if (Status ok = check_socket_path(path); !ok) return fail(ok.error(), kExitConfig);
        }
        std::printf("%s: OK\n", flags.config.empty() ? "configuration" : flags.config.c_str());
        return 0;
    }
    return serve(flags, *config);
}
