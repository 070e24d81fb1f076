// The interposed functions. What is not about a simulated file goes to the next definition (RTLD_NEXT), untouched.
//
// glibc's headers declare these functions with attributes (nonnull, fortify) that an interposer must not rely on, so
// the ones that would clash are declared here by hand.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "sim/preload/control.h"
#include "sim/preload/files.h"

#define VUDA_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using vuda::sim::preload::call_ioctl;
using vuda::sim::preload::call_map;
using vuda::sim::preload::classify;
using vuda::sim::preload::device_number;
using vuda::sim::preload::enabled;
using vuda::sim::preload::identify;
using vuda::sim::preload::open_device;
using vuda::sim::preload::Path;
using vuda::sim::preload::SimFile;

// The next definition of `name`. Looked up on each use until found: a constructor of another library may call us before
// our own relocations are complete, and dlsym is cheap.
template <typename Function>
Function next(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// One pointer a function, resolved once. NOLINTBEGIN(bugprone-macro-parentheses): the argument is a name
#define NEXT(function)                                                            \
    ([]() {                                                                       \
        static decltype(&function) resolved;                                      \
        decltype(&function) found = __atomic_load_n(&resolved, __ATOMIC_RELAXED); \
        if (found == nullptr) {                                                   \
            found = next<decltype(&function)>(#function);                         \
            __atomic_store_n(&resolved, found, __ATOMIC_RELAXED);                 \
        }                                                                         \
        return found;                                                             \
    }())
// NOLINTEND(bugprone-macro-parentheses)

// Restores errno on success paths, as libc does not touch it then.
class KeepErrno {
 public:
    ~KeepErrno() {
        if (!failed_) errno = saved_;
    }
    int fail(int error) {
        failed_ = true;
        errno = error;
        return -1;
    }

 private:
    int saved_ = errno;
    bool failed_ = false;
};

// True when the path was ours: *result is what open returns.
bool open_simulated(const char* path, int flags, int* result) {
    SimFile device;
    const Path what = classify(path, &device);
    if (what == Path::kOther || !enabled()) return false;
    KeepErrno keep;
    int fd = -1;
    const int error =
        what == Path::kVersion ? vuda::sim::preload::version_file(flags, &fd) : open_device(device, flags, &fd);
    *result = error != 0 ? keep.fail(error) : fd;
    return true;
}

// Does a path exist in the simulated /dev? GPUs beyond the simulated ones do not.
bool path_exists(Path what, const SimFile& device) {
    return what == Path::kVersion || device.kind != 1 || device.minor < vuda::sim::preload::gpu_count();
}

template <typename Stat>
void fill_stat(Stat* out, Path what, const SimFile& device) {
    memset(out, 0, sizeof *out);
    out->st_nlink = 1;
    out->st_blksize = 4096;
    if (what == Path::kVersion) {
        out->st_mode = S_IFREG | 0444;
        return;
    }
    out->st_mode = S_IFCHR | 0666;
    out->st_rdev = device_number(device);
    out->st_ino = 1000 + static_cast<ino_t>(device.kind) * 1000 + static_cast<ino_t>(device.minor);
}

// True when the path was ours: *result is what stat returns.
template <typename Stat>
bool stat_simulated(const char* path, Stat* out, int* result) {
    SimFile device;
    const Path what = classify(path, &device);
    if (what == Path::kOther || !enabled()) return false;
    KeepErrno keep;
    if (!path_exists(what, device)) {
        *result = keep.fail(ENOENT);
        return true;
    }
    fill_stat(out, what, device);
    *result = 0;
    return true;
}

// After a successful fstat: makes a simulated file look like its device.
template <typename Stat>
int patch_fstat(int fd, Stat* out, int result) {
    SimFile file;
    if (result != 0 || !S_ISSOCK(out->st_mode) || !identify(fd, &file)) return result;
    out->st_mode = S_IFCHR | 0666;
    out->st_rdev = device_number(file);
    return result;
}

template <typename Stat>
int fstatat_any(int dir, const char* path, Stat* out, int flags, int (*real)(int, const char*, Stat*, int)) {
    int result = 0;
    if (path != nullptr && path[0] == '\0' && (flags & AT_EMPTY_PATH) != 0) {
        result = real != nullptr ? real(dir, path, out, flags)
                                 : static_cast<int>(syscall(SYS_newfstatat, dir, path, out, flags));
        return patch_fstat(dir, out, result);
    }
    if (stat_simulated(path, out, &result)) return result;
    return real != nullptr ? real(dir, path, out, flags)
                           : static_cast<int>(syscall(SYS_newfstatat, dir, path, out, flags));
}

int access_any(const char* path, int* result) {
    SimFile device;
    const Path what = classify(path, &device);
    if (what == Path::kOther || !enabled()) return 0;
    KeepErrno keep;
    *result = path_exists(what, device) ? 0 : keep.fail(ENOENT);
    return 1;
}

FILE* fopen_simulated(const char* path, const char* mode) {
    int fd = -1;
    if (!open_simulated(path, strchr(mode, 'e') != nullptr ? O_CLOEXEC : 0, &fd)) return nullptr;
    return fd < 0 ? nullptr : fdopen(fd, mode);
}

// Out of line, as glibc declares `path` nonnull where callers may pass NULL all the same.
__attribute__((noinline)) bool names_a_path(const char* path) { return path != nullptr && path[0] != '\0'; }

bool is_version(const char* path) {
    SimFile device;
    return classify(path, &device) == Path::kVersion && enabled();
}

}  // namespace

// ---- open ----

#define VUDA_OPEN_MODE(flags, last)                    \
    mode_t mode = 0;                                   \
    if (((flags) & (O_CREAT | O_TMPFILE)) != 0) {      \
        va_list list;                                  \
        va_start(list, last);                          \
        mode = static_cast<mode_t>(va_arg(list, int)); \
        va_end(list);                                  \
    }

VUDA_EXPORT int open(const char* path, int flags, ...) {
    VUDA_OPEN_MODE(flags, flags)
    int result = -1;
    if (open_simulated(path, flags, &result)) return result;
    const auto real = NEXT(open);
    return real != nullptr ? real(path, flags, mode)
                           : static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

VUDA_EXPORT int open64(const char* path, int flags, ...) {
    VUDA_OPEN_MODE(flags, flags)
    int result = -1;
    if (open_simulated(path, flags, &result)) return result;
    const auto real = NEXT(open64);
    return real != nullptr ? real(path, flags, mode)
                           : static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

VUDA_EXPORT int openat(int dir, const char* path, int flags, ...) {
    VUDA_OPEN_MODE(flags, flags)
    int result = -1;
    if (open_simulated(path, flags, &result)) return result;
    const auto real = NEXT(openat);
    return real != nullptr ? real(dir, path, flags, mode)
                           : static_cast<int>(syscall(SYS_openat, dir, path, flags, mode));
}

VUDA_EXPORT int openat64(int dir, const char* path, int flags, ...) {
    VUDA_OPEN_MODE(flags, flags)
    int result = -1;
    if (open_simulated(path, flags, &result)) return result;
    const auto real = NEXT(openat64);
    return real != nullptr ? real(dir, path, flags, mode)
                           : static_cast<int>(syscall(SYS_openat, dir, path, flags, mode));
}

// What fortified programs call. NOLINTBEGIN(bugprone-reserved-identifier): the C library's names
VUDA_EXPORT int __open_2(const char* path, int flags) { return open(path, flags); }
VUDA_EXPORT int __open64_2(const char* path, int flags) { return open64(path, flags); }
VUDA_EXPORT int __openat_2(int dir, const char* path, int flags) { return openat(dir, path, flags); }
VUDA_EXPORT int __openat64_2(int dir, const char* path, int flags) { return openat64(dir, path, flags); }
// NOLINTEND(bugprone-reserved-identifier)

VUDA_EXPORT FILE* fopen(const char* path, const char* mode) {
    if (is_version(path)) return fopen_simulated(path, mode);
    const auto real = NEXT(fopen);
    return real != nullptr ? real(path, mode) : nullptr;
}

VUDA_EXPORT FILE* fopen64(const char* path, const char* mode) {
    if (is_version(path)) return fopen_simulated(path, mode);
    const auto real = NEXT(fopen64);
    return real != nullptr ? real(path, mode) : nullptr;
}

// ---- ioctl, mmap ----

VUDA_EXPORT int ioctl(int fd, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    void* argument = va_arg(list, void*);
    va_end(list);
    SimFile file;
    {
        KeepErrno keep;
        if (enabled() && identify(fd, &file)) {
            const int error = call_ioctl(file, request, argument);
            return error != 0 ? keep.fail(error) : 0;
        }
    }
    using Ioctl = int (*)(int, unsigned long, void*);
    static Ioctl resolved;
    Ioctl real = __atomic_load_n(&resolved, __ATOMIC_RELAXED);
    if (real == nullptr) {
        real = next<Ioctl>("ioctl");
        __atomic_store_n(&resolved, real, __ATOMIC_RELAXED);
    }
    return real != nullptr ? real(fd, request, argument) : static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

namespace {

void* raw_mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) {
    return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, fd, offset));
}

// True when fd is simulated: *result is what mmap returns.
bool map_simulated(void* address, size_t length, int protection, int flags, int fd, void** result) {
    SimFile file;
    if ((flags & MAP_ANONYMOUS) != 0 || fd < 0 || !enabled() || !identify(fd, &file)) return false;
    KeepErrno keep;
    int memory = -1;
    off_t offset = 0;
    if (const int error = call_map(file, length, &memory, &offset); error != 0) {
        keep.fail(error);
        *result = MAP_FAILED;
        return true;
    }
    *result = raw_mmap(address, length, protection, flags, memory, offset);
    const int error = *result == MAP_FAILED ? errno : 0;
    syscall(SYS_close, memory);
    if (error != 0) keep.fail(error);
    return true;
}

}  // namespace

VUDA_EXPORT void* mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) {
    {
        KeepErrno keep;
        void* result = MAP_FAILED;
        if (map_simulated(address, length, protection, flags, fd, &result)) {
            if (result == MAP_FAILED) keep.fail(errno);
            return result;
        }
    }
    const auto real = NEXT(mmap);
    return real != nullptr ? real(address, length, protection, flags, fd, offset)
                           : raw_mmap(address, length, protection, flags, fd, offset);
}

