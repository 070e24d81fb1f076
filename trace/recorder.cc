// libvuda_trace.so: preloaded into a program, writes down its calls on NVIDIA's device files. Changes nothing: every
// call is passed to the next definition with its arguments and comes back with its result and errno.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "rm/driver_version.h"
#include "trace/capture.h"
#include "trace/describe.h"
#include "trace/format.h"
#include "trace/sink.h"

#define VUDA_EXPORT extern "C" __attribute__((visibility("default")))

namespace vuda::trace {
namespace {

// The next definition of a libc function; null until the dynamic linker is ready, and then the kernel is called
// directly.
template <typename F>
F next(std::atomic<F>& cache, const char* name) {
    F f = cache.load(std::memory_order_relaxed);
    if (f == nullptr) {
        f = reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
        cache.store(f, std::memory_order_relaxed);
    }
    return f;
}

std::string device_name(const char* path) {
    constexpr std::string_view kDirectory = "/dev/";
    const std::string_view text(path);
    if (!text.starts_with(kDirectory) || !text.substr(kDirectory.size()).starts_with("nvidia")) return {};
    const std::string_view name = text.substr(kDirectory.size());
    if (name.size() > kMaxName || name.find('/') != name.npos) return {};
    return std::string(name);
}

uint64_t now_us() {
    timespec ts{};
    ::clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<uint64_t>(ts.tv_sec) * 1'000'000 + static_cast<uint64_t>(ts.tv_nsec) / 1000;
}

// Reads through the hooked open, so that a stand-in for the driver can answer too.
std::string read_version_file() {
    std::string text;
    const int fd = ::open(rm::kDriverVersionFile, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return text;
    char buffer[4096];
    ssize_t n = 0;
    while (text.size() < sizeof buffer && (n = ::read(fd, buffer, sizeof buffer)) > 0)
        text.append(buffer, static_cast<size_t>(n));
    ::close(fd);
    return text;
}

Header make_header() {
    Header header;
    if (const auto version = rm::parse_proc_driver_version(read_version_file())) header.driver = version->to_string();
    header.pid = static_cast<uint32_t>(::getpid());
    char path[256];
    const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
    if (n > 0) {
        const std::string_view exe(path, static_cast<size_t>(n));
        const std::string_view name = exe.substr(exe.rfind('/') + 1);
        if (!name.empty() && header_text_ok(name)) header.program = name;
    }
    return header;
}

class Recorder {
 public:
    explicit Recorder(const char* path) : sink_(path ? path : "") {}

    bool enabled() const { return sink_.enabled(); }

    // The device behind a descriptor; empty for everything that is not NVIDIA's.
    std::string device(int fd) {
        struct stat st {};
        if (::fstat(fd, &st) != 0) return {};
        {
            const std::lock_guard lock(mutex_);
            const auto it = files_.find(fd);
            if (it != files_.end()) {
                if (it->second.dev == st.st_dev && it->second.ino == st.st_ino) return it->second.name;
                files_.erase(it);  // closed behind our back, and the number used again
            }
        }
        if (!S_ISCHR(st.st_mode)) return {};
        char link[32];
        char target[128];
        std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        const ssize_t n = ::readlink(link, target, sizeof target - 1);
        if (n <= 0) return {};
        target[n] = '\0';
        std::string name = device_name(target);
        if (!name.empty()) remember(fd, name);
        return name;
    }

    void opened(const char* path, int fd, int error) {
        std::string name = device_name(path);
        if (name.empty()) return;
        if (fd >= 0) remember(fd, name);
        Record record;
        record.kind = Kind::kOpen;
        record.fd = fd;
        record.device = std::move(name);
        record.error = fd >= 0 ? 0 : error;
        write(std::move(record));
    }

    void duplicated(int fd, int new_fd) {
        if (new_fd < 0 || fd == new_fd) return;
        std::string name = device(fd);
        if (name.empty()) return;
        remember(new_fd, name);
        Record record;
        record.kind = Kind::kDup;
        record.fd = fd;
        record.device = std::move(name);
        record.new_fd = new_fd;
        write(std::move(record));
    }

    void closing(int fd) {
        std::string name = device(fd);
        if (name.empty()) return;
        {
            const std::lock_guard lock(mutex_);
            files_.erase(fd);
        }
        Record record;
        record.kind = Kind::kClose;
        record.fd = fd;
        record.device = std::move(name);
        write(std::move(record));
    }

    const rm::DriverAbi& abi() {
        if (const rm::DriverAbi* known = abi_.load(std::memory_order_acquire)) return *known;
        // Without the lock: reading the driver's version goes through hooks that come back here.
        Header header = make_header();
        const rm::DriverAbi& found = abi_of(header);
        const std::lock_guard lock(mutex_);
        if (abi_.load(std::memory_order_relaxed) == nullptr) {
            header_ = std::move(header);
            abi_.store(&found, std::memory_order_release);
        }
        return found;
    }

    void write(Record record) {
        (void)abi();
        const std::lock_guard lock(mutex_);
        if (!sink_.started()) {
            if (!sink_.start(write_header(header_))) return;
            start_us_ = now_us();
        }
        record.time_us = now_us() - start_us_;
        sink_.append(write_record(record));
    }

    void before_fork() { mutex_.lock(); }
    void after_fork_parent() { mutex_.unlock(); }
    void after_fork_child() {
        sink_.forget();
        header_.pid = static_cast<uint32_t>(::getpid());
        mutex_.unlock();
    }

 private:
    struct File {
        dev_t dev;
        ino_t ino;
        std::string name;
    };

    void remember(int fd, const std::string& name) {
        struct stat st {};
        if (::fstat(fd, &st) != 0) return;
        const std::lock_guard lock(mutex_);
        files_[fd] = {st.st_dev, st.st_ino, name};
    }

    // A plain mutex: the child of a fork unlocks it under another thread id, which a recursive one would refuse.
    std::mutex mutex_;
    Sink sink_;
    Header header_;
    std::atomic<const rm::DriverAbi*> abi_{nullptr};
    uint64_t start_us_ = 0;
    std::map<int, File> files_;
};

// Made in the library's constructor and never destroyed: threads may make calls until the very end of the process.
alignas(Recorder) unsigned char g_storage[sizeof(Recorder)];
std::atomic<Recorder*> g_recorder{nullptr};

Recorder* recorder() {
    Recorder* r = g_recorder.load(std::memory_order_acquire);
    return r != nullptr && r->enabled() ? r : nullptr;
}

__attribute__((constructor)) void start() {
    auto* r = new (g_storage) Recorder(::secure_getenv("VUDA_TRACE_OUT"));
    if (!r->enabled()) return;
    ::pthread_atfork([] { g_recorder.load()->before_fork(); }, [] { g_recorder.load()->after_fork_parent(); },
                     [] { g_recorder.load()->after_fork_child(); });
    g_recorder.store(r, std::memory_order_release);
}

// Nothing that happens in here may reach the program: not an exception, not errno.
template <typename F>
void quietly(F&& f) noexcept {
    const int saved = errno;
    try {
        f();
    } catch (...) {  // out of memory: this record is lost
    }
    errno = saved;
}

using OpenFn = int (*)(const char*, int, ...);
using OpenAtFn = int (*)(int, const char*, int, ...);

mode_t mode_argument(int flags, va_list args) {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? static_cast<mode_t>(va_arg(args, int)) : 0;
}

int traced_open(std::atomic<OpenFn>& cache, const char* name, const char* path, int flags, mode_t mode) {
    const OpenFn f = next(cache, name);
    const int fd = f ? f(path, flags, mode) : static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
    if (Recorder* r = recorder(); r && path) {
        const int error = errno;
        quietly([&] { r->opened(path, fd, error); });
    }
    return fd;
}

int traced_openat(std::atomic<OpenAtFn>& cache, const char* name, int dir, const char* path, int flags, mode_t mode) {
    const OpenAtFn f = next(cache, name);
    const int fd = f ? f(dir, path, flags, mode) : static_cast<int>(::syscall(SYS_openat, dir, path, flags, mode));
    if (Recorder* r = recorder(); r && path) {
        const int error = errno;
        quietly([&] { r->opened(path, fd, error); });
    }
    return fd;
}

using MmapFn = void* (*)(void*, size_t, int, int, int, off_t);

void* traced_mmap(std::atomic<MmapFn>& cache, const char* name, void* address, size_t length, int prot, int flags,
                  int fd, off_t offset) {
    const MmapFn f = next(cache, name);
    void* result = f ? f(address, length, prot, flags, fd, offset)
                     : reinterpret_cast<void*>(::syscall(SYS_mmap, address, length, prot, flags, fd, offset));
    Recorder* r = fd >= 0 ? recorder() : nullptr;
    if (r) {
        const int error = errno;
        quietly([&] {
            Record record;
            record.device = r->device(fd);
            if (record.device.empty()) return;
            record.kind = Kind::kMmap;
            record.fd = fd;
            record.error = result == MAP_FAILED ? error : 0;
            record.address = result == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(result);
            record.length = length;
            record.offset = static_cast<uint64_t>(offset);
            record.prot = static_cast<uint32_t>(prot);
            record.flags = static_cast<uint32_t>(flags);
            r->write(std::move(record));
        });
    }
    return result;
}

}  // namespace
}  // namespace vuda::trace

namespace trace = vuda::trace;

VUDA_EXPORT int open(const char* path, int flags, ...) {
    static std::atomic<trace::OpenFn> cache;
    va_list args;
    va_start(args, flags);
    const mode_t mode = trace::mode_argument(flags, args);
    va_end(args);
    return trace::traced_open(cache, "open", path, flags, mode);
}

VUDA_EXPORT int open64(const char* path, int flags, ...) {
    static std::atomic<trace::OpenFn> cache;
    va_list args;
    va_start(args, flags);
    const mode_t mode = trace::mode_argument(flags, args);
    va_end(args);
    return trace::traced_open(cache, "open64", path, flags, mode);
}

VUDA_EXPORT int openat(int dir, const char* path, int flags, ...) {
    static std::atomic<trace::OpenAtFn> cache;
    va_list args;
    va_start(args, flags);
    const mode_t mode = trace::mode_argument(flags, args);
    va_end(args);
    return trace::traced_openat(cache, "openat", dir, path, flags, mode);
}

VUDA_EXPORT int openat64(int dir, const char* path, int flags, ...) {
    static std::atomic<trace::OpenAtFn> cache;
    va_list args;
    va_start(args, flags);
    const mode_t mode = trace::mode_argument(flags, args);
    va_end(args);
    return trace::traced_openat(cache, "openat64", dir, path, flags, mode);
}

VUDA_EXPORT int close(int fd) {
    using Fn = int (*)(int);
    static std::atomic<Fn> cache;
    if (trace::Recorder* r = trace::recorder()) trace::quietly([&] { r->closing(fd); });
    const Fn f = trace::next(cache, "close");
    return f ? f(fd) : static_cast<int>(::syscall(SYS_close, fd));
}

VUDA_EXPORT int dup(int fd) noexcept {
    using Fn = int (*)(int);
    static std::atomic<Fn> cache;
    const Fn f = trace::next(cache, "dup");
    const int result = f ? f(fd) : static_cast<int>(::syscall(SYS_dup, fd));
    if (trace::Recorder* r = trace::recorder()) trace::quietly([&] { r->duplicated(fd, result); });
    return result;
}

VUDA_EXPORT int dup2(int fd, int new_fd) noexcept {
    using Fn = int (*)(int, int);
    static std::atomic<Fn> cache;
    const Fn f = trace::next(cache, "dup2");
    const int result = f ? f(fd, new_fd) : static_cast<int>(::syscall(SYS_dup3, fd, new_fd, 0));
    if (trace::Recorder* r = trace::recorder()) trace::quietly([&] { r->duplicated(fd, result); });
    return result;
}

VUDA_EXPORT int dup3(int fd, int new_fd, int flags) noexcept {
    using Fn = int (*)(int, int, int);
    static std::atomic<Fn> cache;
    const Fn f = trace::next(cache, "dup3");
    const int result = f ? f(fd, new_fd, flags) : static_cast<int>(::syscall(SYS_dup3, fd, new_fd, flags));
    if (trace::Recorder* r = trace::recorder()) trace::quietly([&] { r->duplicated(fd, result); });
    return result;
}

VUDA_EXPORT void* mmap(void* address, size_t length, int prot, int flags, int fd, off_t offset) noexcept {
    static std::atomic<trace::MmapFn> cache;
    return trace::traced_mmap(cache, "mmap", address, length, prot, flags, fd, offset);
}

VUDA_EXPORT void* mmap64(void* address, size_t length, int prot, int flags, int fd, off64_t offset) noexcept {
    static std::atomic<trace::MmapFn> cache;
    return trace::traced_mmap(cache, "mmap64", address, length, prot, flags, fd, offset);
}

VUDA_EXPORT int ioctl(int fd, unsigned long request, ...) noexcept {
    using Fn = int (*)(int, unsigned long, ...);
    static std::atomic<Fn> cache;
    va_list args;
    va_start(args, request);
    void* arg = va_arg(args, void*);
    va_end(args);
    const Fn f = trace::next(cache, "ioctl");
    const auto forward = [&] {
        return f ? f(fd, request, arg) : static_cast<int>(::syscall(SYS_ioctl, fd, request, arg));
    };

    trace::Recorder* r = trace::recorder();
    if (!r) return forward();
    const int caller_errno = errno;
    std::string device;
    trace::quietly([&] { device = r->device(fd); });
    if (device.empty()) {
        errno = caller_errno;
        return forward();
    }
    alignas(trace::Capture) unsigned char storage[sizeof(trace::Capture)];
    trace::Capture* capture = nullptr;
    trace::quietly([&] {
        const auto surface = device == "nvidia-uvm" ? vuda::rm::Surface::kUvm : vuda::rm::Surface::kRm;
        capture = new (storage) trace::Capture(surface, request, reinterpret_cast<uintptr_t>(arg), r->abi());
    });
    errno = caller_errno;
    const int result = forward();
    const int error = errno;
    if (capture) {
        trace::quietly([&] {
            trace::Record record;
            record.fd = fd;
            record.device = std::move(device);
            record.request = request;
            record.error = result < 0 ? error : 0;
            capture->after(record);
            r->write(std::move(record));
        });
        capture->~Capture();
    }
    errno = error;
    return result;
}
