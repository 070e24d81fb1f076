// What kernels do besides computing: print, assert, allocate, use local memory and stack. And two that fail.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>

#include "bench/common/clock.h"
#include "bench/features/cases.h"

namespace vuda::bench::features {
namespace {

constexpr unsigned kKernelThreads = 256;

Status context_done(Rig& rig) { return rig.cuda.check(rig.cuda.context_wait(), "wait for the context"); }

// What goes to stdout while `action` runs.
Result<std::string> captured(const std::function<Status()>& action) {
    const int memory = memfd_create("vuda-bench-features", MFD_CLOEXEC);
    const Finally close_memory([memory] { close(memory); });
    std::fflush(stdout);
    const int before = dup(STDOUT_FILENO);
    const Finally close_before([before] { close(before); });
    if (memory < 0 || before < 0 || dup2(memory, STDOUT_FILENO) < 0)
        return Error{Code::kInternal, "cannot redirect stdout", ""};
    const Status status = action();
    std::fflush(stdout);
    dup2(before, STDOUT_FILENO);
    VUDA_BENCH_TRY(status);
    std::string text;
    char piece[4096];
    off_t at = 0;
    for (ssize_t size; (size = pread(memory, piece, sizeof piece, at)) > 0; at += size)
        text.append(piece, static_cast<size_t>(size));
    return text;
}

// As feature_recurse's descend().
uint32_t descended(uint32_t depth, uint32_t value) {
    const uint32_t below = depth == 0 ? 0 : descended(depth - 1, value + 1);
    return below + value + value % 24;
}

}  // namespace

Status device_printf(Rig& rig) {
    const Result<CuFunction> function = rig.kernel("feature_printf");
    VUDA_BENCH_TRY(function);
    constexpr unsigned kBlocks = 40;
    constexpr unsigned kBase = 100;
    const Result<std::string> text = captured([&]() -> Status {
        VUDA_BENCH_TRY(launch(rig.cuda, *function, kBlocks, 32, 0, nullptr, kBase));
        return context_done(rig);
    });
    VUDA_BENCH_TRY(text);
    // The blocks print in any order.
    std::multiset<std::string> lines;
    for (size_t begin = 0, end; (end = text->find('\n', begin)) != std::string::npos; begin = end + 1)
        lines.insert(text->substr(begin, end - begin));
    std::multiset<std::string> wanted;
    for (unsigned block = 0; block < kBlocks; ++block)
        wanted.insert("feature " + std::to_string(kBase + block) + " of " + std::to_string(kBlocks) +
                      ": printed on the GPU");
    const auto size = static_cast<uint32_t>(lines.size());
    rig.sum({&size, 1});
    return expect(lines == wanted, std::to_string(size) + " lines were printed, or not the right ones: " +
                                       (lines.empty() ? "" : *lines.begin()));
}

Status assert_holds(Rig& rig) {
    const Result<CuFunction> function = rig.kernel("feature_assert");
    VUDA_BENCH_TRY(function);
    const Result<Words> data = Words::make(rig.cuda, 1 << 16, 5);
    VUDA_BENCH_TRY(data);
    const auto size = static_cast<uint32_t>(data->size());
    VUDA_BENCH_TRY(
        launch(rig.cuda, *function, size / kKernelThreads, kKernelThreads, 0, nullptr, data->pointer(), size, 6u));
    VUDA_BENCH_TRY(context_done(rig));
    const auto found = data->read();
    VUDA_BENCH_TRY(found);
    rig.sum(*found);
    return expect_equal(*found, std::vector<uint32_t>(size, 6), "after an assertion");
}

Status device_malloc(Rig& rig) {
    // Before the first kernel that allocates; later it is refused, which is right as well.
    rig.cuda.set_limit(kHeapSize, size_t{64} << 20);
    const Result<CuFunction> function = rig.kernel("feature_malloc");
    VUDA_BENCH_TRY(function);
    constexpr unsigned kBlocks = 16;
    constexpr unsigned kWords = 64;
    constexpr unsigned kRounds = 4;
    const Result<Words> out = Words::make(rig.cuda, kBlocks * kKernelThreads);
    VUDA_BENCH_TRY(out);
    const Result<Words> errors = Words::make(rig.cuda, 1);
    VUDA_BENCH_TRY(errors);
    VUDA_BENCH_TRY(launch(rig.cuda, *function, kBlocks, kKernelThreads, 0, nullptr, out->pointer(), errors->pointer(),
                          kWords, kRounds));
    VUDA_BENCH_TRY(context_done(rig));
    const auto failed = errors->read();
    VUDA_BENCH_TRY(failed);
    VUDA_BENCH_TRY(expect_equal(*failed, {0}, "threads that got no memory"));
    std::vector<uint32_t> wanted(out->size());
    for (uint32_t thread = 0; thread < wanted.size(); ++thread)
        for (uint32_t round = 0; round < kRounds; ++round)
            for (uint32_t i = 0; i < kWords; ++i) wanted[thread] += thread + round + i;
    const auto found = out->read();
    VUDA_BENCH_TRY(found);
    rig.sum(*found);
    return expect_equal(*found, wanted, "sums from the device's heap");
}

// The first kernels of the context had no use for local memory, so CUDA enlarges it now: the GPU's compute state
// changes.
Status local_memory(Rig& rig) {
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    VUDA_BENCH_TRY(steps_come_out(rig, *step, 1 << 16, 3, nullptr));
    const Result<CuFunction> function = rig.kernel("feature_local");
    VUDA_BENCH_TRY(function);
    int bytes = 0;
    VUDA_BENCH_TRY(
        rig.cuda.check(rig.cuda.function_attribute(&bytes, kLocalBytes, *function), "ask for a kernel's local memory"));
    rig.figures["local_bytes"] = bytes;
    const Result<int> processors = rig.attribute(kMultiprocessors);
    VUDA_BENCH_TRY(processors);
    const Result<Words> out = Words::make(rig.cuda, kKernelThreads * static_cast<size_t>(*processors), 3);
    VUDA_BENCH_TRY(out);
    constexpr unsigned kSeed = 11;
    VUDA_BENCH_TRY(launch(rig.cuda, *function, static_cast<unsigned>(*processors), kKernelThreads, 0, nullptr,
                          out->pointer(), kSeed));
    VUDA_BENCH_TRY(context_done(rig));
    std::vector<uint32_t> slots(2048);
    for (uint32_t i = 0; i < 2048; ++i) slots[(i * 1031u + kSeed) & 2047u] = i;  // and the thread's number
    uint32_t of_slots = 0;
    uint32_t of_factors = 0;
    for (uint32_t i = 0; i < 2048; i += 2) {
        of_slots += slots[(i + 3) & 2047u] * (i + 1);
        of_factors += i + 1;
    }
    std::vector<uint32_t> wanted(out->size());
    for (uint32_t thread = 0; thread < wanted.size(); ++thread) wanted[thread] = of_slots + thread * of_factors;
    const auto found = out->read();
    VUDA_BENCH_TRY(found);
    rig.sum(*found);
    return expect_equal(*found, wanted, "sums from local memory");
}

Status stack_limit(Rig& rig) {
    const Result<CuFunction> function = rig.kernel("feature_recurse");
    VUDA_BENCH_TRY(function);
    size_t before = 0;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.get_limit(&before, kStackSize), "ask for the stack's size"));
    const Finally restore([&] { rig.cuda.set_limit(kStackSize, before); });
    const Result<Words> out = Words::make(rig.cuda, 1 << 14);
    VUDA_BENCH_TRY(out);
    for (const size_t bytes : {size_t{8} << 10, size_t{32} << 10}) {
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.set_limit(kStackSize, bytes), "make the stack larger"));
        const auto depth = static_cast<uint32_t>(bytes / 256);  // a level takes about 150 bytes
        VUDA_BENCH_TRY(launch(rig.cuda, *function, static_cast<unsigned>(out->size()) / kKernelThreads, kKernelThreads,
                              0, nullptr, out->pointer(), depth));
        VUDA_BENCH_TRY(context_done(rig));
        std::vector<uint32_t> wanted(out->size());
        for (uint32_t thread = 0; thread < wanted.size(); ++thread) wanted[thread] = descended(depth, thread);
        const auto found = out->read();
        VUDA_BENCH_TRY(found);
        rig.sum(*found);
        VUDA_BENCH_TRY(expect_equal(*found, wanted, "recursion in a stack of " + std::to_string(bytes) + " bytes"));
    }
    return {};
}

