#include "trace/capture.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace vuda::trace {
namespace {

Block before_block(const Region& region) {
    Block block;
    if (region.address == 0 || region.size == 0) return block;
    block.size = region.size;
    block.before = read_memory(region.address, region.size);
    return block;
}

void complete(Block& block, const Region& region) {
    block.after = read_memory(region.address, block.before.size());
    block.after.resize(block.before.size());
}

}  // namespace

std::vector<uint8_t> read_memory(uint64_t address, size_t size) {
    std::vector<uint8_t> out(size);
    // A wrong pointer makes the kernel answer EFAULT; the recorder must not be what crashes.
    const iovec local{out.data(), size};
    const iovec remote{reinterpret_cast<void*>(static_cast<uintptr_t>(address)), size};
    const ssize_t n = ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
    if (n < 0 && (errno == ENOSYS || errno == EPERM)) {
        // Filtered by seccomp: trust what the driver is about to read anyway.
        std::memcpy(out.data(), remote.iov_base, size);
        return out;
    }
    out.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return out;
}

size_t argument_bytes(rm::Surface surface, unsigned long request, const rm::DriverAbi& abi) {
    if (surface == rm::Surface::kRm) return rm::ioctl_size(request);
    if (const size_t size = rm::argument_size(surface, request, abi)) return size;
    switch (request) {
        case rm::uvm::kCreateRangeGroup:
        case rm::uvm::kDestroyRangeGroup: return sizeof(rm::UvmRangeGroupArgs);
        case rm::uvm::kUnregisterGpu: return sizeof(rm::UvmUnregisterGpuArgs);
        case rm::uvm::kPageableMemAccess: return sizeof(rm::UvmPageableMemAccessArgs);
        case rm::uvm::kMapDynamicParallelismRegion: return sizeof(rm::UvmMapDynamicParallelismArgs);
        case rm::uvm::kAllocSemaphorePool: return abi.uvm_alloc_semaphore_pool_size;
        case rm::uvm::kValidateVaRange: return sizeof(rm::UvmValidateVaRangeArgs);
        case rm::uvm::kMmInitialize: return sizeof(rm::UvmMmInitializeArgs);
        default: return 0;
    }
}

Region parameter_region(rm::Surface surface, unsigned long request, rm::Bytes arg, const rm::DriverAbi& abi) {
    const rm::IoctlView view = rm::decode(surface, request, arg, abi);
    Region region;
    if (const auto* alloc = std::get_if<rm::Alloc>(&view)) {
        region.address = alloc->params;
        region.size = alloc->params_size ? alloc->params_size : rm::alloc_params_size(alloc->cls, abi);
    } else if (const auto* control = std::get_if<rm::Control>(&view)) {
        region.address = control->params;
        region.size = control->params_size;
    }
    if (region.address == 0 || region.size == 0) return {};
    region.size = std::min<uint32_t>(region.size, kMaxBlock);
    return region;
}

Capture::Capture(rm::Surface surface, unsigned long request, uint64_t arg, const rm::DriverAbi& abi) {
    arg_ = {arg, static_cast<uint32_t>(argument_bytes(surface, request, abi))};
    arg_block_ = before_block(arg_);
    if (!arg_block_.whole()) return;
    params_ = parameter_region(surface, request, arg_block_.before, abi);
    params_block_ = before_block(params_);
}

void Capture::after(Record& record) {
    complete(arg_block_, arg_);
    complete(params_block_, params_);
    record.arg = std::move(arg_block_);
    record.params = std::move(params_block_);
}

}  // namespace vuda::trace
