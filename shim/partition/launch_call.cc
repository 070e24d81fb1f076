#include "shim/partition/launch_call.h"

#include "shim/partition/safe_read.h"

namespace vuda::partition {
namespace {

// cupti_driver_cbid.h
enum : int {
    kLaunchKernel = 307,
    kLaunchKernelPtsz = 442,
    kLaunchCooperative = 477,
    kLaunchCooperativePtsz = 478,
    kLaunchKernelEx = 652,
    kLaunchKernelExPtsz = 653,
};

// CUlaunchAttributeID
enum : uint32_t {
    kIgnore = 0,
    kAccessPolicyWindow = 1,
    kCooperative = 2,
    kClusterDimension = 4,
    kClusterScheduling = 5,
    kProgrammaticSerialization = 6,
    kPriority = 8,
    kMemSyncDomainMap = 9,
    kMemSyncDomain = 10,
    kPreferredCluster = 11,
    kCarveout = 14,
    kNvlinkCentric = 16,
};

const CuStream kPerThread = reinterpret_cast<CuStream>(uintptr_t{2});

// Arguments of cuLaunchKernel and cuLaunchCooperativeKernel, which has no `extra`.
struct KernelArguments {
    CuFunction function;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    CuStream stream;
    void** parameters;
};

// Of cuLaunchKernelEx.
struct ExArguments {
    const CuLaunchConfig* config;
    CuFunction function;
    void** parameters;
    void** extra;
};

bool carries_over(uint32_t attribute) {
    switch (attribute) {
        case kAccessPolicyWindow:
        case kCooperative:
        case kClusterDimension:
        case kClusterScheduling:
        case kMemSyncDomainMap:
        case kMemSyncDomain:
        case kPreferredCluster:
        case kCarveout:
        case kNvlinkCentric: return true;
        default: return false;
    }
}

// May be left out: that only makes the launch wait for the one before, or gives it the stream's priority.
bool dispensable(uint32_t attribute) {
    return attribute == kIgnore || attribute == kProgrammaticSerialization || attribute == kPriority;
}

bool read_attributes(const CuLaunchConfig& config, LaunchCall& call) {
    for (unsigned i = 0; i < config.attribute_count; ++i) {
        CuLaunchAttribute attribute;
        if (!read_safely(config.attributes + i, &attribute, sizeof attribute)) return false;
        if (dispensable(attribute.id)) continue;
        if (!carries_over(attribute.id) || call.attribute_count == LaunchCall::kAttributes) return false;
        call.attributes[call.attribute_count++] = attribute;
    }
    return true;
}

}  // namespace

CuLaunchConfig LaunchCall::config_on(CuStream where) {
    return {{grid[0], grid[1], grid[2]},
            {block[0], block[1], block[2]},
            shared_bytes,
            where,
            attributes.data(),
            attribute_count};
}

std::optional<LaunchCall> read_launch_call(int function, const void* parameters) {
    LaunchCall call;
    const auto shape = [&](const unsigned* grid, const unsigned* block, unsigned shared, CuStream stream) {
        for (int i = 0; i < 3; ++i) {
            call.grid[i] = grid[i];
            call.block[i] = block[i];
        }
        call.shared_bytes = shared;
        call.stream = stream;
    };
    switch (function) {
        case kLaunchKernel:
        case kLaunchKernelPtsz:
        case kLaunchCooperative:
        case kLaunchCooperativePtsz: {
            KernelArguments said;
            if (!read_safely(parameters, &said, sizeof said)) return std::nullopt;
            call.function = said.function;
            call.parameters = said.parameters;
            shape(said.grid, said.block, said.shared_bytes, said.stream);
            if (function == kLaunchCooperative || function == kLaunchCooperativePtsz) {
                call.attributes[call.attribute_count++] = {kCooperative, 0, {1}};
            } else if (!read_safely(static_cast<const char*>(parameters) + sizeof said, &call.extra,
                                    sizeof call.extra)) {
                return std::nullopt;
            }
            break;
        }
        case kLaunchKernelEx:
        case kLaunchKernelExPtsz: {
            ExArguments said;
            CuLaunchConfig config;
            if (!read_safely(parameters, &said, sizeof said) || !read_safely(said.config, &config, sizeof config) ||
                !read_attributes(config, call))
                return std::nullopt;
            call.function = said.function;
            call.parameters = said.parameters;
            call.extra = said.extra;
            shape(config.grid, config.block, config.shared_bytes, config.stream);
            break;
        }
        default: return std::nullopt;
    }
    const bool per_thread =
        function == kLaunchKernelPtsz || function == kLaunchCooperativePtsz || function == kLaunchKernelExPtsz;
    if (per_thread && call.stream == nullptr) call.stream = kPerThread;
    return call;
}

}  // namespace vuda::partition
