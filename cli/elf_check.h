// Can LD_PRELOAD reach this program? ld.so is not there in a static executable, and drops LD_PRELOAD for programs that
// gain privilege (ld.so(8), "Secure-execution mode").
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/result.h"

namespace vuda::cli {

struct ProgramFacts {
    bool elf = false;
    bool dynamic = false;   // has PT_INTERP
    bool same_abi = false;  // 64-bit and of this machine's architecture
    bool setuid = false;
    bool setgid = false;
    bool capabilities = false;  // security.capability is set
    uid_t owner = 0;
    gid_t group = 0;
    std::string interpreter;  // of a "#!" script, absolute path; else empty
};

// Reads the file's header only. Errors: NOT_FOUND, PERMISSION_DENIED, DATA_LOSS (an ELF file cut short).
Result<ProgramFacts> inspect_program(const std::string& path);

// The reason why a program with these facts runs without the shim when started by (uid, gid); nothing if LD_PRELOAD
// works.
std::optional<std::string> preload_obstacle(const ProgramFacts& facts, uid_t uid, gid_t gid);

// inspect + obstacle, following "#!" to the interpreter. A file that cannot be read (execute-only) has no known
// obstacle.
std::optional<std::string> preload_obstacle(const std::string& path, uid_t uid, gid_t gid);

}  // namespace vuda::cli
