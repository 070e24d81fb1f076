// The surrogate: two servers whose speeds depend on the level and on whether the other side is busy (speeds.h).  A
// virtual minute takes a millisecond or two, where the execution model takes a second.  rate_plant_test compares the
// two.
#pragma once

#include "bench/tuner/plant.h"
#include "bench/tuner/releases.h"
#include "bench/tuner/speeds.h"

namespace vuda::tuner::eval {

class RatePlant final : public Plant {
 public:
    // Both outlive this object.
    RatePlant(const Workload& workload, const Speeds& speeds, uint64_t seed);

    void set_level(uint32_t tpcs) override;
    void set_shares(const std::vector<double>& shares) override { shares_ = shares; }
    void set_load(double graphics, double compute) override;
    void set_client(int client, bool on) override;
    void run_until(TimeNs until, std::vector<Done>& out) override;

 private:
    struct Step {
        TimeNs released = 0;
        double left = 0;  // ns of work, alone on the whole GPU
    };
    struct Client {
        bool on = true;
        TimeNs next_release = 0;
        std::vector<Step> queue;  // front runs
        sim::Random random{0};
    };

    double graphics_speed() const;
    double compute_speed(size_t client) const;
    void release();

    const Workload& workload_;
    const Speeds& speeds_;
    FrameSource frames_;
    std::vector<Client> clients_;
    std::vector<double> shares_;
    std::vector<double> scratch_;
    LevelSpeed level_;
    double graphics_load_ = 1, compute_load_ = 1;
    TimeNs now_ = 0;
    TimeNs next_frame_ = 0;
    TimeNs frame_released_ = -1;  // of the frame that is drawn; -1: none
    double frame_left_ = 0;
};

}  // namespace vuda::tuner::eval
