#include "shim/preload/next.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>

namespace vuda::shim::next {
namespace {

using OpenFn = int (*)(const char*, int, ...);
using OpenatFn = int (*)(int, const char*, int, ...);
using IoctlFn = int (*)(int, unsigned long, ...);
using CloseFn = int (*)(int);
using CloseRangeFn = int (*)(unsigned, unsigned, int);
using ClosefromFn = void (*)(int);
using Dup2Fn = int (*)(int, int);
using Dup3Fn = int (*)(int, int, int);

struct Table {
    std::atomic<OpenFn> open{nullptr};
    std::atomic<OpenFn> open64{nullptr};
    std::atomic<OpenatFn> openat{nullptr};
    std::atomic<OpenatFn> openat64{nullptr};
    std::atomic<IoctlFn> ioctl{nullptr};
    std::atomic<CloseFn> close{nullptr};
    std::atomic<CloseRangeFn> close_range{nullptr};
    std::atomic<ClosefromFn> closefrom{nullptr};
    std::atomic<CloseFn> dup{nullptr};
    std::atomic<Dup2Fn> dup2{nullptr};
    std::atomic<Dup3Fn> dup3{nullptr};
};
constinit Table g_next;

template <typename Fn>
void look_up(std::atomic<Fn>& slot, const char* name) {
    // RTLD_NEXT only: RTLD_DEFAULT would find this library's own definition.
    slot.store(reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name)), std::memory_order_release);
}

template <typename Fn>
Fn get(const std::atomic<Fn>& slot) {
    return slot.load(std::memory_order_acquire);
}

}  // namespace

void resolve() {
    look_up(g_next.open, "open");
    look_up(g_next.open64, "open64");
    look_up(g_next.openat, "openat");
    look_up(g_next.openat64, "openat64");
    look_up(g_next.ioctl, "ioctl");
    look_up(g_next.close, "close");
    look_up(g_next.close_range, "close_range");
    look_up(g_next.closefrom, "closefrom");
    look_up(g_next.dup, "dup");
    look_up(g_next.dup2, "dup2");
    look_up(g_next.dup3, "dup3");
}

int openat(int dir, const char* path, int flags, mode_t mode) {
    if (const OpenatFn fn = get(g_next.openat)) return fn(dir, path, flags, mode);
    return static_cast<int>(syscall(SYS_openat, dir, path, flags, mode));
}

int openat64(int dir, const char* path, int flags, mode_t mode) {
    if (const OpenatFn fn = get(g_next.openat64)) return fn(dir, path, flags, mode);
    return static_cast<int>(syscall(SYS_openat, dir, path, flags | O_LARGEFILE, mode));
}

int open(const char* path, int flags, mode_t mode) {
    if (const OpenFn fn = get(g_next.open)) return fn(path, flags, mode);
    return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

int open64(const char* path, int flags, mode_t mode) {
    if (const OpenFn fn = get(g_next.open64)) return fn(path, flags, mode);
    return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode));
}

int ioctl(int fd, unsigned long request, void* arg) {
    if (const IoctlFn fn = get(g_next.ioctl)) return fn(fd, request, arg);
    return static_cast<int>(syscall(SYS_ioctl, fd, request, arg));
}

int close(int fd) {
    if (const CloseFn fn = get(g_next.close)) return fn(fd);
    return static_cast<int>(syscall(SYS_close, fd));
}

int close_range(unsigned first, unsigned last, int flags) {
    if (const CloseRangeFn fn = get(g_next.close_range)) return fn(first, last, flags);
    return static_cast<int>(syscall(SYS_close_range, first, last, flags));
}

void closefrom(int first) {
    if (const ClosefromFn fn = get(g_next.closefrom)) return fn(first);
    syscall(SYS_close_range, static_cast<unsigned>(first < 0 ? 0 : first), UINT_MAX, 0);
}

int dup(int fd) {
    if (const CloseFn fn = get(g_next.dup)) return fn(fd);
    return static_cast<int>(syscall(SYS_dup, fd));
}

int dup3(int from, int to, int flags) {
    if (const Dup3Fn fn = get(g_next.dup3)) return fn(from, to, flags);
    return static_cast<int>(syscall(SYS_dup3, from, to, flags));
}

int dup2(int from, int to) {
    if (const Dup2Fn fn = get(g_next.dup2)) return fn(from, to);
    if (from == to) return fcntl(from, F_GETFD) < 0 ? -1 : to;
    return static_cast<int>(syscall(SYS_dup3, from, to, 0));
}

}  // namespace vuda::shim::next
