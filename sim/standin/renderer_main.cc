// vuda-sim-renderer: see renderer.h.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

#include "sim/standin/measure.h"
#include "sim/standin/renderer.h"
#include "sim/standin/vuda.h"

namespace {

using namespace vuda::sim;
using namespace vuda::sim::standin;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

int finish(Json& json, int status) {
    std::fputs(json.line().c_str(), stdout);
    std::fflush(stdout);
    return status;
}

void push_frame(Queue& queue, const RendererOptions& options) {
    std::vector<uint32_t> words(1 + options.draws * sizeof(work::Draw) / 4);
    words[0] = options.draws;
    for (uint32_t i = 0; i < options.draws; i++) {
        work::Draw draw{};
        draw.vertex_ns = static_cast<uint32_t>(options.vertex_ms * 1e6 / options.draws);
        draw.fragment_ns = static_cast<uint32_t>(options.fragment_ms * 1e6 / options.draws);
        if (i + 1 == options.draws && options.fps > 0) draw.flags = work::kDrawYield;
        std::memcpy(words.data() + 1 + i * sizeof(work::Draw) / 4, &draw, sizeof draw);
    }
    queue.block(0, work::kSimFrame, words.data(), static_cast<uint32_t>(words.size() * 4));
}

}  // namespace

int main(int argc, char** argv) {
    RendererOptions options;
    if (const int status = parse(argc, argv, options); status != 0) return status < 0 ? 0 : status;
    watch_signals();
    if (options.common.close_range) close_descriptors(3);

    Json json;
    json.text("program", "vuda-sim-renderer").flag("simulated", true).integer("pid", getpid());
    auto renderer = Renderer::make(options);
    if (!renderer) {
        json.text("error", renderer.error().to_string()).flag("device_lost", false);
        return finish(json, 1);
    }
    if (options.common.exec_self) {
        execute_again(argv);
        json.text("error", "cannot execute this program anew");
        return finish(json, 1);
    }
    if (options.common.close_range) close_descriptors((*renderer)->highest_fd() + 1);
    const bool child_good = !options.common.fork_child || fork_and_use_device();

    Queue& queue = (*renderer)->queue();
    constexpr std::chrono::milliseconds kLimit(10'000);
    Samples frames;
    Samples map_ms;
    Checksum checksum;
    bool lost = false;
    bool timed_out = false;
    bool verified = true;
    uint64_t last_time = 0;
    bool ready = false;
    std::optional<Renderer::Times> after_spare;
    Window window(options.common.start_file, options.common.seconds, options.frames, options.common.linger);
    const Vuda vuda = Vuda::find();
    uint64_t frame_id = 0;
    vuda::layer::TurnPacer turns;
    auto last_end = Clock::now();
    Pacer pacer(options.fps);
    Trace trace;
    while (!g_stop && !lost && !timed_out && window.go_on(frames.count())) {
        vuda.wait_for_turn(turns);
        if (options.map_every > 0 && frame_id > 0 && frame_id % options.map_every == 0) {
            const auto start = Clock::now();
            const vuda::Status mapped = (*renderer)->map_another();
            map_ms.add(ms_since(start));
            if (!mapped) {
                json.text("error", mapped.error().to_string());
                return finish(json, 1);
            }
        }
        if (options.spare > 0 && !after_spare && access(options.drop_file.c_str(), F_OK) == 0) {
            const vuda::Result<Renderer::Times> times = (*renderer)->map_after_spare();
            if (!times) {
                json.text("error", times.error().to_string());
                return finish(json, 1);
            }
            after_spare = *times;
        }
        const auto begin = Clock::now();
        push_frame(queue, options);
        if (options.common.illegal_method && frames.count() == 10) queue.method(0, 0x3ffc, 1);
        const uint32_t value = queue.submit();
        switch (queue.wait(value, kLimit, g_stop)) {
            case Waited::kDone: break;
            case Waited::kDeviceLost: lost = true; continue;
            case Waited::kTimeout: timed_out = true; continue;
            case Waited::kInterrupted: continue;
        }
        const double frame_ms = ms_since(begin);
        turns.worked(static_cast<uint64_t>(frame_ms * 1e6));
        vuda.sample(Vuda::Sample::kFrame, ++frame_id, frame_ms);
        if (frame_id > 1) vuda.sample(Vuda::Sample::kInterval, frame_id, ms_since(last_end));
        last_end = Clock::now();
        if (window.measuring()) frames.add(frame_ms);
        if (window.measuring() && options.common.report_trace) trace.add(monotonic_ns(), frame_ms);
        const uint64_t time = queue.last_timestamp_ns();
        verified = verified && time > last_time;
        last_time = time;
        checksum.add(value);
        if (!ready) touch(options.common.ready_file);
        ready = true;
        if (options.gap_ms > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options.gap_ms));
        pacer.wait();
    }
    const double seconds = window.seconds();
    // Held: the TSG stays, idle, until told to end.
    while (options.common.hold && !g_stop && !lost) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        lost = queue.device_lost();
    }
    if (lost) vuda.device_lost();
    while (options.common.keep_lost && lost && !g_stop) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    json.integer("gpu", options.common.gpu)
        .integer("client", (*renderer)->client())
        .integer("tsg", (*renderer)->tsg())
        .integer("frames", static_cast<int64_t>(frames.count()))
        .number("seconds", seconds)
        .number("fps", static_cast<double>(frames.count()) / seconds)
        .number("frame_p50_ms", frames.percentile(0.5))
        .number("frame_p99_ms", frames.percentile(0.99))
        .text("checksum", checksum.hex())
        .flag("verified", verified && child_good && !timed_out)
        .flag("device_lost", lost)
        .integer("xid", lost ? queue.error_code() : 0);
    if (options.map_every > 0) {
        json.integer("maps", static_cast<int64_t>(map_ms.count()))
            .number("map_p50_ms", map_ms.percentile(0.5))
            .number("map_max_ms", map_ms.percentile(1));
    }
    if (after_spare) json.number("spare_drop_ms", after_spare->drop_ms).number("spare_map_ms", after_spare->map_ms);
    if (options.common.report_trace) json.trace("trace", trace);
    if (timed_out) json.text("error", "a frame did not end within 10 s");
    if (!child_good) json.text("error", "the forked child could not use the device");
    return finish(json, lost || timed_out || !child_good ? 1 : 0);
}
