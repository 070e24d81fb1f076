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

inline constexpr uint16_t kAbsent = 0xffff;

// All places in bytes from the start, but for those marked as bits.
struct QmdLayout {
    uint8_t version;        // QMD_MAJOR_VERSION << 4 | QMD_MINOR_VERSION
    uint16_t version_byte;  // where that is
    uint16_t size;          // bytes that are read or written here
    // QMD_TYPE, 3 bits. kAbsent: such descriptors do not tell a cooperative grid from another (fits_cooperatively).
    uint16_t type_bit;
    uint16_t valid_bit;     // TPC_DISABLE_MASK_VALID; kAbsent: the mask always counts
    uint16_t mask;          // TPC_DISABLE_MASK, or SM_DISABLE_MASK_LOWER and _UPPER, which also has a bit for each TPC
    uint16_t mask_bits;     // 64 in one piece at least
    uint16_t more_mask[2];  // bits: SM_DISABLE_MASK_EXT_LOWER (6 bits), _EXT_UPPER (2); kAbsent: none
    uint16_t grid;          // GRID_WIDTH 32 bits, GRID_HEIGHT 16 bits after it, GRID_DEPTH 16 bits after 8 bytes
    uint16_t block;         // CTA_THREAD_DIMENSION0, 1, 2: 16, 16, 8 bits
    uint16_t cluster;       // GPC_CGA_WIDTH, _HEIGHT, _DEPTH: 6 bits in a byte each; kAbsent: there are no clusters
    uint16_t queue_bit;     // IS_QUEUE; kAbsent: QMD_TYPE says it
    uint16_t shared_bit;    // SHARED_MEMORY_SIZE
    uint8_t shared_width;
    uint8_t shared_shift;  // what is there counts units of 2 to the power of this, bytes
    bool grouped;          // TPCs are numbered GPC by GPC (mask_map.h), else in the order of globalTpcId
    uint16_t constants;    // CONSTANT_BUFFER_ADDR and _SIZE of bank 0, 8 bytes a bank; kAbsent: not needed so far
    uint16_t constants_valid_bit;  // CONSTANT_BUFFER_VALID(0); 4 bits a bank
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

inline uint32_t load_bits(const uint8_t* qmd, uint16_t bit, uint32_t width) {
    return load32(qmd + bit / 32 * 4) >> (bit % 32) & ((uint32_t{1} << width) - 1);
}

inline void store_bits(uint8_t* qmd, uint16_t bit, uint32_t width, uint32_t value) {
    uint8_t* const at = qmd + bit / 32 * 4;
    const uint32_t field = ((uint32_t{1} << width) - 1) << (bit % 32);
    const uint32_t word = (load32(at) & ~field) | (value << (bit % 32) & field);
    std::memcpy(at, &word, sizeof word);
}

inline QmdKind read_kind(const QmdLayout& layout, const uint8_t* qmd) {
    if (layout.type_bit != kAbsent) return static_cast<QmdKind>(load_bits(qmd, layout.type_bit, 3));
    return load_bits(qmd, layout.queue_bit, 1) != 0 ? QmdKind::kQueue : QmdKind::kGrid;
}

// Shared memory of a block, bytes.
inline uint32_t read_shared(const QmdLayout& layout, const uint8_t* qmd) {
    return load_bits(qmd, layout.shared_bit, layout.shared_width) << layout.shared_shift;
}

// A descriptor of this layout can be made one of a grid without blocks (QMD_TYPE_GRID_NULL).
inline bool can_empty(const QmdLayout& layout) { return layout.type_bit != kAbsent; }
inline void make_empty(const QmdLayout& layout, uint8_t* qmd) {
    store_bits(qmd, layout.type_bit, 3, static_cast<uint32_t>(QmdKind::kNull));
}

// Of a grid whose descriptor does not say whether it is cooperative: it could be, since all its blocks may find room on
// `sms` SMs at once. CUDA refuses a cooperative launch of more. No GPU holds more than 2,048 threads or 32 blocks on an
// SM (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
bool fits_cooperatively(const LaunchShape& shape, uint32_t sms);
uint64_t block_count(const LaunchShape& shape);

// The constant banks that belong to a kernel's module: 3 holds its __constant__ variables, 4 the addresses of its
// __device__ variables. Seen with CUDA 13.0; whoever relies on it proves it first (native_proof.h). The other banks
// belong to the launch and the context.
struct ModuleBanks {
    static constexpr unsigned kFirst = 3;
    struct Bank {
        uint64_t place = 0;  // address and size, as the descriptor has them; 0: the kernel has none
        bool operator==(const Bank&) const = default;
        uint64_t size_bits() const { return place >> 51; }
    };
    Bank banks[2];
    bool operator==(const ModuleBanks&) const = default;
};

inline bool has_module_banks(const QmdLayout& layout) { return layout.constants != kAbsent; }
ModuleBanks read_module_banks(const QmdLayout& layout, const uint8_t* qmd);
// Gives a descriptor of the same kernel those of another instance of its module. False, and nothing is changed: they
// are not alike.
bool write_module_banks(const QmdLayout& layout, uint8_t* qmd, const ModuleBanks& banks);

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
    if (layout.valid_bit != kAbsent && load_bits(qmd, layout.valid_bit, 1) == 0) return mask;
    std::memcpy(mask.words, qmd + layout.mask, layout.mask_bits >= 128 ? 16 : 8);
    if (layout.more_mask[0] != kAbsent) {
        mask.words[1] = load_bits(qmd, layout.more_mask[0], 6) | load_bits(qmd, layout.more_mask[1], 2) << 6;
    }
    return mask;
}

inline void write_mask(const QmdLayout& layout, uint8_t* qmd, const QmdMask& mask) {
    std::memcpy(qmd + layout.mask, mask.words, layout.mask_bits >= 128 ? 16 : 8);
    if (layout.more_mask[0] != kAbsent) {
        store_bits(qmd, layout.more_mask[0], 6, static_cast<uint32_t>(mask.words[1]) & 0x3f);
        store_bits(qmd, layout.more_mask[1], 2, static_cast<uint32_t>(mask.words[1]) >> 6 & 3);
    }
    if (layout.valid_bit != kAbsent) store_bits(qmd, layout.valid_bit, 1, 1);
}

}  // namespace vuda::partition
