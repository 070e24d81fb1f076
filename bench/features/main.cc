// vuda-bench-features: uses one feature of CUDA in earnest, compares what comes out, and says how it went.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "bench/common/exit_code.h"
#include "bench/features/run.h"

namespace vuda::bench::features {
namespace {

void list_cases() {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Case& one : cases())
        list.push_back({{"case", one.name}, {"risk", risk_name(one.risk)}, {"split", one.split}});
    std::printf("%s\n", list.dump().c_str());
}

void add_gate(CLI::App& app, const std::string& ready, const std::string& start, GateOptions& gate,
              const std::string& what) {
    app.add_option("--" + ready + "-file", gate.ready_file, "Create this file " + what);
    app.add_option("--" + start + "-file", gate.start_file, "Then go on when this file exists");
}

}  // namespace
}  // namespace vuda::bench::features

int main(int argc, char** argv) {
    using namespace vuda::bench;
    using namespace vuda::bench::features;
    CLI::App app{"Uses one feature of CUDA in earnest, compares what comes out, and says how it went.",
                 "vuda-bench-features"};
    FeatureOptions options;
    std::error_code ignored;
    options.rig.self = std::filesystem::read_symlink("/proc/self/exe", ignored);
    // Where a build puts it, and pack.sh.
    const std::filesystem::path nested =
        std::filesystem::path(options.rig.self).parent_path().parent_path() / "lib" / "vuda-bench-nested.fatbin";
    if (std::filesystem::exists(nested, ignored)) options.rig.nested_image = nested;
    bool list = false;
    app.add_flag("--list", list, "Print the cases as JSON, in the order to run them in");
    app.add_option("--case", options.case_name, "Which one to run");
    app.add_option("--seconds", options.seconds, "Rounds begin for so long")
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    app.add_option("--device", options.device, "GPU by UUID (GPU-...) or index; default: the first");
    app.add_option("--libcuda", options.rig.libcuda, "CUDA driver library")->capture_default_str();
    app.add_option("--nested-image", options.rig.nested_image,
                   "Kernels that launch kernels, as make_nested.sh makes them");
    app.add_option("--ipc-handle", options.ipc_handle, "Be the other process of case ipc")->group("");
    add_gate(app, "ready", "start", options.before, "when there is a context");
    add_gate(app, "done", "end", options.after, "when the rounds are over, the context still there");
    try {
        app.parse(argc, argv);
        if (!list && !find_case(options.case_name))
            throw CLI::ValidationError("--case", "there is no case '" + options.case_name + "'; see --list");
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? kExitOk : kExitUsage;
    }
    if (list) {
        list_cases();
        return kExitOk;
    }
    const FeatureReport report = run_feature(options);
    if (!report.error.empty())
        std::fprintf(stderr, "vuda-bench-features: %s: %s\n", report.one->name, report.error.c_str());
    // The other process of a case has nothing to say that its exit status does not.
    if (options.ipc_handle.empty()) std::printf("%s\n", report.to_json().dump().c_str());
    std::fflush(stdout);
    return report.exit_code();
}
