#include "shim/preload/user_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace vuda::shim {
namespace {

// A sandbox may forbid the call even on oneself. Then the pointer is trusted, as the program's own code would.
bool forbidden(int error) { return error == EPERM || error == ENOSYS || error == EACCES; }

void* pointer(uint64_t address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }

}  // namespace

bool read_user(uint64_t address, void* out, size_t size) {
    if (size == 0) return true;
    const int saved = errno;
    const iovec local{out, size};
    const iovec remote{pointer(address), size};
    const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    const int error = errno;
    errno = saved;
    if (got == static_cast<ssize_t>(size)) return true;
    if (got >= 0 || !forbidden(error)) return false;
    std::memcpy(out, pointer(address), size);
    return true;
}

bool write_user(uint64_t address, const void* in, size_t size) {
    if (size == 0) return true;
    const int saved = errno;
    const iovec local{const_cast<void*>(in), size};
    const iovec remote{pointer(address), size};
    const ssize_t put = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
    const int error = errno;
    errno = saved;
    if (put == static_cast<ssize_t>(size)) return true;
    if (put >= 0 || !forbidden(error)) return false;
    std::memcpy(pointer(address), in, size);
    return true;
}

}  // namespace vuda::shim
