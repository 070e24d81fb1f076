#include "bench/render/device.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <vector>

#include "bench/common/try.h"
#include "bench/render/vk_check.h"

namespace vuda::bench {
namespace {

int rank(VkPhysicalDeviceType type) {
    switch (type) {
        case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return 0;
        case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return 1;
        case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return 2;
        case VK_PHYSICAL_DEVICE_TYPE_CPU: return 3;
        default: return 4;
    }
}

bool has_extension(VkPhysicalDevice gpu, const char* name) {
    uint32_t count = 0;
    if (vkEnumerateDeviceExtensionProperties(gpu, nullptr, &count, nullptr) < 0) return false;
    std::vector<VkExtensionProperties> all(count);
    if (vkEnumerateDeviceExtensionProperties(gpu, nullptr, &count, all.data()) < 0) return false;
    return std::any_of(all.begin(), all.end(), [&](const auto& e) { return std::strcmp(e.extensionName, name) == 0; });
}

GpuInfo describe(VkPhysicalDevice gpu) {
    VkPhysicalDeviceDriverProperties driver = {};
    driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
    VkPhysicalDeviceIDProperties id = {};
    id.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
    if (has_extension(gpu, VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME)) id.pNext = &driver;
    VkPhysicalDeviceProperties2 properties = {};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    properties.pNext = &id;
    vkGetPhysicalDeviceProperties2(gpu, &properties);

    GpuInfo info;
    info.name = properties.properties.deviceName;
    std::memcpy(info.uuid.bytes.data(), id.deviceUUID, info.uuid.bytes.size());
    info.driver = driver.driverName;
    if (driver.driverInfo[0] != '\0') info.driver += std::string(" ") + driver.driverInfo;
    info.ns_per_tick = static_cast<double>(properties.properties.limits.timestampPeriod);
    return info;
}

}  // namespace

Result<Device> Device::open(const std::string& which) {
    Device device;
    VkApplicationInfo app = {};
    app.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    app.pApplicationName = "vuda-bench-render";
    app.apiVersion = VK_API_VERSION_1_1;
    VkInstanceCreateInfo create = {};
    create.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    create.pApplicationInfo = &app;
    VUDA_BENCH_TRY(vk_check(vkCreateInstance(&create, nullptr, &device.instance_), "create a Vulkan instance"));
    VUDA_BENCH_TRY(device.pick(which));
    VUDA_BENCH_TRY(device.open_queue());
    return device;
}

Device::~Device() {
    if (device_) vkDestroyDevice(device_, nullptr);
    if (instance_) vkDestroyInstance(instance_, nullptr);
}

void Device::swap(Device& other) noexcept {
    std::swap(instance_, other.instance_);
    std::swap(physical_, other.physical_);
    std::swap(device_, other.device_);
    std::swap(queue_, other.queue_);
    std::swap(queue_family_, other.queue_family_);
    std::swap(copy_queue_, other.copy_queue_);
    std::swap(copy_family_, other.copy_family_);
    std::swap(info_, other.info_);
}

Status Device::pick(const std::string& which) {
    uint32_t count = 0;
    VUDA_BENCH_TRY(vk_check(vkEnumeratePhysicalDevices(instance_, &count, nullptr), "list the GPUs"));
    std::vector<VkPhysicalDevice> gpus(count);
    VUDA_BENCH_TRY(vk_check(vkEnumeratePhysicalDevices(instance_, &count, gpus.data()), "list the GPUs"));
    gpus.resize(count);
    if (gpus.empty())
        return Error{Code::kUnavailable, "Vulkan finds no GPU", "check the driver with vulkaninfo --summary"};

    if (which.empty()) {
        const auto type = [](VkPhysicalDevice gpu) {
            VkPhysicalDeviceProperties properties;
            vkGetPhysicalDeviceProperties(gpu, &properties);
            return rank(properties.deviceType);
        };
        physical_ = *std::min_element(gpus.begin(), gpus.end(), [&](auto a, auto b) { return type(a) < type(b); });
    } else if (const Result<Uuid> uuid = parse_uuid(which); uuid.ok()) {
        const auto found =
            std::find_if(gpus.begin(), gpus.end(), [&](VkPhysicalDevice gpu) { return describe(gpu).uuid == *uuid; });
        if (found == gpus.end())
            return Error{Code::kUnavailable, "Vulkan finds no GPU with UUID " + uuid->to_string(), ""};
        physical_ = *found;
    } else {
        size_t index = 0;
        const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), index);
        if (error != std::errc() || end != which.data() + which.size())
            return Error{Code::kInvalidArgument, "--device " + which + " is neither a GPU UUID nor an index", ""};
        if (index >= gpus.size())
            return Error{Code::kUnavailable,
                         "there is no GPU " + which + "; Vulkan finds " + std::to_string(gpus.size()), ""};
        physical_ = gpus[index];
    }
    info_ = describe(physical_);
    return {};
}

