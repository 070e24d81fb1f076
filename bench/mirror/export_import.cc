#include "bench/mirror/export_import.h"

#include <dlfcn.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"
#include "base/uuid.h"
#include "bench/common/try.h"
#include "bench/compute/gpu.h"
#include "bench/render/vk_check.h"

namespace vuda::bench {
namespace {

// CUmemAllocationProp, CUmemLocation. Source: the CUDA driver API.
struct Location {
    int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
    int id = 0;
};
struct AllocationProp {
    int type = 1;                    // CU_MEM_ALLOCATION_TYPE_PINNED
    int requested_handle_types = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    Location location;
    void* win32 = nullptr;
    unsigned char flags[8] = {};
};
static_assert(sizeof(AllocationProp) == 32);

struct CudaMemory {
    CUresult (*granularity)(size_t* bytes, const AllocationProp* prop, int option) = nullptr;
    CUresult (*create)(unsigned long long* handle, size_t bytes, const AllocationProp* prop,
                       unsigned long long flags) = nullptr;
    CUresult (*release)(unsigned long long handle) = nullptr;
    CUresult (*export_to)(void* shareable, unsigned long long handle, int type, unsigned long long flags) = nullptr;

    bool load() {
        void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        const auto find = [&](const char* name, auto& function) {
            function = library != nullptr ? reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name))
                                          : nullptr;
            return function != nullptr;
        };
        return find("cuMemGetAllocationGranularity", granularity) && find("cuMemCreate", create) &&
               find("cuMemRelease", release) && find("cuMemExportToShareableHandle", export_to);
    }
};

class VulkanImporter {
 public:
    ~VulkanImporter() {
        if (device_) vkDestroyDevice(device_, nullptr);
        if (instance_) vkDestroyInstance(instance_, nullptr);
    }

    Status open(const Uuid& uuid, uint64_t bytes) {
        VkApplicationInfo app = {};
        app.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
        app.pApplicationName = "vuda-bench-mirror";
        app.apiVersion = VK_API_VERSION_1_1;
        VkInstanceCreateInfo create = {};
        create.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
        create.pApplicationInfo = &app;
        VUDA_BENCH_TRY(vk_check(vkCreateInstance(&create, nullptr, &instance_), "create a Vulkan instance"));
        uint32_t count = 0;
        VUDA_BENCH_TRY(vk_check(vkEnumeratePhysicalDevices(instance_, &count, nullptr), "list the GPUs"));
        std::vector<VkPhysicalDevice> gpus(count);
        VUDA_BENCH_TRY(vk_check(vkEnumeratePhysicalDevices(instance_, &count, gpus.data()), "list the GPUs"));
        for (VkPhysicalDevice gpu : gpus) {
            VkPhysicalDeviceIDProperties id = {};
            id.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
            VkPhysicalDeviceProperties2 properties = {};
            properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
            properties.pNext = &id;
            vkGetPhysicalDeviceProperties2(gpu, &properties);
            if (std::memcmp(id.deviceUUID, uuid.bytes.data(), uuid.bytes.size()) == 0) physical_ = gpu;
        }
        if (physical_ == VK_NULL_HANDLE) return Error{Code::kUnavailable, "Vulkan does not find CUDA's GPU", ""};
        const float priority = 1;
        VkDeviceQueueCreateInfo queue = {};
        queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
        queue.queueCount = 1;
        queue.pQueuePriorities = &priority;
        const char* const extension = VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME;
        VkDeviceCreateInfo device = {};
        device.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
        device.queueCreateInfoCount = 1;
        device.pQueueCreateInfos = &queue;
        device.enabledExtensionCount = 1;
        device.ppEnabledExtensionNames = &extension;
        VUDA_BENCH_TRY(vk_check(vkCreateDevice(physical_, &device, nullptr, &device_), "create a Vulkan device"));
        bytes_ = bytes;
        VkBuffer one = VK_NULL_HANDLE;
        VUDA_BENCH_TRY(make_buffer(&one));
        VkMemoryRequirements needs;
        vkGetBufferMemoryRequirements(device_, one, &needs);
        vkDestroyBuffer(device_, one, nullptr);
        VkPhysicalDeviceMemoryProperties memory;
        vkGetPhysicalDeviceMemoryProperties(physical_, &memory);
        for (type_ = 0; type_ < memory.memoryTypeCount; ++type_) {
            if ((needs.memoryTypeBits >> type_ & 1) != 0 &&
                (memory.memoryTypes[type_].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0)
                return {};
        }
        return Error{Code::kUnavailable, "Vulkan imports no memory of this GPU", ""};
    }

    Status make_buffer(VkBuffer* buffer) const {
        VkExternalMemoryBufferCreateInfo external = {};
        external.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO;
        external.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
        VkBufferCreateInfo create = {};
        create.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
        create.pNext = &external;
        create.size = bytes_;
        create.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
        return vk_check(vkCreateBuffer(device_, &create, nullptr, buffer), "create a buffer");
    }

    Status import(UniqueFd fd, VkDeviceMemory* memory) const {
        VkImportMemoryFdInfoKHR info = {};
        info.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR;
        info.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
        info.fd = fd.get();
        VkMemoryAllocateInfo allocate = {};
        allocate.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
        allocate.pNext = &info;
        allocate.allocationSize = bytes_;
        allocate.memoryTypeIndex = type_;
        Status done = vk_check(vkAllocateMemory(device_, &allocate, nullptr, memory), "import memory");
        if (done) static_cast<void>(fd.release());  // Vulkan's from now on
        return done;
    }
    Status bind(VkBuffer buffer, VkDeviceMemory memory) const {
        return vk_check(vkBindBufferMemory(device_, buffer, memory, 0), "bind memory");
    }
    void drop(VkBuffer buffer, VkDeviceMemory memory) const {
        if (buffer) vkDestroyBuffer(device_, buffer, nullptr);
        if (memory) vkFreeMemory(device_, memory, nullptr);
    }

 private:
    VkInstance instance_ = VK_NULL_HANDLE;
    VkPhysicalDevice physical_ = VK_NULL_HANDLE;
    VkDevice device_ = VK_NULL_HANDLE;
    uint64_t bytes_ = 0;
    uint32_t type_ = 0;
};

struct Shared {
    unsigned long long handle = 0;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
};

Status share_one(const CudaGpu& gpu, const CudaMemory& cuda, const VulkanImporter& vulkan, const AllocationProp& prop,
                 uint64_t bytes, Shared& one, ExportImportTimes& times) {
    VUDA_BENCH_TRY(vulkan.make_buffer(&one.buffer));
    auto start = std::chrono::steady_clock::now();
    const auto lap = [&start] {
        const auto now = std::chrono::steady_clock::now();
        return std::chrono::duration<double, std::milli>(now - std::exchange(start, now)).count();
    };
    VUDA_BENCH_TRY(gpu.api->check(cuda.create(&one.handle, bytes, &prop, 0), "cuMemCreate"));
    times.create_ms += lap();
    int number = -1;
    VUDA_BENCH_TRY(
        gpu.api->check(cuda.export_to(&number, one.handle, prop.requested_handle_types, 0), "export memory"));
    UniqueFd fd(number);
    times.export_ms += lap();
    VUDA_BENCH_TRY(vulkan.import(std::move(fd), &one.memory));
    times.import_ms += lap();
    VUDA_BENCH_TRY(vulkan.bind(one.buffer, one.memory));
    times.bind_ms += lap();
    return {};
}

}  // namespace

