#include "bench/tuner/run.h"

#include <algorithm>
#include <cmath>

namespace vuda::tuner::eval {
namespace {

constexpr TimeNs kTick = 20 * kMs;
constexpr double kFloorTolerance = 0.95;  // a second holds whole steps only

// Counts what ended into one outcome.
class Tally {
 public:
    Tally(const Workload& workload, Outcome& out)
        : workload_(workload), out_(out), second_(workload.clients.size(), 0) {
        out.steps.resize(workload.clients.size());
        out.floors.resize(workload.clients.size());
    }
    void add(const Done& done) {
        const double ms = static_cast<double>(done.duration) / 1e6;
        if (done.client < 0) {
            out_.frames.add(!workload_.graphics.any() || ms <= workload_.graphics.frame_ms);
            out_.frame_ms += ms;
            return;
        }
        const auto client = static_cast<size_t>(done.client);
        const ClientLoad& load = workload_.clients[client];
        out_.steps[client].add(load.target.latency_ms <= 0 || ms <= load.target.latency_ms);
        out_.weighted_steps += load.weight;
        ++second_[client];
    }
    void pass(TimeNs step) {
        out_.seconds += static_cast<double>(step) / 1e9;
        in_second_ += step;
        if (in_second_ < kSecond) return;
        for (size_t i = 0; i < second_.size(); ++i) {
            const double floor = workload_.clients[i].target.throughput;
            if (floor > 0) out_.floors[i].add(static_cast<double>(second_[i]) >= kFloorTolerance * floor);
            second_[i] = 0;
        }
        in_second_ = 0;
    }

