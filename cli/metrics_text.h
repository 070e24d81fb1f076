// Reads Prometheus' text format, as far as vudad writes it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace vuda::cli {

struct MetricSample {
    std::string name;
    std::map<std::string, std::string, std::less<>> labels;
    double value = 0;

    // "" when there is no such label.
    std::string_view label(std::string_view key) const;
};

// Lines that are no samples are skipped: what is shown is a convenience, not a judgement of the daemon.
std::vector<MetricSample> parse_metrics(std::string_view text);

}  // namespace vuda::cli
