// Lines of words: the form of the files in vudad's state directory.
#pragma once

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <vector>

namespace vuda::daemon {

// False: `word` is not one number and nothing else.
template <typename Number>
bool read_number(std::string_view word, Number& out) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), out);
    return error == std::errc() && end == word.data() + word.size();
}

// Separated by blanks; twelve at most, no line has more.
inline std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    for (size_t at = 0; at < line.size() && words.size() < 12;) {
        const size_t end = std::min(line.find(' ', at), line.size());
        if (end > at) words.push_back(line.substr(at, end - at));
        at = end + 1;
    }
    return words;
}

}  // namespace vuda::daemon
