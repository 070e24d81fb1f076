#include "daemon/metrics.h"

#include <charconv>

namespace vuda::daemon {
namespace {

std::string escaped(std::string_view text, bool quotes) {
    std::string out;
    for (const char c : text) {
        if (c == '\\') {
            out += "\\\\";
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '"' && quotes) {
            out += "\\\"";
        } else {
            out += c;
        }
    }
    return out;
}

}  // namespace

void MetricsText::family(std::string_view name, Type type, std::string_view help) {
    name_ = name;
    text_ += "# HELP " + name_ + ' ' + escaped(help, false) + "\n# TYPE " + name_ +
             (type == Type::kCounter   ? " counter\n"
              : type == Type::kSummary ? " summary\n"
                                       : " gauge\n");
}

void MetricsText::sample(double value, Labels labels) {
    text_ += name_;
    char separator = '{';
    for (const auto& [key, content] : labels) {
        text_ += separator;
        text_ += std::string(key) + "=\"" + escaped(content, true) + '"';
        separator = ',';
    }
    if (separator == ',') text_ += '}';
    // Shortest form that reads back the same, whatever the locale.
    char number[32];
    const auto end = std::to_chars(number, number + sizeof number, value).ptr;
    text_ += ' ';
    text_.append(number, end);
    text_ += '\n';
}

}  // namespace vuda::daemon
