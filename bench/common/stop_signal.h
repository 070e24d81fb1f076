// SIGINT and SIGTERM end a run early; its results up to then are still printed.
#pragma once

namespace vuda::bench {

void install_stop_signals();
bool stop_requested();

}  // namespace vuda::bench
