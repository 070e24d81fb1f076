#include "client/names.h"

#include <algorithm>

namespace vuda::client {
namespace {

bool name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
}

}  // namespace

bool valid_name(std::string_view name) {
    return !name.empty() && name.size() <= kNameLimit && name.front() != '.' && name.front() != '-' &&
           std::all_of(name.begin(), name.end(), name_char);
}

std::string plain_text(std::string_view text, size_t limit) {
    std::string out(text.substr(0, limit));
    for (char& c : out) {
        if (c < 0x20 || c > 0x7e) c = '?';
    }
    return out;
}

}  // namespace vuda::client
