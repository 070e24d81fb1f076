// Aligned columns for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vuda::cli {

// Text from another process, safe for a terminal: control characters and bytes that are not UTF-8 become '?'.
std::string printable(std::string_view text);

class Table {
 public:
    explicit Table(std::vector<std::string> header);

    // Missing cells are empty, surplus ones are dropped.
    void add(std::vector<std::string> row);
    bool empty() const { return rows_.size() <= 1; }

    // Columns two spaces apart, no trailing spaces, each line ends with '\n'. Columns that are all digits, '/' or '-'
    // are right-aligned.
    std::string to_string() const;

 private:
    std::vector<std::vector<std::string>> rows_;  // first: header
};

}  // namespace vuda::cli
