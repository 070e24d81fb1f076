#include "sim/standin/options.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>

namespace vuda::sim::standin {

namespace {

constexpr char kCommonHelp[] =
    "  --gpu N            GPU index (default 0)\n"
    "  --seconds S        length of the measurement (default 2)\n"
    "  --ready-file PATH  is created once the first work is done\n"
    "  --start-file PATH  measure from the moment this file exists\n"
    "  --linger S         go on for S seconds after the measurement (default 0)\n"
    "  --report-trace     when each measured frame or kernel ended (ms, CLOCK_MONOTONIC) and how long it took\n"
    "  --hold             afterwards keep everything until SIGTERM\n"
    "  --keep-lost        also after the device was lost\n"
    "  --json             accepted for clarity: the result is always one JSON line\n"
    "  --fork, --exec-self, --close-range, --illegal-method\n"
    "                     bad luck for tests: see docs/simulator.md\n";

constexpr char kRendererHelp[] =
    "usage: vuda-sim-renderer [options]\n"
    "Stands in for a Vulkan renderer on a simulated GPU: NVIDIA's ioctl sequence, then frames. All figures are "
    "simulated.\n"
    "  --frame-ms M       GPU time of a frame, 2 percent of it vertex work\n"
    "  --vertex-ms M      (default 0.2)\n"
    "  --fragment-ms M    (default 9.8)\n"
    "  --draws N          draws a frame, the time is divided among them (default 1)\n"
    "  --gap-ms M         pause after each frame, as for copying it to the host (default 0)\n"
    "  --fps F|free       pace (default free)\n"
    "  --frames N         stop after N frames\n"
    "  --map-every N      every N frames, map another control buffer and point graphics state there\n"
    "  --spare N FILE     N more control buffers from the start; when FILE is there, all are unmapped, and the\n"
    "                     address of one is mapped again and pointed at\n"
    "  --legacy           channels without context share\n"
    "  --no-control-buffers  graphics state points at no buffer\n";

constexpr char kComputeHelp[] =
    "usage: vuda-sim-compute [options]\n"
    "Stands in for a CUDA program on a simulated GPU: NVIDIA's ioctl sequence, then kernels, each waited for. All "
    "figures are simulated.\n"
    "  --kernel-ms M      time of a kernel on an idle GPU (default 0.72)\n"
    "  --blocks N         (default: as many as fill every SM --waves times)\n"
    "  --waves N          (default 2)\n"
    "  --blocks-per-sm N  resident at once (default 1)\n"
    "  --sm-bound P       how much of a block's time is the SM's throughput, in 1/1000\n"
    "  --smem BYTES       shared memory a block, as the launch descriptor counts it\n"
    "  --guard            have VUDA refuse kernels that are too large to share, as it does in CUDA: the run ends with\n"
    "                     CUDA error 701\n"
    "  --retry            with --guard: then give the contexts up, make new ones, and run once more\n"
    "  --bandwidth P      share of memory bandwidth, in 1/1000\n"
    "  --kernels N        stop after N kernels\n"
    "  --threads N        threads that submit, each on its own channel (1 to 8)\n"
    "  --contexts N       contexts, made at the same moment (1 to 8)\n"
    "  --gap-ms M         pause after each kernel\n"
    "  --fps F|free       pace (default free)\n"
    "  --spin             kernels that need neither control state nor local memory\n"
    "  --no-setup         leave out the compute set-up methods\n"
    "  --mask-tpcs A,B..  TPCs that kernels keep off\n"
    "  --split-log PATH   append a line when the first launch under another split is done: its submission "
    "(CLOCK_MONOTONIC, ns),\n"
    "                     the split's generation, the number of TPCs that ran blocks\n";

class Parser {
 public:
    Parser(const char* program, int argc, char** argv) : program_(program), argc_(argc), argv_(argv) {}

    bool next(std::string_view& name) {
        if (at_ == argc_) return false;
        name = argv_[at_++];
        return true;
    }
    bool number(double low, double high, double& out) {
        if (at_ == argc_) return false;
        char* end = nullptr;
        out = std::strtod(argv_[at_], &end);
        return *argv_[at_] != '\0' && *end == '\0' && out >= low && out <= high && ++at_ != 0;
    }
    template <typename T>
    bool integer(T low, T high, T& out) {
        if (at_ == argc_) return false;
        const std::string_view text = argv_[at_];
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
        if (error != std::errc() || end != text.data() + text.size() || out < low || out > high) return false;
        ++at_;
        return true;
    }
    bool text(std::string& out) {
        if (at_ == argc_) return false;
        out = argv_[at_++];
        return true;
    }
    int wrong(std::string_view name) {
        std::fprintf(stderr,
                     "%s: option '%.*s' is unknown, or its value is missing or out of range\nTry '%s --help'.\n",
                     program_, static_cast<int>(name.size()), name.data(), program_);
        return 64;
    }

