#include "bench/common/stop_signal.h"

#include <csignal>

namespace vuda::bench {
namespace {

volatile std::sig_atomic_t g_stop = 0;

void on_signal(int) { g_stop = 1; }

}  // namespace

void install_stop_signals() {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    // A second signal ends the process at once, should the driver hang.
    action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() { return g_stop != 0; }

}  // namespace vuda::bench
