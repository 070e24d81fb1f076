// Any bytes as the text of /proc/driver/nvidia/version or as a version: no crash, and what is accepted prints and
// parses back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "rm/driver_table.h"
#include "rm/driver_version.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vuda::rm;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const auto& version : {parse_driver_version(text), parse_proc_driver_version(text)}) {
        if (!version) continue;
        const auto back = parse_driver_version(version->to_string());
        if (!back || !(*back == *version)) std::abort();
        const DriverSupport support = find_driver(*version);
        if ((support.abi != nullptr) != redirection_allowed(support.verdict)) std::abort();
    }
    return 0;
}
