// The documented way to share memory between CUDA and Vulkan: cuMemCreate, cuMemExportToShareableHandle, then
// vkAllocateMemory with VkImportMemoryFdInfoKHR, vkBindBufferMemory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace vuda::bench {

struct ExportImportTimes {
    uint32_t count = 0;
    double create_ms = 0;
    double export_ms = 0;
    double import_ms = 0;
    double bind_ms = 0;
};
struct ExportImport {
    std::string gpu;
    uint64_t bytes = 0;  // of each buffer: CUDA's granularity, if that is more than what was asked for
    std::vector<ExportImportTimes> times;
};

// `which`: GPU UUID, or empty for CUDA's first.
Result<ExportImport> measure_export_import(const std::string& which, uint64_t bytes,
                                           const std::vector<uint32_t>& counts);

}  // namespace vuda::bench