VUDA_EXPORT void* mmap64(void* address, size_t length, int protection, int flags, int fd, off64_t offset) {
    {
        KeepErrno keep;
        void* result = MAP_FAILED;
        if (map_simulated(address, length, protection, flags, fd, &result)) {
            if (result == MAP_FAILED) keep.fail(errno);
            return result;
        }
    }
    const auto real = NEXT(mmap64);
    return real != nullptr ? real(address, length, protection, flags, fd, offset)
                           : raw_mmap(address, length, protection, flags, fd, offset);
}

// ---- stat ----

VUDA_EXPORT int fstat(int fd, struct stat* out) noexcept {
    const auto real = NEXT(fstat);
    return patch_fstat(
        fd, out,
        real != nullptr ? real(fd, out) : static_cast<int>(syscall(SYS_newfstatat, fd, "", out, AT_EMPTY_PATH)));
}

VUDA_EXPORT int fstat64(int fd, struct stat64* out) noexcept {
    const auto real = NEXT(fstat64);
    return patch_fstat(
        fd, out,
        real != nullptr ? real(fd, out) : static_cast<int>(syscall(SYS_newfstatat, fd, "", out, AT_EMPTY_PATH)));
}

VUDA_EXPORT int stat(const char* path, struct stat* out) noexcept {
    return fstatat_any(AT_FDCWD, path, out, 0, NEXT(fstatat));
}
VUDA_EXPORT int stat64(const char* path, struct stat64* out) noexcept {
    return fstatat_any(AT_FDCWD, path, out, 0, NEXT(fstatat64));
}
VUDA_EXPORT int lstat(const char* path, struct stat* out) noexcept {
    return fstatat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW, NEXT(fstatat));
}
VUDA_EXPORT int lstat64(const char* path, struct stat64* out) noexcept {
    return fstatat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW, NEXT(fstatat64));
}
VUDA_EXPORT int fstatat(int dir, const char* path, struct stat* out, int flags) noexcept {
    return fstatat_any(dir, path, out, flags, NEXT(fstatat));
}
VUDA_EXPORT int fstatat64(int dir, const char* path, struct stat64* out, int flags) noexcept {
    return fstatat_any(dir, path, out, flags, NEXT(fstatat64));
}

