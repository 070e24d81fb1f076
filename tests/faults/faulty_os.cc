// Preloaded into a program under test: an operating system that is out of something. See faulty_os.h.
#include "tests/faults/faulty_os.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#define VUDA_INTERPOSED extern "C" __attribute__((visibility("default")))

namespace {

using vuda::faults::Call;
using vuda::faults::Orders;

constexpr int kSoPeerPidfd = 77;  // <asm-generic/socket.h>, Linux 6.5

Orders* orders() {
    static Orders* const mapped = []() -> Orders* {
        const char* path = std::getenv(vuda::faults::kOrdersVariable);
        if (path == nullptr) return nullptr;
        using Open = int (*)(const char*, int, ...);
        using Map = void* (*)(void*, size_t, int, int, int, off_t);
        const int fd = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "open"))(path, O_RDWR | O_CLOEXEC);
        if (fd < 0) return nullptr;
        void* at = reinterpret_cast<Map>(dlsym(RTLD_NEXT, "mmap"))(nullptr, sizeof(Orders), PROT_READ | PROT_WRITE,
                                                                   MAP_SHARED, fd, 0);
        close(fd);
        return at == MAP_FAILED ? nullptr : static_cast<Orders*>(at);
    }();
    return mapped;
}

// True: the call fails, and errno says how.
bool fails(Call call, const void* caller) {
    Orders* const all = orders();
    if (all == nullptr) return false;
    Orders::One& one = all->calls[static_cast<size_t>(call)];
    const int error = one.error.load();
    if (error == 0) return false;
    if (all->caller[0] != '\0') {
        Dl_info info{};
        if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr ||
            std::strstr(info.dli_fname, all->caller) == nullptr)
            return false;
    }
    if (one.spare.fetch_sub(1) > 0 || one.times.fetch_sub(1) <= 0) return false;
    one.done.fetch_add(1);
    errno = error;
    return true;
}

bool open_fails(const char* path, const void* caller) {
    Orders* const all = orders();
    return all != nullptr && std::strstr(path, all->path) != nullptr && fails(Call::kOpen, caller);
}

bool regular(int fd) {
    struct stat st {};
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

template <typename Fn>
Fn next(Fn, const char* name) {
    return reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define CALLER __builtin_return_address(0)

VUDA_INTERPOSED int open(const char* path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = va_arg(args, mode_t);
    va_end(args);
    static const auto real = next(&open, "open");
    return open_fails(path, CALLER) ? -1 : real(path, flags, mode);
}

VUDA_INTERPOSED int open64(const char* path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = va_arg(args, mode_t);
    va_end(args);
    static const auto real = next(&open, "open64");
    return open_fails(path, CALLER) ? -1 : real(path, flags, mode);
}

VUDA_INTERPOSED ssize_t write(int fd, const void* bytes, size_t size) {
    static const auto real = next(&write, "write");
    const int saved = errno;
    if (orders() != nullptr && orders()->calls[static_cast<size_t>(Call::kWrite)].error != 0 && regular(fd) &&
        fails(Call::kWrite, CALLER))
        return -1;
    errno = saved;
    return real(fd, bytes, size);
}

VUDA_INTERPOSED int rename(const char* from, const char* to) {
    static const auto real = next(&rename, "rename");
    return fails(Call::kRename, CALLER) ? -1 : real(from, to);
}

VUDA_INTERPOSED int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
    static const auto real = next(&accept4, "accept4");
    return fails(Call::kAccept, CALLER) ? -1 : real(fd, address, size, flags);
}

VUDA_INTERPOSED ssize_t recvmsg(int fd, msghdr* message, int flags) {
    static const auto real = next(&recvmsg, "recvmsg");
    const ssize_t got = real(fd, message, flags);
    if (got < 0 || message->msg_controllen == 0) return got;
    const int saved = errno;
    bool lost = false;
    for (cmsghdr* item = CMSG_FIRSTHDR(message); item != nullptr; item = CMSG_NXTHDR(message, item)) {
        if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
        if (!lost && !fails(Call::kReceiveFds, CALLER)) break;
        lost = true;
        const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            int one = -1;
            std::memcpy(&one, CMSG_DATA(item) + i * sizeof one, sizeof one);
            close(one);
        }
    }
    if (lost) {
        message->msg_controllen = 0;
        message->msg_flags |= MSG_CTRUNC;
    }
    errno = saved;
    return got;
}

VUDA_INTERPOSED int memfd_create(const char* name, unsigned flags) {
    static const auto real = next(&memfd_create, "memfd_create");
    return fails(Call::kMemfd, CALLER) ? -1 : real(name, flags);
}

VUDA_INTERPOSED int fcntl(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void* argument = va_arg(args, void*);
    va_end(args);
    static const auto real = next(&fcntl, "fcntl");
    return command == F_DUPFD_CLOEXEC && fails(Call::kDup, CALLER) ? -1 : real(fd, command, argument);
}

VUDA_INTERPOSED int fcntl64(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void* argument = va_arg(args, void*);
    va_end(args);
    static const auto real = next(&fcntl, "fcntl64");
    return command == F_DUPFD_CLOEXEC && fails(Call::kDup, CALLER) ? -1 : real(fd, command, argument);
}

VUDA_INTERPOSED void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
    static const auto real = next(&mmap, "mmap");
    if (fd >= 0 && (flags & MAP_SHARED) != 0 && fails(Call::kMapShared, CALLER)) {
        const int error = errno;
        if ((flags & MAP_FIXED) != 0) munmap(at, size);
        errno = error;
        return MAP_FAILED;
    }
    return real(at, size, protection, flags, fd, offset);
}

VUDA_INTERPOSED void* mmap64(void* at, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
    static const auto real = next(&mmap, "mmap64");
    if (fd >= 0 && (flags & MAP_SHARED) != 0 && fails(Call::kMapShared, CALLER)) {
        const int error = errno;
        if ((flags & MAP_FIXED) != 0) munmap(at, size);
        errno = error;
        return MAP_FAILED;
    }
    return real(at, size, protection, flags, fd, offset);
}

VUDA_INTERPOSED int socket(int domain, int type, int protocol) noexcept {
    static const auto real = next(&socket, "socket");
    return fails(Call::kSocket, CALLER) ? -1 : real(domain, type, protocol);
}

VUDA_INTERPOSED int pipe2(int ends[2], int flags) noexcept {
    static const auto real = next(&pipe2, "pipe2");
    return fails(Call::kPipe, CALLER) ? -1 : real(ends, flags);
}

VUDA_INTERPOSED int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept {
    static const auto real = next(&getsockopt, "getsockopt");
    if (level == SOL_SOCKET && option == kSoPeerPidfd && fails(Call::kPeerPidfd, CALLER)) return -1;
    return real(fd, level, option, value, size);
}

VUDA_INTERPOSED int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                                   void* argument) noexcept {
    static const auto real = next(&pthread_create, "pthread_create");
    const int saved = errno;
    if (!fails(Call::kThread, CALLER)) return real(thread, attributes, start, argument);
    const int error = errno;
    errno = saved;
    return error;
}
