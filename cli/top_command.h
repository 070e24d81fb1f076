// `vudactl top`.
#pragma once

#include <string>

namespace vuda::cli {

struct TopOptions {
    bool once = false;      // plain text, one time
    double interval_s = 1;  // between two questions to the daemon
};

// A live table until 'q' or a signal; the terminal is given back as it was. When standard output is no terminal, as
// with `once`. Returns vudactl's exit status. A daemon that goes away is waited for, one that is not there at the start
// is an error.
int top_command(const std::string& socket, const TopOptions& options);

}  // namespace vuda::cli
