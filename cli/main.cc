// vudactl: run programs so that they share a GPU, and look after the daemon.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "cli/bugreport.h"
#include "cli/daemon_client.h"
#include "cli/query_commands.h"
#include "cli/run_command.h"
#include "cli/run_environment.h"
#include "cli/slo_view.h"
#include "cli/top_command.h"

namespace vuda::cli {
namespace {

constexpr int kExitUsage = 64;
constexpr int kExitSoftware = 70;

struct Arguments {
    std::string socket;
    bool json = false;
    RunOptions run;
    bool no_layer = false;
    std::vector<std::string> command;
    std::string root;
    uint64_t session = 0;
    std::string name;
    std::string value;
    v1::SetSloRequest slo;
    double frame_ms = 0, latency_ms = 0, throughput = 0, weight = 0;
    std::string frame_miss, latency_miss;
    bool clear = false;
    bool all = false;
    TopOptions top;
    BugreportOptions report;
};

class RunFormatter : public CLI::Formatter {
 public:
    std::string make_usage(const CLI::App*, std::string name) const override {
        return "Usage: " + name + " [OPTIONS] -- PROGRAM [ARGUMENTS]\n";
    }
};

// `vudactl [options] run [options] -- PROGRAM ...`: from the first "--" on, nothing is vudactl's.
std::vector<std::string> cut_command(std::vector<std::string>& arguments) {
    const auto mark = std::find(arguments.begin(), arguments.end(), "--");
    if (mark == arguments.end() || std::find(arguments.begin(), mark, "run") == mark) return {};
    std::vector<std::string> command(mark + 1, arguments.end());
    arguments.erase(mark, arguments.end());
    return command;
}

int dispatch(std::vector<std::string> words) {
    Arguments args;
    int status = 0;
    args.command = cut_command(words);
    const bool had_mark = !args.command.empty();

    CLI::App app{"Vulkan and CUDA on one NVIDIA GPU at the same time: run programs, see who shares what.", "vudactl"};
    app.set_version_flag("--version", std::string("vudactl ") + VUDA_VERSION);
    app.add_option("--socket", args.socket, "vudad's control socket")
        ->envname("VUDA_SOCKET")
        ->default_str(kDefaultSocket)
        ->type_name("PATH");
    app.require_subcommand(1);
    app.footer(R"(Examples:
  vudactl run --register game -- ./renderer          start a renderer and let others find its TSG as "game"
  vudactl run --attach game -- python3 infer.py      run CUDA beside it, at the same time
  vudactl status                                     who owns what, who is attached, why something is not
  vudactl doctor                                     what keeps this machine from sharing, and the remedy

Exit status: 0 success; 64 usage; 69 the daemon is not there, or cannot do it; 77 no permission; the others as in
sysexits.h. `run` ends with the program's own status.)");

    const auto socket = [&] { return absolute_socket(args.socket.empty() ? kDefaultSocket : args.socket); };

    CLI::App* run = app.add_subcommand("run", "Run a program so that it shares the GPU");
    run->formatter(std::make_shared<RunFormatter>());
    run->add_option("--register", args.run.register_name, "Renderer: let others find this program's TSG under NAME")
        ->type_name("NAME");
    // One word each: the program may follow without "--".
    run->add_option("--allow-user", args.run.allow_users,
                    "With --register: this user may attach too, a name or number; may be given again")
        ->type_name("USER")
        ->allow_extra_args(false);
    run->add_option("--allow-group", args.run.allow_groups, "Likewise the members of this group")
        ->type_name("GROUP")
        ->allow_extra_args(false);
    run->add_option("--attach", args.run.attach_name, "CUDA program: run in the TSG called NAME")->type_name("NAME");
    run->add_flag("--share", args.run.share, "CUDA and Vulkan in one process: run CUDA in the program's own TSG");
    run->add_option("--reserve", args.run.reserve,
                    "GR channels that CUDA shares with: 1 to 128 or 'all' (default: all, CUDA makes 8)")
        ->type_name("N|all");
    run->add_flag(
        "--fit-kernels", args.run.fit_kernels,
        "Tell the program's libraries how much shared memory a kernel may use beside graphics, so that they choose "
        "kernels that fit");
    run->add_option("--over-limit", args.run.over_limit,
                    "What becomes of kernels that are too large to share: native (in a TSG of CUDA's own, where that "
                    "can be had), unshare (refused, and the program's next context does not share), reject (refused)")
        ->type_name("POLICY");
    run->add_flag("--require", args.run.require,
                  "Failure to share is an error; without it the program then runs natively");
    run->add_flag("--no-layer", args.no_layer, "Do not enable the Vulkan layer");
    run->prefix_command();
    run->footer(R"(Examples:
  vudactl run --register game -- ./renderer --fullscreen
  vudactl run --register game --allow-user alice --allow-group render -- ./renderer
  vudactl run --attach game -- python3 infer.py
  vudactl run --attach game --reserve 4 -- ./cuda_program
  vudactl run --attach game --over-limit unshare -- ./cuda_program
  vudactl run --share -- ./program_with_vulkan_and_cuda
  vudactl run --attach game --require -- ./must_share; echo $?

Exit status: the program's own; 128 + N if signal N ended it; 127 not found; 126 cannot be executed; 64 usage; with
--require 69 if it could not share.)");
    run->callback([&] {
        args.run.layer = !args.no_layer;
        std::vector<std::string> command = run->remaining();
        if (had_mark && !command.empty()) command.emplace_back("--");
        command.insert(command.end(), args.command.begin(), args.command.end());
        if (command.empty()) throw CLI::RequiredError("PROGRAM");
        if (command[0].starts_with("-")) throw CLI::ExtrasError({command[0]});
        status = run_command(socket(), args.run, command);
    });

    CLI::App* show = app.add_subcommand(
        "status", "Show the daemon, the TSGs and the programs, with the reason why one does not share");
    show->add_flag("--json", args.json, "As JSON (docs/vudactl.md)");
    show->footer(
        "Examples:\n  vudactl status\n  vudactl status --json | jq '.sessions[] | select(.state != \"sharing\")'");
    show->callback([&] { status = status_command(socket(), args.json); });

    CLI::App* doctor = app.add_subcommand("doctor", "Check driver, device nodes, libraries and daemon; say what to do");
    doctor->add_flag("--json", args.json, "As JSON (docs/vudactl.md)");
    doctor->add_option("--root", args.root, "Look at the system under DIR (a container's or an image's root)")
        ->type_name("DIR")
        ->check(CLI::ExistingDirectory);
    doctor->footer(
        "Examples:\n  vudactl doctor\n  vudactl doctor --root /var/lib/machines/game\n\nExit status: 0 if no check "
        "failed, else 1.");
    doctor->callback([&] { status = doctor_command(socket(), args.root, args.json); });

    CLI::App* driver = app.add_subcommand("driver", "About NVIDIA driver releases");
    driver->require_subcommand(1);
    CLI::App* list = driver->add_subcommand("list", "Which releases VUDA shares on, and how well it knows them");
    list->add_flag("--json", args.json, "As JSON (docs/vudactl.md)");
    driver->footer("Example:\n  vudactl driver list");
    list->callback([&] { status = driver_list_command(args.json); });

    CLI::App* detach =
        app.add_subcommand("detach", "End sharing for one session; it runs on, its next GPU context is native");
    detach->add_option("SESSION", args.session, "Number in the first column of vudactl status")
        ->required()
        ->type_name("");
    detach->footer("Example:\n  vudactl detach 7");
    detach->callback([&] { status = detach_command(socket(), args.session); });

    CLI::App* unquarantine = app.add_subcommand(
        "unquarantine",
        "Let programs that are held off from a TSG, after a fault or because they did not fit, attach again at once");
    unquarantine->add_option("NAME", args.name, "TSG")->type_name("");
    unquarantine->add_flag("--all", args.all, "Those of every name that you may steer");
    unquarantine->footer(
        "Examples:\n  vudactl unquarantine game\n  vudactl unquarantine --all\n\n"
        "What they did is forgotten: the next fault counts as the first. A TSG that is dead stays so until its "
        "renderer\n"
        "registers again. Exit status: 64 neither or both given; 66 nothing is known of that name; 77 not permitted.");
    unquarantine->callback([&] {
        v1::UnquarantineRequest request;
        request.set_name(args.name);
        request.set_all(args.all);
        status = args.all != args.name.empty()
                     ? fail({Code::kInvalidArgument, "a NAME, or --all", "see vudactl unquarantine --help"})
                     : unquarantine_command(socket(), request);
    });

    CLI::App* metrics = app.add_subcommand("metrics", "Print the daemon's metrics in Prometheus' text format");
    metrics->footer("Example:\n  vudactl metrics > /var/lib/prometheus/node-exporter/vuda.prom");
    metrics->callback([&] { status = metrics_command(socket()); });

    CLI::App* watch = app.add_subcommand("watch", "Print events as they happen, until interrupted");
    watch->add_flag("--json", args.json, "One JSON object a line (docs/vudactl.md)");
    watch->footer(
        "Examples:\n  vudactl watch\n  vudactl watch --json | jq -r 'select(.kind == \"attach-failed\") | "
        ".reason.text'");
    watch->callback([&] { status = watch_command(socket(), args.json); });

    CLI::App* top = app.add_subcommand("top", "Live table of TSGs and programs, with rates and latencies");
    top->add_flag("--once", args.top.once, "Print it once, as plain text");
    top->add_option("--interval", args.top.interval_s, "Seconds between two looks")
        ->default_str("1")
        ->type_name("S")
        ->check(CLI::Range(0.1, 3600.0));
    top->footer(
        "Keys: q quit, space refresh now, s sort by the next column, r reverse, p pause.\n\nExamples:\n  vudactl top\n"
        "  vudactl top --once");
    top->callback([&] { status = top_command(socket(), args.top); });

    CLI::App* bugreport = app.add_subcommand("bugreport", "Collect what a report of a problem needs in one .tar.gz");
    bugreport->add_option("--output", args.report.output, "File to make (default: vuda-bugreport-DATE-TIME.tar.gz)")
        ->type_name("FILE");
    bugreport->add_flag("--list", args.report.list, "Say what would be taken and from where; take nothing");
    bugreport->footer(
        "Examples:\n  vudactl bugreport --list\n  sudo vudactl bugreport   # also the journal and the kernel's lines");
    bugreport->callback([&] { status = bugreport_command(socket(), args.report); });

    CLI::App* quota = app.add_subcommand("quota", "Limit what compute may use beside a TSG's graphics");
    quota->add_option("NAME", args.name, "TSG")->required()->type_name("");
    quota->add_option("QUOTA", args.value, "Number of TPCs, percentage, 'auto' or 'none'")->required()->type_name("");
    quota->footer(
        "Examples:\n  vudactl quota game 24      at most 24 TPCs, rounded down to a level (vudactl status lists them)\n"
        "  vudactl quota game 40%     of the TPCs; of the time in mode sliced\n"
        "  vudactl quota game none    as much as the mode leaves to compute\n"
        "  vudactl quota game auto    left to the tuner\n\n"
        "Applies from the next launch. Exit status: 64 not a quota of this GPU; 66 no such name; 69 cannot be put into "
        "force;\n77 not permitted.");
    quota->callback([&] {
        const Result<v1::SetQuotaRequest> request = parse_quota(args.name, args.value);
        status = request ? quota_command(socket(), *request) : fail(request.error());
    });

    CLI::App* mode = app.add_subcommand("mode", "How graphics and compute divide a TSG's processors");
    mode->add_option("NAME", args.name, "TSG")->required()->type_name("");
    mode->add_option("MODE", args.value, "intra-sm, inter-sm or sliced")->required()->type_name("");
    mode->footer(
        "Examples:\n  vudactl mode game inter-sm    compute keeps off the TPCs that are left to graphics\n"
        "  vudactl mode game intra-sm    both on every TPC\n\n"
        "Applies from the next launch. Exit status: as of vudactl quota.");
    mode->callback([&] {
        const Result<v1::Mode> parsed = parse_mode(args.value);
        v1::SetModeRequest request;
        request.set_name(args.name);
        if (parsed) request.set_mode(*parsed);
        status = parsed ? mode_command(socket(), request) : fail(parsed.error());
    });

    CLI::App* slo =
        app.add_subcommand("slo", "Show or set targets of a TSG: the tuner finds the split that keeps them");
    const auto fraction = [](const std::string& text) {
        const Result<double> value = parse_fraction(text);
        return value ? std::string() : value.error().to_string();
    };
    slo->add_option("NAME", args.name, "TSG")->required()->type_name("");
    slo->add_option("--session", args.session, "Of this compute session only; without it of every one that shares NAME")
        ->type_name("SESSION");
    slo->add_option("--frame-ms", args.frame_ms, "Frame time, milliseconds")
        ->type_name("MS")
        ->check(CLI::NonNegativeNumber);
    slo->add_option("--frame-miss", args.frame_miss, "Fraction of frames that may be late, 0.01 or 1% (default 1%)")
        ->type_name("FRACTION")
        ->check(fraction);
    slo->add_option("--latency-ms", args.latency_ms, "Latency of one step, milliseconds")
        ->type_name("MS")
        ->check(CLI::NonNegativeNumber);
    slo->add_option("--latency-miss", args.latency_miss, "Fraction of steps that may be late (default 1%)")
        ->type_name("FRACTION")
        ->check(fraction);
    slo->add_option("--throughput", args.throughput, "Steps per second, at least")
        ->type_name("RATE")
        ->check(CLI::NonNegativeNumber);
    slo->add_option("--weight", args.weight, "Share of compute's TPCs against other sessions' (1); with --session")
        ->type_name("WEIGHT")
        ->check(CLI::NonNegativeNumber);
    slo->add_flag("--clear", args.clear, "Drop the targets, all of NAME or the session's");
    slo->add_flag("--json", args.json, "As JSON (docs/vudactl.md)");
    slo->footer(
        "Examples:\n  vudactl slo game --frame-ms 16.67 --frame-miss 1%    leaves the quota to the tuner\n"
        "  vudactl slo game --latency-ms 33.3 --throughput 20\n  vudactl slo game --session 7 --latency-ms 10\n"
        "  vudactl slo game --session 7 --weight 2              twice the share of the others\n"
        "  vudactl slo game                                     target, attained, margin, state\n"
        "  vudactl slo game --clear\n\n"
        "Exit status: 64 not a target; 66 no such name or session; 77 not permitted.");
    slo->callback([&] {
        // One late frame or step of a hundred, where nobody says otherwise.
        const auto miss = [](const std::string& given, double bound) {
            return given.empty() ? bound > 0 ? 0.01 : 0.0 : *parse_fraction(given);
        };
        v1::SetSloRequest request;
        request.set_name(args.name);
        request.set_session_id(args.session);
        request.set_frame_ms(args.frame_ms);
        request.set_frame_miss(miss(args.frame_miss, args.frame_ms));
        request.set_latency_ms(args.latency_ms);
        request.set_latency_miss(miss(args.latency_miss, args.latency_ms));
        request.set_throughput(args.throughput);
        request.set_weight(args.weight);
        request.set_clear(args.clear);
        status = slo_command(socket(), request, args.json);
    });

    try {
        std::reverse(words.begin(), words.end());  // what CLI::App::parse(std::vector) wants
        app.parse(words);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kExitUsage;
    }
    return status;
}

}  // namespace
}  // namespace vuda::cli

int main(int argc, char** argv) {
    try {
        return vuda::cli::dispatch(std::vector<std::string>(argv + 1, argv + argc));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "vudactl: %s\n", error.what());
        return vuda::cli::kExitSoftware;
    }
}
