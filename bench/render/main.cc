// vuda-bench-render: draws offscreen frames with Vulkan, checks each one's pixels and says how fast they came.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/common/exit_code.h"
#include "bench/common/stop_signal.h"
#include "bench/render/renderer.h"

int main(int argc, char** argv) {
    using namespace vuda::bench;
    CLI::App app{"Draws offscreen frames with Vulkan, checks each one's pixels and says how fast they came.",
                 "vuda-bench-render"};
    RenderOptions options;
    RunOptions run;
    add_render_options(app, options);
    add_run_options(app, run);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? kExitOk : kExitUsage;
    }

    install_stop_signals();
    StartGate gate(run.gate);
    Renderer renderer(options, run);
    if (renderer.prepare().ok()) static_cast<void>(renderer.run(gate));
    RenderReport& report = renderer.report();
    if (report.error) std::fprintf(stderr, "vuda-bench-render: %s\n", report.error->to_string().c_str());
    std::printf("%s\n", run.json ? report.to_json().dump().c_str() : report.to_text().c_str());
    std::fflush(stdout);
    return report.exit_code();
}
