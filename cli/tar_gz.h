// A .tar.gz, made in memory: a few small text files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace vuda::cli {

class TarGz {
 public:
    // `name`: at most 99 bytes. `mtime`: seconds since 1970, for all members. Owner is root, mode 0644.
    void add(std::string_view name, std::string_view content, int64_t mtime);

    // The archive, compressed. INTERNAL when zlib fails.
    Result<std::string> finish() &&;

 private:
    std::string tar_;
};

}  // namespace vuda::cli
