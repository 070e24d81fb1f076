#include "bench/mirror/draw.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/common/clock.h"
#include "bench/common/exit_code.h"
#include "bench/mirror/mapper.h"
#include "bench/render/renderer.h"

namespace vuda::bench {

struct DrawCommand::Options {
    RenderOptions render;
    RunOptions run;
    double map_ms = 200;
};

DrawCommand::DrawCommand(CLI::App& app) : options_(std::make_unique<Options>()) {
    add_render_options(app, options_->render);
    add_run_options(app, options_->run);
    app.add_option("--map-ms", options_->map_ms, "Milliseconds between two times that control buffers are mapped")
        ->check(CLI::Range(1.0, 1e6))
        ->capture_default_str();
}

DrawCommand::~DrawCommand() = default;

int DrawCommand::run() {
    StartGate gate(options_->run.gate);
    Renderer renderer(options_->render, options_->run);
    RenderReport& report = renderer.report();
    Mapper::Figures figures;
    if (renderer.prepare().ok()) {
        const std::optional<MappingRecipe> recipe = seen_recipe();
        if (recipe) {
            Mapper mapper(*recipe, from_seconds(options_->map_ms / 1e3));
            static_cast<void>(renderer.run(gate));
            const Result<Mapper::Figures> mapped = mapper.stop();
            if (mapped)
                figures = *mapped;
            else if (!report.error)
                report.error = mapped.error();
        } else {
            report.error = no_recipe();
        }
    }
    nlohmann::ordered_json json = report.to_json();
    json["maps"] = figures.maps;
    json["map_max_ms"] = figures.map_max_ms;
    if (report.error) std::fprintf(stderr, "vuda-bench-mirror: %s\n", report.error->to_string().c_str());
    std::printf("%s\n", json.dump().c_str());
    std::fflush(stdout);
    return report.exit_code();
}

}  // namespace vuda::bench
