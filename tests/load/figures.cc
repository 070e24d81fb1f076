#include "tests/load/figures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace vuda::load {

void Figures::add(std::string name, double value, std::string unit, std::optional<double> limit) {
    std::fprintf(stderr, "%-44s %12.4g %s", name.c_str(), value, unit.c_str());
    if (limit) std::fprintf(stderr, "  (limit %g%s)", *limit, value > *limit ? ", MISSED" : "");
    std::fputc('\n', stderr);
    rows_.push_back({std::move(name), value, std::move(unit), limit});
}

void Figures::fail(const std::string& what) {
    std::fprintf(stderr, "failed: %s\n", what.c_str());
    failed_ = true;
}

std::vector<std::string> Figures::misses() const {
    std::vector<std::string> names;
    for (const Row& row : rows_) {
        if (row.limit && row.value > *row.limit) names.push_back(row.name);
    }
    return names;
}

std::string Figures::json(const std::string& command) const {
    nlohmann::ordered_json document;
    document["rows"] = nlohmann::ordered_json::array();
    for (const Row& row : rows_) {
        nlohmann::ordered_json out;
        out["name"] = row.name;
        out["value"] = row.value;
        out["unit"] = row.unit;
        out["limit"] = row.limit ? nlohmann::ordered_json(*row.limit) : nlohmann::ordered_json(nullptr);
        out["command"] = command;
        document["rows"].push_back(out);
    }
    return document.dump(1) + "\n";
}

double percentile(std::vector<double> samples, double fraction) {
    if (samples.empty()) return 0;
    const double rank = std::ceil(fraction * static_cast<double>(samples.size()));
    const auto index = static_cast<size_t>(std::max(rank, 1.0)) - 1;
    std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(index), samples.end());
    return samples[index];
}

}  // namespace vuda::load
