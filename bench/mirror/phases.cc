#include "bench/mirror/phases.h"

#include <fstream>
#include <thread>

#include "bench/common/clock.h"
#include "bench/common/stop_signal.h"

namespace vuda::bench {

Result<bool> Phases::next() {
    ++turn_;
    const auto deadline = Clock::now() + from_seconds(patience_s_);
    while (!stop_requested() && !std::filesystem::exists(folder_ / "end")) {
        if (std::filesystem::exists(file("go-"))) return true;
        if (Clock::now() > deadline)
            return Error{Code::kDeadlineExceeded, file("go-").string() + " did not come in time", ""};
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
}

Status Phases::done() {
    std::ofstream out(file("done-"));
    if (!out) return Error{Code::kInternal, "cannot write " + file("done-").string(), ""};
    return {};
}

}  // namespace vuda::bench
