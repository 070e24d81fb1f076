// vuda-bench-both: vuda-bench-render and vuda-bench-compute as two threads of one process.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "bench/common/exit_code.h"
#include "bench/common/stop_signal.h"
#include "bench/compute/runner.h"
#include "bench/render/renderer.h"

namespace {

using namespace vuda::bench;

// The worse of two exit codes: a lost device, then other failures, then wrong results.
int worse(int a, int b) { return a > b ? a : b; }

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Draws with Vulkan and launches CUDA kernels in one process, checks both and says how fast they were.",
                 "vuda-bench-both"};
    RenderOptions render;
    ComputeOptions compute;
    RunOptions run;
    std::string only;
    add_render_options(app, render, "render-");
    add_compute_options(app, compute, "compute-");
    add_run_options(app, run);
    app.add_option("--only", only, "Run one side only")->check(CLI::IsMember({"render", "compute"}));
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? kExitOk : kExitUsage;
    }
    const bool with_render = only != "compute";
    const bool with_compute = only != "render";
    run.gate.parties = with_render && with_compute ? 2 : 1;

    install_stop_signals();
    StartGate gate(run.gate);
    Renderer renderer(render, run);
    ComputeRunner runner(compute, run);
    // Vulkan first: CUDA's context is what joins the renderer's TSG. The context belongs to the thread that launches.
    bool prepared = !with_render || renderer.prepare().ok();
    std::thread thread;
    if (prepared && with_compute) {
        thread = std::thread([&] {
            if (runner.prepare().ok())
                static_cast<void>(runner.run(gate));
            else
                gate.abandon(runner.report().error->to_string());
        });
    }
    if (prepared && with_render) static_cast<void>(renderer.run(gate));
    if (thread.joinable()) thread.join();

    nlohmann::ordered_json json;
    json["program"] = "vuda-bench-both";
    int status = kExitOk;
    const auto take = [&](const char* key, auto& report) {
        if (report.error) std::fprintf(stderr, "vuda-bench-both: %s\n", report.error->to_string().c_str());
        json[key] = report.to_json();
        status = worse(status, report.exit_code());
        if (!run.json) std::printf("%s\n", report.to_text().c_str());
    };
    if (with_render) take("renderer", renderer.report());
    if (with_compute) take("compute", runner.report());
    if (run.json) std::printf("%s\n", json.dump().c_str());
    std::fflush(stdout);
    return status;
}
