// What NVIDIA's CUDA driver does to make a context, as recorded on an H200 with driver 580.159.04: a UVM-owned VA
// space, one graphics- engine TSG with one context share and 8 channels, three copy-engine TSGs with 4 channels each.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "sim/standin/device.h"
#include "sim/standin/options.h"
#include "sim/standin/queue.h"

namespace vuda::sim::standin {

class Compute {
 public:
    static constexpr uint32_t kChannels = 8;

    static Result<std::unique_ptr<Compute>> make(const ComputeOptions& options);

    Queue& queue(uint32_t channel) { return *queues_[channel]; }
    uint32_t compute_class() const { return device_->compute_class(); }
    uint32_t veid() const { return veid_; }
    int highest_fd() const { return std::max({device_->highest_fd(), uvm_.get(), uvm_mm_.get()}); }
    rm::Handle client() const { return device_->client(); }
    uint32_t sm_count() const { return sms_; }
    uint32_t last_status() const { return device_ == nullptr ? 0 : device_->last_status(); }

 private:
    Compute() = default;
    Status set_up(const ComputeOptions& options);
    Status start_uvm();
    Status uvm_call(unsigned long number, void* argument, const char* what, const uint32_t& status);
    // Memory of the device mapped for the GPU at `address` through UVM.
    Status external(rm::Handle memory, uint64_t bytes, bool video, uint64_t address);
    Status make_channel(rm::Handle tsg, rm::Handle share, uint32_t index, uint32_t flags, bool copy_only);
    Status register_channel(rm::Handle channel, uint64_t base, uint64_t length);
    Status count_sms();

    UniqueFd uvm_;
    UniqueFd uvm_mm_;
    std::unique_ptr<Device> device_;
    std::vector<Mapping> mappings_;
    std::vector<std::unique_ptr<Queue>> queues_;
    uint8_t* rings_ = nullptr;   // GPFIFO rings and USERD of all channels
    uint8_t* pushes_ = nullptr;  // push buffers and semaphores
    uint32_t veid_ = 0;
    uint32_t sms_ = 0;
    rm::Handle next_ = 0;
};

}  // namespace vuda::sim::standin
