// The CUDA device of a run.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/uuid.h"
#include "bench/compute/cuda_api.h"

namespace vuda::bench {

struct CudaGpu {
    std::shared_ptr<const CudaApi> api;
    CUdevice device = 0;
    std::string name;
    Uuid uuid;
    std::string cuda_version;  // of the driver, e.g. "13.0"
    int multiprocessors = 0;
};

// `which`: GPU UUID, index in CUDA's order, or empty for the first.
Result<CudaGpu> open_cuda_gpu(std::shared_ptr<const CudaApi> api, const std::string& which);

}  // namespace vuda::bench
