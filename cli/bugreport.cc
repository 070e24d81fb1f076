#include "cli/bugreport.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/unique_fd.h"
#include "cli/capture.h"
#include "cli/daemon_client.h"
#include "cli/doctor.h"
#include "cli/install_paths.h"
#include "cli/libraries.h"
#include "cli/query_commands.h"
#include "cli/status_view.h"
#include "cli/tar_gz.h"
#include "rm/driver_table.h"

namespace vuda::cli {
namespace {

namespace fs = std::filesystem;
constexpr size_t kFileLimit = 256 * 1024;

// "(PATH: No such file or directory)" when it cannot be read.
std::string file_text(const std::string& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (!fd) return "(" + path + ": " + std::strerror(errno) + ")\n";
    std::string text(kFileLimit, '\0');
    size_t size = 0;
    while (size < text.size()) {
        const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        size += static_cast<size_t>(got);
    }
    text.resize(size);
    return text;
}

std::string version_text() {
    std::string text = std::string("vudactl ") + VUDA_VERSION + "\n";
    utsname system{};
    if (::uname(&system) == 0) {
        // Not the host's name.
        text += std::string(system.sysname) + " " + system.release + " " + system.version + " " + system.machine + "\n";
    }
    return text;
}

std::string driver_text(const std::string& root) {
    const std::string folder = root + "/proc/driver/nvidia";
    std::string text = file_text(root + rm::kDriverVersionFile);
    std::error_code failed;
    std::vector<std::string> gpus;
    for (fs::directory_iterator it(folder + "/gpus", failed), end; !failed && it != end; it.increment(failed))
        gpus.push_back(it->path().string());
    std::sort(gpus.begin(), gpus.end());
    for (const std::string& gpu : gpus) text += "\n" + gpu + "\n" + file_text(gpu + "/information");
    text += "\n" + folder + "/params\n" + file_text(folder + "/params");
    return text;
}

template <typename Reply, typename Request, typename Show>
std::string asked(const std::string& socket, DaemonClient::Method<Request, Reply> method, Show show) {
    Result<DaemonClient> client = DaemonClient::connect(socket);
    if (!client) return "(" + client.error().to_string() + ")\n";
    const Result<Reply> reply = client->call(method, Request());
    return reply ? show(*reply) : "(" + reply.error().to_string() + ")\n";
}

std::string captured(const std::vector<std::string>& arguments) {
    const Result<std::string> output = capture(arguments);
    return output ? *output : "(" + output.error().to_string() + ")\n";
}

std::string doctor_report(const std::string& socket) {
    DoctorInput input;
    input.env = current_environment();
    input.socket = socket;
    input.libraries = find_libraries(default_library_paths());
    input.ask_daemon = [](const std::string& at) -> Result<v1::HandshakeReply> {
        Result<DaemonClient> client = DaemonClient::connect(at);
        if (!client) return client.error();
        return client->handshake();
    };
    return doctor_text(examine(input));
}

// One record a read(). Source: Documentation/ABI/testing/dev-kmsg of the kernel.
std::string kernel_text(const std::string& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd) return "(" + path + ": " + std::strerror(errno) + "; root can read it)\n";
    std::string records;
    for (std::array<char, 8192> record;;) {
        const ssize_t got = ::read(fd.get(), record.data(), record.size());
        if (got > 0) {
            records.append(record.data(), static_cast<size_t>(got));
        } else if (got == 0 || (errno != EINTR && errno != EPIPE)) {  // EPIPE: overwritten meanwhile, go on
            break;
        }
    }
    const std::string lines = kernel_lines(records);
    return lines.empty() ? "(no line of the NVIDIA driver)\n" : lines;
}

std::string without_blanks(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t\r");
    if (first == text.npos) return {};
    return std::string(text.substr(first, text.find_last_not_of(" \t\r") - first + 1));
}

// Up to a '#' that is not inside a string.
std::string_view without_comment(std::string_view line) {
    char quote = 0;
    for (size_t i = 0; i < line.size(); ++i) {
        if (quote == '"' && line[i] == '\\') {
            ++i;
        } else if (quote != 0) {
            if (line[i] == quote) quote = 0;
        } else if (line[i] == '"' || line[i] == '\'') {
            quote = line[i];
        } else if (line[i] == '#') {
            return line.substr(0, i);
        }
    }
    return line;
}

bool sounds_secret(std::string_view key) {
    std::string lower(key);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    constexpr std::array kWords = {"secret", "token", "passw", "key", "credential"};
    return std::any_of(kWords.begin(), kWords.end(), [&](const char* word) { return lower.find(word) != lower.npos; });
}

template <typename Visit>
void each_line(std::string_view text, Visit visit) {
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        visit(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

std::string file_name_now() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    char text[64];
    std::strftime(text, sizeof text, "vuda-bugreport-%Y%m%d-%H%M%S.tar.gz", &local);
    return text;
}

// For its owner alone: it names users and programs.
Status write_new_file(const std::string& path, const std::string& bytes) {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return errno_error(errno, path);
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t wrote = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) {
            Error error = errno_error(errno, "write " + path);
            ::unlink(path.c_str());
            return error;
        }
        done += static_cast<size_t>(wrote);
    }
    return {};
}

}  // namespace

