// Figures of a test run as rows of robustness.json: {"rows": [{"name", "value", "unit", "limit", "command"}...]}.
#pragma once

#include <optional>
#include <string>

namespace vuda::faults {

// Keeps a row; all of them are written at the end of the program to the file that VUDA_ROWS names, if it names one.
// `limit`: the greatest value that is still good; none: recorded only.
void add_row(const std::string& name, double value, const std::string& unit,
             std::optional<double> limit = std::nullopt);

}  // namespace vuda::faults
