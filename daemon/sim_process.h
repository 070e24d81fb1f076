// Starts vuda-simd, the simulated GPU, and keeps it running.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace vuda::daemon {

struct SimOptions {
    std::string program;  // see find_simd
    std::string socket;
    std::string preset;
    std::chrono::milliseconds start_limit{10000};
    std::chrono::milliseconds first_pause{500};  // before a restart; doubles up to 8 s
};

// Contract with vuda-simd: `vuda-simd --socket PATH --ready-fd N --preset NAME` writes one '\n' to N when it listens,
// and ends on SIGTERM or with its parent.
class SimProcess {
 public:
    SimProcess(boost::asio::io_context& loop, SimOptions options);
    SimProcess(const SimProcess&) = delete;
    SimProcess& operator=(const SimProcess&) = delete;
    ~SimProcess();  // SIGTERM, and SIGKILL when that does not help within a second

    // `started` is called once: when the simulator listens, or with the reason why it does not. Later ends of the
    // process are logged and answered with a restart; what programs had on the simulated GPU is lost then, as after a
    // GPU reset.
    void start(std::function<void(Status)> started);

    pid_t pid() const { return pid_; }

 private:
    void launch();
    void wait_exit();
    void read_ready();
    void exited();
    void report(Status status);

    boost::asio::io_context& loop_;
    SimOptions options_;
    std::function<void(Status)> started_;
    pid_t pid_ = -1;
    boost::asio::posix::stream_descriptor pidfd_;
    boost::asio::posix::stream_descriptor ready_;
    boost::asio::steady_timer timer_;
    std::chrono::milliseconds pause_;
    char ready_byte_ = 0;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// vuda-simd beside this executable (a build tree), else in the installed bin or libexec folder. NOT_FOUND names all
// places.
Result<std::string> find_simd();

}  // namespace vuda::daemon
