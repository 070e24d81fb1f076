// The simulated kernel log: what the real driver prints with NVRM, Xids among it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

namespace vuda::sim {

class KernelLog {
 public:
    using Sink = std::function<void(const std::string& line)>;

    // Called with each line as it is written; may be empty.
    void set_sink(Sink sink) { sink_ = std::move(sink); }

    void write(std::string line);
    // "NVRM: Xid (PCI:0000:41:00): 31, pid=..., name=..., ...", in the wording of the real driver.
    void xid(uint32_t bus, uint32_t number, int64_t pid, const std::string& process, const std::string& text);

    // The newest kLines lines.
    const std::deque<std::string>& lines() const { return lines_; }
    // How many Xid lines were written, ever.
    uint64_t xids() const { return xids_; }

 private:
    static constexpr size_t kLines = 1000;

    Sink sink_;
    std::deque<std::string> lines_;
    uint64_t xids_ = 0;
};

}  // namespace vuda::sim
