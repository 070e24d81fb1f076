#include "rm/driver_table.h"

namespace vuda::rm {
namespace {

constexpr DriverAbi kAbi525{
    .name = "525",
    .alloc_size = 40,
    .alloc_status = 36,
    .map_dma_size = 56,
    .map_dma_va = 40,
    .map_dma_status = 48,
    .unmap_dma_size = 40,
    .unmap_dma_length = 0,
    .unmap_dma_status = 32,
    .uvm_map_external_size = 1200,
    .uvm_map_external_max_gpus = 32,
    .uvm_alloc_semaphore_pool_size = 1184,
    .uvm_unregister_channel_size = 28,
    .uvm_free_size = 24,
    .channel_params_size = 304,
    .vaspace_params_size = 48,
    .memory_params_size = 120,
    .gpfifo_schedule_size = 2,
    .preemption_bind_size = 104,
    .preemption_bind_pointers = 8,
    .has_setup_bind = false,
};

// Each layout is the one before it plus what the newer branch changed, so that a change reads as a change.

constexpr DriverAbi make_535() {
    DriverAbi abi = kAbi525;
    abi.name = "535";
    abi.alloc_size = 48;  // paramsSize went in before flags and status
    abi.alloc_status = 40;
    abi.channel_params_size = 360;  // encryptIv, decryptIv, hmacNonce (from 535.86.05 on)
    return abi;
}
constexpr DriverAbi kAbi535 = make_535();

constexpr DriverAbi make_550() {
    DriverAbi abi = kAbi535;
    abi.name = "550";
    abi.unmap_dma_size = 48;  // size
    abi.unmap_dma_length = 32;
    abi.unmap_dma_status = 40;
    abi.memory_params_size = 128;      // numaNode
    abi.uvm_map_external_size = 9264;  // 256 GPUs for 32 (from 550.40.53 on)
    abi.uvm_map_external_max_gpus = 256;
    abi.uvm_alloc_semaphore_pool_size = 9248;
    abi.has_setup_bind = true;
    return abi;
}
constexpr DriverAbi kAbi550 = make_550();

constexpr DriverAbi make_565() {
    DriverAbi abi = kAbi550;
    abi.name = "565";
    abi.preemption_bind_size = 112;  // a ninth buffer: SETUP
    abi.preemption_bind_pointers = 9;
    return abi;
}
constexpr DriverAbi kAbi565 = make_565();

constexpr DriverAbi make_570() {
    DriverAbi abi = kAbi565;
    abi.name = "570";
    abi.channel_params_size = 368;  // tpcConfigID
    return abi;
}
constexpr DriverAbi kAbi570 = make_570();

constexpr DriverAbi make_575() {
    DriverAbi abi = kAbi570;
    abi.name = "575";
    abi.gpfifo_schedule_size = 3;  // bSkipEnable
    return abi;
}
constexpr DriverAbi kAbi575 = make_575();

constexpr DriverAbi make_580() {
    DriverAbi abi = kAbi575;
    abi.name = "580";
    abi.map_dma_size = 64;  // flags2, kindOverride
    abi.map_dma_va = 48;
    abi.map_dma_status = 56;
    abi.vaspace_params_size = 56;  // pasid
    return abi;
}
constexpr DriverAbi kAbi580 = make_580();

constexpr DriverAbi make_590() {
    DriverAbi abi = kAbi580;
    abi.name = "590, 595";
    abi.uvm_unregister_channel_size = 12;  // gpuUuid went
    abi.uvm_free_size = 16;                // length went
    return abi;
}
constexpr DriverAbi kAbi590 = make_590();

constexpr const DriverAbi* kAbis[] = {&kAbi525, &kAbi535, &kAbi550, &kAbi565, &kAbi570, &kAbi575, &kAbi580, &kAbi590};

constexpr DriverVersion v(uint16_t branch, uint16_t minor) { return {branch, minor, 0, false}; }
constexpr DriverVersion v(uint16_t branch, uint16_t minor, uint16_t patch) { return {branch, minor, patch, true}; }

constexpr std::string_view kHeadersOnly = "layouts compared with the published headers, not run on hardware";

constexpr DriverRow kRows[] = {
    {v(610, 57, 4), v(610, 57, 4), Verdict::kKnownBad, nullptr, 0,
     "Xid 31 when Vulkan programs start and stop (https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1370); "
     "580 is clean"},
    {v(595, 44, 2), v(595, 45, 4), Verdict::kLayoutEqual, &kAbi590, 3, kHeadersOnly},
    {v(590, 44, 1), v(590, 48, 1), Verdict::kLayoutEqual, &kAbi590, 2, kHeadersOnly},
    {v(580, 159, 4), v(580, 159, 4), Verdict::kSupported, &kAbi580, 0, "run on an H200"},
    // 580.159.04 closes the range: its ioctl sizes were seen on hardware.
    {v(580, 65, 6), v(580, 159, 4), Verdict::kLayoutEqual, &kAbi580, 21, kHeadersOnly},
    {v(575, 51, 2), v(575, 64, 5), Verdict::kLayoutEqual, &kAbi575, 6, kHeadersOnly},
    {v(570, 86, 15), v(570, 211, 1), Verdict::kLayoutEqual, &kAbi570, 25, kHeadersOnly},
    {v(565, 57, 1), v(565, 77), Verdict::kLayoutEqual, &kAbi565, 2, kHeadersOnly},
    {v(550, 40, 53), v(550, 163, 1), Verdict::kLayoutEqual, &kAbi550, 33, kHeadersOnly},
    {v(550, 40, 7), v(550, 40, 7), Verdict::kUnknown, nullptr, 1,
     "beta with the UVM layout of 535 and the RM layout of 550; not supported"},
    {v(535, 86, 5), v(535, 288, 1), Verdict::kUnknown, &kAbi535, 22,
     "layouts differ from 550 on (NVOS47, memory parameters, UVM mappings) and nobody has tested them; not supported"},
    {v(525, 0), v(525, 9999), Verdict::kUnknown, &kAbi525, 0,
     "layouts differ from 535 on (NVOS64, channel parameters) and nobody has tested them; not supported"},
};

// Shorter ranges first: none of the table's ranges overlap except by one lying within the other.
constexpr bool within(const DriverRow& inner, const DriverRow& outer) {
    return outer.first <= inner.first && inner.last <= outer.last;
}

constexpr std::string_view kUnknownNote =
    "not in the driver table: programs run as they do without VUDA (see docs/adding-a-driver.md)";

}  // namespace

std::string_view verdict_name(Verdict verdict) {
    switch (verdict) {
        case Verdict::kSupported: return "supported";
        case Verdict::kLayoutEqual: return "layout-equal";
        case Verdict::kKnownBad: return "known-bad";
        case Verdict::kUnknown: break;
    }
    return "unknown";
}

DriverSupport find_driver(const DriverVersion& version) {
    const DriverRow* best = nullptr;
    for (const DriverRow& row : kRows) {
        if (version < row.first || row.last < version) continue;
        if (!best || within(row, *best)) best = &row;
    }
    if (!best) return {Verdict::kUnknown, nullptr, kUnknownNote};
    const bool allowed = redirection_allowed(best->verdict);
    return {best->verdict, allowed ? best->abi : nullptr, best->note};
}

std::span<const DriverRow> driver_rows() { return kRows; }

const DriverAbi& abi_580() { return kAbi580; }

std::span<const DriverAbi* const> all_abis() { return kAbis; }

}  // namespace vuda::rm
