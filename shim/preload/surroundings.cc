#include "shim/preload/surroundings.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "shim/preload/next.h"

namespace vuda::shim {
namespace {

// Reads as much as fits; `out` is terminated.
template <size_t N>
bool read_text(const char* path, char (&out)[N]) {
    const int fd = next::open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    size_t total = 0;
    while (total < N - 1) {
        const ssize_t got = read(fd, out + total, N - 1 - total);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        total += static_cast<size_t>(got);
    }
    out[total] = '\0';
    next::close(fd);
    return true;
}

// Pid of the process that traces this one; 0: none.
unsigned long tracer(const char* proc) {
    char path[256];
    char text[2048];  // the line is among the first ten
    std::snprintf(path, sizeof path, "%s/self/status", proc);
    if (!read_text(path, text)) return 0;
    const char* line = std::strstr(text, "\nTracerPid:");
    return line == nullptr ? 0 : std::strtoul(line + std::strlen("\nTracerPid:"), nullptr, 10);
}

bool is_cuda_gdb(const char* proc, unsigned long pid) {
    char path[256];
    char name[32];
    std::snprintf(path, sizeof path, "%s/%lu/comm", proc, pid);
    return read_text(path, name) && std::strncmp(name, "cuda-gdb", std::strlen("cuda-gdb")) == 0;
}

bool wants_core_dumps() {
    constexpr const char* kSwitches[] = {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
                                         "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP"};
    for (const char* name : kSwitches) {
        const char* value = std::getenv(name);
        if (value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0) return true;
    }
    return false;
}

bool mps_listens(const char* folder) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const int length = std::snprintf(address.sun_path, sizeof address.sun_path, "%s/control", folder);
    if (length <= 0 || static_cast<size_t>(length) >= sizeof address.sun_path) return false;
    if (access(address.sun_path, F_OK) != 0) return false;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return false;
    const int result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    // Somebody is there also when his queue is full, or when he speaks otherwise.
    const bool listens = result == 0 || errno == EAGAIN || errno == EPROTOTYPE;
    next::close(fd);
    return listens;
}

}  // namespace

bool client_of_mps(const Surroundings& around) {
    const int saved = errno;
    const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
    if (folder == nullptr || *folder == '\0') folder = around.mps;
    const bool listens = mps_listens(folder);
    errno = saved;
    return listens;
}

Refusal unfit_surroundings(const Surroundings& around) {
    const int saved = errno;
    Refusal refusal;
    if (const unsigned long pid = tracer(around.proc); pid != 0 && is_cuda_gdb(around.proc, pid)) {
        refusal = {Reason::kDebugger, 0, pid, 0};
    } else if (wants_core_dumps()) {
        refusal.reason = Reason::kCoreDumps;
    } else if (client_of_mps(around)) {
        refusal.reason = Reason::kMps;
    }
    errno = saved;
    return refusal;
}

}  // namespace vuda::shim
