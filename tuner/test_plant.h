// A few lines of GPU for the tuner's own tests: each side's durations as functions of the level.  The execution model
// is in bench/tuner.
#pragma once

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "tuner/tuner.h"

namespace vuda::tuner {

class TestPlant {
 public:
    explicit TestPlant(uint64_t seed = 1) : random_(seed) {}

    std::function<double(uint32_t tpcs)> frame_ms;  // empty: no frames
    TimeNs frame_period = 16'666'667;
    struct Client {
        SessionId session = 1;
        std::function<double(uint32_t tpcs)> step_ms;  // empty: sends nothing
        TimeNs next = 0;
    };
    std::vector<Client> clients;
    double noise = 0.03;
    TimeNs now = 1'000'000'000'000;
    int64_t clock_offset = 0;

    TimeNs clock() const { return now + clock_offset; }

    // Runs for `length`, ticking every 20 ms; returns the last decision.
    const Decision& run(Tuner& tuner, TimeNs length) {
        const TimeNs until = now + length;
        while (now < until) {
            const uint32_t level = tuner.decision().level;
            const TimeNs end = now + 20 * kMs;
            std::vector<Sample> samples;
            if (frame_ms) {
                for (next_frame_ = next_frame_ == 0 ? now : std::max(next_frame_, now - kSecond); next_frame_ < end;) {
                    const auto duration = static_cast<int64_t>(1e6 * frame_ms(level) * jitter());
                    samples.push_back(
                        {SampleKind::kFrame, kGraphicsSide, next_frame_ + duration + clock_offset, duration});
                    next_frame_ += std::max<TimeNs>(duration, frame_period);
                }
            }
            for (Client& client : clients) {
                if (!client.step_ms) continue;
                for (client.next = client.next == 0 ? now : std::max(client.next, now - kSecond); client.next < end;) {
                    const auto duration = static_cast<int64_t>(1e6 * client.step_ms(level) * jitter());
                    client.next += duration;
                    samples.push_back({SampleKind::kStep, client.session, client.next + clock_offset, duration});
                }
            }
            // What ends later than this tick is seen later.
            pending_.insert(pending_.end(), samples.begin(), samples.end());
            now = end;
            std::vector<Sample> ripe;
            std::erase_if(pending_, [&](const Sample& sample) {
                if (sample.end > clock()) return false;
                ripe.push_back(sample);
                return true;
            });
            tuner.add(clock(), ripe);
            tuner.tick(clock());
        }
        return tuner.decision();
    }

 private:
    double jitter() { return 1 + noise * std::uniform_real_distribution<double>(-1, 1)(random_); }
    std::mt19937_64 random_;
    TimeNs next_frame_ = 0;
    std::vector<Sample> pending_;
};

inline Ladder ladder_4090() { return {{11, 22, 33, 44, 53}, 64}; }

}  // namespace vuda::tuner
