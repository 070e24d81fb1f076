#include "trace/format.h"

#include <charconv>
#include <cstring>

namespace vuda::trace {
namespace {

constexpr std::string_view kMagic = "vuda-trace 1";

Error bad(std::string text) { return {Code::kInvalidArgument, std::move(text), {}}; }

template <typename T>
bool number(std::string_view text, T& out, int base) {
    if (text.empty()) return false;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
    return error == std::errc{} && end == text.data() + text.size();
}

// The text before the first `separator`, which is removed with it; the whole text when there is none.
std::string_view take(std::string_view& text, char separator) {
    const size_t at = text.find(separator);
    const std::string_view head = text.substr(0, at);
    text.remove_prefix(at == text.npos ? text.size() : at + 1);
    return head;
}

// ---- Blocks: SIZE[/CAPTURED]:WORDS[>CHANGES]

size_t words_in(size_t bytes) { return (bytes + 3) / 4; }

uint32_t word_at(const std::vector<uint8_t>& bytes, size_t index) {
    uint32_t word = 0;
    std::memcpy(&word, bytes.data() + index * 4, std::min<size_t>(4, bytes.size() - index * 4));
    return word;
}

// False when the word says more than the block has bytes for.
bool put_word(std::vector<uint8_t>& bytes, size_t index, uint32_t word) {
    const size_t room = std::min<size_t>(4, bytes.size() - index * 4);
    if (room < 4 && (word >> (8 * room)) != 0) return false;
    std::memcpy(bytes.data() + index * 4, &word, room);
    return true;
}

Result<Block> parse_block(std::string_view text) {
    const size_t colon = text.find(':');
    if (colon == text.npos) return bad("block without ':'");
    std::string_view sizes = text.substr(0, colon);
    std::string_view changes = text.substr(colon + 1);
    std::string_view words = take(changes, '>');

    Block block;
    const std::string_view size = take(sizes, '/');
    if (!number(size, block.size, 10) || block.size == 0 || block.size > kMaxBlock) return bad("bad block size");
    uint32_t captured = block.size;
    if (text.find('/') < colon && (!number(sizes, captured, 10) || captured >= block.size)) {
        return bad("bad count of captured bytes");
    }
    block.before.assign(captured, 0);

    size_t index = 0;
    const size_t count = words_in(captured);
    while (!words.empty()) {
        std::string_view token = take(words, ',');
        if (token.starts_with('*')) {
            size_t zeros = 0;
            if (!number(token.substr(1), zeros, 10) || zeros < 2 || zeros > count - index)
                return bad("bad run of zeros");
            index += zeros;
            continue;
        }
        uint32_t word = 0;
        if (!number(token, word, 16)) return bad("bad word");
        if (index >= count || !put_word(block.before, index, word)) return bad("words past the end of the block");
        ++index;
    }
    block.after = block.before;
    while (!changes.empty()) {
        std::string_view token = take(changes, ',');
        const std::string_view where = take(token, '=');
        uint32_t word = 0;
        if (!number(where, index, 10) || !number(token, word, 16)) return bad("bad change");
        if (index >= count || !put_word(block.after, index, word)) return bad("change past the end of the block");
    }
    return block;
}

void append_number(std::string& out, uint64_t value, int base) {
    char buffer[24];
    const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, base);
    (void)error;  // 24 characters hold every 64-bit number
    out.append(buffer, end);
}

void append_block(std::string& out, const Block& block) {
    append_number(out, block.size, 10);
    if (!block.whole()) {
        out += '/';
        append_number(out, block.before.size(), 10);
    }
    out += ':';
    size_t count = words_in(block.before.size());
    while (count > 0 && word_at(block.before, count - 1) == 0) --count;
    for (size_t i = 0; i < count;) {
        if (i > 0) out += ',';
        size_t zeros = 0;
        while (word_at(block.before, i + zeros) == 0) ++zeros;  // ends: the last word is not zero
        if (zeros > 1) {
            out += '*';
            append_number(out, zeros, 10);
            i += zeros;
        } else {
            append_number(out, word_at(block.before, i), 16);
            ++i;
        }
    }
    char separator = '>';
    for (size_t i = 0; i < words_in(block.before.size()); ++i) {
        if (word_at(block.before, i) == word_at(block.after, i)) continue;
        out += separator;
        separator = ',';
        append_number(out, i, 10);
        out += '=';
        append_number(out, word_at(block.after, i), 16);
    }
}

// ---- Records

bool name_ok(std::string_view name) {
    if (!name.starts_with("nvidia") || name.size() > kMaxName) return false;
    for (const char c : name) {
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_')) return false;
    }
    return true;
}

bool parse_time(std::string_view text, uint64_t& out) {
    const std::string_view seconds = take(text, '.');
    uint64_t s = 0;
    uint64_t us = 0;
    if (seconds.size() > 9 || text.size() != 6 || !number(seconds, s, 10) || !number(text, us, 10)) return false;
    out = s * 1'000'000 + us;
    return true;
}

void append_time(std::string& out, uint64_t us) {
    append_number(out, us / 1'000'000, 10);
    std::string fraction = std::to_string(us % 1'000'000);
    out += '.';
    out.append(6 - fraction.size(), '0');
    out += fraction;
}

bool parse_error_number(std::string_view text, int32_t& out) {
    return number(text, out, 10) && out >= 0 && out < 4096;  // the kernel's errno values
}

Result<Record> parse_event(std::string_view kind, std::string_view rest, Record record) {
    if (kind == "open") {
        record.kind = Kind::kOpen;
        if (!parse_error_number(rest, record.error)) return bad("bad errno");
        return record;
    }
    if (kind == "close") {
        record.kind = Kind::kClose;
        if (!rest.empty()) return bad("text after 'close'");
        return record;
    }
    if (kind == "dup") {
        record.kind = Kind::kDup;
        if (!number(rest, record.new_fd, 10) || record.new_fd < 0) return bad("bad new fd");
        return record;
    }
    if (kind == "mmap") {
        record.kind = Kind::kMmap;
        const bool ok = parse_error_number(take(rest, ' '), record.error) &&
                        number(take(rest, ' '), record.address, 16) && number(take(rest, ' '), record.length, 16) &&
                        number(take(rest, ' '), record.offset, 16) && number(take(rest, ' '), record.prot, 16) &&
                        number(take(rest, ' '), record.flags, 16) && rest.empty();
        if (!ok) return bad("bad mmap");
        return record;
    }
    if (kind != "ioctl") return bad("unknown kind of record");
    record.kind = Kind::kIoctl;
    if (!number(take(rest, ' '), record.request, 16)) return bad("bad request");
    if (!parse_error_number(take(rest, ' '), record.error)) return bad("bad errno");
    for (Block* block : {&record.arg, &record.params}) {
        if (rest.empty()) break;
        auto parsed = parse_block(take(rest, ' '));
        if (!parsed) return parsed.error();
        *block = *std::move(parsed);
    }
    if (!rest.empty()) return bad("text after the record");
    return record;
}

// ---- Header

Error at_line(size_t line, const Error& error) {
    return {error.code, "line " + std::to_string(line) + ": " + error.text, error.hint};
}

// False when the line is not a header line; an error text when it is a bad one.
bool parse_header_line(std::string_view line, Header& header, std::string_view& problem) {
    const std::string_view key = take(line, ' ');
    if (key != "driver" && key != "program" && key != "pid" && key != "note") return false;
    if (!header_text_ok(line) || line.empty()) {
        problem = "header value is not printable text of 1 to 200 characters";
    } else if (key == "driver") {
        header.driver = line;
    } else if (key == "program") {
        header.program = line;
    } else if (key == "pid") {
        if (!number(line, header.pid, 10)) problem = "pid is not a number";
    } else {
        header.notes.emplace_back(line);
    }
    return true;
}

}  // namespace

