// The execution model itself (sim/model) as the plant: one TSG, the quota set at run time, one compute channel a
// client. Shares are not modelled: channels compete for the quota's TPCs as they come.
#pragma once

#include <map>

#include "bench/tuner/plant.h"
#include "bench/tuner/releases.h"
#include "sim/model/engine.h"

namespace vuda::tuner::eval {

class EnginePlant final : public Plant {
 public:
    EnginePlant(const Workload& workload, uint64_t seed);

    void set_level(uint32_t tpcs) override;
    void set_shares(const std::vector<double>& shares) override { (void)shares; }
    void set_load(double graphics, double compute) override;
    void set_client(int client, bool on) override;
    void run_until(TimeNs until, std::vector<Done>& out) override;

 private:
    struct Client {
        sim::ChannelId channel{};
        bool on = true;
        TimeNs next_release = 0;
        uint64_t under_way = 0;
        sim::Random random{0};
    };
    void release();
    void submit_step(size_t index, TimeNs released);

    const Workload& workload_;
    sim::Engine engine_;
    FrameSource frames_;
    sim::TsgId tsg_{};
    sim::ChannelId graphics_{};
    std::vector<Client> clients_;
    double graphics_load_ = 1, compute_load_ = 1;
    uint32_t level_ = kUnpartitioned;
    TimeNs next_frame_ = 0, frame_released_ = -1;
    std::map<uint64_t, TimeNs> released_;  // by cookie of a step's last kernel
    uint64_t next_cookie_ = 1;
    std::vector<sim::Completion> done_;
};

}  // namespace vuda::tuner::eval
