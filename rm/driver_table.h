// Which drivers VUDA redirects on, and how their kernel interface is laid out.
//
// The rule is "no redirection unless this very release is covered": by a test on hardware, or by having its published
// headers compared (the release itself, or one on each side of it in the same branch, all equal). Everything else runs
// untouched. docs/adding-a-driver.md says how a row is made.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "rm/driver_version.h"

namespace vuda::rm {

enum class Verdict : uint8_t {
    kSupported,    // tested on hardware
    kLayoutEqual,  // same layouts as the tables here; allowed, with a note
    kKnownBad,     // refused; the note says why
    kUnknown,      // refused: never compared, or compared and different with nobody to test it
};

std::string_view verdict_name(Verdict verdict);  // "supported", "layout-equal", "known-bad", "unknown"

// May channels be redirected under this verdict?
constexpr bool redirection_allowed(Verdict v) { return v == Verdict::kSupported || v == Verdict::kLayoutEqual; }

// Everything that differs between driver branches, in bytes. What is not here is the same from 525 to 595 and comes
// from rm/abi.h directly.
struct DriverAbi {
    std::string_view name;  // the branches it holds for

    // Arguments
    uint16_t alloc_size;        // NVOS64 (NVOS21 is 32 everywhere)
    uint16_t alloc_status;      // offset
    uint16_t map_dma_size;      // NVOS46
    uint16_t map_dma_va;        // offset of dmaOffset
    uint16_t map_dma_status;    // offset
    uint16_t unmap_dma_size;    // NVOS47
    uint16_t unmap_dma_length;  // offset of size; 0: no such member
    uint16_t unmap_dma_status;  // offset
    uint16_t uvm_map_external_size;
    uint16_t uvm_map_external_max_gpus;
    uint16_t uvm_alloc_semaphore_pool_size;
    uint16_t uvm_unregister_channel_size;  // 28: begins with the GPU's UUID; 12: does not
    uint16_t uvm_free_size;                // 24: has a length; 16: has none

    // Parameter blocks
    uint16_t channel_params_size;
    uint16_t vaspace_params_size;
    uint16_t memory_params_size;
    uint16_t gpfifo_schedule_size;
    uint16_t preemption_bind_size;
    uint16_t preemption_bind_pointers;  // number of vMemPtrs
    bool has_setup_bind;                // NV2080_CTRL_CMD_GR_CTXSW_SETUP_BIND exists

    bool operator==(const DriverAbi&) const = default;
};

struct DriverSupport {
    Verdict verdict = Verdict::kUnknown;
    const DriverAbi* abi = nullptr;  // set exactly when redirection_allowed(verdict); points to a constant
    std::string_view note;           // one line for people; empty only for kSupported
};

// Never fails: a version the table does not know gets kUnknown. The views stay valid for the program's lifetime.
DriverSupport find_driver(const DriverVersion& version);

// A row of the table, for `vudactl driver list`. Rows with the same branch may overlap; the most specific one (the
// shortest range) decides, which is how a single release is promoted to kSupported or marked kKnownBad.
struct DriverRow {
    DriverVersion first;
    DriverVersion last;  // inclusive
    Verdict verdict;
    const DriverAbi* abi;  // null when the layout is not known
    uint16_t compared;     // releases in the range whose headers were compiled and measured
    std::string_view note;
};

std::span<const DriverRow> driver_rows();  // newest first

// The layouts, also those of branches which are not allowed: tools and the simulated GPU use them.
const DriverAbi& abi_580();
std::span<const DriverAbi* const> all_abis();  // oldest first

}  // namespace vuda::rm
