// `vudactl bugreport`: what a report of a problem needs, in one archive, and nothing else.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace vuda::cli {

struct ReportItem {
    std::string file;                      // in the archive
    std::string what;                      // for people: what it is and where it comes from
    std::function<std::string()> content;  // never fails: says why it has nothing
};

// Everything that a report takes. Paths are looked up below `root` ("" for this machine).
std::vector<ReportItem> report_items(const std::string& socket, const std::string& root = "");

// The list of items as README.txt in the archive and `--list` have it.
std::string report_list(const std::vector<ReportItem>& items);

// vudad.toml without comments, which are people's own words, and without the values of keys that sound like secrets; it
// has none, but a file that somebody else made may.
std::string without_secrets(std::string_view toml);

// Lines of the kernel's log that are the NVIDIA driver's, out of /dev/kmsg's records.
std::string kernel_lines(std::string_view records);

struct BugreportOptions {
    std::string output;  // empty: vuda-bugreport-DATE-TIME.tar.gz in the current folder
    bool list = false;
};

// Returns vudactl's exit status.
int bugreport_command(const std::string& socket, const BugreportOptions& options);

}  // namespace vuda::cli
