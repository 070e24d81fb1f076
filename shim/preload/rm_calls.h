// The redirector's actions as real ioctls, on the program's own NVIDIA files.
#pragma once

#include "base/uuid.h"
#include "rm/driver_table.h"
#include "shim/preload/action.h"
#include "shim/preload/fd_table.h"

namespace vuda::shim {

class RmCalls : public Executor {
 public:
    RmCalls(const FdTable& files, const rm::DriverAbi& abi) : files_(files), abi_(abi) {}

    ActionResult run(const Action& action) override;

    // Opens a fresh nvidiactl descriptor and exports `object` into it; the caller owns the descriptor. -1: *status says
    // why.
    int export_object(FileId file, uint32_t client, uint32_t device, uint32_t object, uint32_t* status);
    // Any control call on an object of the program's. Returns its NV_STATUS.
    uint32_t control(FileId file, uint32_t client, uint32_t object, uint32_t command, void* params, uint32_t size);
    // UUID of the GPU behind `subdevice`.
    bool gpu_uuid(FileId file, uint32_t client, uint32_t subdevice, Uuid* out);

 private:
    const FdTable& files_;
    const rm::DriverAbi& abi_;
};

}  // namespace vuda::shim
