#include "bench/mirror/ioctl_spy.h"

#include <dlfcn.h>
#include <sys/ioctl.h>

#include <cstdarg>
#include <cstring>
#include <mutex>

namespace vuda::bench {
namespace {

constexpr uint32_t kSystemMemory = 1;          // NVOS32_ATTR_LOCATION_PCI, bits 25 and 26
constexpr uint64_t kControlEnd = 0xffff'ffff;  // mirror_rule.h

struct Seen {
    std::mutex mutex;
    MappingRecipe recipe;
    bool memory = false, address = false, map = false;
};

Seen& seen() {
    static Seen all;
    return all;
}

void note(int fd, unsigned long request, const void* before, const void* after) {
    const auto make = [](const void* from, auto* to) { std::memcpy(to, from, sizeof *to); };
    Seen& all = seen();
    const std::lock_guard lock(all.mutex);
    if (request == rm::rm_request(rm::escape::kVidHeapControl, sizeof(rm::VidHeapArgs))) {
        rm::VidHeapArgs asked, got;
        make(before, &asked);
        make(after, &got);
        if (got.status != 0 || asked.function != rm::kVidHeapAllocSize) return;
        if (asked.hVASpace != 0 && asked.allocSize.rangeBegin != 0) {
            all.recipe.address = asked;
            all.address = true;
        } else if (asked.hVASpace == 0 && (asked.allocSize.attr >> 25 & 3) == kSystemMemory) {
            all.recipe.memory = asked;
            all.memory = true;
        }
    } else if (request == rm::rm_request(rm::escape::kMapMemoryDma, sizeof(rm::MapDmaArgs))) {
        rm::MapDmaArgs asked, got;
        make(before, &asked);
        make(after, &got);
        if (got.status != 0 || got.dmaOffset > kControlEnd) return;
        all.recipe.map = asked;
        all.recipe.fd = fd;
        all.map = true;
    }
}

}  // namespace

std::optional<MappingRecipe> seen_recipe() {
    Seen& all = seen();
    const std::lock_guard lock(all.mutex);
    const uint32_t client = all.recipe.map.hClient;
    const bool one =
        all.memory && all.address && all.map && all.recipe.memory.hRoot == client && all.recipe.address.hRoot == client;
    return one ? std::optional(all.recipe) : std::nullopt;
}

Error no_recipe() {
    return Error{Code::kFailedPrecondition,
                 "this Vulkan driver made no control buffer in the way that is known of NVIDIA's",
                 "is it NVIDIA's, of branch 580 or later?"};
}

}  // namespace vuda::bench

// NOLINTNEXTLINE(cert-dcl50-cpp): libc's own signature.
extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) {
    static const auto next = reinterpret_cast<int (*)(int, unsigned long, void*)>(dlsym(RTLD_NEXT, "ioctl"));
    va_list args;
    va_start(args, request);
    void* const arg = va_arg(args, void*);
    va_end(args);
    using namespace vuda;
    const bool heap = request == rm::rm_request(rm::escape::kVidHeapControl, sizeof(rm::VidHeapArgs));
    const bool map = request == rm::rm_request(rm::escape::kMapMemoryDma, sizeof(rm::MapDmaArgs));
    if (!heap && !map) return next(fd, request, arg);
    unsigned char before[sizeof(rm::VidHeapArgs)];
    std::memcpy(before, arg, heap ? sizeof(rm::VidHeapArgs) : sizeof(rm::MapDmaArgs));
    const int result = next(fd, request, arg);
    if (result == 0) bench::note(fd, request, before, arg);
    return result;
}
