#include "daemon/textfile.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/fault_point.h"
#include "base/unique_fd.h"

namespace vuda::daemon {
namespace {

constexpr std::chrono::seconds kRetry{1};

std::string fresh_name(const std::string& path) { return path + ".tmp"; }

}  // namespace

void remove_leftover(const std::string& path) { ::unlink(fresh_name(path).c_str()); }

Status write_textfile(const std::string& path, const std::string& text) {
    const std::string fresh = fresh_name(path);
    // A file that a killed daemon left is taken; a link that somebody put there is not followed.
    UniqueFd fd(
        ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0644));
    if (!fd) return errno_error(errno, "open " + fresh);
    const auto give_up = [&](const std::string& what) {
        Error error = errno_error(errno, what);
        ::unlink(fresh.c_str());
        return error;
    };
    VUDA_FAULT_POINT(daemon_file_opened);
    // The umask is the daemon's, the readers are others.
    if (::fchmod(fd.get(), 0644) != 0) return give_up("chmod " + fresh);
    for (size_t done = 0; done < text.size();) {
        const ssize_t wrote = ::write(fd.get(), text.data() + done, text.size() - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return give_up("write " + fresh);
        done += static_cast<size_t>(wrote);
    }
    VUDA_FAULT_POINT(daemon_file_written);
    // Some file systems find out only now that there is no room.
    if (::close(fd.release()) != 0 && errno != EINTR) return give_up("close " + fresh);
    if (::rename(fresh.c_str(), path.c_str()) != 0) return give_up("rename to " + path);
    VUDA_FAULT_POINT(daemon_file_renamed);
    return {};
}

TextfileWriter::TextfileWriter(std::string what) : what_(std::move(what)), thread_([this] { run(); }) {}

TextfileWriter::~TextfileWriter() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

void TextfileWriter::write(const std::string& path, std::string text) { put(path, std::move(text)); }
void TextfileWriter::remove(const std::string& path) { put(path, std::nullopt); }

void TextfileWriter::put(const std::string& path, Text text) {
    {
        const std::lock_guard lock(mutex_);
        jobs_[path] = std::move(text);
    }
    changed_.notify_one();
}

void TextfileWriter::run() {
    std::unique_lock lock(mutex_);
    const auto due = [this] { return !jobs_.empty() || ending_; };
    for (;;) {
        if (failed_.empty()) {
            changed_.wait(lock, due);
        } else if (!changed_.wait_for(lock, kRetry, due)) {
            jobs_.merge(failed_);
        }
        if (jobs_.empty()) return;
        auto job = jobs_.extract(jobs_.begin());
        failed_.erase(job.key());  // of an older text
        lock.unlock();
        if (!job.mapped()) {
            ::unlink(job.key().c_str());
        } else {
            const Status done = write_textfile(job.key(), *job.mapped());
            const std::string failure = done ? "" : done.error().to_string();
            if (!failure.empty() && failure != last_failure_) spdlog::warn("{}: {}", what_, failure);
            if (failure.empty() && !last_failure_.empty()) spdlog::info("{}: {} is written again", what_, job.key());
            last_failure_ = failure;
            if (!done) failed_.insert(std::move(job));
        }
        lock.lock();
    }
}

}  // namespace vuda::daemon
