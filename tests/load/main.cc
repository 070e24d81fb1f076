// vuda-load: loads a vudad as its clients would and measures what comes of it. docs/robustness.md says what each figure
// means.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/load/daemon.h"
#include "tests/load/scenarios.h"

namespace {

using vuda::load::Figures;
using vuda::load::Options;

// The daemon of the same build tree.
std::string beside_us(const char* program) {
    char self[PATH_MAX];
    const ssize_t size = ::readlink("/proc/self/exe", self, sizeof self);
    if (size <= 0) return program;
    const std::string path(self, static_cast<size_t>(size));
    return path.substr(0, path.rfind('/') + 1) + program;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("vuda-load: starts a vudad, loads it, and measures", "vuda-load");
    app.footer("Exit status: 0 within all limits; 1 a limit was missed; 2 something went wrong.");
    Options options;
    options.vudad = beside_us("vudad");
    std::string json;
    bool lenient = false;
    app.add_option("--vudad", options.vudad, "The daemon (default: the one beside this program)")->type_name("PATH");
    app.add_option("--json", json, "Write the figures to this file")->type_name("FILE");
    app.add_flag("--record-only", lenient, "A missed limit is no failure");
    app.require_subcommand(1);

    using Scenario = void (*)(const Options&, Figures&);
    Scenario chosen = nullptr;
    const auto scenario = [&](const char* name, const char* help, Scenario run) {
        CLI::App* sub = app.add_subcommand(name, help);
        sub->callback([&chosen, run] { chosen = run; });
        sub->add_option("--seconds", options.seconds, "Of measuring")->check(CLI::Range(0.1, 3600.0));
        sub->add_option("--count", options.count, "Starts, victims, owners or operations")->check(CLI::PositiveNumber);
        return sub;
    };
    scenario("start", "start to READY; an idle daemon", vuda::load::measure_start);
    CLI::App* const many[] = {
        scenario("rpc", "register and attach with many sessions", vuda::load::measure_rpc),
        scenario("death", "killed clients until their names are free", vuda::load::measure_death),
        scenario("stall", "many sessions beside those that flood, stall and stop", vuda::load::measure_stall)};
    for (CLI::App* sub : many) {
        sub->add_option("--sessions", options.sessions, "Processes with a session")->check(CLI::Range(4U, 4000U));
        sub->add_option("--buffers", options.buffers, "Control buffers of an owner")->check(CLI::Range(1U, 4000U));
        sub->add_option("--rate", options.rate, "Cycles a second of all sessions")->check(CLI::PositiveNumber);
        sub->add_option("--p99-limit", options.limit_ms, "Limit of a request's p99, milliseconds")
            ->check(CLI::PositiveNumber);
    }
    scenario("restart", "vudad killed and started again under programs with libvuda", vuda::load::measure_restart)
        ->add_option("--sessions", options.sessions, "Programs that own a name")
        ->check(CLI::Range(1U, 1000U));
    scenario("silent", "owners that are stopped", vuda::load::measure_silent);
    CLI::App* soak = scenario("soak", "session operations by count; nothing may grow", vuda::load::measure_soak);
    soak->add_option("--grow-kb", options.grow_kb, "Resident memory that may come on top");
    soak->add_option("--rest-ms", options.rest_ms, "Let vudad alone for so long after each round")
        ->check(CLI::Range(0U, 10'000U));
    soak->add_option("--rests", options.rests, "Write the middle of each of these pauses to this file")
        ->type_name("FILE");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }

    vuda::load::raise_descriptor_limit();
    std::string command = "vuda-load";
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        // Where the figures go and which build it was say nothing about them.
        if (argument == "--json" || argument == "--vudad" || argument == "--rests") {
            ++i;
        } else if (argument != "--record-only") {
            command += " " + argument;
        }
    }
    Figures figures;
    chosen(options, figures);
    if (!json.empty()) std::ofstream(json) << figures.json(command);
    for (const std::string& name : figures.misses()) std::fprintf(stderr, "missed: %s\n", name.c_str());
    if (figures.failed()) return 2;
    return figures.misses().empty() || lenient ? 0 : 1;
}
