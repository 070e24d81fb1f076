// Notices a kernel that can neither go on nor end, because the GPU repeats its page faults for ever.
//
// A bad access of a program that shares is such a case: UVM, which repairs page faults, does not know the channel that
// the GPU names, drops the fault and has the GPU try again (docs/faults.md). Nothing dies, so no error notifier is
// written. What can be seen is UVM's own count of such repeats, its replay events: every file that asked for them is
// told of those of the whole machine, and no privilege is needed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "rm/abi.h"
#include "shim/preload/fd_table.h"
#include "shim/preload/next.h"

namespace vuda::shim {

// Pure: when a growing number says that somebody is stuck. Repairing real page faults takes UVM tens of microseconds to
// a millisecond a batch, so that rates of managed memory stay below the limit, but for short bursts.
class ReplayRule {
 public:
    enum class Change : uint8_t { kNone, kStuck, kOver };

    static constexpr uint64_t kStuckRate = 20'000;         // replays a second, at least
    static constexpr uint64_t kOverRate = 1'000;           // below this
    static constexpr unsigned kLooks = 10;                 // in a row
    static constexpr uint64_t kLeastApartNs = 40'000'000;  // looks that come sooner are left out

    Change look(uint64_t replays, uint64_t now_ns);
    bool stuck() const { return stuck_; }
    uint32_t rate() const { return rate_; }  // between the last two looks, a second

 private:
    bool begun_ = false;
    bool stuck_ = false;
    uint64_t replays_ = 0;
    uint64_t at_ns_ = 0;
    unsigned in_a_row_ = 0;
    uint32_t rate_ = 0;
};

// On libvuda's session thread only, but for after_fork_in_child.
class ReplayWatch {
 public:
    // The way to the kernel.
    struct Calls {
        int (*open)(const char* path, int flags, mode_t mode) = next::open;
        int (*ioctl)(int fd, unsigned long request, void* arg) = next::ioctl;
        int (*close)(int fd) = next::close;
    };

    explicit ReplayWatch(FdMarks* marks) : ReplayWatch(marks, Calls{}) {}
    ReplayWatch(FdMarks* marks, const Calls& calls) : marks_(marks), calls_(calls) {}
    ~ReplayWatch() { end(); }
    ReplayWatch(const ReplayWatch&) = delete;
    ReplayWatch& operator=(const ReplayWatch&) = delete;

    // `sharing`: this process has CUDA channels in a shared TSG. Begins with the first look at which that is so; when
    // it no longer is, everything is closed. What the kernel refuses is not asked for again before that.
    ReplayRule::Change look(bool sharing, uint64_t now_ns);
    // The TSG died: nothing is watched until look() was told that nothing is shared.
    void give_up();
    bool watching() const { return pages_ != nullptr; }
    uint32_t rate() const { return rule_.rate(); }
    // Closes what a child of fork inherited: system calls only.
    void after_fork_in_child();

 private:
    // A descriptor, and which file it was when it was opened: programs close what is not theirs.
    struct File {
        std::atomic<int> fd{-1};
        dev_t device = 0;
        ino_t inode = 0;
        dev_t special = 0;
    };
    const char* begin();
    bool open(const char* path, File& file);
    void close(File& file);
    void end();
    static bool intact(const File& file);

    FdMarks* marks_;
    const Calls calls_;
    File uvm_;
    File tools_;
    void* pages_ = nullptr;  // the control page, then the queue's; null: not watching
    bool refused_ = false;
    ReplayRule rule_;
};

}  // namespace vuda::shim