Status Device::open_queue() {
    uint32_t count = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(physical_, &count, nullptr);
    std::vector<VkQueueFamilyProperties> families(count);
    vkGetPhysicalDeviceQueueFamilyProperties(physical_, &count, families.data());
    const auto family = std::find_if(families.begin(), families.end(),
                                     [](const auto& f) { return (f.queueFlags & VK_QUEUE_GRAPHICS_BIT) != 0; });
    if (family == families.end()) return Error{Code::kUnavailable, info_.name + " has no graphics queue", ""};
    queue_family_ = static_cast<uint32_t>(family - families.begin());
    const uint32_t bits = family->timestampValidBits;
    info_.timestamp_mask = bits >= 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1;
    if (bits == 0) info_.ns_per_tick = 0;

    const auto copy = std::find_if(families.begin(), families.end(), [](const auto& f) {
        return (f.queueFlags & (VK_QUEUE_TRANSFER_BIT | VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT)) ==
               VK_QUEUE_TRANSFER_BIT;
    });
    copy_family_ = copy == families.end() ? queue_family_ : static_cast<uint32_t>(copy - families.begin());

    const float priority = 1;
    VkDeviceQueueCreateInfo queues[2] = {};
    for (auto& queue : queues) {
        queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
        queue.queueCount = 1;
        queue.pQueuePriorities = &priority;
    }
    queues[0].queueFamilyIndex = queue_family_;
    queues[1].queueFamilyIndex = copy_family_;
    VkDeviceCreateInfo create = {};
    create.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    create.queueCreateInfoCount = copy_family_ == queue_family_ ? 1 : 2;
    create.pQueueCreateInfos = queues;
    VUDA_BENCH_TRY(
        vk_check(vkCreateDevice(physical_, &create, nullptr, &device_), "create a Vulkan device on " + info_.name));
    vkGetDeviceQueue(device_, queue_family_, 0, &queue_);
    vkGetDeviceQueue(device_, copy_family_, 0, &copy_queue_);
    return {};
}

Result<VkMemoryOwner> Device::allocate(const VkMemoryRequirements& requirements, VkMemoryPropertyFlags required,
                                       VkMemoryPropertyFlags wished) const {
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(physical_, &memory);
    const auto find = [&](VkMemoryPropertyFlags flags) {
        uint32_t type = 0;
        while (type < memory.memoryTypeCount && !((requirements.memoryTypeBits >> type & 1) != 0 &&
                                                  (memory.memoryTypes[type].propertyFlags & flags) == flags))
            ++type;
        return type;
    };
    uint32_t type = find(required | wished);
    if (type == memory.memoryTypeCount) type = find(required);
    if (type == memory.memoryTypeCount)
        return Error{Code::kInternal, info_.name + " has no memory of the kind needed", ""};
    VkMemoryAllocateInfo allocate = {};
    allocate.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
    allocate.allocationSize = requirements.size;
    allocate.memoryTypeIndex = type;
    VkMemoryOwner owner;
    VUDA_BENCH_TRY(vk_check(vkAllocateMemory(device_, &allocate, nullptr, owner.put(device_)), "allocate GPU memory"));
    return owner;
}

}  // namespace vuda::bench