// What must come is CUDA's error, and no other program may notice.
Status assert_fails(Rig& rig) {
    const Result<CuFunction> function = rig.kernel("feature_assert");
    VUDA_BENCH_TRY(function);
    const Result<Words> data = Words::make(rig.cuda, 1 << 10, 5);
    VUDA_BENCH_TRY(data);
    VUDA_BENCH_TRY(launch(rig.cuda, *function, 4, kKernelThreads, 0, nullptr, data->pointer(), 1u << 10, 5u));
    const CuResult result = rig.cuda.context_wait();
    rig.figures["result"] = result;
    return expect(result == kAssert, "the failed assertion gave CUDA's result " + std::to_string(result));
}

Status bad_address(Rig& rig) {
    const Result<CuFunction> function = rig.kernel("feature_fault");
    VUDA_BENCH_TRY(function);
    // CLOCK_MONOTONIC, as the events of vudad.
    const auto now_us = [] {
        return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
    };
    rig.figures["launched_us"] = now_us();
    VUDA_BENCH_TRY(launch(rig.cuda, *function, 1, 32, 0, nullptr, 0x7000'0000'0000ull));
    const CuResult result = rig.cuda.context_wait();
    rig.figures["failed_us"] = now_us();
    rig.figures["result"] = result;
    return expect(result != kSuccess, "nothing happened");
}

}  // namespace vuda::bench::features
