// A preload library for tests that sits behind (or before) libvuda_preload.so and plays NVIDIA's kernel modules: device
// files are memfds, ioctls on them go to TestRm. Counts what it sees. Exports a few functions that a test program looks
// up with dlsym.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "rm/abi.h"
#include "shim/preload/fd_table.h"
#include "shim/preload/testing_rm.h"
#include "shim/preload/user_memory.h"

using namespace vuda::shim;
using vuda::shim::testing::TestRm;
namespace rm = vuda::rm;

namespace {

struct File {
    FileId id = 0;
    FileRole role = FileRole::kOther;
};

std::recursive_mutex g_mutex;
std::map<ino_t, File> g_files;  // a memfd's inode: the open file description, whatever the descriptor
FileId g_next_file = 1;
TestRm* g_rm = nullptr;
std::atomic<int> g_ioctls{0};
std::atomic<int> g_opens{0};
std::atomic<int> g_closes{0};

TestRm& resource_manager() {
    if (g_rm == nullptr) g_rm = new TestRm;
    return *g_rm;
}

int make_file(const char* text) {
    const int fd = static_cast<int>(syscall(SYS_memfd_create, "nvidia", MFD_CLOEXEC));
    if (fd >= 0 && text != nullptr) {
        const ssize_t put = write(fd, text, std::strlen(text));
        static_cast<void>(put);
        lseek(fd, 0, SEEK_SET);
    }
    return fd;
}

bool fake_open(const char* path, int* out) {
    if (std::strcmp(path, "/proc/driver/nvidia/version") == 0) {
        const char* version = std::getenv("TEST_DRIVER");
        const std::string text = std::string("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  ") +
                                 (version != nullptr ? version : "580.159.04") + "  Release Build  (x)\n";
        *out = make_file(text.c_str());
        return true;
    }
    const FileRole role = role_of_path(path);
    if (role == FileRole::kOther) return false;
    ++g_opens;
    *out = make_file(nullptr);
    struct stat info {};
    fstat(*out, &info);
    const std::lock_guard lock(g_mutex);
    g_files[info.st_ino] = {g_next_file++, role};
    return true;
}

File file_of(int fd) {
    struct stat info {};
    const int saved = errno;
    const bool ok = fstat(fd, &info) == 0;
    errno = saved;
    const std::lock_guard lock(g_mutex);
    const auto found = ok ? g_files.find(info.st_ino) : g_files.end();
    return found == g_files.end() ? File{} : found->second;
}

int fault() {
    errno = EFAULT;
    return -1;
}

template <typename Args>
bool get(void* from, Args* out) {
    return read_user(reinterpret_cast<uintptr_t>(from), out, sizeof *out);
}
template <typename Args>
bool put(void* to, const Args& args) {
    return write_user(reinterpret_cast<uintptr_t>(to), &args, sizeof args);
}

size_t params_of_class(uint32_t cls) {
    if (rm::cls::is_gpfifo(cls)) return sizeof(rm::ChannelParams);
    switch (cls) {
        case rm::cls::kDevice: return sizeof(rm::DeviceParams);
        case rm::cls::kVaSpace: return sizeof(rm::VaSpaceParams);
        case rm::cls::kChannelGroup: return sizeof(rm::ChannelGroupParams);
        case rm::cls::kContextShare: return sizeof(rm::ContextShareParams);
        default: return 0;
    }
}

int rm_ioctl(const File& file, unsigned number, void* arg) {
    TestRm& rm = resource_manager();
    switch (number) {
        case rm::escape::kXferCmd: {
            rm::XferArgs outer{};
            if (!get(arg, &outer)) return fault();
            return rm_ioctl(file, outer.cmd, reinterpret_cast<void*>(outer.ptr));
        }
        case rm::escape::kAlloc: {
            rm::AllocArgs args{};
            if (!get(arg, &args)) return fault();
            std::vector<uint8_t> params(args.pAllocParms == 0 ? 0 : params_of_class(args.hClass));
            if (!read_user(args.pAllocParms, params.data(), params.size())) return fault();
            args.status = rm.alloc(file.id, &args, &params);
            if (!write_user(args.pAllocParms, params.data(), params.size()) || !put(arg, args)) return fault();
            return 0;
        }
        case rm::escape::kControl: {
            rm::ControlArgs args{};
            if (!get(arg, &args)) return fault();
            std::vector<uint8_t> params(args.paramsSize);
            if (!read_user(args.params, params.data(), params.size())) return fault();
            if (args.cmd == rm::ctrl::kExportObjectToFd) {
                rm::ExportObjectParams e{};
                std::memcpy(&e, params.data(), sizeof e);
                const File target = file_of(e.fd);
                const TestRm::Object* object = rm.find(args.hClient, e.hObject);
                args.status = object == nullptr                   ? rm::nv::kInvalidObjectHandle
                              : target.role != FileRole::kControl ? rm::nv::kInvalidParameter
                                                                  : 0;
                if (args.status == 0) rm.exported[static_cast<int>(target.id)] = {args.hClient, *object};
            } else if (args.cmd == rm::ctrl::kImportObjectFromFd) {
                rm::ImportObjectParams i{};
                std::memcpy(&i, params.data(), sizeof i);
                const File source = file_of(i.fd);
                args.status =
                    rm.run(ImportObject{file.id, args.hClient, i.hDevice, i.hObject, static_cast<int>(source.id)})
                        .status;
            } else if (args.cmd == rm::ctrl::kGpuGetGidInfo) {
                rm::GidInfoParams g{};
                g.length = 16;
                for (uint8_t n = 0; n < 16; ++n) g.data[n] = n;
                std::memcpy(params.data(), &g, std::min(params.size(), sizeof g));
            } else {
                args.status = rm.control(file.id, args, &params);
            }
            if (!write_user(args.params, params.data(), params.size()) || !put(arg, args)) return fault();
            return 0;
        }
        case rm::escape::kFree: {
            rm::FreeArgs args{};
            if (!get(arg, &args)) return fault();
            args.status = rm.free_object(file.id, args.hRoot, args.hObjectOld);
            return put(arg, args) ? 0 : fault();
        }
        case rm::escape::kDupObject: {
            rm::DupArgs args{};
            if (!get(arg, &args)) return fault();
            args.status =
                rm.run(DupObject{file.id, args.hClient, args.hParent, args.hObject, args.hClientSrc, args.hObjectSrc})
                    .status;
            return put(arg, args) ? 0 : fault();
        }
        case rm::escape::kMapMemoryDma: {
            rm::MapDmaArgs args{};
            if (!get(arg, &args)) return fault();
            TestRm::Object memory;
            memory.cls = rm::cls::kMemoryLocalUser;
            memory.parent = args.hDevice;
            rm.objects[{args.hClient, args.hMemory}] = memory;
            return put(arg, args) ? 0 : fault();
        }
        default: return 0;
    }
}

int uvm_ioctl(const File& file, unsigned long request, void* arg) {
    TestRm& rm = resource_manager();
    switch (request) {
        case rm::uvm::kRegisterChannel: {
            rm::UvmRegisterChannelArgs args{};
            if (!get(arg, &args)) return fault();
            rm.uvm_windows[args.hChannel] = args.base;
            return 0;
        }
        case rm::uvm::kCreateExternalRange: {
            rm::UvmCreateExternalRangeArgs args{};
            if (!get(arg, &args)) return fault();
            args.rmStatus = rm.run(UvmCreateRange{file.id, args.base, args.length}).status;
            return put(arg, args) ? 0 : fault();
        }
        case rm::uvm::kMapExternalAllocation: {
            static thread_local rm::UvmMapExternalArgs args;
            if (!get(arg, &args)) return fault();
            if (args.attributesCount != 1 || args.attributes[0].gpuMappingType != 1) {
                args.rmStatus = rm::nv::kInvalidArgument;
            } else {
                args.rmStatus =
                    rm.run(UvmMapRange{file.id, args.base, args.length, args.offset, 0, args.hClient, args.hMemory, {}})
                        .status;
            }
            return put(arg, args) ? 0 : fault();
        }
        case rm::uvm::kFree: {
            rm::UvmFreeArgs580 args{};
            if (!get(arg, &args)) return fault();
            args.rmStatus = rm.run(UvmFreeRange{file.id, args.base, args.length}).status;
            return put(arg, args) ? 0 : fault();
        }
        default: return 0;
    }
}

template <typename Fn>
Fn next(const char* name) {
    return reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const int mode = va_arg(args, int);
    va_end(args);
    int fd = -1;
    if (fake_open(path, &fd)) return fd;
    return next<int (*)(const char*, int, ...)>("open")(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const int mode = va_arg(args, int);
    va_end(args);
    int fd = -1;
    if (fake_open(path, &fd)) return fd;
    return next<int (*)(const char*, int, ...)>("open64")(path, flags, mode);
}

int openat(int dir, const char* path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const int mode = va_arg(args, int);
    va_end(args);
    int fd = -1;
    if (fake_open(path, &fd)) return fd;
    return next<int (*)(int, const char*, int, ...)>("openat")(dir, path, flags, mode);
}

int ioctl(int fd, unsigned long request, ...) {
    va_list args;
    va_start(args, request);
    void* arg = va_arg(args, void*);
    va_end(args);
    const File file = file_of(fd);
    // When this library comes first, the other one is next and calls nobody: the fake kernel answers from here.
    const char* order = std::getenv("TEST_ORDER");
    if (order != nullptr && std::strcmp(order, "front") == 0) {
        ++g_ioctls;
        return next<int (*)(int, unsigned long, ...)>("ioctl")(fd, request, arg);
    }
    if (file.id == 0) return next<int (*)(int, unsigned long, ...)>("ioctl")(fd, request, arg);
    ++g_ioctls;
    const std::lock_guard lock(g_mutex);
    if (file.role == FileRole::kUvm) return uvm_ioctl(file, request, arg);
    return rm_ioctl(file, rm::ioctl_number(request), arg);
}

int close(int fd) {
    if (file_of(fd).id != 0) ++g_closes;
    return next<int (*)(int)>("close")(fd);
}

// ---- for the test program ----
__attribute__((visibility("default"))) int test_ioctls(void) { return g_ioctls; }
__attribute__((visibility("default"))) int test_opens(void) { return g_opens; }
__attribute__((visibility("default"))) int test_closes(void) { return g_closes; }
__attribute__((visibility("default"))) void* test_rm(void) { return &resource_manager(); }
// Makes `fd` hold an exported object as another process would have sent it.
__attribute__((visibility("default"))) int test_exported_fd(int is_tsg) {
    int fd = -1;
    fake_open("/dev/nvidiactl", &fd);
    TestRm::Object object;
    object.cls = is_tsg != 0 ? rm::cls::kChannelGroup : rm::cls::kMemoryLocalUser;
    if (is_tsg != 0) {
        object.group = std::make_shared<TestRm::Group>();
        object.group->veids = {0, 1};
        object.group->channels = 2;
    }
    resource_manager().exported[static_cast<int>(file_of(fd).id)] = {0, object};
    return fd;
}
}
