#include "sim/preload/files.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "sim/protocol/protocol.h"

namespace vuda::sim::preload {

Path classify(const char* path, SimFile* device) {
    if (path == nullptr || path[0] != '/') return Path::kOther;
    if (strcmp(path, "/proc/driver/nvidia/version") == 0) return Path::kVersion;
    constexpr char kPrefix[] = "/dev/nvidia";
    if (strncmp(path, kPrefix, sizeof kPrefix - 1) != 0) return Path::kOther;
    const char* rest = path + sizeof kPrefix - 1;
    *device = {};
    if (strcmp(rest, "ctl") == 0) {
        device->minor = 255;
        return Path::kDevice;
    }
    if (strcmp(rest, "-uvm") == 0) {
        device->kind = 2;
        return Path::kDevice;
    }
    if (strcmp(rest, "-uvm-tools") == 0) {
        device->kind = 3;
        return Path::kDevice;
    }
    int minor = 0;
    size_t digits = 0;
    for (; rest[digits] >= '0' && rest[digits] <= '9' && digits < 3; digits++)
        minor = minor * 10 + (rest[digits] - '0');
    if (digits == 0 || rest[digits] != '\0') return Path::kOther;
    device->kind = 1;
    device->minor = minor;
    return Path::kDevice;
}

bool identify(int fd, SimFile* file) {
    sockaddr_un peer;
    socklen_t length = sizeof peer;
    if (fd < 0 || getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return false;
    if (peer.sun_family != AF_UNIX || length <= offsetof(sockaddr_un, sun_path) || length > sizeof peer) return false;
    protocol::FileName name;
    if (!protocol::parse_file_name(peer.sun_path, length - offsetof(sockaddr_un, sun_path), &name)) return false;
    *file = {name.kind, name.minor, name.id};
    return true;
}

dev_t device_number(const SimFile& file) {
    switch (file.kind) {
        case 0: return makedev(195, 255);
        case 1: return makedev(195, static_cast<unsigned>(file.minor));
        default: return makedev(511, file.kind == 3 ? 1 : 0);
    }
}

}  // namespace vuda::sim::preload
