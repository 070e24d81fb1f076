// A resource manager that answers questions about one H200's layout. For tests.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/uuid.h"
#include "rm/abi.h"
#include "shim/partition/testing_cards.h"

namespace vuda::partition::testing {

struct FakeRm {
    size_t entry = sizeof(rm::GlobalSmId);
    uint32_t order_status = rm::nv::kOk;
    uint32_t graphics_status = rm::nv::kOk;
    uint32_t map_status = rm::nv::kOk;
    uint32_t graphics_gpcs = kCardGraphicsGpcs;
    uint32_t graphics_tpcs = kCardGraphicsTpcs;
    uint16_t sms = 132, tpcs = 66;
    uint16_t stray_tpc = 0xffff;
    Uuid gpu;

    uint32_t operator()(uint32_t command, void* params, uint32_t size) const {
        auto* bytes = static_cast<uint8_t*>(params);
        if (command == rm::ctrl::kGrGetGlobalSmOrder) {
            if (order_status != rm::nv::kOk) return order_status;
            if (size != rm::global_sm_order_size(entry)) return rm::nv::kInvalidParamStruct;
            for (uint16_t sm = 0; sm < 132; ++sm) {
                const CardTpc& tpc = kCard[sm / 2];
                rm::GlobalSmId id{};
                id.gpcId = tpc.gpc;
                id.localTpcId = tpc.in_gpc;
                id.localSmId = sm % 2;
                id.globalTpcId = sm == 7 && stray_tpc != 0xffff ? stray_tpc : sm / 2;
                id.virtualGpcId = tpc.virtual_gpc;
                std::memcpy(bytes + sm * entry, &id, entry);
            }
            std::memcpy(bytes + rm::kGlobalSmOrderMax * entry, &sms, 2);
            std::memcpy(bytes + rm::kGlobalSmOrderMax * entry + 2, &tpcs, 2);
            return rm::nv::kOk;
        }
        if (command == rm::ctrl::kGrGetGfxGpcAndTpcInfo) {
            auto* info = static_cast<rm::GfxGpcTpcInfoParams*>(params);
            info->physGfxGpcMask = graphics_gpcs;
            info->numGfxTpc = graphics_tpcs;
            return graphics_status;
        }
        if (command == rm::ctrl::kGrmgrGetGrFsInfo) {
            auto* info = static_cast<rm::GrFsInfoParams*>(params);
            for (uint16_t i = 0; i < info->numQueries; ++i) {
                if (info->queries[i].queryType != rm::kGrFsChipletGpcMap) return rm::nv::kInvalidArgument;
                info->queries[i].data[1] = kCardPhysicalGpc[info->queries[i].data[0]];
            }
            return map_status;
        }
        if (command == rm::ctrl::kGpuGetGidInfo) {
            auto* info = static_cast<rm::GidInfoParams*>(params);
            info->length = 16;
            std::memcpy(info->data, gpu.bytes.data(), 16);
            return rm::nv::kOk;
        }
        return rm::nv::kInvalidCommand;
    }
};

}  // namespace vuda::partition::testing
