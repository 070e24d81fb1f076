#include "shim/preload/fd_table.h"

#include <sys/sysmacros.h>

#include <algorithm>

namespace vuda::shim {
namespace {

constexpr unsigned kNvidiaMajor = 195;     // NV_MAJOR_DEVICE_NUMBER
constexpr unsigned kNvidiactlMinor = 255;  // NV_MINOR_DEVICE_NUMBER_CONTROL_DEVICE
constexpr unsigned kModesetMinor = 254;

}  // namespace

FileRole role_of_path(std::string_view path) {
    constexpr std::string_view kPrefix = "/dev/nvidia";
    if (!path.starts_with(kPrefix)) return FileRole::kOther;
    const std::string_view rest = path.substr(kPrefix.size());
    if (rest == "ctl") return FileRole::kControl;
    if (rest == "-uvm") return FileRole::kUvm;
    const bool number =
        !rest.empty() && rest.size() <= 3 && std::ranges::all_of(rest, [](char c) { return c >= '0' && c <= '9'; });
    return number ? FileRole::kGpu : FileRole::kOther;
}

FileRole role_of_device(uint64_t rdev, unsigned uvm_major) {
    const unsigned major = gnu_dev_major(rdev);
    const unsigned minor = gnu_dev_minor(rdev);
    if (major == kNvidiaMajor) {
        if (minor == kNvidiactlMinor) return FileRole::kControl;
        return minor == kModesetMinor ? FileRole::kOther : FileRole::kGpu;
    }
    // Minor 1 is nvidia-uvm-tools.
    return uvm_major != 0 && major == uvm_major && minor == 0 ? FileRole::kUvm : FileRole::kOther;
}

void FdMarks::raise_high_water(int fd) {
    int seen = high_water_.load(std::memory_order_relaxed);
    while (seen < fd && !high_water_.compare_exchange_weak(seen, fd, std::memory_order_acq_rel)) {
    }
}

void FdMarks::set_file(int fd, FileId file) {
    if (!in_range(fd)) return;
    files_[static_cast<size_t>(fd)].store(file, std::memory_order_release);
    if (file != 0) raise_high_water(fd);
}

void FdMarks::set_guard(int fd, bool guarded) {
    if (!in_range(fd)) return;
    const bool was = guards_[static_cast<size_t>(fd)].exchange(guarded, std::memory_order_acq_rel);
    if (was != guarded) guard_count_.fetch_add(guarded ? 1 : -1, std::memory_order_acq_rel);
    if (guarded) raise_high_water(fd);
}

void FdMarks::clear() {
    for (int fd = 0; fd <= high_water(); ++fd) {
        files_[static_cast<size_t>(fd)].store(0, std::memory_order_relaxed);
        guards_[static_cast<size_t>(fd)].store(false, std::memory_order_relaxed);
    }
    guard_count_.store(0, std::memory_order_relaxed);
    high_water_.store(-1, std::memory_order_release);
}

void FdTable::drop(int fd, std::vector<FileId>* gone) {
    const FileId file = marks_->file(fd);
    if (file == 0) return;
    marks_->set_file(fd, 0);
    const auto found = files_.find(file);
    if (found == files_.end()) return;
    found->second.descriptors.erase(fd);
    if (!found->second.descriptors.empty()) return;
    files_.erase(found);
    gone->push_back(file);
}

FileId FdTable::opened(int fd, FileRole role, std::vector<FileId>* gone) {
    const std::lock_guard lock(mutex_);
    drop(fd, gone);
    if (fd < 0 || fd >= FdMarks::kLimit) return 0;
    const FileId file = next_++;
    files_[file] = {role, {fd}};
    marks_->set_file(fd, file);
    return file;
}

void FdTable::duplicated(int from, int to, std::vector<FileId>* gone) {
    const std::lock_guard lock(mutex_);
    const FileId file = marks_->file(from);
    if (marks_->file(to) == file) return;
    drop(to, gone);
    const auto found = files_.find(file);
    if (found == files_.end() || to < 0 || to >= FdMarks::kLimit) return;
    found->second.descriptors.insert(to);
    marks_->set_file(to, file);
}

void FdTable::closed(int fd, std::vector<FileId>* gone) {
    const std::lock_guard lock(mutex_);
    drop(fd, gone);
}

FileRole FdTable::role(FileId file) const {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(file);
    return found == files_.end() ? FileRole::kOther : found->second.role;
}

int FdTable::descriptor(FileId file) const {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(file);
    return found == files_.end() ? -1 : *found->second.descriptors.begin();
}

}  // namespace vuda::shim
