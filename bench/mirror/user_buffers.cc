#include "bench/mirror/user_buffers.h"

#include <utility>
#include <vector>

#include "bench/common/clock.h"
#include "bench/common/try.h"
#include "bench/render/vk_check.h"

namespace vuda::bench {
namespace {

struct UserBuffer {
    VkMemoryOwner memory;
    VkBufferOwner buffer;  // goes first
};

// Adds the milliseconds since `from`, which becomes now.
void lap(Clock::time_point& from, double& sum) {
    const auto now = Clock::now();
    sum += ms_between(std::exchange(from, now), now);
}

Status make_one(const Device& device, uint64_t bytes, UserBuffer& one, UserBufferTimes& times) {
    VkBufferCreateInfo create = {};
    create.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    create.size = bytes;
    create.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
    const VkDevice handle = device.handle();
    auto from = Clock::now();
    VUDA_BENCH_TRY(vk_check(vkCreateBuffer(handle, &create, nullptr, one.buffer.put(handle)), "create a buffer"));
    VkMemoryRequirements requirements;
    vkGetBufferMemoryRequirements(handle, one.buffer.get(), &requirements);
    lap(from, times.create_ms);
    auto memory = device.allocate(requirements, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0);
    VUDA_BENCH_TRY(memory);
    one.memory = *std::move(memory);
    lap(from, times.allocate_ms);
    VUDA_BENCH_TRY(vk_check(vkBindBufferMemory(handle, one.buffer.get(), one.memory.get(), 0), "bind a buffer"));
    lap(from, times.bind_ms);
    return {};
}

}  // namespace

UserBufferTimes make_user_buffers(const Device& device, uint32_t count, uint64_t bytes) {
    UserBufferTimes times;
    times.count = count;
    std::vector<UserBuffer> buffers(count);
    for (UserBuffer& one : buffers) {
        const Status made = make_one(device, bytes, one, times);
        if (!made) {
            times.failed = made.error().to_string();
            break;
        }
        ++times.made;
    }
    auto from = Clock::now();
    buffers.clear();
    lap(from, times.free_ms);
    return times;
}

}  // namespace vuda::bench
