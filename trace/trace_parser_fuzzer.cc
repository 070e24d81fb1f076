// Any bytes as a trace: no crash, and what is accepted is written and read back the same. Accepted traces are also put
// into words and compared with themselves.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "trace/describe.h"
#include "trace/diff.h"
#include "trace/format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vuda::trace;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto trace = parse(text);
    if (!trace) return 0;
    const std::string written = write(*trace);
    const auto back = parse(written);
    if (!back || !(*back == *trace) || write(*back) != written) std::abort();
    Describer describer(abi_of(trace->header), Handles::kRaw);
    for (const Record& record : trace->records) (void)describer.describe(record);
    const auto same = diff(*trace, *back);
    if (!same || !same->empty()) std::abort();
    return 0;
}
