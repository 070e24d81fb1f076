// What `vudactl top` shows: lines of text from what the daemon says. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "vuda/v1/control.pb.h"

namespace vuda::cli {

// Columns that the table of sessions can be sorted by, in the order in which key 's' goes through them.
enum class TopSort { kSession, kProgram, kState, kName, kRate, kLatency, kLaunches };
inline constexpr int kTopSorts = 7;

class TopView {
 public:
    using Clock = std::chrono::steady_clock;

    // A new answer of the daemon. `metrics` is Prometheus' text; empty when there is none.
    void update(const v1::StatusReply& status, std::string_view metrics, Clock::time_point now);
    void event(const v1::Event& event);
    // Shown instead of the line of counts; the tables stay as they were last. "" when the daemon answers again.
    void set_trouble(std::string text) { trouble_ = std::move(text); }

    void next_sort();
    void turn_order() { descending_ = !descending_; }
    bool toggle_pause() { return paused_ = !paused_; }
    bool paused() const { return paused_; }

    // At most `height` lines of at most `width` characters: the counts, the TSGs, the sessions, and below them, as far
    // as there is room, the newest events and the keys.
    std::vector<std::string> lines(size_t width, size_t height) const;
    // Everything, for a script or a pipe; no events and no keys.
    std::string text() const;

 private:
    struct Timing {
        std::string kind;
        double rate = 0;  // a second
        double p50 = 0;   // seconds
        double p99 = 0;
    };
    struct Row {
        const v1::SessionInfo* session = nullptr;
        Timing timing;
        double launches = -1;  // a second; below 0: not known yet
    };
    std::vector<std::string> counts() const;
    std::vector<std::string> tsgs() const;
    std::vector<std::string> targets() const;  // empty: no TSG has any
    std::vector<std::string> sessions() const;
    std::vector<Row> sorted() const;

    v1::StatusReply status_;
    std::map<uint64_t, Timing> timings_;
    std::map<uint64_t, double> launch_rates_;
    Clock::time_point updated_;
    std::deque<std::string> events_;  // newest last
    std::string trouble_;
    TopSort sort_ = TopSort::kSession;
    bool descending_ = false;
    bool paused_ = false;
};

// `text` cut to `width` characters; never inside one.
std::string cut_to_width(std::string_view text, size_t width);

}  // namespace vuda::cli
