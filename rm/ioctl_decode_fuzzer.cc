// Input: byte 0 chooses surface and driver branch, bytes 1-4 are the request, the rest is the argument. The decoder
// must stay within the argument whatever it holds, and its blocks within their limits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "rm/ioctl_view.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vuda::rm;
    if (size < 5) return 0;
    const Surface surface = data[0] & 1 ? Surface::kUvm : Surface::kRm;
    const DriverAbi& abi = *all_abis()[(data[0] >> 1) % all_abis().size()];
    uint32_t request = 0;
    std::memcpy(&request, data + 1, sizeof request);
    // An own allocation of exactly the argument's size, so that a read past its end is caught.
    const std::vector<uint8_t> arg(data + 5, data + size);

    const size_t want = argument_size(surface, request, abi);
    if (want > kMaxArgument) std::abort();
    const size_t status = status_offset(surface, request, abi);
    if (status != kNoStatus && status + 4 > want) std::abort();
    const IoctlView view = decode(surface, request, arg, abi);
    if (arg.size() < want && !std::holds_alternative<Other>(view)) std::abort();
    const ParamBlock block = param_block(view, abi);
    if (block.size > kMaxParams || (block.size && !block.address)) std::abort();

    // The same bytes as a parameter block.
    (void)load<ChannelParams>(arg);
    (void)load<VaSpaceParams>(arg);
    (void)load_preemption_bind(arg, abi);
    return 0;
}
