#include "shim/partition/scg.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

namespace vuda::partition {
namespace {

constexpr std::array kClasses = {
    ScgClass{0xc5c0, true, true},   // Turing
    ScgClass{0xc6c0, true, true},   // GA100
    ScgClass{0xc7c0, true, true},   // Ampere
    ScgClass{0xc9c0, true, true},   // Ada
    ScgClass{0xcbc0, true, false},  // Hopper
    ScgClass{0xcdc0, true, false},  // Blackwell
    ScgClass{0xcec0, true, false},
};

constexpr uint32_t kMaxSms9 = 0x1ff;
constexpr uint32_t kMinShift = 12;

// As CUDA and the Vulkan driver use them.
constexpr uint32_t k3dSubchannel = 0;
constexpr uint32_t kComputeSubchannel = 1;
constexpr std::array<uint32_t, 8> k3dClasses = {0xc397, 0xc597, 0xc697, 0xc797, 0xc997, 0xcb97, 0xcd97, 0xce97};
constexpr uint32_t kOpIncrement = 1;
constexpr uint32_t kSetObject = 0x0000;
constexpr uint32_t kSemAddressLow = 0x005c;        // SEM_ADDR_LO, then HI, PAYLOAD_LO, PAYLOAD_HI, EXECUTE
constexpr uint32_t kSemExecuteRelease = 1;         // SEM_EXECUTE_OPERATION
constexpr uint32_t kSemExecuteWaitIdle = 1 << 20;  // SEM_EXECUTE_RELEASE_WFI

constexpr uint32_t header(uint32_t subchannel, uint32_t method, uint32_t count) {
    return kOpIncrement << 29 | count << 16 | subchannel << 13 | method >> 2;
}

}  // namespace

const ScgClass* find_scg_class(uint32_t compute_class) {
    for (const ScgClass& known : kClasses) {
        if (known.compute_class == compute_class) return &known;
    }
    return nullptr;
}

bool has_l1_configuration(uint32_t three_d_class) {
    return std::ranges::find(k3dClasses, three_d_class) != k3dClasses.end();
}

Result<std::vector<Method>> scg_methods(uint32_t compute_class, Mode mode, uint32_t sms) {
    char name[8];
    std::snprintf(name, sizeof name, "%04X", compute_class);
    if (!has_scg(compute_class)) {
        return Error{Code::kUnimplemented, std::string("compute class ") + name + " has no SCG control methods", ""};
    }
    switch (mode) {
        case Mode::kIntraSm:
            // Co-residency, and no limit on how far either side spreads.
            return std::vector<Method>{{kSetSmScgControl, 1}, {kSetScgControl, kMaxSms9}};
        case Mode::kInterSm:
            if (sms == 0 || sms > kMaxSms9) {
                return Error{Code::kInvalidArgument, std::to_string(sms) + " multiprocessors for compute",
                             "1 to " + std::to_string(kMaxSms9)};
            }
            return std::vector<Method>{{kSetSmScgControl, 0}, {kSetScgControl, sms << kMinShift | sms}};
        default:
            return Error{Code::kUnimplemented, std::string("mode ") + mode_name(mode) + " needs no SCG method", ""};
    }
}

std::vector<uint32_t> push_buffer(uint32_t object_class, const std::vector<Method>& methods, uint64_t semaphore,
                                  uint32_t payload) {
    const uint32_t subchannel = has_l1_configuration(object_class) ? k3dSubchannel : kComputeSubchannel;
    std::vector<uint32_t> words{header(subchannel, kSetObject, 1), object_class};
    for (const Method& method : methods) {
        words.push_back(header(subchannel, method.address, 1));
        words.push_back(method.data);
    }
    words.push_back(header(subchannel, kSemAddressLow, 5));
    words.push_back(static_cast<uint32_t>(semaphore));
    words.push_back(static_cast<uint32_t>(semaphore >> 32));
    words.push_back(payload);
    words.push_back(0);
    words.push_back(kSemExecuteRelease | kSemExecuteWaitIdle);
    return words;
}

}  // namespace vuda::partition
