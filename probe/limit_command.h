// `vuda-probe limit` and `vuda-probe l1`: how much shared memory a block may take beside graphics, tried on private
// pairs (pair.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vuda::probe {

struct LimitOptions {
    int gpu = 0;  // as /dev/nvidiaN counts
    bool json = false;
    bool all = false;   // sizes that end the pair, too
    uint32_t from = 0;  // bytes; 0 with `to` 0: what the table says, and with `all` where it ends
    uint32_t to = 0;
    uint32_t step = 1024;
    uint32_t deaths = 2;
    double seconds = 1;
    std::vector<uint32_t> values;  // of l1
    // For tests: another pair, and a GPU that is not looked up.
    std::string pair;
    std::string device;
};

// Exit statuses: 0 nothing contradicts the table (l1: everything was tried), 69 no GPU, driver or pair, 70 the table is
// contradicted, or no fresh pair works any more, 75 the tries do not tell.
int limit_command(const LimitOptions& options);
int l1_command(const LimitOptions& options);

}  // namespace vuda::probe
