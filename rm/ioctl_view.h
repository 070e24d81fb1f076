// Typed views of the ioctls that matter for sharing a TSG. Pure functions over byte spans.
//
// How a hook uses this, for an ioctl on an NVIDIA device file:
//
//   1. n = argument_size(surface, request, abi).      0: nothing here of interest, forward the call untouched.
//   2. copy n bytes from the caller's argument into `arg`.
//   3. view = decode(surface, request, arg, abi).      Other: forward untouched.
//   4. block = param_block(view, abi).                  size 0: there is none, or its layout is not known.
//   5. copy block.size bytes from block.address into `params`; load<ChannelParams>(params) and the like read it.
//   6. decide; changed fields go into the copies by offset (offsetof in rm/abi.h; the few that moved between branches
//   are in
//      DriverAbi), the call is made on the copies, and what RM wrote is copied back.
//
// Nothing reads outside the span it was given, whatever is in it; a span that is too short decodes as Other. Views are
// copies: they own what they say and point nowhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <variant>

#include "base/uuid.h"
#include "rm/abi.h"
#include "rm/driver_table.h"

namespace vuda::rm {

using Bytes = std::span<const uint8_t>;

// Which driver answers the file: nvidiactl and nvidiaN share one interface, nvidia-uvm has its own.
enum class Surface : uint8_t { kRm, kUvm };

// Larger than any argument or parameter block that a view or block refers to; fits a buffer on the stack or in a
// thread.
inline constexpr size_t kMaxArgument = sizeof(UvmMapExternalArgs);
inline constexpr size_t kMaxParams = 1024;

// ---- Views. Members have the names and meaning of the structs in rm/abi.h.

struct Other {};  // not one of the below, or not of the size that the driver's table says

struct Alloc {  // any of the three forms of RM_ALLOC
    Handle root = 0;
    Handle parent = 0;
    Handle object = 0;  // 0: RM chooses, and reports it in the same place
    uint32_t cls = 0;
    UserPtr params = 0;
    uint32_t params_size = 0;  // as the caller gave it: 0 from every user-mode driver seen
    uint32_t status = 0;
};
struct AllocMemory {  // memory with a CPU mapping of its own: an object like any other
    Handle root = 0;
    Handle parent = 0;
    Handle object = 0;
    uint32_t cls = 0;
    uint32_t status = 0;
};
struct VidHeapAlloc {  // memory again, through VID_HEAP_CONTROL's allocating functions
    Handle root = 0;
    Handle parent = 0;
    Handle object = 0;
    uint64_t size = 0;
    uint32_t status = 0;
};
struct ContextDma {
    Handle client = 0;
    Handle object = 0;
    Handle memory = 0;
    uint64_t offset = 0;
    uint64_t limit = 0;
    uint32_t status = 0;
};
struct VidHeapFree {
    Handle root = 0;
    Handle parent = 0;
    Handle object = 0;
    uint32_t status = 0;
};
struct Free {
    Handle root = 0;
    Handle parent = 0;
    Handle object = 0;
    uint32_t status = 0;
};
struct Control {
    Handle client = 0;
    Handle object = 0;
    uint32_t cmd = 0;
    UserPtr params = 0;
    uint32_t params_size = 0;
    uint32_t status = 0;
};
struct Dup {
    Handle client = 0;
    Handle parent = 0;
    Handle object = 0;
    Handle source_client = 0;
    Handle source_object = 0;
    uint32_t flags = 0;
    uint32_t status = 0;
};
struct Share {
    Handle client = 0;
    Handle object = 0;
    uint32_t target = 0;
    uint32_t type = 0;
    uint32_t status = 0;
};
struct MapMemory {
    Handle client = 0;
    Handle device = 0;
    Handle memory = 0;
    uint64_t offset = 0;
    uint64_t length = 0;
    int32_t fd = -1;
    uint32_t status = 0;
};
struct UnmapMemory {
    Handle client = 0;
    Handle device = 0;
    Handle memory = 0;
    UserPtr address = 0;
    uint32_t status = 0;
};
struct MapDma {
    Handle client = 0;
    Handle device = 0;
    Handle dma = 0;
    Handle memory = 0;
    uint64_t offset = 0;
    uint64_t length = 0;
    uint32_t flags = 0;
    uint64_t va = 0;  // GPU virtual address; RM's answer is in the same place
    uint32_t status = 0;
};
struct UnmapDma {
    Handle client = 0;
    Handle device = 0;
    Handle dma = 0;
    Handle memory = 0;
    uint64_t va = 0;
    uint64_t size = 0;  // 0: all of it
    uint32_t status = 0;
};
struct RegisterFd {  // binds a nvidiaN file to a nvidiactl file
    int32_t ctl_fd = -1;
};
struct CheckVersion {
    uint32_t cmd = 0;
    uint32_t reply = 0;
    char version[64] = {};  // always terminated
};

struct UvmInitialize {
    uint64_t flags = 0;
    uint32_t status = 0;
};
struct UvmRegisterGpu {
    Uuid gpu;
    int32_t ctl_fd = -1;
    Handle client = 0;
    uint32_t status = 0;
};
struct UvmRegisterVaSpace {
    Uuid gpu;
    int32_t ctl_fd = -1;
    Handle client = 0;
    Handle va_space = 0;
    uint32_t status = 0;
};
struct UvmUnregisterVaSpace {
    Uuid gpu;
    uint32_t status = 0;
};
struct UvmRegisterChannel {
    Uuid gpu;
    int32_t ctl_fd = -1;
    Handle client = 0;
    Handle channel = 0;
    uint64_t base = 0;
    uint64_t length = 0;
    uint32_t status = 0;
};
struct UvmUnregisterChannel {
    Handle client = 0;
    Handle channel = 0;
    uint32_t status = 0;
};
struct UvmCreateExternalRange {
    uint64_t base = 0;
    uint64_t length = 0;
    uint32_t status = 0;
};
struct UvmMapExternal {
    uint64_t base = 0;
    uint64_t length = 0;
    uint64_t offset = 0;
    uint64_t attributes_count = 0;    // as the caller gave it
    UvmMappingAttributes first = {};  // valid when attributes_count is not 0
    int32_t ctl_fd = -1;
    Handle client = 0;
    Handle memory = 0;
    uint32_t status = 0;
};
struct UvmUnmapExternal {
    uint64_t base = 0;
    uint64_t length = 0;
    Uuid gpu;
    uint32_t status = 0;
};
struct UvmFree {
    uint64_t base = 0;
    uint64_t length = 0;  // 0 where the driver's layout has none
    uint32_t status = 0;
};

using IoctlView =
    std::variant<Other, Alloc, AllocMemory, VidHeapAlloc, VidHeapFree, Free, Control, Dup, Share, ContextDma, MapMemory,
                 UnmapMemory, MapDma, UnmapDma, RegisterFd, CheckVersion, UvmInitialize, UvmRegisterGpu,
                 UvmRegisterVaSpace, UvmUnregisterVaSpace, UvmRegisterChannel, UvmUnregisterChannel,
                 UvmCreateExternalRange, UvmMapExternal, UvmUnmapExternal, UvmFree>;

// Bytes to copy in before decode(), at most kMaxArgument; 0 when decode() would answer Other anyway.
size_t argument_size(Surface surface, unsigned long request, const DriverAbi& abi);

IoctlView decode(Surface surface, unsigned long request, Bytes arg, const DriverAbi& abi);

// Where the argument holds the NV_STATUS that the caller will look at, in bytes; nullopt-like kNoStatus when it has
// none (or the request is not one that decode() knows).
inline constexpr size_t kNoStatus = ~size_t{0};
size_t status_offset(Surface surface, unsigned long request, const DriverAbi& abi);

// ---- Parameter blocks: the second level, behind a pointer in Alloc and Control.

struct ParamBlock {
    UserPtr address = 0;
    uint32_t size = 0;  // bytes, at most kMaxParams; 0: no block, or not one with a known layout
};

// Size of the block that goes with a class or a control command, as this driver lays it out; 0 when not known here.
// User-mode drivers pass paramsSize 0 to RM_ALLOC, so the class is the only way to know.
uint32_t alloc_params_size(uint32_t cls, const DriverAbi& abi);
uint32_t control_params_size(uint32_t cmd, const DriverAbi& abi);

// The block to copy in for this call. A caller that states a size other than the driver's gets size 0: its layout is
// not ours to touch. For control commands without a known layout too.
ParamBlock param_block(const IoctlView& view, const DriverAbi& abi);

// Name of a request, class or command for people ("RM_ALLOC", "UVM_REGISTER_CHANNEL", "KEPLER_CHANNEL_GROUP_A", ...);
// empty when this file does not know it.
std::string_view request_name(Surface surface, unsigned long request);
std::string_view class_name(uint32_t cls);
std::string_view control_name(uint32_t cmd);

// Reads T from the start of `bytes`; what the bytes do not reach stays zero. That is right for every block of rm/abi.h
// that older branches cut short at its end (ChannelParams, VaSpaceParams, MemoryParams, GpfifoScheduleParams).
template <typename T>
T load(Bytes bytes) {
    static_assert(std::is_trivially_copyable_v<T>);
    T out{};
    if (!bytes.empty()) std::memcpy(&out, bytes.data(), bytes.size() < sizeof(T) ? bytes.size() : sizeof(T));
    return out;
}

// The one block whose middle moved: 8 or 9 buffer addresses in front of the modes.
PreemptionBindParams load_preemption_bind(Bytes bytes, const DriverAbi& abi);

}  // namespace vuda::rm
