// A program with a renderer and a CUDA context in one process, for tests: works with both at the same time, then holds
// them until SIGTERM.
//   e2e-both [--close-foreign]   close every descriptor that this program did not open itself, through libc, before it
//   works
//   e2e-both --map               map one more control buffer in each round, and work until SIGTERM
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "sim/standin/compute.h"
#include "sim/standin/measure.h"
#include "sim/standin/renderer.h"
#include "tests/e2e/gpu_work.h"

namespace {

using namespace vuda::sim;
using namespace vuda::sim::standin;
using vuda::e2e::submit_frame;
using vuda::e2e::submit_kernel;

constexpr int kRounds = 20;
constexpr std::chrono::milliseconds kLimit(10'000);

int fail(const char* what) {
    std::printf("{\"error\":\"%s\"}\n", what);
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    watch_signals();
    const bool close_foreign = argc > 1 && std::string_view(argv[1]) == "--close-foreign";
    const bool map = argc > 1 && std::string_view(argv[1]) == "--map";
    auto renderer = Renderer::make({});
    if (!renderer) return fail("no renderer");
    auto compute = Compute::make({});
    if (!compute) return fail("no compute context");
    if (close_foreign) {
        const int first = std::max((*renderer)->highest_fd(), (*compute)->highest_fd()) + 1;
        for (int fd = first; fd < 4096; ++fd) close(fd);
        if (close_range(static_cast<unsigned>(first), ~0u, 0) != 0) return fail("close_range");
    }

    Queue& graphics = (*renderer)->queue();
    Queue& cuda = (*compute)->queue(0);
    cuda.set_object(1, (*compute)->compute_class());
    cuda.method(1, work::kSetShaderLocalMemoryA, 1);
    if (cuda.wait(cuda.submit(), kLimit, g_stop) != Waited::kDone) return fail("set-up methods");
    for (int round = 0; round < kRounds || (map && !g_stop); ++round) {
        if (map && !(*renderer)->map_another()) return fail("map");
        if (map && round == kRounds) {
            std::puts("working");
            std::fflush(stdout);
        }
        const uint32_t frame = submit_frame(**renderer);
        const uint32_t kernel = submit_kernel(**compute);
        if (g_stop) break;
        if (cuda.wait(kernel, kLimit, g_stop) != Waited::kDone && !g_stop) return fail("kernel");
        if (graphics.wait(frame, kLimit, g_stop) != Waited::kDone && !g_stop) return fail("frame");
    }
    std::printf("{\"verified\":true,\"device_lost\":false,\"rounds\":%d}\n", kRounds);
    std::fflush(stdout);
    while (!g_stop) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return graphics.device_lost() || cuda.device_lost() ? 1 : 0;
}
