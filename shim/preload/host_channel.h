// A shadow channel in the renderer's TSG of this process, for methods that steer the whole group
// (shim/partition/scg.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "rm/driver_table.h"
#include "shim/partition/scg.h"
#include "shim/partition/shadow_channel.h"
#include "shim/preload/fd_table.h"
#include "shim/preload/redirector.h"
#include "shim/preload/rm_calls.h"

namespace vuda::shim {

class HostChannel {
 public:
    HostChannel(const FdTable& files, RmCalls& calls, const rm::DriverAbi& abi)
        : files_(files), calls_(calls), abi_(abi) {}

    // Compute class of the GPU behind `host`, the newest that it offers; 0: it offers none, or there is no renderer.
    uint32_t compute_class(const Host& host);

    // Runs `methods` on the channel in `host`, which is made when there is none yet or the renderer has another TSG,
    // and waits for them. FAILED_PRECONDITION: no renderer. UNIMPLEMENTED: the class has no SCG methods. Others:
    // shadow_channel.h.
    Result<std::chrono::nanoseconds> run(const Host& host, std::span<const partition::Method> methods);

    // Sends SET_L1_CONFIGURATION of the 3D class on a channel of its own in `host`. UNIMPLEMENTED: the class has no
    // such method. Others as run().
    Status set_l1(const Host& host, uint32_t value);

 private:
    struct Classes {
        uint32_t gpfifo = 0;
        uint32_t compute = 0;
        uint32_t usermode = 0;
        uint32_t three_d = 0;
    };
    Result<Classes> classes(const Host& host);
    Result<std::string> gpu_path(const Host& host);
    Status open(const Host& host);
    // Of a channel in the renderer's own subcontext (VEID 0), on its runqueue, with an object of that class.
    Result<partition::ShadowPlace> place(const Host& host, uint32_t object_class);

    const FdTable& files_;
    RmCalls& calls_;
    const rm::DriverAbi& abi_;
    std::mutex mutex_;
    uint64_t order_ = 0;  // Host::order of the TSG that the channel is in
    uint32_t client_ = 0;
    uint32_t handles_ = 0;
    Classes classes_;
    std::string path_;
    std::optional<partition::ShadowChannel> channel_;
};

}  // namespace vuda::shim
