#include "probe/pair_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/unique_fd.h"

extern char** environ;

namespace vuda::probe {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr size_t kErrorBytes = 2048;  // of what it says on stderr, the end

constexpr std::string_view kPreloadName = "libvuda_preload.so";
constexpr std::string_view kFitName = "libvuda_fit.so";

bool starts_with_name(std::string_view entry, std::string_view name) {
    return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
}

// Other libraries that are preloaded stay: the simulated GPU is one.
std::string preload_list(std::string_view current, const std::string& preload) {
    std::string list = preload;
    while (!current.empty()) {
        const size_t end = std::min(current.find_first_of(": "), current.size());
        const std::string_view entry = current.substr(0, end);
        current.remove_prefix(std::min(end + 1, current.size()));
        if (!entry.empty() && !entry.ends_with(kPreloadName) && !entry.ends_with(kFitName))
            list.append(":").append(entry);
    }
    return list;
}

std::optional<Phase> read_phase(const Json& parent, const char* name) {
    const auto found = parent.find(name);
    if (found == parent.end()) return std::nullopt;
    return Phase{found->value("launches", 0u), found->value("median_ms", 0.0), found->value("frames", 0u),
                 found->value("frame_ms", 0.0)};
}

void read_error(const Json& parent, PairReport& report) {
    const auto error = parent.find("error");
    if (error == parent.end()) return;
    if (report.error.empty()) report.error = error->value("text", "");
    report.lost = report.lost || error->value("lost", false);
}

class Process {
 public:
    static Result<Process> start(const PairCommand& command);
    Process(Process&& other) noexcept
        : pid_(std::exchange(other.pid_, -1)), out_(std::move(other.out_)), error_(std::move(other.error_)) {}
    Process& operator=(Process&&) = delete;
    Process(const Process&) = delete;
    ~Process() {
        if (pid_ > 0) static_cast<void>(finish(true));
    }

    // Lines as they come, until it closes its stdout. False: it said nothing for too long.
    template <typename Take>
    bool read_lines(std::chrono::milliseconds patience, Take take) {
        std::string out;
        Clock::time_point deadline = Clock::now() + patience;
        while (out_.valid()) {
            pollfd files[2] = {{out_.get(), POLLIN, 0}, {error_.get(), POLLIN, 0}};
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
            if (left <= 0) return false;
            if (::poll(files, 2, static_cast<int>(left)) < 0 && errno != EINTR) return false;
            if ((files[1].revents & (POLLIN | POLLHUP)) != 0) collect(error_, said_);
            if (said_.size() > kErrorBytes) said_.erase(0, said_.size() - kErrorBytes);
            if ((files[0].revents & (POLLIN | POLLHUP)) == 0) continue;
            collect(out_, out);
            for (size_t end; (end = out.find('\n')) != std::string::npos; out.erase(0, end + 1)) {
                take(out.substr(0, end));
                deadline = Clock::now() + patience;
            }
        }
        return true;
    }
    // The status of wait(2), once it has ended, by force if told so.
    int finish(bool by_force) {
        if (by_force) ::kill(pid_, SIGKILL);
        int status = 0;
        while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        pid_ = -1;
        return status;
    }
    // It has closed its stdout, which it does as it ends.
    bool ends_within(std::chrono::milliseconds patience) const {
        const UniqueFd self(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
        if (!self) return true;
        pollfd file{self.get(), POLLIN, 0};
        return ::poll(&file, 1, static_cast<int>(patience.count())) > 0;
    }
    // The last line on its stderr.
    std::string last_words() const {
        std::string_view text = said_;
        while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
        const size_t line = text.find_last_of('\n');
        return std::string(line == std::string_view::npos ? text : text.substr(line + 1));
    }

 private:
    Process() = default;
    static void collect(UniqueFd& file, std::string& into) {
        char buffer[4096];
        const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
        if (got > 0) {
            into.append(buffer, static_cast<size_t>(got));
        } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
            file.reset();
        }
    }

