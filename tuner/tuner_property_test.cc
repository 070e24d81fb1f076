// Random histories: whatever comes in, what comes out stays sane.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "tuner/tuner.h"

namespace vuda::tuner {
namespace {

constexpr size_t kMemoryLimit = 3 * 1024 * 1024;

class Fuzz {
 public:
    explicit Fuzz(uint64_t seed) : random_(seed) {}
    uint64_t below(uint64_t bound) { return random_() % bound; }
    double uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
    bool one_in(uint64_t n) { return below(n) == 0; }
    // Mostly sensible, now and then what nobody should send.
    double number(double least, double most) {
        switch (below(12)) {
            case 0: return std::numeric_limits<double>::quiet_NaN();
            case 1: return std::numeric_limits<double>::infinity();
            case 2: return -uniform() * most;
            case 3: return 0;
            case 4: return uniform() * 1e300;
            default: return least * std::pow(most / least, uniform());
        }
    }
    Ladder ladder() {
        Ladder out;
        const auto levels = one_in(3) ? 1 + below(3) : 1 + below(one_in(8) ? kMaxLevels : 12);
        uint32_t tpcs = 0;
        for (uint64_t i = 0; i < levels && tpcs < 600; ++i)
            out.tpcs.push_back(tpcs += static_cast<uint32_t>(1 + below(4)));
        out.total_tpcs = one_in(3) ? 0 : tpcs + static_cast<uint32_t>(below(4));
        return out;
    }

