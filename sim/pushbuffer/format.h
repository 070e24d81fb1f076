// What the simulated GPU executes: the format of GPFIFO entries, push buffers and semaphores.
//
// The frame is NVIDIA's own (open-gpu-doc, classes c56f/c86f): GPFIFO entries, USERD with GP_PUT, method headers, host
// semaphores, SET_OBJECT. So a driver's or a shim's own channel works unchanged. The work itself is one method a kernel
// or frame, with the figures that the timing model needs instead of shader code; those methods are simulated only.
//
// Submitting work: write the push buffer, write a GPFIFO entry for it, store GP_PUT in USERD (release), store the
// channel's token at kDoorbell of a usermode page, and, to be seen at once, send the token (4 bytes) with send(2) on
// the file that was given to MAP_MEMORY for that page. Without the send the server looks within a millisecond.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vuda::sim::work {

// Usermode page (clc361.h): offsets in bytes.
inline constexpr size_t kUsermodeBytes = 0x10000;
inline constexpr size_t kTimeLow = 0x80;  // GPU time in nanoseconds, simulated
inline constexpr size_t kTimeHigh = 0x84;
inline constexpr size_t kDoorbell = 0x90;

// USERD (clc36f.h): offsets in bytes.
inline constexpr size_t kUserdBytes = 512;
inline constexpr size_t kGpGet = 0x88;
inline constexpr size_t kGpPut = 0x8c;

// GPFIFO entry: address of the push buffer (4-byte aligned, below 2^40) and its length in words.
constexpr uint64_t gpfifo_entry(uint64_t address, uint32_t words) {
    return (address & 0xff'ffff'fffcull) | (static_cast<uint64_t>(words & 0x1f'ffffu) << 42);
}
constexpr uint64_t entry_address(uint64_t entry) { return entry & 0xff'ffff'fffcull; }
constexpr uint32_t entry_words(uint64_t entry) { return static_cast<uint32_t>(entry >> 42) & 0x1f'ffffu; }

// Method header: operation, count (or immediate data), subchannel, method address in bytes.
inline constexpr uint32_t kOpIncrement = 1;
inline constexpr uint32_t kOpNonIncrement = 3;
inline constexpr uint32_t kOpImmediate = 4;
inline constexpr uint32_t kOpOneIncrement = 5;
constexpr uint32_t header(uint32_t operation, uint32_t subchannel, uint32_t method, uint32_t count) {
    return (operation << 29) | ((count & 0x1fffu) << 16) | ((subchannel & 7u) << 13) | ((method >> 2) & 0xfffu);
}

// Host methods (below 0x100), any subchannel.
inline constexpr uint32_t kSetObject = 0x0000;  // data: class number
inline constexpr uint32_t kSemAddressLow = 0x005c;
inline constexpr uint32_t kSemAddressHigh = 0x0060;
inline constexpr uint32_t kSemPayloadLow = 0x0064;
inline constexpr uint32_t kSemPayloadHigh = 0x0068;
inline constexpr uint32_t kSemExecute = 0x006c;
inline constexpr uint32_t kSemExecuteRelease = 1u << 0;
inline constexpr uint32_t kSemExecuteTimestamp = 1u << 25;

// A released semaphore in memory, 16-byte aligned. Waiters sleep with FUTEX_WAIT (shared) on `payload`.
struct Semaphore {
    uint32_t payload;
    uint32_t payload_high;
    uint64_t timestamp_ns;  // GPU time, simulated
};
static_assert(sizeof(Semaphore) == 16);

// Class methods with a real meaning that the simulator knows.
inline constexpr uint32_t kSetScgControl = 0x0270;          // compute classes c5c0 to c9c0; illegal elsewhere
inline constexpr uint32_t kScgHysteresisControl = 0x02a8;   // likewise
inline constexpr uint32_t kSetShaderLocalMemoryA = 0x0790;  // compute set-up: makes the subcontext ready for kernels

// Simulated work. Non-incrementing methods, the data words are the struct.
inline constexpr uint32_t kSimLaunch = 0x3e00;  // compute class: Launch
inline constexpr uint32_t kSimFrame = 0x3e04;   // 3D class: word 0 = draws, then as many Draw
inline constexpr uint32_t kSimControlBuffer =
    0x3e08;  // 3D class: ControlBuffer; graphics state now points there, or (length 0) no longer

struct Launch {
    uint32_t blocks;
    uint32_t block_ns;
    uint32_t blocks_per_sm;
    uint32_t shared_memory;  // bytes per block as the launch descriptor counts: dynamic + static + 1,024
    uint32_t flags;          // kLaunch*
    uint32_t bandwidth_permille;
    uint32_t disabled_tpcs[4];   // mask, with kLaunchMaskValid
    uint32_t sm_bound_permille;  // how much of a block's time is the SM's throughput (sim/model/work.h)
    uint32_t report_low;         // where the kernel writes its Whereabouts; 0: it does not. 4-byte aligned
    uint32_t report_high;
};
static_assert(sizeof(Launch) == 52);

// What a kernel that reads %smid in each block would find out.
struct Whereabouts {
    uint32_t sms[8];   // bit s % 32 of word s / 32: a block ran on SM s
    uint32_t tpcs[4];  // likewise
};
static_assert(sizeof(Whereabouts) == 48);
inline constexpr uint32_t kLaunchControlState =
    1u << 0;  // needs the front end's state: any real kernel; an empty loop does not
inline constexpr uint32_t kLaunchLocalMemory = 1u
                                               << 1;  // needs the compute set-up methods to have run in its subcontext
inline constexpr uint32_t kLaunchMaskValid = 1u << 2;

struct Draw {
    uint32_t vertex_ns;
    uint32_t fragment_ns;
    uint32_t fragment_need_permille;     // share of the graphics TPCs that the fragment part can use; 0 means 1000
    uint32_t vertex_bandwidth_permille;  // share of memory bandwidth
    uint32_t fragment_bandwidth_permille;
    uint32_t flags;  // kDraw*
};
static_assert(sizeof(Draw) == 24);
inline constexpr uint32_t kDrawYield = 1u << 0;  // the channel waits after this draw, its TSG gives its slice away

struct ControlBuffer {
    uint32_t address_low;
    uint32_t address_high;
    uint32_t length;
};
static_assert(sizeof(ControlBuffer) == 12);

}  // namespace vuda::sim::work