    pid_t pid_ = -1;
    UniqueFd out_;
    UniqueFd error_;
    std::string said_;
};

Result<Process> Process::start(const PairCommand& command) {
    int out[2], error[2];
    Process process;
    if (::pipe2(out, O_CLOEXEC) != 0) return errno_error(errno, "a pipe");
    process.out_.reset(out[0]);
    const UniqueFd out_end(out[1]);
    if (::pipe2(error, O_CLOEXEC) != 0) return errno_error(errno, "a pipe");
    process.error_.reset(error[0]);
    const UniqueFd error_end(error[1]);

    std::vector<std::string> words = {command.program,
                                      "--gpu",
                                      command.gpu,
                                      "--bytes",
                                      std::to_string(command.options.bytes),
                                      "--seconds",
                                      std::to_string(command.options.seconds)};
    if (command.options.l1) words.insert(words.end(), {"--l1", std::to_string(*command.options.l1)});
    std::vector<std::string> current;
    for (char** entry = environ; *entry != nullptr; ++entry) current.emplace_back(*entry);
    std::vector<std::string> environment = pair_environment(current, command.preload);
    std::vector<char*> arguments, variables;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    for (std::string& variable : environment) variables.push_back(variable.data());
    variables.push_back(nullptr);

    if (const Status there = pair_is_there(command.program); !there) return there.error();
    const pid_t parent = ::getpid();
    process.pid_ = ::fork();
    if (process.pid_ < 0) return errno_error(errno, "cannot start a process");
    if (process.pid_ == 0) {
        // Its fate is this process's: nobody else waits for it.
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent || ::dup2(out_end.get(), STDOUT_FILENO) < 0 ||
            ::dup2(error_end.get(), STDERR_FILENO) < 0)
            ::_exit(EX_OSERR);
        ::execve(arguments[0], arguments.data(), variables.data());
        ::_exit(EX_UNAVAILABLE);
    }
    return process;
}

}  // namespace

Status pair_is_there(const std::string& program) {
    if (::access(program.c_str(), X_OK) == 0) return {};
    const int error = errno;
    const char* hint = "";
    if (error == ENOENT) {
        hint = program.ends_with("vuda-sim-pair")
                   ? "it comes with the simulated GPU: the package vudad has it"
                   : "install the package vuda-probe-pair, or build with VUDA_BUILD_PROBE_PAIR";
    }
    return Error{Code::kUnavailable, "cannot start " + program + ": " + std::strerror(error), hint};
}

std::vector<std::string> pair_environment(const std::vector<std::string>& current, const std::string& preload) {
    std::vector<std::string> out;
    std::string preloaded;
    for (const std::string& entry : current) {
        if (starts_with_name(entry, "LD_PRELOAD")) {
            preloaded = entry.substr(std::string_view("LD_PRELOAD=").size());
        } else if (!entry.starts_with("VUDA_") || entry.starts_with("VUDA_SIM_")) {
            out.push_back(entry);
        }
    }
    out.push_back("LD_PRELOAD=" + preload_list(preloaded, preload));
    out.insert(out.end(), {
                              "VUDA_SHARE=1",           // with the renderer of its own process,
                              "VUDA_REQUIRE=1",         // or CUDA gets no context at all;
                              "VUDA_SOCKET=/dev/null",  // no vudad hears of it,
                              "VUDA_HANDLE_SOCKET=/dev/null",
                              "VUDA_PARTITION=off",  // and there is no guard
                          });
    return out;
}

bool read_pair_line(const std::string& line, PairRun& run) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || json.size() != 1 || !(json.begin()->is_object() || json.contains("tries"))) return false;
    try {
        PairReport& report = run.report;
        if (json.contains("pair")) {
            const Json& pair = json["pair"];
            read_error(pair, report);
            run.l1_set = pair.contains("l1");
            if (!pair.contains("gpu")) return true;
            PairGpu gpu;
            gpu.name = pair.at("gpu");
            gpu.driver = pair.at("driver");
            gpu.cuda = pair.at("cuda");
            gpu.capability_major = pair.at("capability").at(0);
            gpu.capability_minor = pair.at("capability").at(1);
            gpu.reserved = pair.at("reserved");
            gpu.largest = pair.at("largest");
            run.gpu = gpu;
        } else if (json.contains("tries")) {
            report.tried = json["tries"] == report.bytes;
        } else if (json.contains("launches")) {
            read_error(json["launches"], report);
            report.wrong += json["launches"].value("wrong", uint64_t{0});
        } else if (json.contains("frames")) {
            const Json& frames = json["frames"];
            read_error(frames, report);
            report.wrong += frames.value("wrong", uint64_t{0});
            report.control = read_phase(frames, "control");
            report.subject = read_phase(frames, "subject");
        } else {
            return false;
        }
    } catch (const Json::exception&) {
        return false;
    }
    return true;
}

Result<PairRun> run_pair(const PairCommand& command) {
    PairRun run;
    run.report.bytes = command.options.bytes;
    Result<Process> process = Process::start(command);
    if (!process) return process.error();
    run.report.hung = !process->read_lines(command.patience, [&](const std::string& line) {
        if (!read_pair_line(line, run) && run.report.error.empty()) run.report.error = "the pair said: " + line;
    }) || !process->ends_within(command.patience);
    const int status = process->finish(run.report.hung);
    run.report.crashed = !run.report.hung && WIFSIGNALED(status);
    if (run.report.error.empty() && (run.report.hung || status != 0)) {
        run.report.error = process->last_words();
        if (run.report.error.empty())
            run.report.error = run.report.hung ? "it hung" : "its process ended with status " + std::to_string(status);
    }
    return run;
}

}  // namespace vuda::probe
