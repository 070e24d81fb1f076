// vudad's end of one session's page (proto/page/session_page.h): publishes splits, takes timing samples out.
//
// Everything in the process's half is a stranger's word. It becomes numbers in a status table and nothing else.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "daemon/clock.h"
#include "proto/page/page_memory.h"

namespace vuda::daemon {

// What one kind of sample looked like lately.
struct SampleSummary {
    uint64_t count = 0;   // since the session began
    double rate = 0;      // samples a second, over the last full second of the daemon's clock
    uint64_t p50_ns = 0;  // of the newest kRecent
    uint64_t p99_ns = 0;
    TimePoint last_seen;  // when the newest was taken out
};

class SampleLog {
 public:
    static constexpr size_t kRecent = 512;

    void add(uint64_t duration_ns, TimePoint now);
    // nullopt: none was ever seen.
    std::optional<SampleSummary> summary(TimePoint now) const;

 private:
    void roll(TimePoint now);

    std::vector<uint64_t> recent_;  // a ring, oldest at next_ once full
    size_t next_ = 0;
    uint64_t count_ = 0;
    TimePoint last_seen_;
    TimePoint second_began_;
    uint64_t in_this_second_ = 0;
    uint64_t in_last_second_ = 0;
};

class SessionPage {
 public:
    struct Made {
        std::unique_ptr<SessionPage> page;
        UniqueFd fd;  // for the process
    };
    static Result<Made> make();

    // The newest split, whatever the process made of it.
    const page::Split& split() const { return split_; }
    void publish(const page::Split& split);
    // Kernels of the process wait until it is let go.
    void hold();
    void release();

    // A ring in which nothing came for kIdleAfter is looked at every kIdleLook only: with a thousand programs that do
    // nothing the looking is most of what vudad does. At 10,000 samples a second, which may begin at any moment, half
    // of the ring fills in that time.
    static constexpr std::chrono::milliseconds kIdleAfter{1000};
    static constexpr std::chrono::milliseconds kIdleLook{400};
    static_assert(kIdleLook.count() * 10 <= static_cast<int64_t>(page::kRingCells / 2));
    TimePoint due() const { return due_; }

    // Takes out what has come. Returns how many cells that was: at most page::kRingCells, whatever the process does.
    // `keep`: they are appended there too.
    size_t drain(TimePoint now, std::vector<page::Sample>* keep = nullptr);

    uint64_t samples() const { return samples_; }
    // Found the ring full, or were damaged. The process's own count is taken as it is.
    uint64_t lost() const { return reader_.lost() + reader_.bad(); }
    uint64_t launches() const { return reader_.launches(); }
    uint64_t refused() const { return reader_.refused(); }
    uint64_t native() const { return reader_.native(); }
    bool paces() const { return reader_.paces(); }
    uint64_t applied_generation() const { return reader_.applied_generation(); }
    std::optional<SampleSummary> summary(page::SampleKind kind, TimePoint now) const;

 private:
    explicit SessionPage(page::PageMapping mapping)
        : mapping_(std::move(mapping)), writer_(mapping_->daemon), reader_(*mapping_) {}

    page::PageMapping mapping_;
    page::SplitWriter writer_;
    page::SampleReader reader_;
    page::Split split_;
    uint64_t holds_ = 0;
    uint64_t samples_ = 0;
    std::optional<TimePoint> busy_;  // when something was in the ring
    TimePoint due_ = TimePoint::min();
    std::array<SampleLog, page::kSampleKinds> logs_;  // by kind - 1
};

const char* sample_kind_name(page::SampleKind kind);

}  // namespace vuda::daemon
