// What the redirector needs to know about an ioctl before it looks inside: a narrow door to rm/ioctl_view.h.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "rm/abi.h"
#include "rm/ioctl_view.h"
#include "shim/preload/redirector.h"

namespace vuda::shim {

using Bytes = std::span<const uint8_t>;

// The T at `offset`, zero-filled where the block ends early (old drivers' blocks are shorter, never different).
template <typename T>
T load(Bytes bytes, size_t offset = 0) {
    return rm::load<T>(bytes.subspan(offset < bytes.size() ? offset : bytes.size()));
}

inline bool is_rm_file(FileRole role) { return role == FileRole::kControl || role == FileRole::kGpu; }

// Bytes of the argument block; 0 for requests that the redirector does not look at: those need not be shown to it.
size_t arg_size(FileRole role, uint32_t request, const rm::DriverAbi& abi);

// Offset of NV_STATUS in the argument block; 0 when the redirector does not look at the request.
size_t status_offset(FileRole role, uint32_t request, const rm::DriverAbi& abi);

// The caller's parameter block, where the redirector has a use for it.
struct ParamsRef {
    uint64_t pointer = 0;
    size_t size = 0;            // 0: not needed, or not of the size that this driver's table says
    size_t needed = 0;          // what a rewrite looks at
    size_t pointer_offset = 0;  // of the pointer within the argument block
};
ParamsRef params_of(FileRole role, uint32_t request, Bytes arg, const rm::DriverAbi& abi);

}  // namespace vuda::shim
