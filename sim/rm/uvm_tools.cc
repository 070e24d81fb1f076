// /dev/nvidia-uvm-tools: event queues, as far as somebody counts replays of page faults. Checks as in uvm_tools.c of
// the open kernel modules 580.95.05 (create_event_tracker, enqueue_event).
#include <algorithm>
#include <bit>
#include <cerrno>

#include "sim/rm/call.h"

namespace vuda::sim {

Outcome RmCall::run_uvm_tools(Bytes argument) {
    switch (request_.number) {
        case rm::uvm::kToolsInitEventTracker: {
            if (argument.size() != sizeof(rm::UvmToolsInitEventTrackerArgs)) return {EINVAL};
            auto args = load<rm::UvmToolsInitEventTrackerArgs>(argument);
            args.rmStatus = init_event_tracker(args);
            store(argument, args);
            return {};
        }
        case rm::uvm::kToolsEventQueueEnableEvents: {
            if (argument.size() != sizeof(rm::UvmToolsEnableEventsArgs)) return {EINVAL};
            auto args = load<rm::UvmToolsEnableEventsArgs>(argument);
            args.rmStatus = file_.events.control == nullptr ? rm::nv::kInvalidArgument : rm::nv::kOk;
            if (args.rmStatus == rm::nv::kOk) file_.events.types |= args.eventTypeFlags;
            store(argument, args);
            return {};
        }
        default: return {EINVAL};
    }
}

uint32_t RmCall::init_event_tracker(const rm::UvmToolsInitEventTrackerArgs& args) {
    const auto uvm = rm_.files_.find(request_.file_of(static_cast<int>(args.uvmFd)).value_or(0));
    if (uvm == rm_.files_.end() || uvm->second.kind != FileKind::kUvm) return rm::nv::kInsufficientPermissions;
    if (!uvm->second.uvm.initialized) return rm::nv::kIllegalAction;
    if (args.queueBufferSize < 2 || args.queueBufferSize > UINT32_MAX || !std::has_single_bit(args.queueBufferSize))
        return rm::nv::kInvalidArgument;
    for (const uint64_t address : {args.queueBuffer, args.controlBuffer}) {
        if (address == 0 || address % kPage != 0) return rm::nv::kInvalidAddress;
    }
    if (file_.events.control != nullptr) return rm::nv::kInvalidArgument;
    file_.events.control = std::make_shared<SharedMemory>(kPage);
    file_.events.places = static_cast<uint32_t>(args.queueBufferSize);
    return rm::nv::kOk;
}

// The events themselves are nowhere: that the queue is full, and what did not fit, is all that can be seen.
void ResourceManager::count_replays(uint64_t replays) {
    for (auto& [id, file] : files_) {
        EventQueue& queue = file.events;
        if (queue.control == nullptr || (queue.types >> rm::kUvmEventGpuFaultReplay & 1) == 0) continue;
        rm::UvmToolsEventControl control{};
        if (!queue.control->read(0, &control, sizeof control)) continue;
        const uint32_t mask = queue.places - 1;
        const uint32_t room = (control.getBehind - control.putBehind - 1) & mask;
        const uint64_t put = std::min<uint64_t>(room, replays);
        control.putBehind = control.putAhead = static_cast<uint32_t>(control.putBehind + put) & mask;
        uint64_t& dropped = control.dropped[rm::kUvmEventGpuFaultReplay];
        dropped += replays - put;
        queue.control->write(offsetof(rm::UvmToolsEventControl, putAhead), &control.putAhead, 2 * sizeof(uint32_t));
        queue.control->write(offsetof(rm::UvmToolsEventControl, dropped) + sizeof dropped * rm::kUvmEventGpuFaultReplay,
                             &dropped, sizeof dropped);
    }
}

bool ResourceManager::set_stuck(pid_t pid, bool stuck) {
    if (!stuck) return stuck_.erase(pid) != 0;
    const bool there =
        std::any_of(gpus_.begin(), gpus_.end(), [pid](const auto& gpu) { return gpu->has_graphics_channel(pid); });
    if (there) stuck_.insert(pid);
    return there;
}

// Its end is what the GPU was waiting for: now the access is a fault.
void ResourceManager::end_stuck(const File& closing) {
    if (closing.clients.empty() && closing.uvm.channels.empty()) return;
    if (stuck_.erase(closing.opener) == 0) return;
    for (const auto& gpu : gpus_) gpu->fault_of(closing.opener, 31);
}

}  // namespace vuda::sim
