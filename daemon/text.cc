#include "daemon/text.h"

namespace vuda::daemon {

std::string clean_text(std::string_view text, size_t limit) {
    if (text.size() > limit) {
        while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
        text = text.substr(0, limit);
    }
    std::string out(text);
    for (size_t i = 0; i < out.size(); ++i) {
        const auto c = static_cast<unsigned char>(out[i]);
        if (c < 0x20 || c == 0x7f) out[i] = '?';
        // U+0080..U+009F, the second set of control characters, is C2 80..9F.
        if (c == 0xc2 && i + 1 < out.size() && static_cast<unsigned char>(out[i + 1]) < 0xa0) out[i] = out[i + 1] = '?';
    }
    return out;
}

v1::Error to_proto(const Error& error) {
    v1::Error out;
    out.set_code(static_cast<uint32_t>(error.code));
    out.set_text(error.text);
    out.set_hint(error.hint);
    return out;
}

Error from_proto(const v1::Error& error) {
    const bool known = error.code() >= 1 && error.code() <= 16;
    return Error{known ? static_cast<Code>(error.code()) : Code::kUnknown, clean_text(error.text(), kTextLimit),
                 clean_text(error.hint(), kHintLimit)};
}

}  // namespace vuda::daemon
