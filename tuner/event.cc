#include "tuner/event.h"

#include <cstdio>

namespace vuda::tuner {
namespace {

std::string number(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.4g", value);
    return text;
}

std::string plain(double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%.6f", value);
    return text;
}

std::string unit(const Event& event, double value) {
    return number(value) + (event.target == TargetKind::kThroughput ? " steps/s" : " ms");
}

std::string what(const Event& event) {
    if (event.target == TargetKind::kFrame) return "frames";
    return (event.target == TargetKind::kLatency ? "steps of session " : "rate of session ") +
           std::to_string(event.session);
}

std::string asked(const Event& event) {
    if (event.target == TargetKind::kThroughput) return what(event) + " at least " + unit(event, event.bound);
    return what(event) + " within " + unit(event, event.bound) + ", " + number(100 * event.allowed_miss) +
           "% may be late";
}

std::string seen(const Event& event) {
    if (event.target == TargetKind::kThroughput)
        return what(event) + " " + number(event.observed) + " of " + unit(event, event.bound);
    std::string text;
    if (event.samples > 0)
        text = std::to_string(event.misses) + " of " + std::to_string(event.samples) + " " + what(event) + " over " +
               unit(event, event.bound) + " (" + number(100 * event.allowed_miss) + "% may be), ";
    return text + (event.samples > 0 ? "median " : what(event) + " median ") + unit(event, event.observed) +
           (event.samples > 0 ? "" : " of " + unit(event, event.bound));
}

std::string reason(const Event& event) {
    const std::string expected = event.expected > 0 ? ", " + unit(event, event.expected) + " expected" : "";
    switch (event.cause) {
        case Cause::kGraphicsMiss:
        case Cause::kComputeMiss: return seen(event) + expected;
        case Cause::kSearch: return seen(event) + "; no known level holds the targets, so another is tried" + expected;
        case Cause::kCompromise:
            return "no level holds all targets; this is the best compromise measured: " + seen(event) + expected;
        case Cause::kTight:
            return "too near to the bound: " + number(100 * event.observed_miss) + "% are expected to be late, " +
                   seen(event) + expected;
        case Cause::kSlack: return "room to spare: " + seen(event) + expected;
        case Cause::kProbe: return "room to spare, and nothing known of this level: " + seen(event);
        case Cause::kMargin: return "same rates with more room: " + seen(event) + expected;
        case Cause::kSweep:
            return "no target: measuring " + number(event.observed) + " frames/s and " + number(event.expected) +
                   " steps/s where it was";
        case Cause::kBest:
            return "no target: best sum of rates, " + number(event.utility_new) + " against " +
                   number(event.utility_old);
        case Cause::kForced: return "set by hand";
        case Cause::kLadder: return "the partitioner offers other levels";
        case Cause::kStart: return "start";
        case Cause::kNone: break;
    }
    return {};
}

}  // namespace

std::string Event::text() const {
    switch (kind) {
        case EventKind::kLevel:
            if (cause == Cause::kStart) return "compute TPCs " + std::to_string(new_level) + ": start";
            return "compute TPCs " + std::to_string(old_level) + " -> " + std::to_string(new_level) + ": " +
                   reason(*this);
        case EventKind::kShares: return "compute side divided among " + std::to_string(samples) + " processes";
        case EventKind::kState:
            return asked(*this) + ": " + std::string(to_string(old_state)) + " -> " +
                   std::string(to_string(new_state)) + (samples > 0 ? ", attained " + unit(*this, observed) : "");
        case EventKind::kTarget: return bound > 0 ? "target set: " + asked(*this) : "target cleared: " + what(*this);
        case EventKind::kSession:
            return "session " + std::to_string(session) + (new_state == TargetState::kNoData ? " left" : " joined");
        case EventKind::kLadder:
            return "the partitioner offers other levels; now " + std::to_string(new_level) + " compute TPCs";
        case EventKind::kClock: return "the clock went back by " + number(observed) + " ms";
        case EventKind::kWait: return "waiting, since such bursts have passed by themselves: " + seen(*this);
    }
    return {};
}

std::vector<std::pair<std::string, std::string>> Event::fields() const {
    std::vector<std::pair<std::string, std::string>> out;
    const auto add = [&](const char* name, std::string value) { out.emplace_back(name, std::move(value)); };
    add("VUDA_EVENT", std::string(to_string(kind)));
    add("VUDA_REGIME", std::string(to_string(regime)));
    add("VUDA_OLD_TPCS", std::to_string(old_level));
    add("VUDA_NEW_TPCS", std::to_string(new_level));
    if (cause != Cause::kNone) add("VUDA_CAUSE", std::string(to_string(cause)));
    if (session != kGraphicsSide) add("VUDA_SESSION", std::to_string(session));
    if (kind == EventKind::kState) {
        add("VUDA_OLD_STATE", std::string(to_string(old_state)));
        add("VUDA_NEW_STATE", std::string(to_string(new_state)));
    }
    if (bound > 0) {
        add("VUDA_TARGET", std::string(to_string(target)));
        add("VUDA_BOUND", plain(bound));
        add("VUDA_ALLOWED_MISS", plain(allowed_miss));
        add("VUDA_OBSERVED", plain(observed));
        if (expected > 0) add("VUDA_EXPECTED", plain(expected));
        add("VUDA_MISSES", std::to_string(misses));
        add("VUDA_SAMPLES", std::to_string(samples));
    }
    if (kind == EventKind::kLevel && utility_new > 0) {
        add("VUDA_UTILITY_OLD", plain(utility_old));
        add("VUDA_UTILITY_NEW", plain(utility_new));
    }
    return out;
}

std::string_view to_string(EventKind kind) {
    switch (kind) {
        case EventKind::kLevel: return "tuner-level";
        case EventKind::kShares: return "tuner-shares";
        case EventKind::kState: return "tuner-state";
        case EventKind::kTarget: return "tuner-target";
        case EventKind::kSession: return "tuner-session";
        case EventKind::kLadder: return "tuner-ladder";
        case EventKind::kClock: return "tuner-clock";
        case EventKind::kWait: return "tuner-wait";
    }
    return "tuner";
}

std::string_view to_string(Cause cause) {
    switch (cause) {
        case Cause::kNone: return "none";
        case Cause::kStart: return "start";
        case Cause::kForced: return "forced";
        case Cause::kGraphicsMiss: return "graphics-miss";
        case Cause::kComputeMiss: return "compute-miss";
        case Cause::kTight: return "tight";
        case Cause::kSlack: return "slack";
        case Cause::kProbe: return "probe";
        case Cause::kMargin: return "margin";
        case Cause::kSearch: return "search";
        case Cause::kCompromise: return "compromise";
        case Cause::kSweep: return "sweep";
        case Cause::kBest: return "best";
        case Cause::kLadder: return "ladder";
    }
    return "none";
}

std::string_view to_string(Regime regime) {
    switch (regime) {
        case Regime::kNone: return "none";
        case Regime::kGraphics: return "graphics";
        case Regime::kCompute: return "compute";
        case Regime::kBoth: return "both";
    }
    return "none";
}

std::string_view to_string(TargetState state) {
    switch (state) {
        case TargetState::kNoData: return "no data";
        case TargetState::kTuning: return "tuning";
        case TargetState::kMeeting: return "meeting";
        case TargetState::kInfeasible: return "infeasible";
    }
    return "no data";
}

std::string_view to_string(TargetKind kind) {
    switch (kind) {
        case TargetKind::kFrame: return "frame";
        case TargetKind::kLatency: return "latency";
        case TargetKind::kThroughput: return "throughput";
    }
    return "frame";
}

}  // namespace vuda::tuner
