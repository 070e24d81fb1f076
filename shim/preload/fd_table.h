// Which descriptors of this process are NVIDIA device files, and which are ours. Looking one up takes no lock and no
// system call, so that close() of any other descriptor costs next to nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "shim/preload/redirector.h"

namespace vuda::shim {

// "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"; kOther for the rest ("-uvm-tools", "-modeset", "-caps"
// included).
FileRole role_of_path(std::string_view path);

// By the device number of an open descriptor; `uvm_major` 0 = not known.
FileRole role_of_device(uint64_t rdev, unsigned uvm_major);

// The lock-free part: plain arrays, valid from load time on, in zero pages until used.
class FdMarks {
 public:
    // Descriptors from here on are not followed: programs do not use such numbers for the GPU.
    static constexpr int kLimit = 1 << 16;

    FileId file(int fd) const {
        return in_range(fd) ? files_[static_cast<size_t>(fd)].load(std::memory_order_acquire) : 0;
    }
    bool guarded(int fd) const {
        return in_range(fd) && guards_[static_cast<size_t>(fd)].load(std::memory_order_acquire);
    }
    bool special(int fd) const { return file(fd) != 0 || guarded(fd); }
    int guards() const { return guard_count_.load(std::memory_order_acquire); }
    int high_water() const { return high_water_.load(std::memory_order_acquire); }

    void set_file(int fd, FileId file);
    void set_guard(int fd, bool guarded);
    void clear();

 private:
    static bool in_range(int fd) { return fd >= 0 && fd < kLimit; }
    void raise_high_water(int fd);

    std::array<std::atomic<FileId>, kLimit> files_{};
    std::array<std::atomic<bool>, kLimit> guards_{};
    std::atomic<int> guard_count_{0};
    std::atomic<int> high_water_{-1};
};

// Open file descriptions: several descriptors may share one, and RM's clients live as long as it.
class FdTable {
 public:
    explicit FdTable(FdMarks* marks) : marks_(marks) {}

    // A descriptor of a freshly opened file; whatever the number meant before is over.
    FileId opened(int fd, FileRole role, std::vector<FileId>* gone);
    // `to` is a duplicate of `from` now.
    void duplicated(int from, int to, std::vector<FileId>* gone);
    // The number is free. Returns the file in *gone when this was its last descriptor.
    void closed(int fd, std::vector<FileId>* gone);

    FileRole role(FileId file) const;
    // Some descriptor of `file`, or -1.
    int descriptor(FileId file) const;

 private:
    struct File {
        FileRole role = FileRole::kOther;
        std::set<int> descriptors;
    };
    void drop(int fd, std::vector<FileId>* gone);

    FdMarks* marks_;
    mutable std::mutex mutex_;
    std::map<FileId, File> files_;
    FileId next_ = 1;
};

}  // namespace vuda::shim
