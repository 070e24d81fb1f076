// The functions that libvuda_preload.so puts in front of libc's. Each is a few instructions for everything that is not
// an NVIDIA device file; none changes errno, exits, throws, or calls back into itself.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>
#include <new>

#include "client/session_abi.h"
#include "rm/abi.h"
#include "shim/preload/fd_table.h"
#include "shim/preload/next.h"
#include "shim/preload/process.h"
#include "shim/preload/settings.h"

#define VUDA_EXPORT __attribute__((visibility("default")))

using namespace vuda::shim;
namespace rm = vuda::rm;

namespace {

// All of this is usable before the constructor ran and after the last destructor.
constinit FdMarks g_marks;
constinit Settings g_settings;
constinit std::atomic<bool> g_on{false};
constinit std::atomic<Process*> g_process{nullptr};
constinit std::atomic<pid_t> g_owner{0};  // the process whose memory this is: set at load and by fork's child handler
constinit std::atomic<bool> g_making{false};

// Set while this thread runs our own code (and what that calls: dlopen, libvuda): its file calls are nobody's business.
thread_local __attribute__((tls_model("initial-exec"))) bool t_inside = false;

class Inside {
 public:
    Inside() { t_inside = true; }
    ~Inside() { t_inside = false; }
};

// A child of fork has the parent's memory and files, but none of its threads, and its locks may be held for ever. It
// forgets everything; if it makes a GPU context of its own it gets a new state.
void child_of_fork() {
    Process* parents = g_process.exchange(nullptr);
    g_owner.store(getpid());
    g_making.store(false);
    t_inside = false;
    g_marks.clear();
    if (parents != nullptr) parents->after_fork_in_child();
    if (parents != nullptr && parents->session().loaded()) parents->session().after_fork_in_child();
}

bool owned() { return g_owner.load(std::memory_order_acquire) == getpid(); }

// The state, if it is this process's: a child of vfork or raw clone shares or copies the memory without being told, and
// must change nothing. The pid tells.
Process* mine() {
    Process* process = g_process.load(std::memory_order_acquire);
    return process != nullptr && owned() ? process : nullptr;
}

Process* make() {
    Process* process = g_process.load(std::memory_order_acquire);
    if (!owned()) return nullptr;
    if (process != nullptr) return process;
    // Two threads open their first NVIDIA file at once: one makes the state, the other waits for it.
    bool expected = false;
    if (!g_making.compare_exchange_strong(expected, true)) {
        while (g_making.load(std::memory_order_acquire) && g_process.load(std::memory_order_acquire) == nullptr)
            sched_yield();
        return mine();
    }
    try {
        process = new Process(g_settings, &g_marks);
        g_process.store(process, std::memory_order_release);
    } catch (...) {
        process = nullptr;
    }
    g_making.store(false, std::memory_order_release);
    return process;
}

bool on() { return g_on.load(std::memory_order_acquire) && !t_inside; }

// After a successful open: is it one of the files we follow, or did an untracked close leave an old mark on the number?
int note_open(int fd, const char* path) {
    if (fd < 0 || !on()) return fd;
    const bool nvidia = std::strncmp(path, "/dev/nvidia", 11) == 0;
    if (!nvidia && g_marks.file(fd) == 0) return fd;
    const int saved = errno;
    const Inside inside;
    try {
        const FileRole role = nvidia ? role_of_path(path) : FileRole::kOther;
        if (role != FileRole::kOther) {
            if (Process* process = make()) process->opened(fd, role);
        } else if (g_marks.file(fd) != 0) {
            if (Process* process = mine()) process->closing(fd, [] { return 0; });
        }
    } catch (...) {  // out of memory: this file is not followed
    }
    errno = saved;
    return fd;
}

mode_t mode_of(int flags, va_list args) {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

// Requests that make an unknown descriptor worth an fstat.
bool looks_like_nvidia(unsigned long request) {
    if (rm::ioctl_type(request) == rm::kRmIoctlType && (request >> 30) == 3) {
        const unsigned number = rm::ioctl_number(request);
        return number >= rm::escape::kAllocMemory && number <= rm::escape::kWaitOpenComplete;
    }
    return request == rm::uvm::kInitialize || request == rm::uvm::kRegisterGpuVaSpace;
}

bool mine_to_guard(int fd) { return g_marks.guarded(fd) && owned(); }

template <typename CloseIt>
int close_tracked(int fd, CloseIt close_it) {
    Process* process = mine();
    if (process == nullptr) return close_it();
    const int saved = errno;
    const Inside inside;
    int result = 0;
    bool done = false;
    try {
        result = process->closing(fd, [&] {
            errno = saved;
            result = close_it();
            done = true;
            return result;
        });
    } catch (...) {
        if (!done) result = close_it();
    }
    return result;
}

__attribute__((constructor)) void start() {
    next::resolve();
    g_settings = read_settings();
    if (g_settings.off) return;
    set_log_level(g_settings.log);
    g_owner.store(getpid(), std::memory_order_release);
    pthread_atfork(nullptr, nullptr, child_of_fork);
    g_on.store(true, std::memory_order_release);
}

// exit(3): what a program ends of may be a fault that vudad should hear of.
__attribute__((destructor)) void stop() {
    if (!g_on.load(std::memory_order_acquire)) return;
    const int saved = errno;
    const Inside inside;
    Process* const process = mine();
    if (process != nullptr && process->session().loaded()) process->session().ending();
    errno = saved;
}

}  // namespace

extern "C" {

VUDA_EXPORT int open(const char* path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    return note_open(next::open(path, flags, mode), path);
}

VUDA_EXPORT int open64(const char* path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    return note_open(next::open64(path, flags, mode), path);
}

VUDA_EXPORT int openat(int dir, const char* path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    return note_open(next::openat(dir, path, flags, mode), path);
}

VUDA_EXPORT int openat64(int dir, const char* path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    return note_open(next::openat64(dir, path, flags, mode), path);
}

// What programs built with _FORTIFY_SOURCE call. NOLINTBEGIN(bugprone-reserved-identifier): the C library's names
VUDA_EXPORT int __open_2(const char* path, int flags) { return note_open(next::open(path, flags, 0), path); }
VUDA_EXPORT int __open64_2(const char* path, int flags) { return note_open(next::open64(path, flags, 0), path); }
VUDA_EXPORT int __openat_2(int dir, const char* path, int flags) {
    return note_open(next::openat(dir, path, flags, 0), path);
}
VUDA_EXPORT int __openat64_2(int dir, const char* path, int flags) {
    return note_open(next::openat64(dir, path, flags, 0), path);
}
// NOLINTEND(bugprone-reserved-identifier)

VUDA_EXPORT int ioctl(int fd, unsigned long request, ...) {
    va_list args;
    va_start(args, request);
    void* arg = va_arg(args, void*);
    va_end(args);
    if (!on() || (g_marks.file(fd) == 0 && !looks_like_nvidia(request))) return next::ioctl(fd, request, arg);
    const int saved = errno;
    const Inside inside;
    Process* process = make();
    errno = saved;
    if (process == nullptr) return next::ioctl(fd, request, arg);
    return process->ioctl(fd, request, arg);
}

VUDA_EXPORT int close(int fd) {
    if (!on() || !g_marks.special(fd)) return next::close(fd);
    // A program that closes everything it does not know means no harm to us; it gets the success it expects.
    if (mine_to_guard(fd)) return 0;
    return close_tracked(fd, [fd] { return next::close(fd); });
}

VUDA_EXPORT int close_range(unsigned first, unsigned last, int flags) {
    constexpr int kCloexec = 1 << 2;  // CLOSE_RANGE_CLOEXEC closes nothing now
    if (!on() || (flags & kCloexec) != 0 || first > last) return next::close_range(first, last, flags);
    const int high = g_marks.high_water();
    if (high < 0 || first > static_cast<unsigned>(high) || mine() == nullptr)
        return next::close_range(first, last, flags);

    // Piece by piece around what is ours; tracked files go one at a time, as close() would do it.
    const unsigned end = last < static_cast<unsigned>(high) ? last : static_cast<unsigned>(high);
    unsigned from = first;
    for (unsigned fd = first; fd <= end; ++fd) {
        const int number = static_cast<int>(fd);
        if (!g_marks.special(number)) continue;
        if (fd > from && next::close_range(from, fd - 1, flags) < 0) return -1;
        if (!g_marks.guarded(number)) close_tracked(number, [number] { return next::close(number); });
        from = fd + 1;
    }
    return from <= last ? next::close_range(from, last, flags) : 0;
}

VUDA_EXPORT void closefrom(int first) {
    const unsigned from = first < 0 ? 0 : static_cast<unsigned>(first);
    if (!on() || g_marks.high_water() < static_cast<int>(from) || mine() == nullptr) return next::closefrom(first);
    const int saved = errno;
    if (close_range(from, UINT_MAX, 0) < 0) {
        // A kernel without close_range (before 5.9).
        const long limit = sysconf(_SC_OPEN_MAX);
        for (long fd = from; fd < limit; ++fd) close(static_cast<int>(fd));
    }
    errno = saved;
}

VUDA_EXPORT int dup(int fd) {
    const int made = next::dup(fd);
    if (made < 0 || !on() || (g_marks.file(fd) == 0 && g_marks.file(made) == 0)) return made;
    if (Process* process = mine()) {
        const int saved = errno;
        const Inside inside;
        try {
            process->duplicated(fd, made);
        } catch (...) {
        }
        errno = saved;
    }
    return made;
}

static int dup_onto(int from, int to, int flags, bool has_flags) {
    const auto call = [&] { return has_flags ? next::dup3(from, to, flags) : next::dup2(from, to); };
    if (!on() || from == to || (!g_marks.special(to) && g_marks.file(from) == 0)) return call();
    // Giving the number away would put our session's bytes into the program's file, and pretending would put the
    // program's into ours. EBUSY is what dup2(2) may return on Linux, and our descriptors have high numbers that
    // programs do not choose.
    if (mine_to_guard(to)) {
        errno = EBUSY;
        return -1;
    }
    // Only a valid `from` closes `to`.
    if (g_marks.file(to) != 0 && fcntl(from, F_GETFD) < 0) return call();
    const int made = g_marks.file(to) != 0 ? close_tracked(to, call) : call();
    if (made >= 0 && g_marks.file(from) != 0) {
        if (Process* process = mine()) {
            const int saved = errno;
            const Inside inside;
            try {
                process->duplicated(from, made);
            } catch (...) {
            }
            errno = saved;
        }
    }
    return made;
}

VUDA_EXPORT int dup2(int from, int to) { return dup_onto(from, to, 0, false); }
VUDA_EXPORT int dup3(int from, int to, int flags) { return dup_onto(from, to, flags, true); }

// Called by the Vulkan layer when vkCreateDevice returned: the renderer is set up, no need to wait and see.
VUDA_EXPORT void vuda_shim_device_created(void) {
    if (!on()) return;
    const int saved = errno;
    const Inside inside;
    if (Process* process = mine()) process->device_created();
    errno = saved;
}

// Called by libvuda when the program said something new through vuda.h, without a lock.
VUDA_EXPORT void vuda_preload_wishes_changed(void) {
    if (!on()) return;
    const int saved = errno;
    const Inside inside;
    try {
        if (Process* process = mine()) process->wishes_changed();
    } catch (...) {  // out of memory: the wish is read again before the next TSG is made
    }
    errno = saved;
}

VUDA_EXPORT uint32_t vuda_preload_abi_version(void) { return VUDA_PRIVATE_ABI; }

// Called by libvuda_fit.so whenever the program asks how much shared memory a block may have. 1: a context of this
// process does not share, or none ever will; 0: none was made yet, or all share. Sticky: libraries remember what they
// were told.
VUDA_EXPORT int vuda_shim_unshared(void) {
    if (!g_on.load(std::memory_order_acquire)) return 1;
    const Process* process = mine();
    return process != nullptr && process->unshared() ? 1 : 0;
}

// Called by vuda-probe's pair.
VUDA_EXPORT int vuda_shim_private_l1(uint32_t value, vuda_private_error* error) {
    const int saved = errno;
    Process* process = on() ? mine() : nullptr;
    const Inside inside;
    int result = -1;
    if (process != nullptr) {
        result = process->private_l1(value, error);
    } else {
        *error = {static_cast<int32_t>(vuda::Code::kFailedPrecondition), "this process has no renderer", ""};
    }
    errno = saved;
    return result;
}

}  // extern "C"
