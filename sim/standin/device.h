// A user-mode driver's view of the resource manager: files, ioctls, objects, mappings. Plain libc calls only, so that
// whatever is preloaded (the shim, the simulator) sees what it would see from NVIDIA's drivers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "rm/abi.h"

namespace vuda::sim::standin {

// Memory mapped into this process; unmapped with the object.
class Mapping {
 public:
    Mapping() = default;
    Mapping(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
    Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping();

    uint8_t* data() const { return static_cast<uint8_t*>(data_); }
    size_t bytes() const { return bytes_; }

 private:
    void* data_ = nullptr;
    size_t bytes_ = 0;
};

// Error that carries the RM status in its text, e.g. "alloc class 9067: status 0x40".
Error rm_error(const std::string& what, uint32_t status);

// One nvidiactl file with one client, a device and a subdevice.
class Device {
 public:
    // The steps that both drivers begin with. `va_mode`: NV_DEVICE_ALLOCATION_VAMODE_*.
    static Result<Device> open(int gpu, uint32_t va_mode, rm::Handle device, rm::Handle subdevice);
    // A further client on the same files (Vulkan makes three).
    Result<Device> second_client(rm::Handle device, rm::Handle subdevice) const;

    Status alloc(rm::Handle parent, rm::Handle object, uint32_t cls, void* params = nullptr);
    Status control(rm::Handle object, uint32_t command, void* params, uint32_t size);
    Status free(rm::Handle object);
    Status dup(rm::Handle parent, rm::Handle object, rm::Handle source_client, rm::Handle source);
    // Status of the last call that failed, 0 when none did.
    uint32_t last_status() const { return last_status_; }

    // Memory by VID_HEAP_CONTROL (Vulkan) or by class (CUDA).
    Status heap_memory(rm::Handle object, uint64_t bytes, bool video);
    Status memory(rm::Handle object, uint64_t bytes, bool video);
    // Reserves [address, address + bytes) in the VA space and maps the memory there (Vulkan).
    // `reserved`: gets the handle of the addresses.
    Status map_gpu(rm::Handle vas, rm::Handle memory, uint64_t address, uint64_t bytes, rm::Handle* reserved = nullptr);
    Status unmap_gpu(rm::Handle reserved, uint64_t address);
    Result<Mapping> map_cpu(rm::Handle memory, uint64_t bytes, rm::Handle parent, bool device_file);
    // NV01_CONTEXT_DMA over memory, as error notifier (Vulkan).
    Status context_dma(rm::Handle object, rm::Handle memory, uint64_t offset, uint64_t limit);
    // The doorbell page. Its file stays open: sending a token on it wakes the simulator.
    Status map_usermode(rm::Handle object, uint32_t cls);

    rm::Handle client() const { return client_; }
    rm::Handle device() const { return device_; }
    rm::Handle subdevice() const { return subdevice_; }
    int control_file() const { return control_->fd.get(); }
    const uint8_t* uuid() const { return uuid_; }
    uint32_t gpfifo_class() const { return gpfifo_; }
    uint32_t compute_class() const { return compute_; }
    uint32_t copy_class() const { return copy_; }
    uint32_t graphics_class() const { return graphics_; }
    uint32_t usermode_class() const { return usermode_cls_; }
    void ring(uint32_t token) const;
    int highest_fd() const;
    uint64_t gpu_time() const;  // of the usermode page, nanoseconds, simulated

 private:
    struct SharedFd {
        UniqueFd fd;
    };
    Device() = default;
    Status start(int gpu, uint32_t va_mode);
    Status read_classes();
    Status fail(const std::string& what, uint32_t status);

    std::shared_ptr<SharedFd> control_;
    std::shared_ptr<SharedFd> gpu_file_;
    std::shared_ptr<SharedFd> doorbell_file_;
    std::shared_ptr<Mapping> doorbell_;
    int gpu_ = 0;
    rm::Handle client_ = 0;
    rm::Handle device_ = 0;
    rm::Handle subdevice_ = 0;
    uint8_t uuid_[16] = {};
    uint32_t gpfifo_ = 0, compute_ = 0, copy_ = 0, graphics_ = 0, usermode_cls_ = 0;
    uint32_t last_status_ = 0;
};

}  // namespace vuda::sim::standin
