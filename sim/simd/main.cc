// vuda-simd: the simulated GPU as a server process. See docs/simulator.md.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "sim/model/topology.h"
#include "sim/simd/server.h"

namespace {

constexpr char kHelp[] =
    "usage: vuda-simd --socket PATH [options]\n"
    "Simulates NVIDIA GPUs for programs that run with libvuda_sim.so preloaded and VUDA_SIM_SOCKET=PATH.\n"
    "\n"
    "  --socket PATH         listen here\n"
    "  --ready-fd N          write a line to descriptor N once listening, and end with the parent process\n"
    "  --preset NAME         GPU to simulate (default h200); several times for several GPUs\n"
    "  --gpus K              K GPUs of the (last) preset\n"
    "  --driver-version V    driver to pose as (default 580.159.04)\n"
    "  --speed real|virtual  virtual: jump over the time in which the GPU only works (default real)\n"
    "  --break RULE          switch a rule off; --list-rules prints them\n"
    "  --inject WHAT         make calls fail, e.g. alloc:9067=0x1a@1, ctl:3d06=0x40, esc:34=0x33\n"
    "  --quiet               keep the simulated kernel log off stderr\n"
    "  --list-rules, --list-presets, --help\n"
    "\n"
    "Ends on SIGTERM. Exit status: 0, 64 wrong usage, 69 cannot listen.\n";

int wrong(const std::string& text) {
    std::fprintf(stderr, "vuda-simd: %s\nTry 'vuda-simd --help'.\n", text.c_str());
    return 64;
}

bool number(std::string_view text, int low, int high, int& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size() && out >= low && out <= high;
}

}  // namespace

int main(int argc, char** argv) {
    vuda::sim::ServerOptions options;
    std::vector<std::string> presets;
    int gpus = 0;
    int ready_fd = -1;
    for (int i = 1; i < argc; i++) {
        const std::string_view name = argv[i];
        if (name == "--help") {
            std::fputs(kHelp, stdout);
            return 0;
        }
        if (name == "--list-rules") {
            for (const auto& info : vuda::sim::all_rules())
                std::printf("%-28.*s %.*s [%.*s]\n", static_cast<int>(info.name.size()), info.name.data(),
                            static_cast<int>(info.what.size()), info.what.data(), static_cast<int>(info.source.size()),
                            info.source.data());
            return 0;
        }
        if (name == "--list-presets") {
            for (const auto& preset : vuda::sim::Topology::preset_names()) std::puts(preset.c_str());
            return 0;
        }
        if (name == "--quiet") {
            options.quiet = true;
            continue;
        }
        if (i + 1 == argc) return wrong("option '" + std::string(name) + "' is unknown or wants a value");
        const std::string value = argv[++i];
        if (name == "--socket") {
            options.socket = value;
        } else if (name == "--preset") {
            presets.push_back(value);
        } else if (name == "--driver-version") {
            options.simulated.layout = vuda::sim::Layout::of(value);
        } else if (name == "--break") {
            options.broken_rules.push_back(value);
        } else if (name == "--inject") {
            options.injections.push_back(value);
        } else if (name == "--gpus") {
            if (!number(value, 1, 32, gpus)) return wrong("--gpus wants a number from 1 to 32");
        } else if (name == "--ready-fd") {
            if (!number(value, 0, 1 << 20, ready_fd)) return wrong("--ready-fd wants a descriptor number");
        } else if (name == "--speed") {
            if (value != "real" && value != "virtual") return wrong("--speed wants real or virtual");
            options.virtual_time = value == "virtual";
        } else {
            return wrong("unknown option '" + std::string(name) + "'");
        }
    }
    if (options.socket.empty()) return wrong("--socket is missing");
    if (presets.empty()) presets.push_back("h200");
    while (static_cast<int>(presets.size()) < gpus) presets.push_back(presets.back());
    options.simulated.presets = presets;

    if (ready_fd >= 0) {
        const pid_t parent = getppid();
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) return 0;  // it died before the line above
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, nullptr);
    (void)signal(SIGPIPE, SIG_IGN);

    auto server = vuda::sim::Server::make(std::move(options));
    if (!server) {
        std::fprintf(stderr, "vuda-simd: %s\n", server.error().to_string().c_str());
        return vuda::exit_status(server.error().code);
    }
    if (ready_fd >= 0) {
        const char line[] = "ready\n";
        if (write(ready_fd, line, sizeof line - 1) < 0)
            std::fprintf(stderr, "vuda-simd: --ready-fd: %s\n", std::strerror(errno));
        (void)close(ready_fd);
    }
    const vuda::Status status = (*server)->run();
    if (!status) {
        std::fprintf(stderr, "vuda-simd: %s\n", status.error().to_string().c_str());
        return 70;
    }
    return 0;
}