// What programs built before glibc 2.33 call; the version argument says nothing on 64-bit Linux.
// NOLINTBEGIN(bugprone-reserved-identifier): the C library's names
VUDA_EXPORT int __fxstat(int, int fd, struct stat* out) noexcept { return fstat(fd, out); }
VUDA_EXPORT int __fxstat64(int, int fd, struct stat64* out) noexcept { return fstat64(fd, out); }
VUDA_EXPORT int __xstat(int, const char* path, struct stat* out) noexcept { return stat(path, out); }
VUDA_EXPORT int __xstat64(int, const char* path, struct stat64* out) noexcept { return stat64(path, out); }
VUDA_EXPORT int __lxstat(int, const char* path, struct stat* out) noexcept { return lstat(path, out); }
VUDA_EXPORT int __lxstat64(int, const char* path, struct stat64* out) noexcept { return lstat64(path, out); }
VUDA_EXPORT int __fxstatat(int, int dir, const char* path, struct stat* out, int flags) noexcept {
    return fstatat(dir, path, out, flags);
}
VUDA_EXPORT int __fxstatat64(int, int dir, const char* path, struct stat64* out, int flags) noexcept {
    return fstatat64(dir, path, out, flags);
}
// NOLINTEND(bugprone-reserved-identifier)

VUDA_EXPORT int statx(int dir, const char* path, int flags, unsigned mask, struct statx* out) noexcept {
    struct stat64 simulated;
    int result = 0;
    const bool by_path = names_a_path(path);
    if (by_path && stat_simulated(path, &simulated, &result)) {
        if (result != 0) return result;
        memset(out, 0, sizeof *out);
        out->stx_mask = STATX_BASIC_STATS;
        out->stx_nlink = 1;
        out->stx_mode = static_cast<uint16_t>(simulated.st_mode);
        out->stx_rdev_major = major(simulated.st_rdev);
        out->stx_rdev_minor = minor(simulated.st_rdev);
        out->stx_ino = simulated.st_ino;
        return 0;
    }
    const auto real = NEXT(statx);
    result = real != nullptr ? real(dir, path, flags, mask, out)
                             : static_cast<int>(syscall(SYS_statx, dir, path, flags, mask, out));
    SimFile file;
    if (result == 0 && !by_path && S_ISSOCK(out->stx_mode) && identify(dir, &file)) {
        out->stx_mode = S_IFCHR | 0666;
        out->stx_rdev_major = major(device_number(file));
        out->stx_rdev_minor = minor(device_number(file));
    }
    return result;
}

VUDA_EXPORT int access(const char* path, int mode) noexcept {
    int result = 0;
    if (access_any(path, &result) != 0) return result;
    const auto real = NEXT(access);
    return real != nullptr ? real(path, mode) : static_cast<int>(syscall(SYS_faccessat, AT_FDCWD, path, mode));
}

VUDA_EXPORT int faccessat(int dir, const char* path, int mode, int flags) noexcept {
    int result = 0;
    if (access_any(path, &result) != 0) return result;
    const auto real = NEXT(faccessat);
    return real != nullptr ? real(dir, path, mode, flags) : static_cast<int>(syscall(SYS_faccessat, dir, path, mode));
}
