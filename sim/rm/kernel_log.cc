#include "sim/rm/kernel_log.h"

#include <cstdio>

namespace vuda::sim {

void KernelLog::write(std::string line) {
    if (sink_) sink_(line);
    lines_.push_back(std::move(line));
    if (lines_.size() > kLines) lines_.pop_front();
}

void KernelLog::xid(uint32_t bus, uint32_t number, int64_t pid, const std::string& process, const std::string& text) {
    char head[128];
    std::snprintf(head, sizeof head, "NVRM: Xid (PCI:0000:%02x:00): %u, pid=%lld, name=", bus, number,
                  static_cast<long long>(pid));
    ++xids_;
    write(head + process + ", " + text);
}

}  // namespace vuda::sim
