// vuda-sim-compute: see compute.h.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "rm/abi.h"
#include "sim/standin/compute.h"
#include "sim/standin/measure.h"
#include "sim/standin/vuda.h"

namespace {

using namespace vuda::sim;
using namespace vuda::sim::standin;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// What one thread saw.
struct Run {
    Samples latencies;
    Trace trace;
    Checksum checksum;
    bool lost = false;
    bool timed_out = false;
    bool verified = true;
    uint32_t xid = 0;
    int cuda_error = 0;      // a kernel was refused
    double seconds = 0;      // measured
    uint64_t astray = 0;     // kernels that ran on a TPC which their launch excluded
    uint32_t last_tpcs = 0;  // how many TPCs the last kernel ran on
};

// Where the kernel ran, against where it was allowed to.
void check_whereabouts(const work::Whereabouts& found, const work::Launch& launch, Run& out) {
    bool astray = false;
    out.last_tpcs = 0;
    for (size_t i = 0; i < std::size(found.tpcs); i++) {
        out.last_tpcs += static_cast<uint32_t>(std::popcount(found.tpcs[i]));
        astray =
            astray || ((launch.flags & work::kLaunchMaskValid) != 0 && (found.tpcs[i] & launch.disabled_tpcs[i]) != 0);
    }
    out.astray += astray ? 1 : 0;
}

work::Launch launch_of(const ComputeOptions& options, uint32_t sms) {
    work::Launch launch{};
    launch.blocks_per_sm = options.blocks_per_sm;
    launch.blocks = options.blocks != 0 ? options.blocks : options.waves * sms * options.blocks_per_sm;
    // --kernel-ms is what the whole kernel takes on an idle GPU: so many waves of blocks, one after the other.
    const uint32_t per_wave = std::max(1u, sms * options.blocks_per_sm);
    const uint32_t waves = (launch.blocks + per_wave - 1) / per_wave;
    launch.block_ns = static_cast<uint32_t>(options.kernel_ms * 1e6 / waves);
    launch.sm_bound_permille = options.sm_bound_permille;
    launch.shared_memory = options.shared_memory;
    launch.bandwidth_permille = options.bandwidth_permille;
    if (!options.spin) launch.flags |= work::kLaunchControlState | work::kLaunchLocalMemory;
    for (const int tpc : options.masked_tpcs) {
        launch.flags |= work::kLaunchMaskValid;
        launch.disabled_tpcs[tpc / 32] |= 1u << (tpc % 32);
    }
    return launch;
}

void run(Compute& compute, const Vuda& vuda, uint32_t channel, const ComputeOptions& options, bool first, Run& out) {
    constexpr std::chrono::milliseconds kLimit(10'000);
    Queue& queue = compute.queue(channel);
    const work::Launch plain = launch_of(options, compute.sm_count());
    queue.set_object(1, compute.compute_class());
    const bool masks = compute.compute_class() >= vuda::rm::cls::kComputeHopper;
    uint64_t last_time = 0;
    uint64_t last_split = 0;
    bool ready = false;
    Pacer pacer(options.fps);
    Window window(options.common.start_file, options.common.seconds, options.kernels, options.common.linger);
    while (!g_stop && !out.lost && !out.timed_out && window.go_on(out.latencies.count())) {
        const auto begin = Clock::now();
        if (options.common.illegal_method && first && out.latencies.count() == 10) queue.method(1, 0x3ffc, 1);
        work::Launch launch = plain;
        launch.report_low = static_cast<uint32_t>(queue.report_address());
        launch.report_high = static_cast<uint32_t>(queue.report_address() >> 32);
        // Where the class has SCG methods, VUDA splits the TSG from the renderer's side.
        const uint64_t split = masks ? vuda.mask(launch) : 0;
        if (options.guard) out.cuda_error = vuda.refusal(launch);
        if (out.cuda_error != 0) break;
        const uint64_t submitted = monotonic_ns();
        queue.block(1, work::kSimLaunch, &launch, sizeof launch);
        const uint32_t value = queue.submit();
        switch (queue.wait(value, kLimit, g_stop)) {
            case Waited::kDone: break;
            case Waited::kDeviceLost:
                out.lost = true;
                out.xid = queue.error_code();
                continue;
            case Waited::kTimeout: out.timed_out = true; continue;
            case Waited::kInterrupted: continue;
        }
        const double latency = ms_since(begin);
        check_whereabouts(queue.report(), launch, out);
        if (split != last_split && first && !options.split_log.empty()) {
            append_line(options.split_log,
                        std::to_string(submitted) + " " + std::to_string(split) + " " + std::to_string(out.last_tpcs));
        }
        last_split = split;
        vuda.sample(Vuda::Sample::kSync, 0, latency);
        if (window.measuring()) out.latencies.add(latency);
        if (window.measuring() && options.common.report_trace) out.trace.add(monotonic_ns(), latency);
        const uint64_t time = queue.last_timestamp_ns();
        out.verified = out.verified && time >= last_time;
        last_time = time;
        out.checksum.add(value);
        if (first && !ready) touch(options.common.ready_file);
        ready = true;
        if (options.gap_ms > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options.gap_ms));
        pacer.wait();
    }
    out.seconds = window.seconds();
}

// All at the same moment, as programs that start together do. Returns what went wrong.
std::string make_contexts(const ComputeOptions& options, std::vector<std::unique_ptr<Compute>>& contexts,
                          double& create_ms) {
    contexts.resize(options.contexts);
    std::vector<std::string> errors(options.contexts);
    const auto create = Clock::now();
    {
        std::vector<std::thread> makers;
        for (uint32_t i = 0; i < options.contexts; i++) {
            makers.emplace_back([&, i] {
                auto made = Compute::make(options);
                if (made) {
                    contexts[i] = std::move(*made);
                } else {
                    errors[i] = made.error().to_string();
                }
            });
        }
        for (std::thread& maker : makers) maker.join();
    }
    create_ms = ms_since(create);
    for (const std::string& error : errors) {
        if (!error.empty()) return error;
    }
    return "";
}

// The set-up methods run once a context, through its first channel.
bool set_up_contexts(const ComputeOptions& options, const std::vector<std::unique_ptr<Compute>>& contexts) {
    bool good = true;
    for (const auto& context : contexts) {
        if (options.no_setup) break;
        Queue& queue = context->queue(0);
        queue.set_object(1, context->compute_class());
        queue.method(1, work::kSetShaderLocalMemoryA, 1);
        const Waited waited = queue.wait(queue.submit(), std::chrono::milliseconds(10'000), g_stop);
        // One that is told to end before its first kernel has seen nothing wrong.
        good = good && (waited == Waited::kDone || waited == Waited::kInterrupted);
    }
    return good;
}

std::vector<Run> run_all(const ComputeOptions& options, const std::vector<std::unique_ptr<Compute>>& contexts) {
    const Vuda vuda = Vuda::find();
    std::vector<Run> runs(options.contexts * options.threads);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < runs.size(); i++) {
        threads.emplace_back(
            [&, i] { run(*contexts[i / options.threads], vuda, i % options.threads, options, i == 0, runs[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    return runs;
}

int finish(Json& json, int status) {
    std::fputs(json.line().c_str(), stdout);
    std::fflush(stdout);
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    ComputeOptions options;
    if (const int status = parse(argc, argv, options); status != 0) return status < 0 ? 0 : status;
    watch_signals();
    if (options.common.close_range) close_descriptors(3);

    Json json;
    json.text("program", "vuda-sim-compute").flag("simulated", true).integer("pid", getpid());
    std::vector<std::unique_ptr<Compute>> contexts;
    double create_ms = 0;
    const auto fail = [&json](const std::string& error) {
        json.text("error", error).flag("device_lost", false);
        return finish(json, 1);
    };
    if (const std::string error = make_contexts(options, contexts, create_ms); !error.empty()) return fail(error);
    if (options.common.exec_self) {
        execute_again(argv);
        json.text("error", "cannot execute this program anew");
        return finish(json, 1);
    }
    if (options.common.close_range) {
        int highest = 2;
        for (const auto& context : contexts) highest = std::max(highest, context->highest_fd());
        close_descriptors(highest + 1);
    }
    const bool child_good = !options.common.fork_child || fork_and_use_device();

    bool set_up = set_up_contexts(options, contexts);
    std::vector<Run> runs = run_all(options, contexts);
    const int first_error = runs[0].cuda_error;
    if (first_error != 0 && options.retry) {
        contexts.clear();
        if (const std::string error = make_contexts(options, contexts, create_ms); !error.empty()) return fail(error);
        set_up = set_up_contexts(options, contexts);
        runs = run_all(options, contexts);
    }

    Samples all;
    Trace trace;
    Checksum checksum;
    bool lost = false;
    bool timed_out = false;
    bool verified = set_up;
    uint32_t xid = 0;
    int cuda_error = 0;
    double seconds = 0;
    uint64_t astray = 0;
    for (const Run& one : runs) {
        if (one.cuda_error != 0) cuda_error = one.cuda_error;
        astray += one.astray;
        seconds = std::max(seconds, one.seconds);
        all.append(one.latencies);
        trace.append(one.trace);
        lost = lost || one.lost;
        timed_out = timed_out || one.timed_out;
        verified = verified && one.verified;
        xid = std::max(xid, one.xid);
    }
    checksum.add(all.count());
    while (options.common.hold && !g_stop && !lost) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        for (const auto& context : contexts) {
            if (!context->queue(0).device_lost()) continue;
            lost = true;
            xid = context->queue(0).error_code();
        }
    }
    while (options.common.keep_lost && lost && !g_stop) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    json.integer("gpu", options.common.gpu)
        .integer("client", contexts[0]->client())
        .integer("veid", contexts[0]->veid())
        .integer("contexts", options.contexts)
        .integer("threads", options.threads)
        .number("create_ms", create_ms)
        .integer("kernels", static_cast<int64_t>(all.count()))
        .number("seconds", seconds)
        .number("rate", static_cast<double>(all.count()) / seconds)
        .number("latency_p50_ms", all.percentile(0.5))
        .number("latency_p99_ms", all.percentile(0.99))
        .integer("last_tpcs", runs.empty() ? 0 : runs[0].last_tpcs)
        .integer("astray", static_cast<int64_t>(astray))
        .text("checksum", checksum.hex())
        .flag("verified", verified && child_good && !timed_out && astray == 0)
        .flag("device_lost", lost)
        .integer("xid", xid)
        .integer("cuda_error", cuda_error);
    if (options.retry) json.integer("first_cuda_error", first_error);
    if (options.common.report_trace) json.trace("trace", trace);
    if (timed_out) json.text("error", "a kernel did not end within 10 s");
    if (!child_good) json.text("error", "the forked child could not use the device");
    return finish(json, lost || timed_out || !child_good || cuda_error != 0 ? 1 : 0);
}
