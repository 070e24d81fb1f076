#include "bench/compute/gpu.h"

#include <charconv>
#include <cstring>

#include "bench/common/try.h"

namespace vuda::bench {
namespace {

Result<Uuid> uuid_of(const CudaApi& api, CUdevice device) {
    CUuuid raw = {};
    VUDA_BENCH_TRY(api.check(api.device_get_uuid(&raw, device), "ask for the GPU's UUID"));
    Uuid uuid;
    std::memcpy(uuid.bytes.data(), raw.bytes, uuid.bytes.size());
    return uuid;
}

Result<CUdevice> find_device(const CudaApi& api, const std::string& which) {
    int count = 0;
    VUDA_BENCH_TRY(api.check(api.device_get_count(&count), "count the GPUs"));
    if (count == 0) return Error{Code::kUnavailable, "CUDA finds no GPU", ""};
    int ordinal = 0;
    CUdevice device = 0;
    if (const Result<Uuid> uuid = parse_uuid(which); uuid.ok()) {
        for (; ordinal < count; ++ordinal) {
            VUDA_BENCH_TRY(api.check(api.device_get(&device, ordinal), "open the GPU"));
            const Result<Uuid> candidate = uuid_of(api, device);
            VUDA_BENCH_TRY(candidate);
            if (*candidate == *uuid) return device;
        }
        return Error{Code::kUnavailable, "CUDA finds no GPU with UUID " + uuid->to_string(), ""};
    }
    if (!which.empty()) {
        const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), ordinal);
        if (error != std::errc() || end != which.data() + which.size() || ordinal < 0)
            return Error{Code::kInvalidArgument, "--device " + which + " is neither a GPU UUID nor an index", ""};
        if (ordinal >= count)
            return Error{Code::kUnavailable, "there is no GPU " + which + "; CUDA finds " + std::to_string(count), ""};
    }
    VUDA_BENCH_TRY(api.check(api.device_get(&device, ordinal), "open the GPU"));
    return device;
}

}  // namespace

Result<CudaGpu> open_cuda_gpu(std::shared_ptr<const CudaApi> api, const std::string& which) {
    CudaGpu gpu;
    VUDA_BENCH_TRY(api->check(api->init(0), "start CUDA"));
    const Result<CUdevice> device = find_device(*api, which);
    VUDA_BENCH_TRY(device);
    gpu.device = *device;
    char name[256] = {};
    VUDA_BENCH_TRY(api->check(api->device_get_name(name, sizeof name, gpu.device), "ask for the GPU's name"));
    gpu.name = name;
    const Result<Uuid> uuid = uuid_of(*api, gpu.device);
    VUDA_BENCH_TRY(uuid);
    gpu.uuid = *uuid;
    int version = 0;
    VUDA_BENCH_TRY(api->check(api->driver_get_version(&version), "ask for CUDA's version"));
    gpu.cuda_version = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    VUDA_BENCH_TRY(
        api->check(api->device_get_attribute(&gpu.multiprocessors, kCuAttributeMultiprocessorCount, gpu.device),
                   "count the multiprocessors"));
    gpu.api = std::move(api);
    return gpu;
}

}  // namespace vuda::bench
