// Turns between this program and the one that started it, by files in a folder: go-1, done-1, go-2, ... and at last
// end.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "base/result.h"

namespace vuda::bench {

class Phases {
 public:
    // `patience_s`: seconds that each wait may last.
    Phases(std::filesystem::path folder, double patience_s) : folder_(std::move(folder)), patience_s_(patience_s) {}

    // Waits for the next turn: true when it is there, false at the end (or a stop signal).
    Result<bool> next();
    // The turn that next() began is over.
    Status done();

 private:
    std::filesystem::path file(const char* word) const { return folder_ / (word + std::to_string(turn_)); }

    std::filesystem::path folder_;
    double patience_s_;
    int turn_ = 0;
};

}  // namespace vuda::bench
