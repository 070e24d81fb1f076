// Which argument sizes the simulated driver version uses. The structs themselves are rm/abi.h's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vuda::sim {

struct Layout {
    std::string version = "580.159.04";  // what /proc/driver/nvidia/version says
    int branch = 580;

    uint32_t alloc_long = 48;              // NVOS64: 40 up to 525
    uint32_t map_dma = 64;                 // NVOS46: 56 up to 575
    uint32_t unmap_dma = 48;               // NVOS47: 40 up to 535
    uint32_t channel_params = 368;         // 304 up to 535.54, 360 up to 565
    uint32_t vaspace_params = 56;          // 48 up to 575
    uint32_t memory_params = 128;          // 120 up to 535
    uint32_t schedule_params = 3;          // 2 up to 570
    uint32_t map_external = 9264;          // 1200 up to 550.40.07
    uint32_t uvm_free = 24;                // 16 from 590
    uint32_t uvm_unregister_channel = 28;  // 12 from 590
    uint32_t sm_id = 18;                   // an entry of GR_GET_GLOBAL_SM_ORDER: 12 up to 570, 14 with 575

    // From "MAJOR.MINOR[.PATCH]"; anything unreadable gives the defaults with that version text.
    static Layout of(std::string_view version);

    // Size of the parameter block of a class, 0 for none. `cls` as in RM_ALLOC.
    uint32_t class_params(uint32_t cls) const;
    // Size of a UVM ioctl's argument, 0 when unknown.
    uint32_t uvm_argument(unsigned long number) const;
};

}  // namespace vuda::sim
