// The fault points of a built program or library (base/fault_point.h), and what a test puts there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace vuda::faults {

struct Point {
    std::string name;
    uint64_t file_offset = 0;
    uint64_t address = 0;  // as the ELF file has it, before it is loaded anywhere
};

// What happens to whoever gets there.
enum class Deed {
    kNothing,  // the nops that were there
    kKill,     // kill(getpid(), SIGKILL): the process is gone before the next line
    kHold,     // this thread sleeps in pause(2), the others go on; undone by kNothing and release()
};

// Every place of every point in an ELF file; a name that the compiler copied occurs more than once.
Result<std::vector<Point>> points_of(const std::string& elf);

// Whether nothing but nops is at every point, as in what is shipped.
Status only_nops(const std::string& elf);

// `copy` becomes the file with the deed at every place of the point.
Status patch_copy(const std::string& elf, const std::string& copy, const std::string& point, Deed deed);

// The same in a running process of the same user that has `elf` mapped.
Status patch_process(pid_t pid, const std::string& elf, const std::string& point, Deed deed);

// Whether a thread of the process sleeps at a point (Deed::kHold).
bool held(pid_t pid);
// Wakes what sleeps at a point, after patch_process(..., kNothing).
void release(pid_t pid);

}  // namespace vuda::faults
