// Stands behind the recorder in LD_PRELOAD and plays NVIDIA's device files: enough to see that calls come through
// unchanged.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "rm/abi.h"

namespace {

// One file a device name, so that descriptors can be told apart by their inode.
int fake_open(const char* path) {
    const char* name = nullptr;
    if (std::strcmp(path, "/dev/nvidiactl") == 0) name = "/dev/zero";
    if (std::strcmp(path, "/dev/nvidia-uvm") == 0) name = "/dev/full";
    if (std::strcmp(path, "/dev/nvidia9") == 0) {
        errno = EACCES;
        return -1;
    }
    if (name == nullptr) return -2;
    return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, name, O_RDWR));
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int open(const char* path, int flags, ...) {
    const int fd = fake_open(path);
    if (fd != -2) return fd;
    va_list args;
    va_start(args, flags);
    const auto mode = static_cast<mode_t>(va_arg(args, int));
    va_end(args);
    return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

EXPORT int ioctl(int, unsigned long request, ...) noexcept {
    va_list args;
    va_start(args, request);
    void* arg = va_arg(args, void*);
    va_end(args);
    if (request == vuda::rm::rm_request(vuda::rm::escape::kAlloc, sizeof(vuda::rm::AllocArgs))) {
        auto* alloc = static_cast<vuda::rm::AllocArgs*>(arg);
        if (alloc->hClass == vuda::rm::cls::kContextShare) {
            reinterpret_cast<vuda::rm::ContextShareParams*>(alloc->pAllocParms)->subctxId = 63;
        }
        if (alloc->hObjectNew == 0) alloc->hObjectNew = 0xc1d00001;
        alloc->status = vuda::rm::nv::kOk;
        return 0;
    }
    if (request == vuda::rm::uvm::kInitialize) return 0;
    errno = ENOTTY;
    return -1;
}