std::string without_secrets(std::string_view toml) {
    std::string out;
    each_line(toml, [&out](std::string_view raw) {
        const std::string line = without_blanks(without_comment(raw));
        if (line.empty()) return;
        const size_t equals = line.find('=');
        if (equals != line.npos && sounds_secret(line.substr(0, equals))) {
            out += without_blanks(line.substr(0, equals)) + " = (left out)\n";
        } else {
            out += line + "\n";
        }
    });
    return out;
}

std::string kernel_lines(std::string_view records) {
    std::string out;
    each_line(records, [&out](std::string_view line) {
        // Continuation lines are key=value pairs and begin with a blank.
        if (line.starts_with(' ')) return;
        if (line.find("NVRM") == line.npos && line.find("Xid") == line.npos && line.find("nvidia") == line.npos) return;
        const size_t text = line.find(';');
        const size_t comma = line.find(',');
        if (text == line.npos || comma == line.npos) return;
        // "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT"
        const size_t begin = line.find(',', comma + 1) + 1;
        const size_t end = line.find(',', begin);
        out += "[" + std::string(line.substr(begin, end - begin)) + " us] " + std::string(line.substr(text + 1)) + "\n";
    });
    return out;
}

std::vector<ReportItem> report_items(const std::string& socket, const std::string& root) {
    const std::string config = root + kConfigFile;
    return {
        {"version.txt", "vudactl's version; kernel release and machine type (uname), without the host's name",
         version_text},
        {"driver.txt", "/proc/driver/nvidia: version, gpus/*/information (model, UUID, bus address), params",
         [root] { return driver_text(root); }},
        {"status.json", "vudactl status --json: names, programs, users' numbers, process ids, reasons",
         [socket] {
             return asked<v1::StatusReply, v1::StatusRequest>(
                 socket, &v1::Vuda::Stub::GetStatus,
                 [](const v1::StatusReply& reply) { return to_pretty(status_json(reply)); });
         }},
        {"metrics.txt", "vudactl metrics",
         [socket] {
             return asked<v1::MetricsReply, v1::MetricsRequest>(
                 socket, &v1::Vuda::Stub::GetMetrics, [](const v1::MetricsReply& reply) { return reply.text(); });
         }},
        {"doctor.txt", "vudactl doctor", [socket] { return doctor_report(socket); }},
        {"vudad.toml", config + " without comments, and without values of keys that sound like secrets",
         [config] { return without_secrets(file_text(config)); }},
        {"units.txt", "systemctl show of vudad.service and its sockets: states, results, restarts",
         [] {
             return captured(
                 {"systemctl", "show", "vudad.service", "vudad.socket", "vudad-handles.socket", "--no-pager",
                  "--property=Id,ActiveState,SubState,Result,NRestarts,StatusText,ExecMainStatus,UnitFileState"});
         }},
        {"journal.txt", "journalctl -u vudad: the last 500 lines, as far as this user may read them",
         [] {
             return captured(
                 {"journalctl", "-u", "vudad", "-n", "500", "--no-pager", "-o", "short-iso", "--no-hostname"});
         }},
        {"kernel.txt", "/dev/kmsg: lines of the NVIDIA driver (NVRM, Xid), if this user may read it",
         [root] { return kernel_text(root + "/dev/kmsg"); }},
    };
}

std::string report_list(const std::vector<ReportItem>& items) {
    std::string text =
        "What vudactl bugreport takes. No environment variables, no command lines, no contents of other files. It does "
        "name\n"
        "programs, process ids and users' numbers: look through it before you give it away.\n\n";
    for (const ReportItem& item : items) text += item.file + "\n    " + item.what + "\n";
    return text;
}

int bugreport_command(const std::string& socket, const BugreportOptions& options) {
    const std::vector<ReportItem> items = report_items(socket);
    if (options.list) return print_text(report_list(items));
    const std::string path = options.output.empty() ? file_name_now() : options.output;
    std::string folder = fs::path(path).filename().string();
    folder = folder.substr(0, folder.find('.'));
    folder = folder.empty() ? "vuda-bugreport" : folder.substr(0, 60);
    const int64_t now = std::time(nullptr);
    TarGz archive;
    archive.add(folder + "/README.txt", report_list(items), now);
    for (const ReportItem& item : items) archive.add(folder + "/" + item.file, item.content(), now);
    const Result<std::string> bytes = std::move(archive).finish();
    if (!bytes) return cli::fail(bytes.error());
    if (const Status written = write_new_file(path, *bytes); !written) return cli::fail(written.error());
    return print_text(path + ": " + std::to_string(bytes->size()) +
                      " bytes. Look through it before you give it away: it names programs and users' numbers.\n");
}

}  // namespace vuda::cli
