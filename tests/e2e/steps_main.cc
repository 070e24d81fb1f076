// Makes and ends GPU contexts in the order that a test says:
//   e2e-steps STEP...
//     R        a renderer, which draws a frame after each later step
//     +N, -N   context number N is made, and works; is ended
//     @FILE    makes the file
//     ?FILE    waits until the file is there
// At the end everything is given back. {"ok":true}, or what went wrong at which step.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "sim/standin/compute.h"
#include "sim/standin/measure.h"
#include "sim/standin/renderer.h"
#include "tests/e2e/gpu_work.h"

namespace {

using namespace vuda::sim;
using namespace vuda::sim::standin;

constexpr std::chrono::milliseconds kLimit(20'000);

class Steps {
 public:
    // What went wrong; empty: nothing.
    std::string run(const std::string& step) {
        const std::string argument = step.substr(1);
        switch (step[0]) {
            case 'R': return make_renderer();
            case '+': return begin(std::stoi(argument));
            case '-': contexts_.erase(std::stoi(argument)); break;
            case '@': std::ofstream(argument) << "\n"; break;
            case '?': return wait_for(argument);
            default: return "no such step";
        }
        return draw();
    }

 private:
    std::string make_renderer() {
        auto made = Renderer::make({});
        if (!made) return "no renderer";
        renderer_ = std::move(*made);
        return draw();
    }
    std::string begin(int number) {
        auto made = Compute::make({});
        if (!made) return "no context";
        Compute& context = *(contexts_[number] = std::move(*made));
        Queue& queue = context.queue(0);
        queue.set_object(1, context.compute_class());
        queue.method(1, work::kSetShaderLocalMemoryA, 1);
        if (queue.wait(queue.submit(), kLimit, g_stop) != Waited::kDone) return "set-up methods";
        if (queue.wait(vuda::e2e::submit_kernel(context), kLimit, g_stop) != Waited::kDone) return "kernel";
        return draw();
    }
    std::string draw() {
        if (renderer_ == nullptr) return "";
        const uint32_t frame = vuda::e2e::submit_frame(*renderer_);
        return renderer_->queue().wait(frame, kLimit, g_stop) == Waited::kDone ? "" : "frame";
    }
    std::string wait_for(const std::string& file) {
        const auto limit = std::chrono::steady_clock::now() + kLimit;
        while (!std::filesystem::exists(file)) {
            if (g_stop || std::chrono::steady_clock::now() > limit) return "the file did not come";
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        return draw();
    }

    std::unique_ptr<Renderer> renderer_;
    std::map<int, std::unique_ptr<Compute>> contexts_;
};

}  // namespace

int main(int argc, char** argv) {
    watch_signals();
    Steps steps;
    for (int i = 1; i < argc; ++i) {
        const std::string wrong = steps.run(argv[i]);
        if (wrong.empty()) continue;
        std::printf("{\"ok\":false,\"step\":%d,\"error\":\"%s: %s\"}\n", i, argv[i], wrong.c_str());
        return 1;
    }
    std::puts("{\"ok\":true}");
    return 0;
}
