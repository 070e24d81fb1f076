#include "cli/sharing_watch.h"

#include <chrono>
#include <fstream>

namespace vuda::cli {
namespace {

// Events are pushed: what the daemon knew when the program ended arrives within one scheduling delay.
constexpr std::chrono::milliseconds kStragglers{1000};
constexpr std::chrono::milliseconds kSubscribe{1000};
constexpr int kMaxDepth = 4096;  // of a process tree; /proc may change while we climb

// 0 if the process is gone.
pid_t parent_of(pid_t pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    if (!std::getline(in, line)) return 0;
    // "pid (name) state ppid ...": the name may hold anything, ')' included.
    const size_t name_end = line.rfind(')');
    if (name_end == std::string::npos || name_end + 4 >= line.size()) return 0;
    return static_cast<pid_t>(std::strtol(line.c_str() + name_end + 4, nullptr, 10));
}

}  // namespace

bool descends_from(pid_t pid, pid_t ancestor) {
    for (int depth = 0; pid > 0 && depth < kMaxDepth; ++depth) {
        if (pid == ancestor) return true;
        pid = parent_of(pid);
    }
    return false;
}

void SharingRecord::take(const v1::Event& event, const IsMember& is_member) {
    const uint64_t session = event.session_id();
    if (!members_.contains(session)) {
        if (event.kind() == "session-close" || !is_member(static_cast<pid_t>(event.peer().pid()))) return;
        members_.insert(session);
        open_.insert(session);
    }
    if (event.kind() == "session-close") {
        open_.erase(session);
    } else if (event.kind() == "register") {
        registered_ = true;
    } else if (event.kind() == "attach") {
        attached_ = true;
    } else if (!event.reason().text().empty()) {
        refusal_ = event.reason().text();
        if (!event.reason().hint().empty()) refusal_ += "; " + event.reason().hint();
    }
}

SharingWatch::~SharingWatch() {
    if (!thread_.joinable()) return;
    context_.TryCancel();
    thread_.join();
}

void SharingWatch::start(DaemonClient& client) {
    reader_ = client.stub().Watch(&context_, v1::WatchRequest());
    thread_ = std::thread([this] { follow(); });
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSubscribe, [this] { return subscribed_ || ended_; });
}

void SharingWatch::set_root(pid_t pid) {
    const std::lock_guard lock(mutex_);
    root_ = pid;
    changed_.notify_all();
}

void SharingWatch::follow() {
    reader_->WaitForInitialMetadata();
    {
        const std::lock_guard lock(mutex_);
        subscribed_ = true;
        changed_.notify_all();
    }
    v1::Event event;
    while (reader_->Read(&event)) {
        std::unique_lock lock(mutex_);
        // No program, no event of its: those before it are other people's.
        if (root_ == 0) continue;
        record_.take(event, [this](pid_t pid) { return descends_from(pid, root_); });
        changed_.notify_all();
    }
    reader_->Finish();
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
}

bool SharingWatch::shared(const RunOptions& options) {
    const auto done = [&] {
        return (options.register_name.empty() || record_.registered()) &&
               (options.attach_name.empty() || record_.attached());
    };
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kStragglers,
                      [&] { return done() || ended_ || (record_.saw_session() && !record_.has_open_session()); });
    return done();
}

std::string SharingWatch::why_not(const std::string& program) {
    const std::lock_guard lock(mutex_);
    std::string text = program + " ended without having shared the GPU, and --require was given";
    if (!record_.last_refusal().empty()) return text + ": " + record_.last_refusal();
    if (ended_) return text + ": the daemon went away";
    if (!record_.saw_session()) return text + ": it made no GPU context that the shim could see";
    return text;
}

}  // namespace vuda::cli
