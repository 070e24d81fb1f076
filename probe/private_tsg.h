// A client of the resource manager of our own, with a timeslice group that no program uses: where methods are tried
// that could hurt.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "rm/driver_table.h"
#include "shim/partition/shadow_channel.h"

namespace vuda::probe {

// What GPU_GET_CLASSLIST_V2 offers, the newest of each kind; 0: none.
struct Classes {
    uint32_t gpfifo = 0;
    uint32_t compute = 0;
    uint32_t usermode = 0;
};

class PrivateTsg {
 public:
    // `gpu`: index as /dev/nvidiaN counts. NOT_FOUND: no such GPU. UNAVAILABLE: no NVIDIA driver. FAILED_PRECONDITION:
    // a driver whose layouts are not known. INTERNAL: the resource manager refused a step.
    static Result<PrivateTsg> make(int gpu);

    const std::string& driver() const { return driver_; }
    const rm::DriverAbi& abi() const { return *abi_; }
    const Classes& classes() const { return classes_; }
    partition::ShadowPlace place() const;
    static partition::ShadowOs os();
    // One RM_CONTROL on the subdevice. Returns an NV_STATUS.
    uint32_t subdevice_control(uint32_t command, void* params, uint32_t size) const;

 private:
    PrivateTsg() = default;
    Status open_files(int gpu);
    Status set_up();
    Status read_classes();
    Status alloc(uint32_t parent, uint32_t object, uint32_t cls, void* params, const char* what);
    Status control(uint32_t object, uint32_t command, void* params, uint32_t size, const char* what) const;
    uint32_t raw_control(uint32_t object, uint32_t command, void* params, uint32_t size) const;

    UniqueFd control_;  // closing it frees the client and all that it made
    UniqueFd gpu_file_;
    std::string gpu_path_;
    std::string driver_;
    const rm::DriverAbi* abi_ = nullptr;
    uint32_t gpu_id_ = 0;
    uint32_t client_ = 0;
    Classes classes_;
};

}  // namespace vuda::probe
