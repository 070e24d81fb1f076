// This process's control connection to vuda-simd, and the calls over it. All functions keep errno for the caller to
// set: they return errno values. Usable from any thread; after fork the child makes its own connection with its first
// call.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sim/preload/files.h"

namespace vuda::sim::preload {

// Is a simulator named (VUDA_SIM_SOCKET)? False means: everything passes through.
bool enabled();

// open(2) of a simulated device. 0 with *fd, else errno.
int open_device(const SimFile& device, int flags, int* fd);

// ioctl(2) on a simulated file. 0, else errno.
int call_ioctl(const SimFile& file, unsigned long request, void* argument);

// mmap(2) of a simulated file: the memory to map instead. 0 with *fd (to close) and *offset, else errno.
int call_map(const SimFile& file, size_t length, int* fd, off_t* offset);

// The text of /proc/driver/nvidia/version as a file to read. 0 with *fd, else errno.
int version_file(int flags, int* fd);

// Number of simulated GPUs; 0 when the server cannot be reached.
int gpu_count();

}  // namespace vuda::sim::preload
