// A folder of one test, removed at its end.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <cstdlib>

namespace vuda::cli {

class TestDir {
 public:
    TestDir() {
        std::string pattern = (std::filesystem::temp_directory_path() / "vuda-test-XXXXXX").string();
        if (mkdtemp(pattern.data()) == nullptr) std::abort();
        root_ = pattern;
    }
    TestDir(const TestDir&) = delete;
    TestDir& operator=(const TestDir&) = delete;
    ~TestDir() {
        std::error_code ignored;
        std::filesystem::remove_all(root_, ignored);
    }

    const std::filesystem::path& root() const { return root_; }
    std::string path(std::string_view name) const { return (root_ / name).string(); }

    // Writes a file, making the folders it lies in. Returns its path.
    std::string write(std::string_view name, std::string_view bytes) const {
        const std::filesystem::path file = root_ / name;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file, std::ios::binary) << bytes;
        return file.string();
    }

 private:
    std::filesystem::path root_;
};

}  // namespace vuda::cli
