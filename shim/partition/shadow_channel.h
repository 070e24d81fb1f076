// A channel of our own for methods that belong to no program: SCG control goes through it into the TSG that it is a
// part of.
//
// It needs a client whose address space RM manages (a renderer's, or one made for a probe), a context share in the TSG,
// and the doorbell page. Everything it makes it frees again, last first. Not thread-safe.
//
// The steps and the offsets: a shadow channel in a Vulkan TSG and in one of CUDA's subcontexts took methods and
// released its semaphore within 100 us on an H200, driver 580.159.04. USERD and GPFIFO: clc56f.h, doorbell: clc361.h of
// NVIDIA/open-gpu-doc.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "rm/driver_table.h"

namespace vuda::partition {

// The system calls, so that a preloaded library can reach past its own hooks.
struct ShadowOs {
    int (*open)(const char* path) = nullptr;  // O_RDWR | O_CLOEXEC
    int (*ioctl)(int fd, unsigned long request, void* arg) = nullptr;
};

// Where it goes. Handles are `client`'s.
struct ShadowPlace {
    int control_fd = -1;  // the nvidiactl file that made the client
    const char* gpu_path = "/dev/nvidia0";
    uint32_t client = 0;
    uint32_t device = 0;
    uint32_t subdevice = 0;
    uint32_t va_space = 0;
    uint32_t tsg = 0;
    uint32_t ctxshare = 0;
    uint32_t first_handle = 0;  // six handles from here on are free in this client
    uint32_t gpfifo_class = 0;
    uint32_t compute_class = 0;
    uint32_t usermode_class = 0;
    uint32_t channel_flags = 0;  // rm::kChannel*
};

class ShadowChannel {
 public:
    // INTERNAL, with the NV_STATUS in the text: RM refused a step. What was made before that is freed.
    static Result<ShadowChannel> make(const ShadowOs& os, const rm::DriverAbi& abi, const ShadowPlace& place);

    ShadowChannel(ShadowChannel&& other) noexcept;
    ShadowChannel& operator=(ShadowChannel&&) = delete;
    ShadowChannel(const ShadowChannel&) = delete;
    ShadowChannel& operator=(const ShadowChannel&) = delete;
    ~ShadowChannel();

    // Runs a push buffer (scg.h's push_buffer for semaphore() and next_payload()) and waits for its semaphore. The time
    // from the doorbell to the release. DEADLINE_EXCEEDED: not released in time; DATA_LOSS: the channel died, the text
    // has the error notifier's code (the Xid number). After either the channel is dead: further calls fail at once.
    Result<std::chrono::nanoseconds> submit(const std::vector<uint32_t>& words, std::chrono::milliseconds limit);

    // The client is gone and with it all that was made in it: nothing is left to free.
    void forget_objects() { made_.clear(); }

    uint64_t semaphore() const { return address_ + kSemaphoreAt; }
    uint32_t next_payload() const { return payload_ + 1; }

 private:
    static constexpr uint32_t kSemaphoreAt = 0x3000;

    ShadowChannel(const ShadowOs& os, const rm::DriverAbi& abi, const ShadowPlace& place)
        : os_(os), abi_(&abi), place_(place) {}

    Status set_up();
    Status alloc(uint32_t parent, uint32_t object, uint32_t cls, void* params, const char* what);
    Status control(uint32_t object, uint32_t command, void* params, uint32_t size, const char* what);
    Status map_gpu();
    Result<void*> map_cpu(uint32_t parent, uint32_t memory, const char* path, uint64_t bytes, const char* what,
                          UniqueFd* keep);
    uint32_t word(uint32_t offset) const;
    uint32_t notifier_code() const;

    ShadowOs os_;
    const rm::DriverAbi* abi_;
    ShadowPlace place_;
    std::vector<uint32_t> made_;  // objects, in the order of making
    UniqueFd doorbell_file_;
    uint8_t* memory_ = nullptr;
    uint8_t* notifier_ = nullptr;
    uint8_t* doorbell_ = nullptr;
    uint64_t address_ = 0;  // GPU virtual address of memory_
    uint32_t token_ = 0;
    uint32_t put_ = 0;
    uint32_t payload_ = 0;
    bool dead_ = false;
};

}  // namespace vuda::partition
