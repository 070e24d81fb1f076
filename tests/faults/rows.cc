#include "tests/faults/rows.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace vuda::faults {
namespace {

nlohmann::ordered_json& rows() {
    static nlohmann::ordered_json all = nlohmann::ordered_json::array();
    return all;
}

void write_rows() {
    const char* path = std::getenv("VUDA_ROWS");
    if (path == nullptr || rows().empty()) return;
    std::ofstream out(path);
    nlohmann::ordered_json document;
    document["rows"] = rows();
    out << document.dump(1) << "\n";
}

}  // namespace

void add_row(const std::string& name, double value, const std::string& unit, std::optional<double> limit) {
    nlohmann::ordered_json row;
    row["name"] = name;
    row["value"] = std::round(value * 10) / 10;
    row["unit"] = unit;
    row["limit"] = limit ? nlohmann::ordered_json(*limit) : nlohmann::ordered_json(nullptr);
    row["command"] = std::string("VUDA_ROWS=FILE build/release/bin/") + program_invocation_short_name;
    rows().push_back(std::move(row));
    write_rows();
}

}  // namespace vuda::faults
