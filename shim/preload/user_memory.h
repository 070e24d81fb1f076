// The program's memory, read and written so that a bad pointer is an error and not a crash: it is the kernel that has
// to answer EFAULT.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vuda::shim {

bool read_user(uint64_t address, void* out, size_t size);
bool write_user(uint64_t address, const void* in, size_t size);

}  // namespace vuda::shim
