// Which paths and descriptors are simulated, and what stat says about them.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

namespace vuda::sim::preload {

struct SimFile {
    uint32_t kind = 0;  // 0 nvidiactl, 1 nvidiaN, 2 nvidia-uvm, 3 nvidia-uvm-tools
    int32_t minor = 0;
    uint64_t id = 0;
};

enum class Path { kOther, kDevice, kVersion };

// Classifies a path; *device is filled for kDevice. Looks at the text only.
Path classify(const char* path, SimFile* device);

// Is the descriptor a simulated file? Costs one system call for a socket, none of the others reach it.
bool identify(int fd, SimFile* file);

// As the real driver's device nodes: character devices 195:255, 195:N, 511:0, 511:1, mode 0666.
dev_t device_number(const SimFile& file);

}  // namespace vuda::sim::preload
