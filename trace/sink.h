// Where the recorder's lines go: one file a process, opened for each line so that a program which closes every
// descriptor it did not open (close_range) can neither break the recording nor write into it.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace vuda::trace {

// Not thread-safe: the recorder serialises.
class Sink {
 public:
    // `path` empty: nothing is ever written.
    explicit Sink(std::string path) : path_(std::move(path)) {}

    bool enabled() const { return !path_.empty() && !failed_; }
    bool started() const { return owner_ != 0; }

    // Creates this process's file: `path`, or when that exists already "path.PID", "path.PID.1", ... and writes
    // `header`.
    bool start(std::string_view header);
    // Appends whole lines with one write.
    bool append(std::string_view text);
    // A forked child gets a file of its own.
    void forget() { owner_ = 0; }

 private:
    bool write_to(int fd, std::string_view text);

    std::string path_;
    std::string file_;
    pid_t owner_ = 0;
    bool failed_ = false;
};

}  // namespace vuda::trace
