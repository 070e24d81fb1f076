// vuda-bench-mirror: what it costs that control buffers follow, against exporting memory from CUDA to Vulkan.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/common/exit_code.h"
#include "bench/common/stop_signal.h"
#include "bench/common/try.h"
#include "bench/mirror/control_buffers.h"
#include "bench/mirror/draw.h"
#include "bench/mirror/export_import.h"
#include "bench/mirror/phases.h"
#include "bench/mirror/user_buffers.h"
#include "bench/render/device.h"

namespace {

using namespace vuda;
using namespace vuda::bench;
using Json = nlohmann::ordered_json;

struct Options {
    std::string device;
    std::vector<uint32_t> counts{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
    uint64_t bytes = 4096;
    std::string ready_file, start_file;
    double start_timeout = 60;
    uint64_t user_bytes = 2 << 20;
    std::string phases;
};

Result<Json> measure(ControlBuffers& buffers, const std::vector<uint32_t>& counts) {
    Json rows = Json::array();
    for (const uint32_t count : counts) {
        const Result<ControlBuffers::Times> times = buffers.make_and_free(count);
        if (!times) return times.error();
        rows.push_back({{"count", count},
                        {"memory_ms", times->memory_ms},
                        {"address_ms", times->address_ms},
                        {"map_ms", times->map_ms},
                        {"map_max_ms", times->map_max_ms},
                        {"free_ms", times->free_ms}});
    }
    return rows;
}

Status wait_for(const Options& options) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.start_timeout);
    while (!std::filesystem::exists(options.start_file)) {
        if (stop_requested() || std::chrono::steady_clock::now() > end)
            return Error{Code::kDeadlineExceeded, "the start file did not come", ""};
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return {};
}

// Alone first; then, when the start file is there, with whoever shares.
Status renderer(const Options& options, Json& json) {
    Result<Device> device = Device::open(options.device);
    if (!device) return device.error();
    json["gpu"] = device->info().name;
    json["uuid"] = device->info().uuid.to_string();
    const std::optional<MappingRecipe> recipe = seen_recipe();
    if (!recipe) return no_recipe();
    ControlBuffers buffers(*recipe, options.bytes);
    json["bytes"] = options.bytes;
    static_cast<void>(buffers.make_and_free(1));  // the first is slower
    Result<Json> alone = measure(buffers, options.counts);
    if (!alone) return alone.error();
    json["alone"] = *alone;
    for (const uint32_t count : {64u, 512u}) {
        const Result<ControlBuffers::Exports> exports = buffers.export_and_import(count);
        if (!exports) return exports.error();
        json["exports"].push_back({{"count", count},
                                   {"single_ms", exports->single_ms},
                                   {"single_import_ms", exports->single_import_ms},
                                   {"plural_ms", exports->plural_ms},
                                   {"plural_import_ms", exports->plural_import_ms},
                                   {"plural_status", exports->plural_status}});
    }
    if (!options.ready_file.empty()) std::ofstream(options.ready_file).flush();
    if (options.start_file.empty()) return {};
    VUDA_BENCH_TRY(wait_for(options));
    Result<Json> mirrored = measure(buffers, options.counts);
    if (!mirrored) return mirrored.error();
    json["mirrored"] = *mirrored;
    return {};
}

Status export_import(const Options& options, Json& json) {
    Result<ExportImport> found = measure_export_import(options.device, options.bytes, options.counts);
    if (!found) return found.error();
    json["gpu"] = found->gpu;
    json["bytes"] = found->bytes;
    for (const ExportImportTimes& times : found->times) {
        json["times"].push_back({{"count", times.count},
                                 {"create_ms", times.create_ms},
                                 {"export_ms", times.export_ms},
                                 {"import_ms", times.import_ms},
                                 {"bind_ms", times.bind_ms}});
    }
    return {};
}

// In phases; who else shares in each is the caller's business.
Status user_buffers(const Options& options, Json& json) {
    Result<Device> device = Device::open(options.device);
    if (!device) return device.error();
    json["gpu"] = device->info().name;
    json["uuid"] = device->info().uuid.to_string();
    json["bytes"] = options.user_bytes;
    static_cast<void>(make_user_buffers(*device, 64, options.user_bytes));  // the first are slower
    if (!options.ready_file.empty()) std::ofstream(options.ready_file).flush();
    Phases phases(options.phases, options.start_timeout);
    for (;;) {
        const Result<bool> more = phases.next();
        if (!more) return more.error();
        if (!*more) return {};
        Json times = Json::array();
        for (const uint32_t count : options.counts) {
            const UserBufferTimes one = make_user_buffers(*device, count, options.user_bytes);
            times.push_back({{"count", one.count},
                             {"made", one.made},
                             {"create_ms", one.create_ms},
                             {"allocate_ms", one.allocate_ms},
                             {"bind_ms", one.bind_ms},
                             {"free_ms", one.free_ms}});
            if (!one.failed.empty()) times.back()["failed"] = one.failed;
        }
        json["phases"].push_back(times);
        VUDA_BENCH_TRY(phases.done());
    }
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Measures what control buffers that follow cost, and the export of memory from CUDA to Vulkan.",
                 "vuda-bench-mirror"};
    Options options;
    app.require_subcommand(1);
    CLI::App* const as_renderer = app.add_subcommand(
        "renderer", "Map control buffers as Vulkan's driver does, alone and (from the start file on) with who shares");
    CLI::App* const as_exporter = app.add_subcommand("export-import", "CUDA export and Vulkan import");
    CLI::App* const as_drawer =
        app.add_subcommand("draw", "Draw and compare frames as vuda-bench-render, and map control buffers meanwhile");
    DrawCommand draw(*as_drawer);
    CLI::App* const as_user = app.add_subcommand(
        "user-buffers",
        "Make a Vulkan program's own buffers, once for each file go-N in --phases, until there is a file end");
    for (CLI::App* one : {as_renderer, as_exporter, as_user}) {
        one->add_option("--device", options.device, "GPU UUID; default: the first");
        one->add_option("--counts", options.counts, "How many buffers, comma-separated")->delimiter(',');
        one->add_option("--bytes", one == as_user ? options.user_bytes : options.bytes, "Of each buffer")
            ->check(CLI::PositiveNumber);
    }
    as_user->add_option("--ready-file", options.ready_file, "Made when the first phase may begin");
    as_user->add_option("--phases", options.phases, "Folder for go-N, done-N and end")->required();
    as_renderer->add_option("--ready-file", options.ready_file, "Made when the first part is done");
    as_renderer->add_option("--start-file", options.start_file, "The second part begins when it is there");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? kExitOk : kExitUsage;
    }
    install_stop_signals();
    if (as_drawer->parsed()) return draw.run();
    Json json;
    const Status done = as_renderer->parsed()   ? renderer(options, json)
                        : as_exporter->parsed() ? export_import(options, json)
                                                : user_buffers(options, json);
    if (!done) json["error"] = done.error().to_string();
    std::puts(json.dump().c_str());
    return done ? kExitOk : exit_status(done.error().code);
}
