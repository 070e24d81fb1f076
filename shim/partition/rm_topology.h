// The layout of a GPU, asked of the resource manager.
#pragma once

#include <functional>

#include "base/result.h"
#include "shim/partition/topology.h"

namespace vuda::partition {

// One RM_CONTROL on a subdevice of the process's own client. Returns an NV_STATUS.
using SubdeviceControl = std::function<uint32_t(uint32_t command, void* params, uint32_t size)>;

struct GpuLayout {
    Topology topology;
    std::vector<uint32_t> virtual_gpcs;  // of each TPC; 8 and above: a TPC that stands alone
};

// TPCs, SMs and GPCs from GR_GET_GLOBAL_SM_ORDER. Which TPCs do graphics: GR_GET_GFX_GPC_AND_TPC_INFO counts them and
// names their GPCs by physical number, GRMGR_GET_GR_FS_INFO translates; within such a GPC it is the TPCs with the
// lowest local numbers (seen on two H200s, with shaders that report their SM). FAILED_PRECONDITION when the resource
// manager refuses or answers nonsense.
Result<GpuLayout> read_layout(const SubdeviceControl& control);

}  // namespace vuda::partition
