// One channel as a driver uses it: a ring of push buffers, a doorbell, semaphores to wait on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "sim/pushbuffer/format.h"
#include "sim/standin/device.h"

namespace vuda::sim::standin {

enum class Waited { kDone, kDeviceLost, kInterrupted, kTimeout };

class Queue {
 public:
    // Everything is memory of the caller that the GPU sees at the given addresses.
    struct Memory {
        uint8_t* ring = nullptr;
        uint32_t ring_entries = 0;
        uint8_t* userd = nullptr;  // of this channel
        uint8_t* push = nullptr;
        uint64_t push_address = 0;
        uint32_t push_bytes = 0;
        uint8_t* semaphore = nullptr;  // 16 bytes, and kReportOffset + 48 where kernels report
        uint64_t semaphore_address = 0;
        const uint8_t* notifier = nullptr;  // rm::Notification
    };
    Queue(const Device& device, uint32_t token, Memory memory) : device_(&device), token_(token), memory_(memory) {}

    // Building blocks of a push buffer.
    void set_object(uint32_t subchannel, uint32_t cls);
    void method(uint32_t subchannel, uint32_t method, uint32_t data);
    void block(uint32_t subchannel, uint32_t method, const void* words, uint32_t bytes);
    // Releases the next value of the semaphore after what was pushed so far, and submits. Returns that value.
    uint32_t submit();

    // Until the semaphore reaches `value`. Looks at the error notifier and at `stop` while waiting.
    Waited wait(uint32_t value, std::chrono::milliseconds limit, const std::atomic<bool>& stop);
    // Memory behind the semaphore that a kernel may write its Whereabouts to.
    uint64_t report_address() const { return memory_.semaphore_address + kReportOffset; }
    work::Whereabouts report() const;
    uint64_t last_timestamp_ns() const;  // GPU time of the last release, simulated
    bool device_lost() const;
    uint32_t error_code() const;  // the notifier's, i.e. the Xid

 private:
    static constexpr uint64_t kReportOffset = 256;

    const Device* device_;
    uint32_t token_;
    Memory memory_;
    std::vector<uint32_t> words_;
    uint32_t put_ = 0;
    uint32_t push_at_ = 0;
    uint32_t value_ = 0;
};

}  // namespace vuda::sim::standin
