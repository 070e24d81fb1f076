// What a run measured: rows for docs/results/robustness.json, and percentiles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vuda::load {

// One figure. `limit` is the greatest value that is still good; none: recorded only.
struct Row {
    std::string name;
    double value = 0;
    std::string unit;
    std::optional<double> limit;
};

class Figures {
 public:
    void add(std::string name, double value, std::string unit, std::optional<double> limit = std::nullopt);
    // Says it on stderr, and makes ok() false.
    void fail(const std::string& what);

    const std::vector<Row>& rows() const { return rows_; }
    bool failed() const { return failed_; }
    // Rows above their limits.
    std::vector<std::string> misses() const;
    // {"rows": [...]}, each row with `command`.
    std::string json(const std::string& command) const;

 private:
    std::vector<Row> rows_;
    bool failed_ = false;
};

// The value that `fraction` (0..1) of the samples do not exceed; 0 of none. Nearest rank.
double percentile(std::vector<double> samples, double fraction);

}  // namespace vuda::load
