// What H200s said of themselves (driver 580.159.04). For tests.
#pragma once

#include <cstdint>

namespace vuda::partition::testing {

// GR_GET_GLOBAL_SM_ORDER, for TPC 0, 1, ...: logical GPC, number in the GPC, virtual GPC. SMs 2 t and 2 t + 1 belong to
// TPC t.
struct CardTpc {
    uint16_t gpc;
    uint16_t in_gpc;
    uint16_t virtual_gpc;
};
inline constexpr CardTpc kCard[66] = {
    {1, 0, 0}, {2, 0, 1}, {3, 0, 2},  {4, 0, 3},  {5, 0, 4},  {6, 0, 5}, {0, 0, 6}, {7, 0, 7}, {1, 3, 0}, {2, 3, 1},
    {3, 3, 2}, {4, 2, 3}, {5, 3, 4},  {6, 3, 5},  {0, 3, 6},  {7, 3, 7}, {1, 6, 0}, {2, 6, 1}, {3, 6, 2}, {4, 5, 3},
    {5, 6, 4}, {6, 6, 5}, {0, 6, 6},  {7, 6, 7},  {1, 1, 0},  {2, 1, 1}, {3, 1, 2}, {4, 1, 3}, {5, 1, 4}, {6, 1, 5},
    {0, 1, 6}, {7, 1, 7}, {2, 4, 1},  {3, 4, 2},  {4, 3, 3},  {5, 4, 4}, {6, 4, 5}, {0, 4, 6}, {7, 4, 7}, {2, 7, 1},
    {3, 7, 2}, {4, 6, 3}, {5, 7, 4},  {6, 7, 5},  {0, 7, 6},  {7, 7, 7}, {2, 2, 1}, {3, 2, 2}, {4, 4, 3}, {5, 2, 4},
    {6, 2, 5}, {0, 2, 6}, {7, 2, 7},  {2, 5, 1},  {3, 5, 2},  {4, 7, 3}, {5, 5, 4}, {6, 5, 5}, {0, 5, 6}, {7, 5, 7},
    {0, 8, 6}, {7, 8, 7}, {1, 4, 11}, {1, 7, 14}, {1, 2, 17}, {1, 5, 19}};
// GRMGR_GET_GR_FS_INFO: physical GPC of each logical one.
inline constexpr uint32_t kCardPhysicalGpc[8] = {0, 1, 2, 3, 5, 6, 7, 4};
// GR_GET_GFX_GPC_AND_TPC_INFO
inline constexpr uint32_t kCardGraphicsGpcs = 0x1;
inline constexpr uint32_t kCardGraphicsTpcs = 2;
// Fragment shaders on that card ran on SMs 12, 13, 60 and 61 only (gl_SMIDNV).
inline constexpr uint32_t kCardSeenGraphics[2] = {6, 30};
// With one bit of a launch descriptor's mask set, the SMs of this TPC ran no block: bit for TPC 0, 1, ...
inline constexpr uint8_t kCardMaskBits[66] = {0,  9,  18, 27, 36, 45, 54, 63, 1,  10, 19, 28, 37, 46, 55, 64, 2,
                                              11, 20, 29, 38, 47, 56, 65, 3,  12, 21, 30, 39, 48, 57, 66, 13, 22,
                                              31, 40, 49, 58, 67, 14, 23, 32, 41, 50, 59, 68, 15, 24, 33, 42, 51,
                                              60, 69, 16, 25, 34, 43, 52, 61, 70, 62, 71, 75, 78, 81, 83};

}  // namespace vuda::partition::testing
