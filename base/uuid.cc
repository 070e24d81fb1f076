#include "base/uuid.h"

namespace vuda {
namespace {

constexpr std::string_view kPrefix = "GPU-";
// Byte positions that a dash precedes.
constexpr bool dash_before(size_t byte) { return byte == 4 || byte == 6 || byte == 8 || byte == 10; }

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

std::string Uuid::to_string() const {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string out(kPrefix);
    for (size_t i = 0; i < bytes.size(); ++i) {
        if (dash_before(i)) out += '-';
        out += kDigits[bytes[i] >> 4];
        out += kDigits[bytes[i] & 0xf];
    }
    return out;
}

Result<Uuid> parse_uuid(std::string_view text) {
    const Error bad{Code::kInvalidArgument, "'" + std::string(text.substr(0, 64)) + "' is not a GPU UUID",
                    "expected GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"};
    if (text.substr(0, kPrefix.size()) == kPrefix) text.remove_prefix(kPrefix.size());
    if (text.size() != 36) return bad;
    Uuid uuid;
    size_t pos = 0;
    for (size_t i = 0; i < uuid.bytes.size(); ++i) {
        if (dash_before(i) && text[pos++] != '-') return bad;
        const int high = hex_digit(text[pos++]);
        const int low = hex_digit(text[pos++]);
        if (high < 0 || low < 0) return bad;
        uuid.bytes[i] = static_cast<uint8_t>(high << 4 | low);
    }
    return uuid;
}

}  // namespace vuda
