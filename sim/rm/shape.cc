// RM_CONTROL on a subdevice: what the GPU is made of.
#include <algorithm>
#include <cstring>

#include "sim/rm/call.h"

namespace vuda::sim {

// GR_GET_GLOBAL_SM_ORDER. Entries grew from branch to branch; a block of another size is refused, as on hardware.
uint32_t RmCall::global_sm_order(const Gpu& gpu, Bytes params) {
    const size_t entry = rm_.config_.layout.sm_id;
    const size_t size = rm::global_sm_order_size(entry);
    if (params.size() != size && on(Rule::kIoctlExactSize)) return rm::nv::kInvalidParamStruct;
    const Topology& topology = gpu.engine().topology();
    std::vector<uint16_t> next_local(static_cast<size_t>(topology.gpc_count()), 0);
    for (int tpc = 0; tpc < topology.tpc_count(); ++tpc) {
        const auto gpc = static_cast<size_t>(topology.gpc_of(tpc));
        rm::GlobalSmId id{};
        id.gpcId = id.virtualGpcId = static_cast<uint16_t>(gpc);
        id.localTpcId = next_local[gpc]++;
        id.globalTpcId = id.virtualTpcId = id.migratableTpcId = static_cast<uint16_t>(tpc);
        for (int lane = 0; lane < topology.sms_per_tpc(); ++lane) {
            id.localSmId = static_cast<uint16_t>(lane);
            const size_t at = static_cast<size_t>(topology.first_sm_of(tpc) + lane) * entry;
            if (at + entry > params.size()) return rm::nv::kInvalidParamStruct;
            std::memcpy(params.data() + at, &id, entry);
        }
    }
    store(params, static_cast<uint16_t>(topology.sm_count()), rm::kGlobalSmOrderMax * entry);
    store(params, static_cast<uint16_t>(topology.tpc_count()), rm::kGlobalSmOrderMax * entry + 2);
    return rm::nv::kOk;
}

// GRMGR_GET_GR_FS_INFO: of its many questions the one that turns a logical GPC's number into the physical one. They are
// the same here.
uint32_t RmCall::gr_fs_info(const Gpu& gpu, Bytes params) {
    auto info = std::make_unique<rm::GrFsInfoParams>(load<rm::GrFsInfoParams>(params));
    if (info->numQueries > rm::kGrFsMaxQueries) return rm::nv::kInvalidArgument;
    const auto gpcs = static_cast<uint32_t>(gpu.engine().topology().gpc_count());
    for (uint16_t i = 0; i < info->numQueries; ++i) {
        rm::GrFsQuery& query = info->queries[i];
        if (query.queryType != rm::kGrFsChipletGpcMap || query.data[0] >= gpcs) {
            query.status = rm::nv::kInvalidArgument;
            continue;
        }
        query.status = rm::nv::kOk;
        query.data[1] = query.data[0];
    }
    store(params, *info);
    return rm::nv::kOk;
}

}  // namespace vuda::sim
