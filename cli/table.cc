#include "cli/table.h"

#include <algorithm>

namespace vuda::cli {
namespace {

// Length of the UTF-8 sequence at the front of `text`, 0 if there is none.
size_t utf8_length(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xc2 && lead < 0xe0 ? 2
                          : lead >= 0xe0 && lead < 0xf0 ? 3
                          : lead >= 0xf0 && lead < 0xf5 ? 4
                                                        : 0;
    if (length == 0 || length > text.size()) return 0;
    for (size_t i = 1; i < length; ++i) {
        if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
    }
    return length;
}

// One column a character is right for the names and numbers shown here; East Asian wide characters would be off by one
// each.
size_t width(std::string_view text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

bool numeric(std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return (c >= '0' && c <= '9') || c == '/' || c == '-' || c == '.'; });
}

}  // namespace

std::string printable(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        const size_t length = utf8_length(text);
        const auto lead = static_cast<unsigned char>(text[0]);
        // C1 controls (U+0080..U+009F) are 0xc2 0x80..0x9f.
        const bool control = (length == 1 && (lead < 0x20 || lead == 0x7f)) ||
                             (length == 2 && lead == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
        if (length == 0 || control) {
            result += '?';
        } else {
            result += text.substr(0, length);
        }
        text.remove_prefix(std::max<size_t>(length, 1));
    }
    return result;
}

Table::Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void Table::add(std::vector<std::string> row) {
    row.resize(rows_.front().size());
    rows_.push_back(std::move(row));
}

std::string Table::to_string() const {
    const size_t columns = rows_.front().size();
    std::vector<size_t> widths(columns);
    std::vector<bool> right(columns, rows_.size() > 1);
    for (size_t r = 0; r < rows_.size(); ++r) {
        for (size_t c = 0; c < columns; ++c) {
            widths[c] = std::max(widths[c], width(rows_[r][c]));
            if (r > 0 && !numeric(rows_[r][c])) right[c] = false;
        }
    }
    std::string text;
    for (const auto& row : rows_) {
        std::string line;
        for (size_t c = 0; c < columns; ++c) {
            if (c > 0) line += "  ";
            const std::string padding(widths[c] - width(row[c]), ' ');
            line += right[c] ? padding + row[c] : row[c] + padding;
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

}  // namespace vuda::cli