bool header_text_ok(std::string_view text) {
    if (text.size() > kMaxHeaderText) return false;
    for (const char c : text) {
        if (c < 0x20 || c > 0x7e) return false;
    }
    return true;
}

Result<Record> parse_record(std::string_view line) {
    if (line.size() > kMaxLine) return bad("line too long");
    Record record;
    if (!parse_time(take(line, ' '), record.time_us)) return bad("bad time");
    std::string_view file = take(line, ' ');
    if (!number(take(file, ':'), record.fd, 10) || record.fd < -1) return bad("bad fd");
    if (!name_ok(file)) return bad("bad device name");
    record.device = file;
    const std::string_view kind = take(line, ' ');
    return parse_event(kind, line, std::move(record));
}

Result<Trace> parse(std::string_view text) {
    Trace trace;
    size_t number = 0;
    bool in_header = true;
    if (take(text, '\n') != kMagic) {
        return Error{
            Code::kInvalidArgument, "line 1: not a trace: it does not start with '" + std::string(kMagic) + "'", {}};
    }
    ++number;
    while (!text.empty()) {
        const std::string_view line = take(text, '\n');
        ++number;
        if (line.empty() || line.front() == '#') continue;
        if (in_header) {
            std::string_view problem;
            if (parse_header_line(line, trace.header, problem)) {
                if (!problem.empty()) return at_line(number, bad(std::string(problem)));
                continue;
            }
            in_header = false;
        }
        auto record = parse_record(line);
        if (!record) return at_line(number, record.error());
        if (trace.records.size() >= kMaxRecords) return at_line(number, bad("too many records"));
        trace.records.push_back(*std::move(record));
    }
    return trace;
}

std::string write_header(const Header& header) {
    std::string out(kMagic);
    out += '\n';
    if (!header.driver.empty()) out += "driver " + header.driver + '\n';
    if (!header.program.empty()) out += "program " + header.program + '\n';
    if (header.pid != 0) out += "pid " + std::to_string(header.pid) + '\n';
    for (const std::string& note : header.notes) out += "note " + note + '\n';
    return out;
}

std::string write_record(const Record& record) {
    std::string out;
    append_time(out, record.time_us);
    out += ' ' + std::to_string(record.fd) + ':' + record.device;
    switch (record.kind) {
        case Kind::kOpen: out += " open " + std::to_string(record.error); break;
        case Kind::kClose: out += " close"; break;
        case Kind::kDup: out += " dup " + std::to_string(record.new_fd); break;
        case Kind::kMmap:
            out += " mmap " + std::to_string(record.error);
            for (const uint64_t value :
                 {record.address, record.length, record.offset, uint64_t{record.prot}, uint64_t{record.flags}}) {
                out += ' ';
                append_number(out, value, 16);
            }
            break;
        case Kind::kIoctl:
            out += " ioctl ";
            append_number(out, record.request, 16);
            out += ' ' + std::to_string(record.error);
            for (const Block* block : {&record.arg, &record.params}) {
                if (block->empty()) break;
                out += ' ';
                append_block(out, *block);
            }
            break;
    }
    out += '\n';
    return out;
}

std::string write(const Trace& trace) {
    std::string out = write_header(trace.header);
    for (const Record& record : trace.records) out += write_record(record);
    return out;
}

}  // namespace vuda::trace
