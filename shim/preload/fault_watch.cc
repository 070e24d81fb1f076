#include "shim/preload/fault_watch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "rm/abi.h"
#include "rm/xid.h"
#include "shim/preload/next.h"

namespace vuda::shim {
namespace {

constexpr uint64_t kNotifierPage = 4096;

// A notifier may not straddle pages; the driver's own never do.
bool fits(uint64_t offset) {
    return offset % kNotifierPage + sizeof(rm::Notification) <= kNotifierPage && offset % 2 == 0;
}

}  // namespace

FaultWatch::~FaultWatch() {
    for (const Mapped& one : mapped_) {
        if (one.page != nullptr) munmap(one.page, kNotifierPage);
    }
}

bool FaultWatch::differs(std::span<const Notifier> notifiers) const {
    return !std::ranges::equal(notifiers, mapped_, {}, {}, [](const Mapped& one) { return one.notifier; });
}

void FaultWatch::watch(std::span<const Notifier> notifiers) {
    std::vector<Mapped> now;
    now.reserve(notifiers.size());
    for (const Notifier& notifier : notifiers) {
        const auto known = std::ranges::find_if(mapped_, [&](const Mapped& one) { return one.notifier == notifier; });
        if (known == mapped_.end()) {
            now.push_back({notifier, map(notifier)});
        } else {
            now.push_back({notifier, std::exchange(known->page, nullptr), known->told});
        }
    }
    for (const Mapped& gone : mapped_) {
        // RM forgets the mapping with the memory object. Asking it to would name the program's own mapping as well:
        // both have the same address to it.
        if (gone.page != nullptr) munmap(gone.page, kNotifierPage);
    }
    mapped_ = std::move(now);
}

void* FaultWatch::map(const Notifier& notifier) {
    if (!fits(notifier.offset)) return nullptr;
    // In the GPU's own memory it could be taken away from under a reader. NVIDIA's drivers never put it there.
    rm::AddrSpaceTypeParams space{notifier.memory, 0, 0};
    if (calls_.control(notifier.file, notifier.client, notifier.client, rm::ctrl::kClientGetAddrSpaceType, &space,
                       sizeof space) != kNvOk ||
        space.type != rm::kAddrSpaceSystem)
        return nullptr;
    const int file = files_.descriptor(notifier.file);
    const int fresh = next::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC, 0);
    if (file < 0 || fresh < 0) {
        if (fresh >= 0) next::close(fresh);
        return nullptr;
    }
    rm::MapMemoryArgs args{};
    args.hClient = notifier.client;
    args.hDevice = notifier.device;
    args.hMemory = notifier.memory;
    args.offset = notifier.offset / kNotifierPage * kNotifierPage;
    args.length = kNotifierPage;
    args.fd = fresh;
    void* page = MAP_FAILED;
    if (next::ioctl(file, rm::rm_request(rm::escape::kMapMemory, sizeof args), &args) == 0 && args.status == kNvOk)
        page = mmap(nullptr, kNotifierPage, PROT_READ, MAP_SHARED, fresh, 0);
    next::close(fresh);
    return page == MAP_FAILED ? nullptr : page;
}

std::optional<uint32_t> FaultWatch::read(const uint8_t* at) {
    // The driver writes the status last.
    const auto* status = reinterpret_cast<const uint16_t*>(at + offsetof(rm::Notification, status));
    if (__atomic_load_n(status, __ATOMIC_ACQUIRE) != rm::kNotificationError) return std::nullopt;
    uint32_t xid = 0;
    std::memcpy(&xid, at + offsetof(rm::Notification, info32), sizeof xid);
    if (xid > rm::kXidLimit) return std::nullopt;  // not the driver's writing
    // It ends as programs do. Should a fault come first, that one's number is there already.
    if (!rm::is_fault(xid)) return std::nullopt;
    return xid;
}

FaultWatch::Found FaultWatch::look() {
    Found found;
    for (Mapped& one : mapped_) {
        if (one.page == nullptr || one.told) continue;
        const auto* at = static_cast<const uint8_t*>(one.page) + one.notifier.offset % kNotifierPage;
        const std::optional<uint32_t> xid = read(at);
        if (!xid) continue;
        one.told = true;
        (one.notifier.host ? found.host : found.shared) = true;
        if (one.notifier.host) found.host_tsg = one.notifier.tsg;
        (one.notifier.host ? found.host_xid : found.shared_xid) = *xid;
    }
    return found;
}

size_t FaultWatch::watched() const {
    return static_cast<size_t>(std::ranges::count_if(mapped_, [](const Mapped& one) { return one.page != nullptr; }));
}

}  // namespace vuda::shim
