#include "shim/partition/qmd.h"

namespace vuda::partition {
namespace {

// clcbc0qmd.h (Hopper): QMDV04_00. clcdc0qmd.h, clcec0qmd.h (Blackwell): QMDV04_01, QMDV05_00. Version, place of the
// version, size, QMD_TYPE, TPC_DISABLE_MASK_VALID, TPC_DISABLE_MASK, GRID_WIDTH, CTA_THREAD_DIMENSION0, GPC_CGA_WIDTH.
// Older descriptors have a mask too (SM_DISABLE_MASK_LOWER and _UPPER), but do not say whether a grid is cooperative.
constexpr QmdLayout kLayouts[] = {
    {0x40, 72, 320, 23, 31, 304, 128, 144, 268, true},
    {0x41, 72, 320, 23, 31, 304, 128, 144, 268, true},
    {0x50, 58, 296, 151, 159, 280, 156, 136, 256, true},
};

constexpr bool fits(const QmdLayout& layout) {
    return layout.mask + kQmdMaskTpcs / 8 <= layout.size && layout.grid + 10u <= layout.size &&
           layout.block + 5u <= layout.size && layout.cluster + 3u <= layout.size &&
           layout.version_byte < layout.size && layout.size <= kQmdLookBytes && layout.valid_bit / 8u < layout.size &&
           layout.type_bit % 32 <= 29 && layout.type_bit / 8u < layout.size;
}
static_assert(fits(kLayouts[0]) && fits(kLayouts[1]) && fits(kLayouts[2]));

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

}  // namespace vuda::partition
