#include "cli/top_view.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>

#include "cli/metrics_text.h"
#include "cli/partition_view.h"
#include "cli/slo_view.h"
#include "cli/status_view.h"
#include "cli/table.h"

namespace vuda::cli {
namespace {

constexpr size_t kEventsKept = 64;
// Columns of the session table; it fits 80 characters.
constexpr const char* kSortNames[kTopSorts] = {"session", "program", "state", "tsg", "rate", "p99", "launches"};

// "1234", "59.9", "0.72": three digits that count.
std::string number_text(double value) {
    char text[32];
    const char* format = value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f";
    std::snprintf(text, sizeof text, format, value);
    return text;
}

std::string milliseconds_text(double seconds) { return seconds <= 0 ? "-" : number_text(seconds * 1e3); }

std::string left(const std::string& text, size_t width) {
    std::string cell = cut_to_width(printable(text), width);
    const auto shown = static_cast<size_t>(
        std::count_if(cell.begin(), cell.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
    return cell + std::string(width - shown, ' ');
}

// Numbers are never cut: a wrong one is worse than a ragged line.
std::string right(const std::string& text, size_t width) {
    return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

std::string without_trailing_blanks(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

std::string state_text(v1::SharingState state) {
    std::string name = v1::SharingState_Name(state);
    constexpr std::string_view kPrefix = "SHARING_STATE_";
    if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return name.empty() ? "?" : name;
}

uint64_t session_of(const MetricSample& sample) {
    const std::string_view text = sample.label("session");
    uint64_t id = 0;
    std::from_chars(text.data(), text.data() + text.size(), id);
    return id;
}

}  // namespace

std::string cut_to_width(std::string_view text, size_t width) {
    size_t end = 0;
    for (size_t shown = 0; end < text.size(); ++end) {
        const bool begins = (static_cast<unsigned char>(text[end]) & 0xc0) != 0x80;
        if (begins && shown++ == width) break;
    }
    return std::string(text.substr(0, end));
}

void TopView::update(const v1::StatusReply& status, std::string_view metrics, Clock::time_point now) {
    const double seconds = std::chrono::duration<double>(now - updated_).count();
    std::map<uint64_t, double> rates;
    for (const v1::SessionInfo& session : status.sessions()) {
        for (const v1::SessionInfo& before : status_.sessions()) {
            if (before.session_id() != session.session_id() || session.launches() < before.launches() || seconds <= 0)
                continue;
            rates[session.session_id()] = static_cast<double>(session.launches() - before.launches()) / seconds;
        }
    }
    launch_rates_ = std::move(rates);

    timings_.clear();
    const std::vector<MetricSample> samples = parse_metrics(metrics);
    // A process can send several kinds; frames say most of a renderer, steps of a compute program.
    const auto worth = [](std::string_view kind) {
        return kind == "frame" ? 4 : kind == "step" ? 3 : kind == "interval" ? 2 : 1;
    };
    for (const MetricSample& sample : samples) {
        if (sample.name != "vuda_session_sample_rate") continue;
        Timing& timing = timings_[session_of(sample)];
        if (!timing.kind.empty() && worth(timing.kind) >= worth(sample.label("kind"))) continue;
        timing.kind = std::string(sample.label("kind"));
        timing.rate = sample.value;
    }
    for (const MetricSample& sample : samples) {
        if (sample.name != "vuda_session_sample_seconds") continue;
        const auto timing = timings_.find(session_of(sample));
        if (timing == timings_.end() || timing->second.kind != sample.label("kind")) continue;
        (sample.label("quantile") == "0.5" ? timing->second.p50 : timing->second.p99) = sample.value;
    }
    status_ = status;
    updated_ = now;
}

void TopView::event(const v1::Event& event) {
    std::string line = event_text(event);
    line.erase(line.find_last_not_of('\n') + 1);
    events_.push_back(std::move(line));
    if (events_.size() > kEventsKept) events_.pop_front();
}

void TopView::next_sort() {
    sort_ = static_cast<TopSort>((static_cast<int>(sort_) + 1) % kTopSorts);
    // Of numbers that grow with load the largest are of interest.
    descending_ = sort_ == TopSort::kRate || sort_ == TopSort::kLatency || sort_ == TopSort::kLaunches;
}

std::vector<TopView::Row> TopView::sorted() const {
    std::vector<Row> rows;
    for (const v1::SessionInfo& session : status_.sessions()) {
        Row row;
        row.session = &session;
        if (const auto found = timings_.find(session.session_id()); found != timings_.end()) row.timing = found->second;
        if (const auto found = launch_rates_.find(session.session_id()); found != launch_rates_.end())
            row.launches = found->second;
        rows.push_back(std::move(row));
    }
    const auto less = [this](const Row& a, const Row& b) {
        switch (sort_) {
            case TopSort::kSession: return a.session->session_id() < b.session->session_id();
            case TopSort::kProgram: return a.session->peer().program() < b.session->peer().program();
            case TopSort::kState: return state_text(a.session->state()) < state_text(b.session->state());
            case TopSort::kName: return a.session->name() < b.session->name();
            case TopSort::kRate: return a.timing.rate < b.timing.rate;
            case TopSort::kLatency: return a.timing.p99 < b.timing.p99;
            case TopSort::kLaunches: return a.launches < b.launches;
        }
        return false;
    };
    std::stable_sort(rows.begin(), rows.end(),
                     [&](const Row& a, const Row& b) { return descending_ ? less(b, a) : less(a, b); });
    return rows;
}

std::vector<std::string> TopView::counts() const {
    const v1::DaemonInfo& daemon = status_.daemon();
    if (daemon.version().empty()) return {trouble_.empty() ? "waiting for vudad" : printable(trouble_)};
    std::string first = "vudad " + printable(daemon.version()) + ", up " + duration_text(daemon.uptime_ms()) + ", ";
    first += daemon.simulated()
                 ? "GPU simulated"
                 : "driver " + (daemon.driver_version().empty() ? "" : printable(daemon.driver_version()) + " ") +
                       verdict_name(daemon.driver_verdict());
    const auto sharing =
        std::count_if(status_.sessions().begin(), status_.sessions().end(),
                      [](const v1::SessionInfo& one) { return one.state() == v1::SHARING_STATE_SHARING; });
    std::string second = std::to_string(status_.tsgs_size()) + " TSGs, " + std::to_string(status_.sessions_size()) +
                         " programs, " + std::to_string(sharing) + " sharing; by " +
                         kSortNames[static_cast<int>(sort_)] + (descending_ ? ", most first" : "") +
                         (paused_ ? "; PAUSED" : "");
    if (!trouble_.empty()) second = printable(trouble_);
    return {first, second};
}

std::vector<std::string> TopView::tsgs() const {
    std::vector<std::string> lines = {
        "TSG              OWNER          PID     CHANNELS ATTACHED MODE     QUOTA COMPUTE"};
    for (const v1::TsgInfo& tsg : status_.tsgs()) {
        const v1::PartitionInfo& split = tsg.partition();
        const std::string compute = split.applied_tpcs() == 0 ? "all" : std::to_string(split.applied_tpcs()) + " TPC";
        lines.push_back(without_trailing_blanks(left(tsg.name(), 16) + " " + left(tsg.owner().program(), 14) + " " +
                                                left(std::to_string(tsg.owner().pid()), 7) + " " +
                                                right(std::to_string(tsg.channels()) + "/128", 8) + " " +
                                                right(std::to_string(tsg.attached_sessions_size()), 8) + " " +
                                                left(tsg.has_partition() ? mode_name(split.mode()) : "-", 8) + " " +
                                                right(tsg.has_partition() ? quota_text(split) : "-", 5) + " " +
                                                right(tsg.has_partition() ? compute : "-", 7)));
    }
    if (lines.size() == 1) lines = {"no TSG is registered"};
    return lines;
}

std::vector<std::string> TopView::targets() const {
    std::vector<std::string> lines = {"TARGET OF        WHO          BOUND        ATTAINED     MISSED MARGIN STATE"};
    for (const v1::TsgInfo& tsg : status_.tsgs()) {
        for (const v1::SloTarget& target : tsg.slo().targets()) {
            const SloWords words = slo_words(target, tsg.slo().automatic());
            lines.push_back(without_trailing_blanks(left(tsg.name(), 16) + " " + left(words.who, 12) + " " +
                                                    left(words.bound, 12) + " " + left(words.attained, 12) + " " +
                                                    right(words.missed, 6) + " " + right(words.margin, 6) + " " +
                                                    left(words.state, 10)));
        }
        // Why the split is what it is; events scroll away.
        if (tsg.slo().automatic() && !tsg.slo().last_change().empty())
            lines.push_back("  " + printable(tsg.name()) + ": " + printable(tsg.slo().last_change()));
    }
    if (lines.size() == 1) lines.clear();
    return lines;
}

std::vector<std::string> TopView::sessions() const {
    std::vector<std::string> lines = {
        "SESS PROGRAM        PID     STATE      TSG         RATE/s  P50ms  P99ms LAUNCH/s"};
    for (const Row& row : sorted()) {
        const v1::SessionInfo& session = *row.session;
        const bool timed = !row.timing.kind.empty();
        lines.push_back(without_trailing_blanks(
            right(std::to_string(session.session_id()), 4) + " " + left(session.peer().program(), 14) + " " +
            left(std::to_string(session.peer().pid()), 7) + " " + left(state_text(session.state()), 10) + " " +
            left(session.name(), 10) + " " + right(timed ? number_text(row.timing.rate) : "-", 7) + " " +
            right(timed ? milliseconds_text(row.timing.p50) : "-", 6) + " " +
            right(timed ? milliseconds_text(row.timing.p99) : "-", 6) + " " +
            right(row.launches < 0 ? "-" : number_text(row.launches), 8)));
    }
    if (lines.size() == 1) lines = {"no program is connected"};
    return lines;
}

std::vector<std::string> TopView::lines(size_t width, size_t height) const {
    std::vector<std::string> all = counts();
    const auto add = [&all](const std::vector<std::string>& part) {
        all.emplace_back();
        all.insert(all.end(), part.begin(), part.end());
    };
    add(tsgs());
    if (const std::vector<std::string> lines = targets(); !lines.empty()) add(lines);
    add(sessions());
    const std::string keys = "q quit  space refresh  s sort  r reverse  p pause";
    // What does not fit is said: a table that ends early would look complete.
    if (all.size() + 1 > height && height > 2) {
        const size_t hidden = all.size() - (height - 2);
        all.resize(height - 2);
        all.push_back("... " + std::to_string(hidden) + " more lines");
    } else if (const size_t room = height > all.size() + 2 ? height - all.size() - 2 : 0; room > 0) {
        const size_t shown = std::min(room, events_.size());
        all.emplace_back();
        all.insert(all.end(), events_.end() - static_cast<std::ptrdiff_t>(shown), events_.end());
        all.resize(height - 1);
    }
    all.resize(std::min(all.size(), height > 0 ? height - 1 : 0));
    all.push_back(keys);
    for (std::string& line : all) line = cut_to_width(line, width);
    return all;
}

std::string TopView::text() const {
    std::string out;
    const auto add = [&out](const std::vector<std::string>& part) {
        for (const std::string& line : part) out += line + "\n";
    };
    add(counts());
    out += "\n";
    add(tsgs());
    out += "\n";
    if (const std::vector<std::string> lines = targets(); !lines.empty()) {
        add(lines);
        out += "\n";
    }
    add(sessions());
    return out;
}

}  // namespace vuda::cli
