#include "cli/metrics_text.h"

#include <charconv>
#include <optional>

namespace vuda::cli {
namespace {

// `{a="b",c="d"}` at the front of `rest`, taken off it; escapes: \\ \" \n.
bool take_labels(std::string_view& rest, MetricSample& out) {
    if (!rest.starts_with('{')) return true;
    rest.remove_prefix(1);
    while (!rest.empty() && rest.front() != '}') {
        const size_t equals = rest.find("=\"");
        if (equals == rest.npos) return false;
        std::string& value = out.labels[std::string(rest.substr(0, equals))];
        rest.remove_prefix(equals + 2);
        while (!rest.empty() && rest.front() != '"') {
            if (rest.front() == '\\' && rest.size() > 1) {
                rest.remove_prefix(1);
                value += rest.front() == 'n' ? '\n' : rest.front();
            } else {
                value += rest.front();
            }
            rest.remove_prefix(1);
        }
        if (rest.empty()) return false;
        rest.remove_prefix(1);
        if (rest.starts_with(',')) rest.remove_prefix(1);
    }
    if (rest.empty()) return false;
    rest.remove_prefix(1);
    return true;
}

std::optional<MetricSample> parse_line(std::string_view line) {
    MetricSample sample;
    const size_t end = line.find_first_of("{ ");
    if (line.empty() || line.front() == '#' || end == line.npos || end == 0) return std::nullopt;
    sample.name = std::string(line.substr(0, end));
    line.remove_prefix(end);
    if (!take_labels(line, sample) || !line.starts_with(' ')) return std::nullopt;
    line.remove_prefix(1);
    const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), sample.value);
    if (error != std::errc() || stop != line.data() + line.size()) return std::nullopt;
    return sample;
}

}  // namespace

std::string_view MetricSample::label(std::string_view key) const {
    const auto found = labels.find(key);
    return found == labels.end() ? std::string_view() : found->second;
}

std::vector<MetricSample> parse_metrics(std::string_view text) {
    std::vector<MetricSample> samples;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        if (auto sample = parse_line(text.substr(0, end))) samples.push_back(*std::move(sample));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return samples;
}

}  // namespace vuda::cli