 private:
    const Workload& workload_;
    Outcome& out_;
    std::vector<uint64_t> second_;
    TimeNs in_second_ = 0;
};

}  // namespace

double Outcome::attainment(const Workload& workload) const {
    double least = workload.graphics.any() ? frames.value() : 1;
    for (size_t i = 0; i < steps.size(); ++i) {
        if (workload.clients[i].target.latency_ms > 0) least = std::min(least, steps[i].value());
        if (workload.clients[i].target.throughput > 0) least = std::min(least, floors[i].value());
    }
    return least;
}

double Outcome::against(const Outcome& other, const Workload& workload) const {
    double least = HUGE_VAL;
    const auto compare = [&](const Fraction& mine, const Fraction& theirs) {
        if (theirs.value() >= 0.05) least = std::min(least, mine.value() / theirs.value());
    };
    if (workload.graphics.any()) compare(frames, other.frames);
    for (size_t i = 0; i < steps.size(); ++i) {
        if (workload.clients[i].target.latency_ms > 0) compare(steps[i], other.steps[i]);
        if (workload.clients[i].target.throughput > 0) compare(floors[i], other.floors[i]);
    }
    return least == HUGE_VAL ? 1 : least;
}

bool Outcome::meets(const Workload& workload, double times) const {
    if (workload.graphics.any() && (frames.all == 0 || frames.value() < 1 - times * workload.graphics.miss))
        return false;
    for (size_t i = 0; i < steps.size(); ++i) {
        const ComputeTarget& target = workload.clients[i].target;
        if (target.latency_ms > 0 && (steps[i].all == 0 || steps[i].value() < 1 - times * target.latency_miss))
            return false;
        if (target.throughput > 0 && floors[i].value() < 1) return false;
    }
    return true;
}

std::vector<TimeNs> segment_bounds(const Scenario& scenario) {
    std::vector<TimeNs> bounds = {0};
    bounds.insert(bounds.end(), scenario.steps.begin(), scenario.steps.end());
    bounds.push_back(scenario.duration);
    return bounds;
}

uint32_t start_level(const Scenario& scenario, const Ladder& ladder) {
    return scenario.worst_is_top ? ladder.tpcs.back() : ladder.tpcs.front();
}

History history_of(const Scenario& scenario, uint64_t seed) {
    sim::Random random(seed * 7919 + 17);
    return scenario.make(scenario, random);
}

Run run(const Scenario& scenario, const History& history, Plant& plant, Controller& controller, uint64_t seed,
        bool trace) {
    const Workload& workload = scenario.workload;
    const std::vector<TimeNs> bounds = segment_bounds(scenario);
    Run out;
    out.segments.resize(bounds.size() - 1);
    Tally all(workload, out.all), counted(workload, out.counted);
    std::vector<Tally> segments;
    for (Outcome& segment : out.segments) segments.emplace_back(workload, segment);

    sim::Random losses(seed * 104'729 + 3);
    size_t next_load = 0, next_attendance = 0, next_jump = 0, segment = 0;
    int64_t clock_offset = kSecond * 1000;
    int direction = 0;
    uint32_t level = kUnpartitioned;
    std::vector<Done> done;
    std::vector<Sample> samples;
    std::vector<uint64_t> lost(workload.clients.size(), 0);
    std::vector<double> shares(workload.clients.size(), 1.0);

    for (TimeNs now = 0; now < scenario.duration; now += kTick) {
        while (segment + 1 < bounds.size() - 1 && now >= bounds[segment + 1]) ++segment;
        for (; next_load < history.loads.size() && history.loads[next_load].at <= now; ++next_load)
            plant.set_load(history.loads[next_load].graphics, history.loads[next_load].compute);
        for (; next_jump < history.jumps.size() && history.jumps[next_jump].at <= now; ++next_jump)
            clock_offset += history.jumps[next_jump].by;
        for (; next_attendance < history.attendance.size() && history.attendance[next_attendance].at <= now;
             ++next_attendance) {
            const Attendance& change = history.attendance[next_attendance];
            plant.set_client(change.client, change.on);
            change.on ? controller.attach(change.client, now + clock_offset)
                      : controller.detach(change.client, now + clock_offset);
        }
        // Where the split is: from the last tick's decision on.
        const uint32_t wanted = controller.tick(now + clock_offset);
        if (const Tuner* tuner = controller.tuner(); tuner != nullptr) {
            for (const SessionShare& share : tuner->decision().shares)
                shares[static_cast<size_t>(share.session - 1)] = share.counted ? share.share : 1.0;
        } else {
            double sum = 0;
            for (const ClientLoad& load : workload.clients) sum += load.weight;
            for (size_t i = 0; i < shares.size(); ++i) shares[i] = workload.clients[i].weight / sum;
            if (!history.attendance.empty()) {
                // A fixed quota comes with the same shares as the tuner's, or it would be compared for something else.
                const bool away = now >= history.attendance.front().at && now < history.attendance.back().at;
                if (away) shares = {1.0, 1.0};
            }
        }
        plant.set_shares(shares);
        if (wanted != level) {
            const int step = wanted > level ? 1 : -1;
            const bool learning = now < bounds[segment] + kLearning;
            if (level != kUnpartitioned) {
                if (direction != 0 && step != direction && !learning) ++out.reversals;
                direction = step;
            }
            level = wanted;
            out.levels.emplace_back(now, level);
            plant.set_level(level);
        }
        done.clear();
        plant.run_until(now + kTick, done);
        const bool graceful = now < bounds[segment] + kGrace;
        const bool blind = std::any_of(history.blackouts.begin(), history.blackouts.end(),
                                       [&](const auto& b) { return now >= b.first && now < b.second; });
        samples.clear();
        for (const Done& d : done) {
            all.add(d);
            if (!graceful) {
                counted.add(d);
                segments[segment].add(d);
            }
            if (trace && d.client < 0) out.frame_times.emplace_back(d.end, d.duration);
            const bool is_lost = blind || (history.lost > 0 && losses.uniform() < history.lost);
            if (is_lost) {
                // The ring's sequence numbers tell how many steps went by unseen; of frames nobody keeps count.
                if (d.client >= 0) ++lost[static_cast<size_t>(d.client)];
                continue;
            }
            const SessionId session = d.client < 0 ? kGraphicsSide : session_of(d.client);
            if (d.client >= 0 && lost[static_cast<size_t>(d.client)] > 0)
                samples.push_back({SampleKind::kSteps, session, d.end + clock_offset, 0,
                                   std::exchange(lost[static_cast<size_t>(d.client)], 0)});
            samples.push_back(
                {d.client < 0 ? SampleKind::kFrame : SampleKind::kStep, session, d.end + clock_offset, d.duration, 1});
        }
        controller.add(now + kTick + clock_offset, samples);
        all.pass(kTick);
        if (now >= bounds[segment] + kLearning) out.steady_seconds += static_cast<double>(kTick) / 1e9;
        if (!graceful) {
            counted.pass(kTick);
            segments[segment].pass(kTick);
        }
    }
    return out;
}

}  // namespace vuda::tuner::eval
