// Shared by the client's tests.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace vuda::client {

class TempDir {
 public:
    TempDir() {
        char name[] = "/tmp/vuda-test-XXXXXX";
        path_ = ::mkdtemp(name);
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    ~TempDir() { std::filesystem::remove_all(path_); }
    std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
    std::string path_;
};

inline size_t open_fds() {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
}

}  // namespace vuda::client