Result<ExportImport> measure_export_import(const std::string& which, uint64_t bytes,
                                           const std::vector<uint32_t>& counts) {
    Result<std::shared_ptr<const CudaApi>> api = CudaApi::load();
    if (!api) return api.error();
    Result<CudaGpu> gpu = open_cuda_gpu(*api, which);
    if (!gpu) return gpu.error();
    CudaMemory cuda;
    if (!cuda.load()) return Error{Code::kUnavailable, "this CUDA driver cannot export memory", ""};
    CUcontext context = nullptr;
    VUDA_BENCH_TRY(gpu->api->check(gpu->api->primary_context_retain(&context, gpu->device), "make a CUDA context"));
    VUDA_BENCH_TRY(gpu->api->check(gpu->api->context_set_current(context), "use the CUDA context"));
    AllocationProp prop;
    prop.location.id = gpu->device;
    size_t granularity = 0;
    VUDA_BENCH_TRY(gpu->api->check(cuda.granularity(&granularity, &prop, 0), "ask for the granularity"));

    ExportImport found;
    found.gpu = gpu->name;
    found.bytes = (bytes + granularity - 1) / granularity * granularity;
    VulkanImporter vulkan;
    VUDA_BENCH_TRY(vulkan.open(gpu->uuid, found.bytes));
    for (const uint32_t count : counts) {
        ExportImportTimes times;
        times.count = count;
        std::vector<Shared> all(count);
        Status shared;
        for (uint32_t i = 0; i < count && shared; ++i)
            shared = share_one(*gpu, cuda, vulkan, prop, found.bytes, all[i], times);
        for (const Shared& one : all) {
            vulkan.drop(one.buffer, one.memory);
            if (one.handle != 0) static_cast<void>(cuda.release(one.handle));
        }
        if (!shared) return shared.error();
        found.times.push_back(times);
    }
    static_cast<void>(gpu->api->primary_context_release(gpu->device));
    return found;
}

}  // namespace vuda::bench
