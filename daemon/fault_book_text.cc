// The file that keeps the book over a restart.
#include <algorithm>
#include <charconv>
#include <cstdio>

#include "daemon/fault_book.h"
#include "daemon/registry.h"
#include "daemon/state_words.h"
#include "daemon/text.h"

namespace vuda::daemon {
namespace {

constexpr std::string_view kBookFormat = "vuda-faults";
constexpr std::string_view kBookVersion = "1";
constexpr size_t kPathLimit = 4096;

// A path may hold blanks, newlines and bytes of any kind; a line of words may not.
std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte > ' ' && byte < 0x7f && c != '%') {
            out += c;
            continue;
        }
        char hex[4];
        std::snprintf(hex, sizeof hex, "%%%02x", byte);
        out += hex;
    }
    return out.empty() ? "%" : out;
}

std::optional<std::string> unescaped(std::string_view text) {
    if (text == "%") return "";
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        unsigned value = 0;
        if (i + 2 >= text.size()) return std::nullopt;
        const auto [end, error] = std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16);
        if (error != std::errc() || end != text.data() + i + 3) return std::nullopt;
        out += static_cast<char>(value);
        i += 2;
    }
    if (out.size() > kPathLimit) return std::nullopt;
    return out;
}

int64_t ms_between(TimePoint from, TimePoint to) { return std::chrono::duration_cast<Milliseconds>(to - from).count(); }

}  // namespace

std::string FaultBook::to_text(TimePoint now, int64_t unix_ms) const {
    std::string text = std::string(kBookFormat) + " " + std::string(kBookVersion) + "\n";
    const auto wall = [&](TimePoint at) { return std::to_string(unix_ms + ms_between(now, at)); };
    for (const auto& [name, entry] : names_) {
        text += "name " + name + " " + std::to_string(entry.uid) + " " + std::to_string(entry.xid) + " " +
                std::to_string(entry.unix_ms) + " " + escaped(entry.text) + "\n";
        if (entry.culprit) {
            text += "culprit " + std::to_string(entry.culprit->uid) + " " + std::to_string(entry.culprit_pid) + " " +
                    escaped(entry.culprit->program) + "\n";
        }
        for (const auto& [who, hold] : entry.holds) {
            text += "hold " + std::to_string(who.uid) + " " + std::to_string(hold.times) + " " + wall(hold.last) + " " +
                    wall(hold.until) + " " + escaped(who.program) + "\n";
        }
        for (const auto& [who, unfit] : entry.unfit) {
            text += "unfit " + std::to_string(who.uid) + " " + std::to_string(unfit.times) + " " + wall(unfit.last) +
                    " " + wall(unfit.until) + " " + escaped(who.program) + " " + std::to_string(unfit.bytes) + " " +
                    std::to_string(unfit.limit) + " " + (unfit.fitted ? "1" : "0") + "\n";
        }
    }
    return text;
}

size_t FaultBook::load(std::string_view text, const HoldSettings& faults, const HoldSettings& unshare, TimePoint now,
                       int64_t unix_ms) {
    size_t bad = 0;
    bool first = true;
    NameFaults* current = nullptr;
    std::string name;
    const auto at = [&](int64_t wall, Milliseconds before, Milliseconds after) {
        return now + Milliseconds(std::clamp<int64_t>(wall - unix_ms, -before.count(), after.count()));
    };
    // The words that both kinds of hold begin with.
    const auto take_hold = [&](const std::vector<std::string_view>& words, const HoldSettings& settings, Suspect& who,
                               Hold& hold) {
        int64_t last = 0;
        int64_t until = 0;
        if (!read_number(words[1], who.uid) || !read_number(words[2], hold.times) || hold.times == 0 ||
            !read_number(words[3], last) || !read_number(words[4], until) || last < 0 || until < 0)
            return false;
        std::optional<std::string> program = unescaped(words[5]);
        if (!program) return false;
        who.program = *std::move(program);
        hold.last = at(last, settings.forget, Milliseconds(0));
        hold.until = at(until, settings.forget, settings.max);
        return true;
    };
    const auto take = [&](const std::vector<std::string_view>& words) {
        if (words[0] == "name") {
            current = nullptr;
            NameFaults entry;
            if (words.size() != 6 || !valid_name(words[1]) || !read_number(words[2], entry.uid) ||
                !read_number(words[3], entry.xid) || !read_number(words[4], entry.unix_ms) || entry.unix_ms < 0 ||
                names_.size() >= kNames)
                return false;
            const std::optional<std::string> said = unescaped(words[5]);
            if (!said) return false;
            entry.text = clean_text(*said, kTextLimit);
            entry.at = at(entry.unix_ms, faults.forget, Milliseconds(0));
            name = std::string(words[1]);
            current = &names_.insert_or_assign(name, std::move(entry)).first->second;
            return true;
        }
        if (current == nullptr) return false;
        if (words[0] == "culprit") {
            Suspect who;
            pid_t pid = 0;
            if (words.size() != 4 || !read_number(words[1], who.uid) || !read_number(words[2], pid)) return false;
            std::optional<std::string> program = unescaped(words[3]);
            if (!program) return false;
            who.program = *std::move(program);
            current->culprit = std::move(who);
            current->culprit_pid = pid;
            return true;
        }
        Suspect who;
        if (words[0] == "hold") {
            Hold hold;
            if (words.size() != 6 || current->holds.size() >= kHoldsPerName || !take_hold(words, faults, who, hold))
                return false;
            current->holds[std::move(who)] = hold;
            if (hold.until > now) running_[name] = std::max(hold.until, running_[name]);
            return true;
        }
        Unfit unfit;
        uint32_t fitted = 0;
        if (words[0] != "unfit" || words.size() != 9 || current->unfit.size() >= kHoldsPerName ||
            !take_hold(words, unshare, who, unfit) || !read_number(words[6], unfit.bytes) ||
            !read_number(words[7], unfit.limit) || !read_number(words[8], fitted) || fitted > 1)
            return false;
        unfit.fitted = fitted == 1;
        current->unfit[std::move(who)] = unfit;
        if (unfit.until > now) running_unfit_[name] = std::max(unfit.until, running_unfit_[name]);
        return true;
    };
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::vector<std::string_view> words = words_of(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (first) {
            first = false;
            if (words.size() < 2 || words[0] != kBookFormat || words[1] != kBookVersion) return 1;
            continue;
        }
        if (!words.empty() && !take(words)) ++bad;
    }
    return bad;
}

}  // namespace vuda::daemon