 private:
    std::mt19937_64 random_;
};

// Within the range of the clock.
TimeNs moved(TimeNs now, TimeNs by) {
    TimeNs out = 0;
    if (!__builtin_add_overflow(now, by, &out)) return out;
    return by < 0 ? std::numeric_limits<TimeNs>::min() : std::numeric_limits<TimeNs>::max();
}

void expect_sane(const Tuner& tuner, const Decision& decision, const std::set<SessionId>& sessions) {
    const std::vector<uint32_t>& levels = tuner.ladder().tpcs;
    ASSERT_LT(decision.index, levels.size());
    ASSERT_EQ(decision.level, levels[decision.index]);
    ASSERT_EQ(decision.shares.size(), sessions.size());
    double sum = 0;
    bool counted = false;
    for (const SessionShare& share : decision.shares) {
        ASSERT_TRUE(sessions.contains(share.session));
        ASSERT_TRUE(share.share > 0 && share.share <= 1);
        ASSERT_GE(share.tpcs, 1u);
        ASSERT_LE(share.tpcs, decision.level);
        ASSERT_LT(share.first_tpc, decision.level);
        if (!share.counted) continue;
        counted = true;
        sum += share.share;
    }
    if (counted) {
        ASSERT_NEAR(sum, 1, 1e-6);
    }
    for (const TargetReport& target : decision.targets) {
        ASSERT_TRUE(std::isfinite(target.attained) && target.attained >= 0);
        ASSERT_TRUE(std::isfinite(target.margin) && target.margin >= -10 && target.margin <= 1);
        ASSERT_TRUE(target.miss >= 0 && target.miss <= 1);
        ASSERT_GT(target.bound, 0);
        ASSERT_TRUE(target.session == kGraphicsSide || sessions.contains(target.session));
    }
    ASSERT_LE(tuner.memory_bytes(), kMemoryLimit);
}

void expect_sane(const Event& event) {
    for (const double number :
         {event.bound, event.allowed_miss, event.observed, event.expected, event.utility_old, event.utility_new}) {
        ASSERT_TRUE(std::isfinite(number)) << event.text();
        ASSERT_GE(number, 0) << event.text();
    }
    ASSERT_FALSE(event.text().empty());
    for (const auto& [name, value] : event.fields()) {
        ASSERT_EQ(name.rfind("VUDA_", 0), 0u);
        ASSERT_EQ(value.find("nan"), std::string::npos);
    }
}

void one_history(uint64_t seed) {
    Fuzz fuzz(seed);
    TimeNs now = static_cast<TimeNs>(fuzz.below(1'000'000)) * kMs;
    Result<Tuner> made = Tuner::make(fuzz.ladder(), now, static_cast<uint32_t>(fuzz.below(100)));
    ASSERT_TRUE(made.ok());
    Tuner& tuner = *made;
    std::set<SessionId> sessions;
    double frame_ms = 10, step_ms = 5;
    std::vector<Sample> samples;
    for (int i = 0; i < 1500; ++i) {
        switch (fuzz.below(40)) {
            case 0: {
                const SessionId id = fuzz.below(90);
                if (tuner.add_session(id, now, fuzz.number(0.01, 100))) sessions.insert(id);
                break;
            }
            case 1:
                if (const SessionId id = fuzz.below(90); tuner.remove_session(id, now)) sessions.erase(id);
                break;
            case 2: (void)tuner.set_graphics_target({fuzz.number(1, 100), fuzz.number(0.001, 0.9)}, now); break;
            case 3:
                (void)tuner.set_compute_target(
                    fuzz.below(90), {fuzz.number(1, 100), fuzz.number(0.001, 0.9), fuzz.number(1, 1000)}, now);
                break;
            case 4: (void)tuner.set_graphics_target({}, now); break;
            case 5: (void)tuner.set_weight(fuzz.below(90), fuzz.number(0.01, 100), now); break;
            case 6: now = moved(now, -static_cast<TimeNs>(fuzz.below(20'000)) * kMs); break;
            case 7: now = moved(now, static_cast<TimeNs>(fuzz.below(20'000)) * kMs); break;
            case 8:
                if (fuzz.one_in(4)) {
                    ASSERT_TRUE(tuner.set_ladder(fuzz.ladder(), now));
                }
                break;
            case 9: tuner.force_level(static_cast<uint32_t>(fuzz.below(200)), now); break;
            case 10: tuner.note_applied(now); break;
            case 11: frame_ms = std::exp(6 * fuzz.uniform()); break;
            case 12: step_ms = std::exp(6 * fuzz.uniform()); break;
            case 13:
                if (fuzz.one_in(10))
                    now = fuzz.one_in(2) ? std::numeric_limits<TimeNs>::min()
                                         : std::numeric_limits<TimeNs>::max() - 10'000 * kSecond;
                break;
            default: break;
        }
        samples.clear();
        const uint64_t count = fuzz.one_in(200) ? 20'000 : fuzz.below(12);
        for (uint64_t s = 0; s < count; ++s) {
            Sample sample;
            sample.kind = static_cast<SampleKind>(fuzz.below(3));
            sample.session = sample.kind == SampleKind::kFrame ? kGraphicsSide : fuzz.below(90);
            sample.end = moved(now, -static_cast<TimeNs>(fuzz.below(30)) * kMs);
            const double ms = (sample.kind == SampleKind::kFrame ? frame_ms : step_ms) * (0.5 + fuzz.uniform());
            sample.duration = static_cast<int64_t>(ms * 1e6);
            sample.count = fuzz.below(5);
            if (fuzz.one_in(50)) sample.duration = static_cast<int64_t>(fuzz.below(UINT64_MAX));
            if (fuzz.one_in(50)) sample.end = static_cast<TimeNs>(fuzz.below(UINT64_MAX));
            if (fuzz.one_in(50)) sample.count = UINT64_MAX;
            samples.push_back(sample);
        }
        tuner.add(now, samples);
        now = moved(now, static_cast<TimeNs>(fuzz.below(40)) * kMs);
        ASSERT_NO_FATAL_FAILURE(expect_sane(tuner, tuner.tick(now), sessions));
        if (fuzz.one_in(20)) {
            for (const Event& event : tuner.take_events()) ASSERT_NO_FATAL_FAILURE(expect_sane(event));
        }
    }
}

TEST(TunerPropertyTest, RandomHistories) {
    for (uint64_t seed = 1; seed <= 150; ++seed) {
        SCOPED_TRACE(seed);
        ASSERT_NO_FATAL_FAILURE(one_history(seed));
    }
}

// Targets that change every 100 ms, valid or not, a process that never says anything, and a million samples at one
// time.
TEST(TunerPropertyTest, FlappingTargetsAndBurstsOfAMillion) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
        SCOPED_TRACE(seed);
        Fuzz fuzz(seed);
        TimeNs now = kSecond;
        Tuner tuner = *Tuner::make(Ladder{{8, 16, 24, 32, 40, 48, 56}, 64}, now, 32);
        const std::set<SessionId> sessions = {1, 2};  // 2 sends no sample
        for (const SessionId id : sessions) ASSERT_TRUE(tuner.add_session(id, now));
        std::vector<Sample> samples;
        for (int tick = 0; tick < 50 * 20; ++tick) {
            now += 20 * kMs;
            if (tick % 5 == 0) {
                const bool wild = fuzz.one_in(4);
                const double ms = wild ? fuzz.number(0.1, 1e4) : tick % 10 == 0 ? 5 : 500;
                const bool set = tuner.set_graphics_target({ms, 0.01}, now).ok();
                if (set) {
                    ASSERT_TRUE(std::isfinite(ms) && ms >= 0);
                }
                for (const SessionId id : sessions)
                    (void)tuner.set_compute_target(id, {fuzz.one_in(3) ? 0 : ms, 0, fuzz.number(1, 1e6)}, now);
            }
            samples.clear();
            const size_t burst = tick % 400 == 399 ? 1'000'000 : 2;
            for (size_t i = 0; i < burst; ++i) {
                const bool frame = i % 2 == 0;
                const auto duration = static_cast<int64_t>(1e6 * (5 + 10 * fuzz.uniform()));
                samples.push_back({frame ? SampleKind::kFrame : SampleKind::kStep, frame ? kGraphicsSide : SessionId{1},
                                   now - static_cast<TimeNs>(i % 20) * kMs, duration});
            }
            tuner.add(now, samples);
            ASSERT_NO_FATAL_FAILURE(expect_sane(tuner, tuner.tick(now), sessions));
            for (const Event& event : tuner.take_events()) ASSERT_NO_FATAL_FAILURE(expect_sane(event));
            for (const TargetReport& target : tuner.decision().targets) {
                if (target.session == 2) {
                    ASSERT_EQ(target.state, TargetState::kNoData);
                }
            }
        }
    }
}

// Random shapes of both sides, monotonic or not, steady loads: no oscillation, and where some level holds the target
// with room the tuner gets to one.
TEST(TunerPropertyTest, RandomScenesSettle) {
    int missed = 0;
    constexpr int kScenes = 120;
    for (uint64_t seed = 1; seed <= kScenes; ++seed) {
        Fuzz fuzz(seed);
        const Ladder ladder = {{8, 16, 24, 32, 40, 48, 56}, 64};
        std::vector<double> frame(7), step(7);
        for (size_t i = 0; i < 7; ++i) {
            frame[i] = (6 + 6 * fuzz.uniform()) * (i == 0 ? 1 : std::max(1.0, frame[i - 1] / frame[0])) *
                       (fuzz.one_in(5) ? 0.9 : 1.05);
            step[i] = 400.0 / ladder.tpcs[i];
        }
        TimeNs now = kSecond;
        Tuner tuner = *Tuner::make(ladder, now, ladder.tpcs[fuzz.below(7)]);
        ASSERT_TRUE(tuner.add_session(1, now));
        ASSERT_TRUE(tuner.set_graphics_target({12.0, 0.01}, now));
        TimeNs next_frame = now, next_step = now;
        uint64_t reversals = 0;
        for (int tick = 0; tick < 50 * 130; ++tick) {
            if (tick == 50 * 10) reversals = tuner.counters().reversals;
            const size_t level = tuner.decision().index;
            std::vector<Sample> samples;
            now += 20 * kMs;
            while (next_frame < now) {
                const auto duration = static_cast<int64_t>(1e6 * frame[level] * (0.98 + 0.04 * fuzz.uniform()));
                next_frame = std::max(next_frame + 16 * kMs, next_frame + duration);
                samples.push_back({SampleKind::kFrame, kGraphicsSide, std::min(next_frame, now), duration});
            }
            while (next_step < now) {
                const auto duration = static_cast<int64_t>(1e6 * step[level]);
                next_step += duration;
                samples.push_back({SampleKind::kStep, 1, std::min(next_step, now), duration});
            }
            tuner.add(now, samples);
            tuner.tick(now);
        }
        EXPECT_LE(tuner.counters().reversals - reversals, 2u) << "scene " << seed << ": more than one a minute";
        const bool feasible = std::any_of(frame.begin(), frame.end(), [](double ms) { return ms < 0.95 * 12; });
        if (feasible && frame[tuner.decision().index] > 12.0) ++missed;
    }
    EXPECT_EQ(missed, 0) << "scenes where some level holds the target, and the tuner is not at one";
}

}  // namespace
}  // namespace vuda::tuner
