// Copies of a caller's memory around an ioctl, without trusting its pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rm/ioctl_view.h"
#include "trace/record.h"

namespace vuda::trace {

// Bytes of this process's memory at `address`; shorter when the rest cannot be read.
std::vector<uint8_t> read_memory(uint64_t address, size_t size);

// Bytes of the argument block of a request, as far as this file or the request's number knows; 0: none, or not known.
size_t argument_bytes(rm::Surface surface, unsigned long request, const rm::DriverAbi& abi);

// The parameter block behind an argument: for controls what the caller says, for allocations what the class needs.
struct Region {
    uint64_t address = 0;
    uint32_t size = 0;
};
Region parameter_region(rm::Surface surface, unsigned long request, rm::Bytes arg, const rm::DriverAbi& abi);

// Fills the argument and parameter blocks of an ioctl's record: before() ahead of the call, after() behind it.
class Capture {
 public:
    Capture(rm::Surface surface, unsigned long request, uint64_t arg, const rm::DriverAbi& abi);
    void after(Record& record);

 private:
    Region arg_;
    Region params_;
    Block arg_block_;
    Block params_block_;
};

}  // namespace vuda::trace
