#include "daemon/session_page.h"

#include <algorithm>
#include <utility>

#include "proto/page/launch_hold.h"
#include "proto/page/split_wait.h"

namespace vuda::daemon {
namespace {

using namespace std::chrono_literals;

size_t index_of(page::SampleKind kind) { return static_cast<size_t>(kind) - 1; }

// The same moments for all pages, so that in between there is nothing to do at all. The caller's timer may be a little
// early, and one of its rounds more would be a quarter of the time.
TimePoint next_idle_look(TimePoint now) {
    constexpr auto kEarly = 10ms;
    const auto since = (now + kEarly).time_since_epoch() % SessionPage::kIdleLook;
    return now + (SessionPage::kIdleLook - since);
}

uint64_t nth(std::vector<uint64_t>& values, size_t n) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n), values.end());
    return values[n];
}

}  // namespace

void SampleLog::roll(TimePoint now) {
    if (now - second_began_ < 1s) return;
    in_last_second_ = now - second_began_ < 2s ? in_this_second_ : 0;
    in_this_second_ = 0;
    second_began_ = now;
}

void SampleLog::add(uint64_t duration_ns, TimePoint now) {
    roll(now);
    ++in_this_second_;
    ++count_;
    last_seen_ = now;
    if (recent_.size() < kRecent) {
        recent_.push_back(duration_ns);
    } else {
        recent_[next_] = duration_ns;
        next_ = (next_ + 1) % kRecent;
    }
}

std::optional<SampleSummary> SampleLog::summary(TimePoint now) const {
    if (recent_.empty()) return std::nullopt;
    SampleLog seen = *this;
    seen.roll(now);
    SampleSummary out;
    out.count = count_;
    out.rate = static_cast<double>(seen.in_last_second_);
    out.p50_ns = nth(seen.recent_, (seen.recent_.size() - 1) / 2);
    out.p99_ns = nth(seen.recent_, (seen.recent_.size() - 1) * 99 / 100);
    out.last_seen = last_seen_;
    return out;
}

Result<SessionPage::Made> SessionPage::make() {
    Result<UniqueFd> fd = page::make_page_fd();
    if (!fd) return fd.error();
    Result<page::PageMapping> mapping = page::PageMapping::of_own(fd->get());
    if (!mapping) return mapping.error();
    std::unique_ptr<SessionPage> made(new SessionPage(*std::move(mapping)));
    made->writer_.want(page::kAllSamples);
    return Made{std::move(made), *std::move(fd)};
}

void SessionPage::publish(const page::Split& split) {
    split_ = split;
    writer_.publish(split);
    page::wake_split_waiters(mapping_->daemon);
}

void SessionPage::hold() { page::hold_launches(mapping_->daemon, ++holds_); }

void SessionPage::release() { page::release_launches(mapping_->daemon); }

size_t SessionPage::drain(TimePoint now, std::vector<page::Sample>* keep) {
    const uint64_t bad = reader_.bad();
    const size_t taken = reader_.drain([&](const page::Sample& sample) {
        logs_[index_of(sample.kind)].add(sample.duration_ns, now);
        if (keep != nullptr) keep->push_back(sample);
    });
    samples_ += taken;
    const size_t cells = taken + static_cast<size_t>(reader_.bad() - bad);
    if (cells > 0 || !busy_) busy_ = now;
    due_ = now - *busy_ < kIdleAfter ? now : next_idle_look(now);
    return cells;
}

std::optional<SampleSummary> SessionPage::summary(page::SampleKind kind, TimePoint now) const {
    return logs_[index_of(kind)].summary(now);
}

const char* sample_kind_name(page::SampleKind kind) {
    switch (kind) {
        case page::SampleKind::kFrame: return "frame";
        case page::SampleKind::kInterval: return "interval";
        case page::SampleKind::kStep: return "step";
        case page::SampleKind::kSync: return "sync";
        case page::SampleKind::kGpuFrame: return "gpu-frame";
    }
    return "unknown";
}

}  // namespace vuda::daemon
