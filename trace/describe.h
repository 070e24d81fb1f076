// Trace records in words: one line a record, for `vuda-trace show` and, with handles replaced by names, for comparing
// two runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "rm/ioctl_view.h"
#include "trace/record.h"

namespace vuda::trace {

enum class Handles : uint8_t {
    kRaw,    // handles, fds, addresses as recorded
    kNamed,  // clients and objects named by class and order of creation; fds and CPU addresses left out: equal for
             // equal runs
};

class Describer {
 public:
    Describer(const rm::DriverAbi& abi, Handles handles) : abi_(abi), handles_(handles) {}

    // Records must come in order: names depend on what was made before. No line's end.
    std::string describe(const Record& record);

 private:
    using Key = std::pair<rm::Handle, rm::Handle>;  // client, object

    std::string client(rm::Handle handle) const;
    std::string object(rm::Handle client, rm::Handle handle) const;
    void learn(const Record& record, const rm::IoctlView& before, const rm::IoctlView& after);
    void forget(rm::Handle client, rm::Handle object);
    std::string ordinal(const std::string& kind);
    std::string params(const Record& record, const rm::IoctlView& view, const rm::IoctlView& after) const;

    const rm::DriverAbi& abi_;
    Handles handles_;
    std::map<rm::Handle, std::string> clients_;
    std::map<Key, std::string> objects_;
    std::map<std::string, unsigned> counts_;
};

// The layout to read a trace with: that of the driver in its header; the newest tested one when that is not known.
const rm::DriverAbi& abi_of(const Header& header);

}  // namespace vuda::trace
