#include "shim/partition/rm_topology.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "rm/abi.h"
#include "rm/status.h"

namespace vuda::partition {
namespace {

Error refused(const char* what, uint32_t status) {
    return Error{Code::kFailedPrecondition,
                 std::string("the resource manager refuses to say ") + what + " (" + rm::status_text(status) + ")",
                 "the GPU can be shared, but not split"};
}

Error nonsense(const std::string& what) {
    return Error{Code::kFailedPrecondition, "the resource manager reports a layout " + what, "please report this"};
}

struct Place {
    uint32_t gpc = 0;
    uint32_t in_gpc = 0;  // local number
};

// Marks the TPCs that do graphics. Leaves `topology` as it is when all of them do.
Status mark_graphics(const SubdeviceControl& control, const std::vector<Place>& places, Topology& topology) {
    rm::GfxGpcTpcInfoParams graphics{};
    const uint32_t status = control(rm::ctrl::kGrGetGfxGpcAndTpcInfo, &graphics, sizeof graphics);
    // Drivers before this control knew no GPU on which only some TPCs do graphics.
    if (status == rm::nv::kNotSupported || status == rm::nv::kInvalidCommand) return {};
    if (status != rm::nv::kOk) return refused("which TPCs do graphics", status);
    if (graphics.numGfxTpc == 0 || graphics.numGfxTpc >= topology.tpcs.size()) return {};

    uint32_t gpcs = 0;
    for (const Place& place : places) gpcs = std::max(gpcs, place.gpc + 1);
    if (gpcs > rm::kGrFsMaxQueries) return nonsense("with too many GPCs");
    auto map = std::make_unique<rm::GrFsInfoParams>();
    map->numQueries = static_cast<uint16_t>(gpcs);
    for (uint32_t gpc = 0; gpc < gpcs; ++gpc) {
        map->queries[gpc].queryType = rm::kGrFsChipletGpcMap;
        map->queries[gpc].data[0] = gpc;
    }
    const uint32_t mapped = control(rm::ctrl::kGrmgrGetGrFsInfo, map.get(), sizeof *map);
    if (mapped != rm::nv::kOk) return refused("how its GPCs are numbered", mapped);

    std::vector<uint32_t> with_graphics;
    for (uint32_t gpc = 0; gpc < gpcs; ++gpc) {
        const rm::GrFsQuery& query = map->queries[gpc];
        if (query.status != rm::nv::kOk) return refused("how its GPCs are numbered", query.status);
        if (query.data[1] < 32 && (graphics.physGfxGpcMask >> query.data[1] & 1) != 0) with_graphics.push_back(gpc);
    }
    if (with_graphics.empty()) return nonsense("in which no GPC does graphics");

    for (Tpc& tpc : topology.tpcs) tpc.graphics = false;
    const auto share = static_cast<uint32_t>(graphics.numGfxTpc / with_graphics.size());
    auto rest = static_cast<uint32_t>(graphics.numGfxTpc % with_graphics.size());
    uint32_t marked = 0;
    for (const uint32_t gpc : with_graphics) {
        std::vector<size_t> tpcs;
        for (size_t t = 0; t < places.size(); ++t) {
            if (places[t].gpc == gpc) tpcs.push_back(t);
        }
        std::sort(tpcs.begin(), tpcs.end(), [&](size_t a, size_t b) { return places[a].in_gpc < places[b].in_gpc; });
        const size_t take = std::min<size_t>(tpcs.size(), share + (rest > 0 ? 1 : 0));
        if (rest > 0) --rest;
        for (size_t i = 0; i < take; ++i) topology.tpcs[tpcs[i]].graphics = true;
        marked += static_cast<uint32_t>(take);
    }
    if (marked != graphics.numGfxTpc) return nonsense("with more graphics TPCs than their GPCs hold");
    return {};
}

}  // namespace

// Entries grew from branch to branch by members at their end.
static constexpr size_t kEntrySizes[] = {sizeof(rm::GlobalSmId), rm::kGlobalSmIdSize575, rm::kGlobalSmIdSize570};

Result<GpuLayout> read_layout(const SubdeviceControl& control) {
    std::vector<uint8_t> order;
    size_t entry = 0;
    uint32_t status = rm::nv::kInvalidParamStruct;
    for (const size_t size : kEntrySizes) {
        if (status != rm::nv::kInvalidParamStruct) break;
        entry = size;
        order.assign(rm::global_sm_order_size(entry), 0);
        status = control(rm::ctrl::kGrGetGlobalSmOrder, order.data(), static_cast<uint32_t>(order.size()));
    }
    if (status != rm::nv::kOk) return refused("how its TPCs and SMs are numbered", status);
    uint16_t counts[2];  // SMs, TPCs
    std::memcpy(counts, order.data() + rm::kGlobalSmOrderMax * entry, sizeof counts);
    const uint32_t sms = counts[0], tpcs = counts[1];
    if (sms == 0 || sms > rm::kGlobalSmOrderMax || tpcs == 0 || tpcs > kMaxTpcs) {
        return nonsense("of " + std::to_string(sms) + " SMs in " + std::to_string(tpcs) + " TPCs");
    }
    GpuLayout layout;
    Topology& topology = layout.topology;
    topology.tpcs.resize(tpcs);
    layout.virtual_gpcs.resize(tpcs);
    std::vector<Place> places(tpcs);
    for (uint32_t sm = 0; sm < sms; ++sm) {
        rm::GlobalSmId id{};
        std::memcpy(&id, order.data() + sm * entry, entry);
        if (id.globalTpcId >= tpcs) return nonsense("with a TPC numbered " + std::to_string(id.globalTpcId));
        if (id.gpcId >= rm::kGrFsMaxQueries) return nonsense("with a GPC numbered " + std::to_string(id.gpcId));
        Tpc& tpc = topology.tpcs[id.globalTpcId];
        if (!tpc.sms.empty() && tpc.gpc != id.gpcId) return nonsense("with a TPC in two GPCs");
        tpc.gpc = id.gpcId;
        tpc.graphics = true;
        tpc.sms.push_back(sm);
        layout.virtual_gpcs[id.globalTpcId] = id.virtualGpcId;
        places[id.globalTpcId] = {id.gpcId, id.localTpcId};
    }
    if (Status valid = check(topology); !valid) return valid.error();
    if (Status marked = mark_graphics(control, places, topology); !marked) return marked.error();
    return layout;
}

}  // namespace vuda::partition
