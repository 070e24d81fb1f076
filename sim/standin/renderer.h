// What NVIDIA's Vulkan driver does on a GPU, as recorded on an H200 with driver 580.159.04: three clients, one VA
// space, three graphics TSGs of which the last is the queue's, 84 buffers below 4 GiB, zcull bind, preemption mode.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "sim/standin/device.h"
#include "sim/standin/options.h"
#include "sim/standin/queue.h"

namespace vuda::sim::standin {

class Renderer {
 public:
    static Result<std::unique_ptr<Renderer>> make(const RendererOptions& options);

    Queue& queue() { return *queue_; }
    uint32_t graphics_class() const { return device_->graphics_class(); }
    rm::Handle tsg() const;
    int highest_fd() const { return std::max(first_->highest_fd(), device_->highest_fd()); }
    rm::Handle client() const { return device_->client(); }
    // Maps one more control buffer and points graphics state there, from the next submit on. One of kTurning addresses,
    // in turn: state was told before to point away from what was there, which is unmapped and freed first.
    Status map_another();
    static constexpr uint32_t kTurning = 4;
    // Unmaps and frees all of RendererOptions::spare, which nothing points at, maps a new buffer where the last of them
    // was, and points graphics state there. How long the first took, and that mapping call.
    struct Times {
        double drop_ms = 0;
        double map_ms = 0;
    };
    Result<Times> map_after_spare();
    // Where graphics state points (kSimControlBuffer), as on hardware.
    static constexpr uint64_t kControlBuffer = 0x51f0000;
    static constexpr uint32_t kControlBufferBytes = 0x3000;

 private:
    Renderer() = default;
    Status set_up(const RendererOptions& options);
    Status make_group(int index, bool legacy);
    Status make_buffers();
    Status make_spare(uint32_t count);
    struct Buffer {
        uint64_t address;
        uint64_t bytes;
        rm::Handle memory;
    };
    rm::Handle memory_at(uint64_t address) const;
    void point_at(uint64_t address, uint32_t bytes);

    // Destroyed in reverse: the device's files close last.
    std::unique_ptr<Device> first_;   // owns the VA space
    std::unique_ptr<Device> device_;  // the client that renders
    std::vector<Buffer> buffers_;
    struct Turning {
        rm::Handle memory = 0;
        rm::Handle reserved = 0;
    };
    Turning turning_[kTurning];
    uint32_t turned_ = 0;
    std::vector<Turning> spare_;
    std::vector<Mapping> mappings_;
    std::unique_ptr<Queue> queue_;
};

}  // namespace vuda::sim::standin
