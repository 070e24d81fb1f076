#include "shim/partition/qmd.h"

#include <algorithm>
#include <iterator>

namespace vuda::partition {
namespace {

// clcbc0qmd.h (Hopper): QMDV04_00. clcdc0qmd.h, clcec0qmd.h (Blackwell): QMDV04_01, QMDV05_00. clc5c0qmd.h (Turing),
// clc6c0qmd.h, clc7c0qmd.h (Ampere): QMDV02_03, QMDV02_04, QMDV03_00, alike in all that is read here; clc9c0qmd.h (Ada)
// adds eight bits to the mask of QMDV03_00, which no GPU before it needs. In the order of QmdLayout: QMD_VERSION; its
// place, size, QMD_TYPE, TPC_DISABLE_MASK_VALID, (TPC|SM)_DISABLE_MASK, its bits, the places of more; GRID_WIDTH or
// CTA_RASTER_WIDTH, CTA_THREAD_DIMENSION0, GPC_CGA_WIDTH, IS_QUEUE,
// SHARED_MEMORY_SIZE (QMDV05_00: SHARED_MEMORY_SIZE_SHIFTED7), its bits and unit; TPCs by GPC;
// CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6(0), CONSTANT_BUFFER_VALID(0).
constexpr QmdLayout kLayouts[] = {
    {0x40, 72, 320, 23, 31, 304, 128, {kAbsent, kAbsent}, 128, 144, 268, kAbsent, 584, 18, 0, true, 192, 416},
    {0x41, 72, 320, 23, 31, 304, 128, {kAbsent, kAbsent}, 128, 144, 268, kAbsent, 584, 18, 0, true, kAbsent, kAbsent},
    {0x50,
     58,
     296,
     151,
     159,
     280,
     128,
     {kAbsent, kAbsent},
     156,
     136,
     256,
     kAbsent,
     1152,
     11,
     7,
     true,
     kAbsent,
     kAbsent},
    {0x23,
     72,
     256,
     kAbsent,
     kAbsent,
     84,
     64,
     {kAbsent, kAbsent},
     48,
     74,
     kAbsent,
     136,
     544,
     18,
     0,
     false,
     kAbsent,
     kAbsent},
    {0x24,
     72,
     256,
     kAbsent,
     kAbsent,
     84,
     64,
     {kAbsent, kAbsent},
     48,
     74,
     kAbsent,
     136,
     544,
     18,
     0,
     false,
     kAbsent,
     kAbsent},
    {0x30, 72, 256, kAbsent, kAbsent, 84, 72, {372, 379}, 48, 74, kAbsent, 136, 544, 18, 0, false, kAbsent, kAbsent},
};

constexpr bool inside(const QmdLayout& layout, uint16_t bit, uint32_t width) {
    return bit == kAbsent || (bit % 32 + width <= 32 && bit / 32 * 4 + 4 <= layout.size);
}
constexpr bool fits(const QmdLayout& layout) {
    return layout.mask + (layout.mask_bits >= 128 ? 16 : 8) <= layout.size && layout.grid + 10u <= layout.size &&
           layout.block + 5u <= layout.size && (layout.cluster == kAbsent || layout.cluster + 3u <= layout.size) &&
           layout.version_byte < layout.size && layout.size <= kQmdLookBytes && layout.mask_bits <= kQmdMaskTpcs &&
           inside(layout, layout.valid_bit, 1) && inside(layout, layout.type_bit, 3) &&
           inside(layout, layout.queue_bit, 1) && inside(layout, layout.shared_bit, layout.shared_width) &&
           (layout.type_bit != kAbsent || layout.queue_bit != kAbsent) && inside(layout, layout.more_mask[0], 6) &&
           inside(layout, layout.more_mask[1], 2) &&
           (layout.constants == kAbsent || layout.constants + 40u <= layout.size) &&
           (layout.more_mask[0] == kAbsent ? layout.mask_bits % 64 == 0 : layout.mask_bits == 72);
}
static_assert(std::all_of(std::begin(kLayouts), std::end(kLayouts), fits));

constexpr uint64_t kMaxThreadsOfSm = 2048;
constexpr uint64_t kMaxBlocksOfSm = 32;

uint32_t load16(const uint8_t* at) { return static_cast<uint32_t>(at[0] | at[1] << 8); }

}  // namespace

const QmdLayout* find_qmd_layout(std::span<const uint8_t, kQmdLookBytes> qmd) {
    for (const QmdLayout& layout : kLayouts) {
        if (has_version(layout, qmd.data())) return &layout;
    }
    return nullptr;
}

LaunchShape read_shape(const QmdLayout& layout, const uint8_t* qmd) {
    const uint8_t* grid = qmd + layout.grid;
    const uint8_t* block = qmd + layout.block;
    return {{load32(grid), load16(grid + 4), load16(grid + 8)}, {load16(block), load16(block + 2), block[4]}};
}

uint64_t block_count(const LaunchShape& shape) {
    return uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];  // 32, 16 and 16 bits
}

ModuleBanks read_module_banks(const QmdLayout& layout, const uint8_t* qmd) {
    ModuleBanks read;
    for (unsigned i = 0; i < std::size(read.banks); ++i) {
        const unsigned bank = ModuleBanks::kFirst + i;
        if (load_bits(qmd, static_cast<uint16_t>(layout.constants_valid_bit + 4 * bank), 1) != 0)
            std::memcpy(&read.banks[i].place, qmd + layout.constants + 8 * bank, 8);
    }
    return read;
}

bool write_module_banks(const QmdLayout& layout, uint8_t* qmd, const ModuleBanks& banks) {
    const ModuleBanks own = read_module_banks(layout, qmd);
    for (unsigned i = 0; i < std::size(own.banks); ++i) {
        if ((own.banks[i].place == 0) != (banks.banks[i].place == 0) ||
            own.banks[i].size_bits() != banks.banks[i].size_bits())
            return false;
    }
    for (unsigned i = 0; i < std::size(own.banks); ++i) {
        if (banks.banks[i].place != 0)
            std::memcpy(qmd + layout.constants + 8 * (ModuleBanks::kFirst + i), &banks.banks[i].place, 8);
    }
    return true;
}

bool fits_cooperatively(const LaunchShape& shape, uint32_t sms) {
    // A warp is resident as a whole.
    const uint64_t threads = (uint64_t{shape.block[0]} * shape.block[1] * shape.block[2] + 31) / 32 * 32;
    const uint64_t of_sm = std::min(kMaxBlocksOfSm, kMaxThreadsOfSm / std::max<uint64_t>(threads, 32));
    return block_count(shape) <= of_sm * sms;
}

}  // namespace vuda::partition
