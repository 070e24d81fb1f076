// The program under the preload in hook_test.cc: one scenario a run, chosen by argv[1]. Exits 0 when everything is as
// the scenario says; prints the first thing that is not and exits 1.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "client/session_abi.h"
#include "rm/abi.h"
#include "rm/va_layout.h"
#include "shim/preload/testing_gpu.h"
#include "shim/preload/testing_rm.h"

namespace rm = vuda::rm;
using namespace vuda::shim::testing;

namespace {

template <typename Fn>
Fn find(const char* name) {
    const auto fn = reinterpret_cast<Fn>(dlsym(RTLD_DEFAULT, name));
    if (fn == nullptr) {
        std::printf("%s is not there\n", name);
        std::exit(1);
    }
    return fn;
}

TestRm& kernel() { return *static_cast<TestRm*>(find<void* (*)()>("test_rm")()); }
std::string session_log() { return find<const char* (*)()>("test_session_log")(); }
bool said(const std::string& line) { return session_log().find(line + "\n") != std::string::npos; }

unsigned channels_of(uint32_t client, uint32_t tsg) { return kernel().find(client, tsg)->group->channels; }
unsigned descriptors() {
    unsigned count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

int wait_for(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// ---- scenarios ----

void in_process() {
    Gpu gpu;
    start_renderer(&gpu);
    start_cuda_client(&gpu);
    make_context(gpu);
    CHECK(channels_of(gpu.vk_client, kVkTsg) == 9);
    CHECK(channels_of(gpu.cu_client, kCuTsg) == 0);
    CHECK(kernel().ranges.size() == 2);
    CHECK(free_object(gpu.cu, gpu.cu_client, kCuTsg) == 0);
    CHECK(channels_of(gpu.vk_client, kVkTsg) == 1);
    CHECK(kernel().ranges.empty());
}

void native() {
    Gpu gpu;
    start_renderer(&gpu);
    start_cuda_client(&gpu);
    const int before = find<int (*)()>("test_ioctls")();
    make_context(gpu);
    CHECK(channels_of(gpu.vk_client, kVkTsg) == 1);
    CHECK(channels_of(gpu.cu_client, kCuTsg) == 8);
    // Each of the program's calls reaches the kernel exactly once, and nothing else does.
    CHECK(find<int (*)()>("test_ioctls")() - before == 11);
}

void attach() {
    Gpu gpu;
    start_cuda_client(&gpu);
    const unsigned before = descriptors();
    make_context(gpu);
    CHECK(descriptors() == before);
    CHECK(channels_of(gpu.cu_client, kCuTsg) == 0);
    CHECK(kernel().ranges.size() == 1);
    CHECK(said("start 580.159.04"));
    CHECK(said("attach game 8"));
    CHECK(said("attach_done 8 63 1"));
    CHECK(free_object(gpu.cu, gpu.cu_client, kCuTsg) == 0);
    CHECK(said("detached"));
}

void attach_nobody() {
    Gpu gpu;
    start_cuda_client(&gpu);
    make_context(gpu);
    CHECK(channels_of(gpu.cu_client, kCuTsg) == 8);
    CHECK(said("report 5 no TSG named 'nobody'"));
}

// The same memory under the same handle at the same address, and yet perhaps another object.
void remap_one(const Gpu* gpu) {
    rm::UnmapDmaArgs unmap{};
    unmap.hClient = gpu->vk_client;
    unmap.hDevice = 0xbeef0003;
    unmap.hDma = 0xcaf00000;
    unmap.dmaOffset = 0x51f0000;
    CHECK(gpu_ioctl(gpu->vk, rm::rm_request(rm::escape::kUnmapMemoryDma, sizeof unmap), &unmap) == 0);
    rm::MapDmaArgs map{};
    map.hClient = gpu->vk_client;
    map.hDevice = 0xbeef0003;
    map.hDma = 0xcaf00000;
    map.hMemory = 0x45;
    map.length = 0x3000;
    map.dmaOffset = 0x51f0000;
    CHECK(gpu_ioctl(gpu->vk, rm::rm_request(rm::escape::kMapMemoryDma, sizeof map), &map) == 0);
}

void exports() {
    Gpu gpu;
    start_renderer(&gpu);
    CHECK(said("register game 010f"));
    find<void (*)()>("vuda_shim_device_created")();
    const auto* callbacks = find<const vuda_private_callbacks* (*)()>("test_session_callbacks")();
    const unsigned before = descriptors();
    for (int round = 0; round < 3; ++round) {
        vuda_private_handles handles{};
        vuda_private_error error{};
        CHECK(callbacks->export_host(callbacks->context, 0, &handles, &error) == 0);
        CHECK(handles.count == 3 && handles.channels_in_use == 1);
        CHECK(handles.generation == static_cast<uint64_t>(round) + 1);
        CHECK(handles.items[0].kind == 1 && handles.items[1].kind == 2);
        CHECK(handles.items[1].va == 0x51f0000 && handles.items[1].length == 0x3000);
        for (uint32_t i = 0; i < handles.count; ++i) {
            CHECK((fcntl(handles.items[i].fd, F_GETFD) & FD_CLOEXEC) != 0);
            CHECK(close(handles.items[i].fd) == 0);
        }
        std::free(handles.items);
    }
    CHECK(descriptors() == before);
    // Nothing changed since: no descriptors, until a mapping comes or goes.
    vuda_private_handles current{};
    vuda_private_error fine{};
    CHECK(callbacks->export_host(callbacks->context, 3, &current, &fine) == 0);
    CHECK(current.count == 0 && current.items == nullptr && current.generation == 3 && current.channels_in_use == 1);
    CHECK(callbacks->export_host(callbacks->context, 2, &current, &fine) == 0);
    CHECK(current.count == 3 && current.generation == 4);
    for (uint32_t i = 0; i < current.count; ++i) close(current.items[i].fd);
    std::free(current.items);
    remap_one(&gpu);
    CHECK(callbacks->export_host(callbacks->context, 4, &current, &fine) == 0);
    CHECK(current.count == 3 && current.generation == 5);
    for (uint32_t i = 0; i < current.count; ++i) close(current.items[i].fd);
    std::free(current.items);
    CHECK(descriptors() == before);
    CHECK(free_object(gpu.vk, gpu.vk_client, gpu.vk_client) == 0);
    vuda_private_handles none{};
    vuda_private_error error{};
    CHECK(callbacks->export_host(callbacks->context, 0, &none, &error) == -1);
    CHECK(error.code != 0 && error.text[0] != '\0');
}

void renames() {
    Gpu gpu;
    start_renderer(&gpu);
    CHECK(said("register game 010f"));
    setenv("VUDA_REGISTER", "other", 1);
    find<void (*)()>("vuda_preload_wishes_changed")();
    CHECK(said("register other 010f"));
}

void registers_late() {
    Gpu gpu;
    start_renderer(&gpu);
    setenv("VUDA_REGISTER", "game", 1);
    find<void (*)()>("vuda_preload_wishes_changed")();
    CHECK(!said("register game 010f"));
    CHECK(said("report 5 the renderer's device was made before sharing was asked for, and cannot be shared"));
}

// A renderer that is still setting up is exported only once it is quiet.
void export_waits() {
    Gpu gpu;
    start_renderer(&gpu);
    const auto* callbacks = find<const vuda_private_callbacks* (*)()>("test_session_callbacks")();
    timespec start{}, end{};
    clock_gettime(CLOCK_MONOTONIC, &start);
    vuda_private_handles handles{};
    vuda_private_error error{};
    CHECK(callbacks->export_host(callbacks->context, 0, &handles, &error) == 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double ms =
        static_cast<double>(end.tv_sec - start.tv_sec) * 1e3 + static_cast<double>(end.tv_nsec - start.tv_nsec) / 1e6;
    CHECK(ms > 100);
}

void guard() {
    Gpu gpu;
    start_renderer(&gpu);
    const auto* callbacks = find<const vuda_private_callbacks* (*)()>("test_session_callbacks")();
    const int plain = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int ours = fcntl(plain, F_DUPFD_CLOEXEC, 200);
    const int above = fcntl(plain, F_DUPFD_CLOEXEC, 300);
    CHECK(ours >= 200 && above >= 300);
    callbacks->guard_fd(callbacks->context, ours, 1);
    CHECK(close(ours) == 0 && fcntl(ours, F_GETFD) >= 0);
    CHECK(close_range(static_cast<unsigned>(plain), ~0u, 0) == 0);
    CHECK(fcntl(ours, F_GETFD) >= 0);
    CHECK(fcntl(above, F_GETFD) < 0 && fcntl(plain, F_GETFD) < 0 && fcntl(gpu.vk, F_GETFD) >= 0);
    closefrom(4);
    CHECK(fcntl(ours, F_GETFD) >= 0 && fcntl(5, F_GETFD) < 0);
    errno = 0;
    CHECK(dup2(2, ours) == -1 && errno == EBUSY);
    CHECK(dup3(2, ours, O_CLOEXEC) == -1 && errno == EBUSY);
    CHECK(dup2(ours, ours) == ours);

    // A child owns nothing of the parent's: there the number is the program's to close.
    const pid_t child = fork();
    if (child == 0) _exit(close(ours) == 0 && fcntl(ours, F_GETFD) < 0 ? 0 : 1);
    CHECK(wait_for(child) == 0);
    CHECK(fcntl(ours, F_GETFD) >= 0);
    callbacks->guard_fd(callbacks->context, ours, 0);
    CHECK(close(ours) == 0 && fcntl(ours, F_GETFD) < 0);
}

// RM's clients live as long as the open file, not as the descriptor they were made through.
void duplicates() {
    Gpu gpu;
    start_renderer(&gpu);
    start_cuda_client(&gpu);
    const int copy = dup(gpu.cu);
    const int other = dup2(gpu.cu, 150);
    CHECK(copy >= 0 && other == 150);
    CHECK(close(gpu.cu) == 0);
    gpu.cu = copy;
    make_context(gpu);
    CHECK(channels_of(gpu.vk_client, kVkTsg) == 9);
    // dup2 over the last descriptors closes the file: the client is gone, a new context has nothing to move.
    const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(dup2(null_fd, copy) == copy);
    CHECK(close_range(150, 150, 0) == 0);
    CHECK(kernel().ranges.empty());
}

void bad_pointers() {
    Gpu gpu;
    start_renderer(&gpu);
    start_cuda_client(&gpu);
    rm::ChannelGroupParams group{};
    group.engineType = rm::kEngineGr0;
    uint32_t object = kCuTsg;
    CHECK(alloc(gpu.cu, gpu.cu_client, kCuDevice, &object, rm::cls::kChannelGroup, &group) == 0);

    const unsigned long request = rm::rm_request(rm::escape::kAlloc, sizeof(rm::AllocArgs));
    void* const nowhere = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (void* bad : {static_cast<void*>(nullptr), nowhere, reinterpret_cast<void*>(~uintptr_t{15})}) {
        errno = 0;
        CHECK(ioctl(gpu.cu, request, bad) == -1 && errno == EFAULT);
        rm::AllocArgs args{};
        args.hRoot = gpu.cu_client;
        args.hObjectParent = kCuTsg;
        args.hObjectNew = kCuShare;
        args.hClass = rm::cls::kContextShare;
        args.pAllocParms = reinterpret_cast<uintptr_t>(bad);
        const rm::AllocArgs as_given = args;
        errno = 0;
        const int result = ioctl(gpu.cu, request, &args);
        if (bad != nullptr) CHECK(result == -1 && errno == EFAULT && std::memcmp(&args, &as_given, sizeof args) == 0);
        if (bad == nullptr) CHECK(result == 0);
        CHECK(free_object(gpu.cu, gpu.cu_client, kCuShare) == 0 || bad != nullptr);
    }
    // An argument at the very end of a page.
    auto* const page =
        static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(mprotect(page + 4096, 4096, PROT_NONE) == 0);
    auto* const edge = new (page + 4096 - sizeof(rm::FreeArgs)) rm::FreeArgs{};
    edge->hRoot = gpu.cu_client;
    edge->hObjectOld = kCuTsg;
    CHECK(ioctl(gpu.cu, rm::rm_request(rm::escape::kFree, sizeof(rm::FreeArgs)), edge) == 0 && edge->status == 0);
}

void indirect() {
    Gpu gpu;
    start_renderer(&gpu);
    start_cuda_client(&gpu);
    rm::ChannelGroupParams group{};
    group.engineType = rm::kEngineGr0;
    uint32_t object = kCuTsg;
    CHECK(alloc(gpu.cu, gpu.cu_client, kCuDevice, &object, rm::cls::kChannelGroup, &group) == 0);
    rm::ContextShareParams share{kCuSpace, rm::kCtxShareAsync, 0};
    rm::AllocArgs args{};
    args.hRoot = gpu.cu_client;
    args.hObjectParent = kCuTsg;
    args.hObjectNew = kCuShare;
    args.hClass = rm::cls::kContextShare;
    args.pAllocParms = reinterpret_cast<uintptr_t>(&share);
    rm::XferArgs outer{rm::escape::kAlloc, sizeof args, reinterpret_cast<uintptr_t>(&args)};
    CHECK(ioctl(gpu.cu, rm::rm_request(rm::escape::kXferCmd, sizeof outer), &outer) == 0);
    CHECK(args.status == 0 && args.hObjectParent == kCuTsg && share.subctxId == 63);
    CHECK(outer.ptr == reinterpret_cast<uintptr_t>(&args));
    CHECK(kernel().find(gpu.cu_client, kCuShare)->parent != kCuTsg);
}

void forks() {
    Gpu gpu;
    start_renderer(&gpu);
    start_cuda_client(&gpu);
    for (int i = 0; i < 50; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            // The parent's client is nobody the child knows; its calls go through untouched. A start of its own works.
            if (!said("child")) _exit(2);
            close(gpu.uvm);
            Gpu own;
            start_renderer(&own);
            start_cuda_client(&own);
            make_context(own);
            _exit(channels_of(own.vk_client, kVkTsg) == 9 ? 0 : 1);
        }
        CHECK(wait_for(child) == 0);
    }
    make_context(gpu);
    CHECK(channels_of(gpu.vk_client, kVkTsg) == 9);
}

void vforks() {
    Gpu gpu;
    start_renderer(&gpu);
    start_cuda_client(&gpu);
    for (int i = 0; i < 20; ++i) {
        const pid_t child = vfork();
        if (child == 0) {
            close(gpu.vk);
            close(gpu.uvm);
            dup2(2, gpu.cu);
            close_range(3, ~0u, 0);
            execl("/bin/true", "true", static_cast<char*>(nullptr));
            _exit(127);
        }
        CHECK(wait_for(child) == 0);
    }
    make_context(gpu);  // what the child closed was its own
    CHECK(channels_of(gpu.vk_client, kVkTsg) == 9);
}

void execs(char** argv) {
    const int left = std::atoi(argv[2]);
    Gpu gpu;
    start_renderer(&gpu);
    start_cuda_client(&gpu);
    make_context(gpu);
    CHECK(channels_of(gpu.vk_client, kVkTsg) == 9);
    CHECK(descriptors() < 20);
    if (left == 0) return;
    const std::string next = std::to_string(left - 1);
    execl("/proc/self/exe", argv[0], argv[1], next.c_str(), static_cast<char*>(nullptr));
    CHECK(false);
}

void threads() {
    Gpu gpu;
    start_renderer(&gpu);
    start_cuda_client(&gpu);
    std::vector<std::thread> all;
    for (uint32_t i = 0; i < 4; ++i) {
        all.emplace_back([&gpu, i] {
            for (uint32_t round = 0; round < 20; ++round) {
                make_context(gpu, (i + 1) * 0x1000);
                CHECK(free_object(gpu.cu, gpu.cu_client, kCuTsg + (i + 1) * 0x1000) == 0);
            }
        });
    }
    // Files come and go meanwhile, and the renderer is asked for exports.
    all.emplace_back([] {
        for (int i = 0; i < 500; ++i) {
            const int fd = open("/dev/nvidia0", O_RDWR | O_CLOEXEC);
            const int copy = dup(fd);
            CHECK(close(fd) == 0 && close(copy) == 0);
        }
    });
    for (std::thread& thread : all) thread.join();
    CHECK(channels_of(gpu.vk_client, kVkTsg) == 1);
    CHECK(kernel().ranges.empty());
}

// A context made while every other thread makes one too is shared all the same.
void threads_share() {
    Gpu gpu;
    start_renderer(&gpu);
    start_cuda_client(&gpu);
    std::vector<std::thread> all;
    for (uint32_t i = 0; i < 6; ++i) all.emplace_back([&gpu, i] { make_context(gpu, (i + 1) * 0x1000); });
    for (std::thread& thread : all) thread.join();
    CHECK(channels_of(gpu.vk_client, kVkTsg) == 49);
    CHECK(kernel().ranges.size() == 2);
}

// The first context starts libvuda's session. One that another thread makes meanwhile needs it, too.
void threads_start() {
    std::vector<std::thread> all;
    for (uint32_t i = 0; i < 2; ++i) {
        all.emplace_back([] {
            Gpu gpu;
            start_cuda_client(&gpu);
            make_context(gpu);
        });
    }
    for (std::thread& thread : all) thread.join();
    CHECK(said("attach game 8"));
    CHECK(!said("attach before start"));
}

void require_fails() {
    Gpu gpu;
    start_cuda_client(&gpu);
    rm::ChannelGroupParams group{};
    group.engineType = rm::kEngineGr0;
    uint32_t object = kCuTsg;
    CHECK(alloc(gpu.cu, gpu.cu_client, kCuDevice, &object, rm::cls::kChannelGroup, &group) == 0);
    rm::ContextShareParams share{kCuSpace, rm::kCtxShareAsync, 0};
    object = kCuShare;
    CHECK(alloc(gpu.cu, gpu.cu_client, kCuTsg, &object, rm::cls::kContextShare, &share) != 0);
}

void seen_once() {
    const int fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    uint32_t client = 0;
    const int before = find<int (*)()>("test_ioctls")();
    for (int i = 0; i < 10; ++i) {
        rm::FreeArgs args{};
        ioctl(fd, rm::rm_request(rm::escape::kFree, sizeof args), &args);
    }
    CHECK(find<int (*)()>("test_ioctls")() - before == 10);
    static_cast<void>(client);
    CHECK(close(fd) == 0);
}

// Where CUDA would put its launch descriptors, in slot 1 and 2.
void addresses(bool moved) {
    Gpu gpu;
    start_cuda_client(&gpu);
    const auto is_free = [](uint64_t at) {
        void* const wanted = reinterpret_cast<void*>(at);
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        void* const got = mmap(wanted, 1 << 20, PROT_NONE, flags, -1, 0);
        if (got != MAP_FAILED) munmap(got, 1 << 20);
        return got == wanted;
    };
    for (const uint64_t at : {rm::kUsualVaBase, rm::kUsualVaBase + rm::kVaStride - (1 << 20)})
        CHECK(is_free(at) == !moved);
    CHECK(is_free(rm::kUsualVaBase + rm::kVaStride));
}

}  // namespace

int main(int argc, char** argv) {
    const std::string scenario = argc > 1 ? argv[1] : "";
    if (scenario == "in_process")
        in_process();
    else if (scenario == "native")
        native();
    else if (scenario == "addresses_kept")
        addresses(false);
    else if (scenario == "addresses_moved")
        addresses(true);
    else if (scenario == "attach")
        attach();
    else if (scenario == "attach_nobody")
        attach_nobody();
    else if (scenario == "exports")
        exports();
    else if (scenario == "export_waits")
        export_waits();
    else if (scenario == "renames")
        renames();
    else if (scenario == "registers_late")
        registers_late();
    else if (scenario == "guard")
        guard();
    else if (scenario == "duplicates")
        duplicates();
    else if (scenario == "bad_pointers")
        bad_pointers();
    else if (scenario == "indirect")
        indirect();
    else if (scenario == "forks")
        forks();
    else if (scenario == "vforks")
        vforks();
    else if (scenario == "execs")
        execs(argv);
    else if (scenario == "threads")
        threads();
    else if (scenario == "threads_share")
        threads_share();
    else if (scenario == "threads_start")
        threads_start();
    else if (scenario == "require_fails")
        require_fails();
    else if (scenario == "seen_once")
        seen_once();
    else {
        std::printf("no scenario '%s'\n", scenario.c_str());
        return 2;
    }
    return 0;
}
