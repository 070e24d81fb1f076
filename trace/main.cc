// vuda-trace: record, show, compare and replay what programs do on NVIDIA's device files.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "base/result.h"
#include "trace/describe.h"
#include "trace/diff.h"
#include "trace/format.h"
#include "trace/preload_list.h"
#include "trace/replay.h"

namespace {

using namespace vuda;
using namespace vuda::trace;
namespace fs = std::filesystem;

// sysexits(3)
constexpr int kUsage = 64;
constexpr int kDataError = 65;
constexpr int kNoInput = 66;
constexpr int kUnavailable = 69;
constexpr int kCannotCreate = 73;
constexpr int kCannotExecute = 126;
constexpr int kCommandNotFound = 127;

constexpr uintmax_t kMaxFile = 1u << 30;

int complain(int status, const std::string& text) {
    std::fprintf(stderr, "vuda-trace: %s\n", text.c_str());
    return status;
}

// 0, or the status to leave with after a message.
int load_trace(const std::string& path, Trace& out) {
    std::error_code error;
    if (fs::is_directory(path, error)) return complain(kNoInput, path + ": is a directory");
    std::ifstream in(path, std::ios::binary);
    if (!in) return complain(kNoInput, path + ": " + std::strerror(errno));
    const uintmax_t size = fs::file_size(path, error);
    if (!error && size > kMaxFile) return complain(kDataError, path + ": larger than 1 GiB");
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    auto trace = parse(text);
    if (!trace) return complain(kDataError, path + ": " + trace.error().to_string());
    out = *std::move(trace);
    return 0;
}

// The recorder: beside this program's folder, as in a build tree and as installed.
std::string find_recorder() {
    std::error_code error;
    const fs::path self = fs::read_symlink("/proc/self/exe", error);
    if (error) return {};
    const fs::path prefix = self.parent_path().parent_path();
    for (const char* folder : {"lib", VUDA_LIBDIR "/vuda", "lib/vuda"}) {
        const fs::path library = prefix / folder / "libvuda_trace.so";
        if (fs::exists(library, error)) return library.string();
    }
    return {};
}

int record(const std::string& output, bool force, std::vector<std::string>& command) {
    const std::string recorder = find_recorder();
    if (recorder.empty()) return complain(kUnavailable, "libvuda_trace.so is not beside this program");
    std::error_code error;
    const fs::path path = fs::absolute(output, error);
    if (error) return complain(kCannotCreate, output + ": " + error.message());
    if (fs::exists(fs::symlink_status(path, error))) {
        if (!force) return complain(kCannotCreate, path.string() + " exists; --force replaces it");
        if (!fs::is_regular_file(path, error)) return complain(kCannotCreate, path.string() + " is not a file");
        if (!fs::remove(path, error)) return complain(kCannotCreate, path.string() + ": " + error.message());
    }
    if (::access(path.parent_path().c_str(), W_OK) != 0) {
        return complain(kCannotCreate, path.parent_path().string() + ": " + std::strerror(errno));
    }

    const char* list = std::getenv("LD_PRELOAD");
    ::setenv("LD_PRELOAD", with_library(list ? list : "", recorder).c_str(), 1);
    ::setenv("VUDA_TRACE_OUT", path.c_str(), 1);
    std::vector<char*> argv;
    argv.reserve(command.size() + 1);
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    // In place of this process: the command's exit status and signals are the caller's, unchanged.
    ::execvp(argv[0], argv.data());
    return complain(errno == ENOENT ? kCommandNotFound : kCannotExecute, command[0] + ": " + std::strerror(errno));
}

int show(const std::string& file, bool named) {
    Trace trace;
    if (const int status = load_trace(file, trace)) return status;
    std::printf("driver %s, program %s, %zu records\n",
                trace.header.driver.empty() ? "unknown" : trace.header.driver.c_str(),
                trace.header.program.empty() ? "unknown" : trace.header.program.c_str(), trace.records.size());
    for (const std::string& note : trace.header.notes) std::printf("note: %s\n", note.c_str());
    Describer describer(abi_of(trace.header), named ? Handles::kNamed : Handles::kRaw);
    size_t index = 0;
    for (const Record& r : trace.records) {
        std::printf("%5zu %3llu.%06llu %s\n", index++, static_cast<unsigned long long>(r.time_us / 1'000'000),
                    static_cast<unsigned long long>(r.time_us % 1'000'000), describer.describe(r).c_str());
    }
    return 0;
}

int compare(const std::string& file_a, const std::string& file_b) {
    Trace a;
    Trace b;
    if (const int status = load_trace(file_a, a)) return status;
    if (const int status = load_trace(file_b, b)) return status;
    const auto lines = diff(a, b);
    if (!lines) return complain(kDataError, lines.error().to_string());
    for (const DiffLine& line : *lines) {
        std::printf("%c %5zu %s\n", line.side == DiffLine::Side::kOnlyA ? '-' : '+', line.record, line.text.c_str());
    }
    return lines->empty() ? 0 : 1;
}

int play(const std::string& file, bool attach, bool renderer_only, uint32_t reserve, const std::string& output) {
    Trace trace;
    if (const int status = load_trace(file, trace)) return status;
    ReplayOptions options;
    options.wishes.share_renderer = true;
    options.wishes.share_in_process = !attach && !renderer_only;
    options.wishes.attach = attach;
    options.wishes.reserve = reserve;
    options.offer.ok = attach;
    const Replay result = replay(trace, options);
    for (const Rewrite& rewrite : result.rewrites) {
        const char mark = rewrite.kind == Rewrite::Kind::kEdited     ? '~'
                          : rewrite.kind == Rewrite::Kind::kAnswered ? '='
                                                                     : '+';
        std::printf("%c %5zu %s\n", mark, rewrite.record, rewrite.text.c_str());
    }
    for (const std::string& notice : result.notices) std::printf("# %s\n", notice.c_str());
    std::printf("# %zu rewrites; %zu calls after which the program would see something else than in the trace\n",
                result.rewrites.size(), result.caller_mismatches);
    if (!output.empty()) {
        std::ofstream out(output, std::ios::binary | std::ios::trunc);
        out << write(result.kernel);
        out.close();
        if (!out) return complain(kCannotCreate, output + ": " + std::strerror(errno));
    }
    return result.caller_mismatches == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Record, show, compare and replay what programs do on NVIDIA's device files", "vuda-trace"};
    app.set_version_flag("--version", VUDA_VERSION);
    app.require_subcommand(1);
    app.footer(
        "Examples:\n"
        "  vuda-trace record -o cuda.vtrace -- ./vectorAdd\n"
        "  vuda-trace show cuda.vtrace\n"
        "  vuda-trace diff before.vtrace after.vtrace\n"
        "  vuda-trace replay cuda.vtrace -o rewritten.vtrace\n"
        "The format: docs/trace-format.md");

    std::string output;
    bool force = false;
    std::vector<std::string> command;
    CLI::App* record_cmd = app.add_subcommand("record", "Run a command and write down its calls, one file a process");
    record_cmd->add_option("-o,--output", output, "File to write; further processes get FILE.PID")->required();
    record_cmd->add_flag("--force", force, "Replace an existing file");
    record_cmd->add_option("command", command, "Command and its arguments, after --")->required();
    record_cmd->positionals_at_end();

    std::string file;
    bool named = false;
    CLI::App* show_cmd = app.add_subcommand("show", "Print a trace in words");
    show_cmd->add_option("file", file, "Trace")->required();
    show_cmd->add_flag("--named", named, "Names in place of handles, as diff compares them");

    std::string file_b;
    CLI::App* diff_cmd = app.add_subcommand("diff", "Compare two runs; exit status 1 when they differ");
    diff_cmd->add_option("a", file, "Trace")->required();
    diff_cmd->add_option("b", file_b, "Trace")->required();

    bool attach = false;
    bool renderer = false;
    uint32_t reserve = UINT32_MAX;
    std::string rewritten;
    CLI::App* replay_cmd =
        app.add_subcommand("replay", "Show what VUDA would change: ~ edited, = answered, + added calls");
    replay_cmd->add_option("file", file, "Trace of a process without VUDA")->required();
    auto* attach_flag =
        replay_cmd->add_flag("--attach", attach, "As a CUDA program that attaches to another process's renderer");
    replay_cmd->add_flag("--renderer", renderer, "As a renderer only")->excludes(attach_flag);
    replay_cmd->add_option("--reserve", reserve, "Channels to move (default: all)");
    replay_cmd->add_option("-o,--output", rewritten, "Write the calls as the kernel would see them");

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        const int status = app.exit(error);
        return status == 0 ? 0 : kUsage;
    }
    if (record_cmd->parsed()) return record(output, force, command);
    if (show_cmd->parsed()) return show(file, named);
    if (diff_cmd->parsed()) return compare(file, file_b);
    return play(file, attach, renderer, reserve, rewritten);
}
