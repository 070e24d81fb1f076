// Where the daemon's log goes.
#pragma once

#include <string>

namespace vuda::daemon {

// stderr, or the journal with levels kept when JOURNAL_STREAM says that stderr is the journal's. `level` as in
// vudad.toml.
void start_log(const std::string& level);
void set_log_level(const std::string& level);
// Does the log go to the journal, where a record may have fields?
bool log_is_journal();

}  // namespace vuda::daemon
