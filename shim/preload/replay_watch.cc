#include "shim/preload/replay_watch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "shim/preload/settings.h"

namespace vuda::shim {
namespace {

constexpr size_t kPage = 4096;
// The smallest queue that UVM takes. Nobody reads it: it is full after the first event, and all others are counted.
constexpr uint64_t kQueueEvents = 2;

uint64_t replays(const void* page) {
    const auto* control = static_cast<const rm::UvmToolsEventControl*>(page);
    return __atomic_load_n(&control->dropped[rm::kUvmEventGpuFaultReplay], __ATOMIC_RELAXED) +
           __atomic_load_n(&control->putBehind, __ATOMIC_RELAXED);
}

}  // namespace

ReplayRule::Change ReplayRule::look(uint64_t replays, uint64_t now_ns) {
    constexpr uint64_t kSecondNs = 1'000'000'000;
    if (begun_ && now_ns < at_ns_ + kLeastApartNs) return Change::kNone;
    const uint64_t since_ns = now_ns - at_ns_;
    const bool first = !std::exchange(begun_, true) || replays < replays_;
    const uint64_t more = replays - replays_;
    replays_ = replays;
    at_ns_ = now_ns;
    if (first) {
        in_a_row_ = 0;
        return Change::kNone;
    }
    const double rate = static_cast<double>(more) * static_cast<double>(kSecondNs) / static_cast<double>(since_ns);
    rate_ = static_cast<uint32_t>(std::min<double>(rate, std::numeric_limits<uint32_t>::max()));
    const bool towards = stuck_ ? rate_ < kOverRate : rate_ >= kStuckRate;
    in_a_row_ = towards ? in_a_row_ + 1 : 0;
    if (in_a_row_ < kLooks) return Change::kNone;
    in_a_row_ = 0;
    stuck_ = !stuck_;
    return stuck_ ? Change::kStuck : Change::kOver;
}

ReplayRule::Change ReplayWatch::look(bool sharing, uint64_t now_ns) {
    if (!sharing) {
        const bool was_stuck = rule_.stuck();
        end();
        refused_ = false;
        return was_stuck ? ReplayRule::Change::kOver : ReplayRule::Change::kNone;
    }
    if (refused_) return ReplayRule::Change::kNone;
    if (!watching()) {
        if (const char* refusal = begin(); refusal != nullptr) {
            end();
            refused_ = true;
            say(LogLevel::kDebug, "page faults that repeat for ever are not watched: %s", refusal);
            return ReplayRule::Change::kNone;
        }
    }
    return rule_.look(replays(pages_), now_ns);
}

void ReplayWatch::give_up() {
    end();
    refused_ = true;
}

// Null, or what is missing.
const char* ReplayWatch::begin() {
    if (!open("/dev/nvidia-uvm", uvm_)) return "/dev/nvidia-uvm cannot be opened";
    if (!open("/dev/nvidia-uvm-tools", tools_)) return "/dev/nvidia-uvm-tools cannot be opened";
    rm::UvmInitializeArgs init{};
    init.flags = rm::kUvmInitMultiProcess;
    if (calls_.ioctl(uvm_.fd, rm::uvm::kInitialize, &init) != 0 || init.rmStatus != 0) return "UVM_INITIALIZE";
    void* pages = mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return "no memory";
    pages_ = pages;
    // The kernel writes into these very pages; a child of fork has no use for a copy.
    madvise(pages_, 2 * kPage, MADV_DONTFORK);
    rm::UvmToolsInitEventTrackerArgs track{};
    track.controlBuffer = reinterpret_cast<uintptr_t>(pages_);
    track.queueBuffer = track.controlBuffer + kPage;
    track.queueBufferSize = kQueueEvents;
    track.uvmFd = static_cast<uint32_t>(uvm_.fd.load());
    if (calls_.ioctl(tools_.fd, rm::uvm::kToolsInitEventTracker, &track) != 0 || track.rmStatus != 0)
        return "UVM_TOOLS_INIT_EVENT_TRACKER";
    rm::UvmToolsEnableEventsArgs enable{};
    enable.eventTypeFlags = uint64_t{1} << rm::kUvmEventGpuFaultReplay;
    if (calls_.ioctl(tools_.fd, rm::uvm::kToolsEventQueueEnableEvents, &enable) != 0 || enable.rmStatus != 0)
        return "UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS";
    return nullptr;
}

bool ReplayWatch::open(const char* path, File& file) {
    const int fd = calls_.open(path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return false;
    marks_->set_guard(fd, true);
    struct stat info {};
    if (fstat(fd, &info) == 0) {
        file.device = info.st_dev;
        file.inode = info.st_ino;
        file.special = info.st_rdev;
    }
    file.fd = fd;
    return true;
}

bool ReplayWatch::intact(const File& file) {
    struct stat info {};
    return file.fd >= 0 && fstat(file.fd, &info) == 0 && info.st_dev == file.device && info.st_ino == file.inode &&
           info.st_rdev == file.special;
}

void ReplayWatch::close(File& file) {
    const bool ours = intact(file);
    const int fd = file.fd.exchange(-1);
    if (fd < 0) return;
    marks_->set_guard(fd, false);
    if (ours) calls_.close(fd);
}

void ReplayWatch::end() {
    // The tracker first: it holds the other file and the pages.
    close(tools_);
    close(uvm_);
    if (pages_ != nullptr) munmap(std::exchange(pages_, nullptr), 2 * kPage);
    rule_ = {};
}

void ReplayWatch::after_fork_in_child() {
    for (File* file : {&tools_, &uvm_}) {
        if (intact(*file)) syscall(SYS_close, file->fd.load());
        file->fd = -1;
    }
}

}  // namespace vuda::shim