 private:
    const char* program_;
    int argc_;
    char** argv_;
    int at_ = 1;
};

// 1: taken, 0: not a common option, -1: bad value.
int common(Parser& parser, std::string_view name, CommonOptions& options) {
    bool good = true;
    if (name == "--gpu") {
        good = parser.integer(0, 255, options.gpu);
    } else if (name == "--seconds") {
        good = parser.number(0, 86400, options.seconds);
    } else if (name == "--ready-file") {
        good = parser.text(options.ready_file);
    } else if (name == "--start-file") {
        good = parser.text(options.start_file);
    } else if (name == "--linger") {
        good = parser.number(0, 3600, options.linger);
    } else if (name == "--report-trace") {
        options.report_trace = true;
    } else if (name == "--keep-lost") {
        options.keep_lost = true;
    } else if (name == "--hold") {
        options.hold = true;
    } else if (name == "--json") {
    } else if (name == "--fork") {
        options.fork_child = true;
    } else if (name == "--exec-self") {
        options.exec_self = true;
    } else if (name == "--close-range") {
        options.close_range = true;
    } else if (name == "--illegal-method") {
        options.illegal_method = true;
    } else {
        return 0;
    }
    return good ? 1 : -1;
}

bool pace(Parser& parser, double& fps) {
    std::string text;
    if (!parser.text(text)) return false;
    if (text == "free") return true;
    char* end = nullptr;
    fps = std::strtod(text.c_str(), &end);
    return !text.empty() && *end == '\0' && fps >= 0 && fps <= 10000;
}

bool parse_list(const std::string& text, std::vector<int>& out) {
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at != end) {
        int value = 0;
        const auto [next, error] = std::from_chars(at, end, value);
        if (error != std::errc() || value < 0 || value > 127) return false;
        out.push_back(value);
        at = next;
        if (at != end && *at++ != ',') return false;
    }
    return !out.empty();
}

}  // namespace

int parse(int argc, char** argv, RendererOptions& options) {
    Parser parser("vuda-sim-renderer", argc, argv);
    std::string_view name;
    while (parser.next(name)) {
        if (name == "--help") {
            std::fputs(kRendererHelp, stdout);
            std::fputs(kCommonHelp, stdout);
            return -1;
        }
        const int taken = common(parser, name, options.common);
        if (taken < 0) return parser.wrong(name);
        if (taken > 0) continue;
        bool good = true;
        double frame = 0;
        if (name == "--frame-ms") {
            good = parser.number(0, 4000, frame);
            options.vertex_ms = frame * 0.02;
            options.fragment_ms = frame * 0.98;
        } else if (name == "--vertex-ms") {
            good = parser.number(0, 4000, options.vertex_ms);
        } else if (name == "--fragment-ms") {
            good = parser.number(0, 4000, options.fragment_ms);
        } else if (name == "--draws") {
            good = parser.integer(1u, 300u, options.draws);
        } else if (name == "--gap-ms") {
            good = parser.number(0, 4000, options.gap_ms);
        } else if (name == "--fps") {
            good = pace(parser, options.fps);
        } else if (name == "--frames") {
            good = parser.integer<uint64_t>(0, UINT64_MAX, options.frames);
        } else if (name == "--map-every") {
            good = parser.integer(1u, 1u << 20, options.map_every);
        } else if (name == "--spare") {
            good = parser.integer(1u, 16'000u, options.spare) && parser.text(options.drop_file);
        } else if (name == "--legacy") {
            options.legacy = true;
        } else if (name == "--no-control-buffers") {
            options.no_control_buffers = true;
        } else {
            good = false;
        }
        if (!good) return parser.wrong(name);
    }
    return 0;
}

int parse(int argc, char** argv, ComputeOptions& options) {
    Parser parser("vuda-sim-compute", argc, argv);
    std::string_view name;
    while (parser.next(name)) {
        if (name == "--help") {
            std::fputs(kComputeHelp, stdout);
            std::fputs(kCommonHelp, stdout);
            return -1;
        }
        const int taken = common(parser, name, options.common);
        if (taken < 0) return parser.wrong(name);
        if (taken > 0) continue;
        bool good = true;
        std::string text;
        if (name == "--kernel-ms") {
            good = parser.number(0, 4000, options.kernel_ms);
        } else if (name == "--blocks") {
            good = parser.integer(1u, 1u << 24, options.blocks);
        } else if (name == "--waves") {
            good = parser.integer(1u, 4096u, options.waves);
        } else if (name == "--blocks-per-sm") {
            good = parser.integer(1u, 64u, options.blocks_per_sm);
        } else if (name == "--sm-bound") {
            good = parser.integer(0u, 1000u, options.sm_bound_permille);
        } else if (name == "--smem") {
            good = parser.integer(0u, 1u << 20, options.shared_memory);
        } else if (name == "--guard") {
            options.guard = true;
        } else if (name == "--retry") {
            options.retry = true;
        } else if (name == "--bandwidth") {
            good = parser.integer(0u, 1000u, options.bandwidth_permille);
        } else if (name == "--kernels") {
            good = parser.integer<uint64_t>(0, UINT64_MAX, options.kernels);
        } else if (name == "--threads") {
            good = parser.integer(1u, 8u, options.threads);
        } else if (name == "--contexts") {
            good = parser.integer(1u, 8u, options.contexts);
        } else if (name == "--gap-ms") {
            good = parser.number(0, 60000, options.gap_ms);
        } else if (name == "--fps") {
            good = pace(parser, options.fps);
        } else if (name == "--spin") {
            options.spin = true;
        } else if (name == "--no-setup") {
            options.no_setup = true;
        } else if (name == "--split-log") {
            good = parser.text(options.split_log);
        } else if (name == "--mask-tpcs") {
            good = parser.text(text) && parse_list(text, options.masked_tpcs);
        } else {
            good = false;
        }
        if (!good) return parser.wrong(name);
    }
    return 0;
}

}  // namespace vuda::sim::standin
