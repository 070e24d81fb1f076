// Times of a run and the JSON line that the stand-ins print.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace vuda::sim::standin {

// Set by SIGTERM and SIGINT once watch_signals() was called.
extern std::atomic<bool> g_stop;
void watch_signals();

class Samples {
 public:
    void add(double milliseconds) { values_.push_back(milliseconds); }
    size_t count() const { return values_.size(); }
    // p in [0, 1]; 0 without samples.
    double percentile(double p) const;
    void append(const Samples& other) { values_.insert(values_.end(), other.values_.begin(), other.values_.end()); }

 private:
    std::vector<double> values_;
};

// When units of work ended and how long they took, in milliseconds; ends on CLOCK_MONOTONIC.
class Trace {
 public:
    void add(uint64_t end_ns, double ms) { entries_.push_back({end_ns, ms}); }
    void append(const Trace& other) { entries_.insert(entries_.end(), other.entries_.begin(), other.entries_.end()); }
    std::string json() const;  // [[end, duration],...]

 private:
    struct Entry {
        uint64_t end_ns;
        double ms;
    };
    std::vector<Entry> entries_;
};

// Paces work: so many a second, and what was missed is not made up for.
class Pacer {
 public:
    explicit Pacer(double per_second) : per_second_(per_second) {}
    // Sleeps until the next one is due; returns at once for 0 a second.
    void wait();

 private:
    using Clock = std::chrono::steady_clock;
    const double per_second_;
    Clock::time_point due_ = Clock::now();
};

// Appends `"name":value` members; braces and commas are its business.
class Json {
 public:
    Json& text(const char* name, const std::string& value);
    Json& number(const char* name, double value);
    Json& integer(const char* name, int64_t value);
    Json& flag(const char* name, bool value);
    Json& trace(const char* name, const Trace& value);
    std::string line() const { return "{" + body_ + "}\n"; }

 private:
    void key(const char* name);
    std::string body_;
};

// FNV-1a over what a run saw, so that two runs that should agree can be compared.
class Checksum {
 public:
    void add(uint64_t value);
    std::string hex() const;

 private:
    uint64_t state_ = 0xcbf29ce484222325;
};

// The stretch of a run that is measured: from the start file's appearance (at once without one) for so many seconds or
// units of work; then the linger time, and the end.
class Window {
 public:
    Window(const std::string& start_file, double seconds, uint64_t units, double linger_seconds);
    // Looks at clock and start file. `done`: units measured so far. False: the run is over.
    bool go_on(uint64_t done);
    // Whether work that was just done counts.
    bool measuring() const { return started_ && !measured_; }
    // Length of the measured stretch; up to now while it lasts.
    double seconds() const;

 private:
    using Clock = std::chrono::steady_clock;

    const std::string start_file_;
    const double limit_seconds_;
    const uint64_t limit_units_;  // 0: time decides
    const double linger_seconds_;
    bool started_;
    bool measured_ = false;
    Clock::time_point start_ = Clock::now();
    Clock::time_point end_{};
};

// Creates the file; nothing for an empty path.
void touch(const std::string& path);
// CLOCK_MONOTONIC.
uint64_t monotonic_ns();
// Appends one line. Does nothing when the file cannot be opened.
void append_line(const std::string& path, const std::string& line);

// --fork: forks; the child opens a device of its own, makes a client and leaves. False when that child failed.
bool fork_and_use_device();
// --close-range: closes every descriptor from `first` up, whoever opened it.
void close_descriptors(int first);
// --exec-self: executes this program anew without that option. Returns only when that fails.
void execute_again(char** argv);

}  // namespace vuda::sim::standin
