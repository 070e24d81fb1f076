// The launch descriptor (QMD) that CUDA fills for every kernel: where its TPC mask is, and how to add to it. Pure.
//
// Positions are those of NVIDIA's published class headers (github.com/NVIDIA/open-gpu-doc, classes/compute/cl*qmd.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "shim/partition/topology.h"

namespace vuda::partition {

// QMD_TYPE. The blocks of a cooperative grid must all be resident at once: with fewer TPCs than CUDA counted on, it
// would never start. (Seen: an H200 waits for ever.) The blocks of one cluster must fit into one GPC.
enum class QmdKind : uint8_t {
    kQueue = 0,
    kNull = 1,
    kGrid = 2,
    kCluster = 3,
    kCooperative = 4,
    kCooperativeCluster = 5
};

// All places in bytes from the start, but for the two marked as bits.
struct QmdLayout {
    uint8_t version;        // QMD_MAJOR_VERSION << 4 | QMD_MINOR_VERSION
    uint16_t version_byte;  // where that is
    uint16_t size;          // bytes that are read or written here
    uint16_t type_bit;      // QMD_TYPE, 3 bits
    uint16_t valid_bit;     // TPC_DISABLE_MASK_VALID
    uint16_t mask;          // TPC_DISABLE_MASK, 128 bits
    uint16_t grid;          // GRID_WIDTH 32 bits, GRID_HEIGHT 16 bits after it, GRID_DEPTH 16 bits after 8 bytes
    uint16_t block;         // CTA_THREAD_DIMENSION0, 1, 2: 16, 16, 8 bits
    uint16_t cluster;       // GPC_CGA_WIDTH, _HEIGHT, _DEPTH: 6 bits in a byte each
    bool grouped;           // TPCs are numbered GPC by GPC (mask_map.h), else in the order of globalTpcId
};

inline constexpr size_t kQmdMaskTpcs = 128;
inline constexpr size_t kQmdLookBytes = 512;  // enough to recognise any of them

// By its version byte; nullptr: none that is known.
const QmdLayout* find_qmd_layout(std::span<const uint8_t, kQmdLookBytes> qmd);

struct LaunchShape {
    uint32_t grid[3];
    uint32_t block[3];
    bool operator==(const LaunchShape&) const = default;
};

LaunchShape read_shape(const QmdLayout& layout, const uint8_t* qmd);

inline bool has_version(const QmdLayout& layout, const uint8_t* qmd) {
    return qmd[layout.version_byte] == layout.version;
}

inline uint32_t load32(const uint8_t* at) {
    uint32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

inline QmdKind read_kind(const QmdLayout& layout, const uint8_t* qmd) {
    return static_cast<QmdKind>(load32(qmd + layout.type_bit / 32 * 4) >> (layout.type_bit % 32) & 7);
}

// Blocks in a cluster.
inline uint32_t read_cluster(const QmdLayout& layout, const uint8_t* qmd) {
    return (qmd[layout.cluster] & 0x3fu) * (qmd[layout.cluster + 1] & 0x3fu) * (qmd[layout.cluster + 2] & 0x3fu);
}

// Bits of a descriptor's mask.
struct QmdMask {
    uint64_t words[kQmdMaskTpcs / 64] = {};
    bool operator==(const QmdMask&) const = default;
};

// What the descriptor excludes already.
inline QmdMask read_mask(const QmdLayout& layout, const uint8_t* qmd) {
    QmdMask mask;
    const uint32_t valid = load32(qmd + layout.valid_bit / 32 * 4) >> (layout.valid_bit % 32) & 1;
    if (valid != 0) std::memcpy(mask.words, qmd + layout.mask, sizeof mask.words);
    return mask;
}

inline void write_mask(const QmdLayout& layout, uint8_t* qmd, const QmdMask& mask) {
    uint8_t* const word = qmd + layout.valid_bit / 32 * 4;
    const uint32_t flags = load32(word) | uint32_t{1} << (layout.valid_bit % 32);
    std::memcpy(qmd + layout.mask, mask.words, sizeof mask.words);
    std::memcpy(word, &flags, sizeof flags);
}

}  // namespace vuda::partition
