#include "daemon/driver_facts.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "base/unique_fd.h"
#include "rm/driver_table.h"
#include "rm/driver_version.h"

namespace vuda::daemon {

DriverFacts read_driver_facts(const char* file) {
    const UniqueFd fd(::open(file == nullptr ? rm::kDriverVersionFile : file, O_RDONLY | O_CLOEXEC));
    if (!fd) return {"", v1::DRIVER_VERDICT_ABSENT, "no NVIDIA driver is loaded"};
    std::array<char, 4096> text;
    const ssize_t got = ::read(fd.get(), text.data(), text.size());
    const Result<rm::DriverVersion> version =
        rm::parse_proc_driver_version({text.data(), got > 0 ? static_cast<size_t>(got) : 0});
    if (!version) return {"", v1::DRIVER_VERDICT_UNKNOWN, version.error().to_string()};
    const rm::DriverSupport support = rm::find_driver(*version);
    v1::DriverVerdict verdict = v1::DRIVER_VERDICT_UNKNOWN;
    switch (support.verdict) {
        case rm::Verdict::kSupported: verdict = v1::DRIVER_VERDICT_SUPPORTED; break;
        case rm::Verdict::kLayoutEqual: verdict = v1::DRIVER_VERDICT_LAYOUT_EQUAL; break;
        case rm::Verdict::kKnownBad: verdict = v1::DRIVER_VERDICT_KNOWN_BAD; break;
        case rm::Verdict::kUnknown: verdict = v1::DRIVER_VERDICT_UNKNOWN; break;
    }
    return {version->to_string(), verdict, std::string(support.note)};
}

}  // namespace vuda::daemon
