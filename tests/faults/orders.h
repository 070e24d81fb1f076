// The test's side of libvuda_faulty_os.so.
#pragma once

#include <map>
#include <string>

#include "tests/faults/faulty_os.h"

namespace vuda::faults {

class FaultyOs {
 public:
    // The orders lie in a file in `folder`, which the owner of this removes.
    explicit FaultyOs(const std::string& folder);
    ~FaultyOs();
    FaultyOs(const FaultyOs&) = delete;
    FaultyOs& operator=(const FaultyOs&) = delete;

    // For a program without other preloads. With some: library() among them, and variables of env() but LD_PRELOAD.
    std::map<std::string, std::string> env() const;
    static std::string library();

    void only_from(const std::string& object);  // file name of the library or program that calls
    void only_path(const std::string& part);    // kOpen
    void fail(Call call, int error, int times = 1 << 30, int spare = 0);
    void heal();
    unsigned done(Call call) const;

 private:
    std::string path_;
    Orders* orders_ = nullptr;
};

}  // namespace vuda::faults
