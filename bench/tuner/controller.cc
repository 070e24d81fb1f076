#include "bench/tuner/controller.h"

#include <algorithm>

#include "bench/tuner/must.h"

namespace vuda::tuner::eval {
namespace {

class Fixed final : public Controller {
 public:
    explicit Fixed(uint32_t tpcs) : tpcs_(tpcs) {}
    uint32_t tick(TimeNs) override { return tpcs_; }

 private:
    uint32_t tpcs_;
};

class AdditiveIncrease final : public Controller {
 public:
    AdditiveIncrease(const Workload& workload, const Ladder& ladder, uint32_t start)
        : workload_(workload), ladder_(ladder) {
        level_ = static_cast<size_t>(std::find(ladder.tpcs.begin(), ladder.tpcs.end(), start) - ladder.tpcs.begin());
        steps_.resize(workload.clients.size());
    }
    void add(TimeNs, std::span<const Sample> samples) override {
        for (const Sample& sample : samples) {
            const double ms = static_cast<double>(sample.duration) / 1e6;
            if (sample.kind == SampleKind::kFrame) {
                frames_.add(ms > workload_.graphics.frame_ms);
            } else {
                const auto client = static_cast<size_t>(sample.session - 1);
                if (sample.kind == SampleKind::kSteps)
                    steps_[client].count += sample.count;
                else
                    steps_[client].add(ms > workload_.clients[client].target.latency_ms);
            }
        }
    }
    uint32_t tick(TimeNs now) override {
        if (now < last_) last_ = now;
        if (now - last_ < kEvery) return ladder_.tpcs[level_];
        const double seconds = static_cast<double>(now - last_) / 1e9;
        last_ = now;
        bool compute_target = false, compute_missed = false;
        for (size_t i = 0; i < steps_.size(); ++i) {
            const ComputeTarget& target = workload_.clients[i].target;
            compute_target |= target.any();
            if (target.latency_ms > 0) compute_missed |= steps_[i].missed(target.latency_miss);
            if (target.throughput > 0)
                compute_missed |= static_cast<double>(steps_[i].count) < target.throughput * seconds;
            steps_[i] = {};
        }
        const bool graphics_missed = workload_.graphics.any() && frames_.missed(workload_.graphics.miss);
        frames_ = {};
        if (graphics_missed) {
            if (level_ > 0) --level_;
        } else if (workload_.graphics.any() || !compute_target || compute_missed) {
            if (level_ + 1 < ladder_.tpcs.size()) ++level_;
        } else if (level_ > 0) {
            --level_;  // only compute has a target: give back until it is missed
        }
        return ladder_.tpcs[level_];
    }

 private:
    static constexpr TimeNs kEvery = 500 * kMs;
    struct Seen {
        uint64_t count = 0, late = 0;
        void add(bool is_late) {
            ++count;
            if (is_late) ++late;
        }
        bool missed(double allowed) const { return static_cast<double>(late) > allowed * static_cast<double>(count); }
    };
    const Workload& workload_;
    const Ladder& ladder_;
    size_t level_ = 0;
    TimeNs last_ = 0;
    Seen frames_;
    std::vector<Seen> steps_;
};

class SloTuner final : public Controller {
 public:
    SloTuner(const Workload& workload, const Ladder& ladder, uint32_t start, TimeNs now) : workload_(workload) {
        Result<Tuner> made = Tuner::make(ladder, now, start);
        if (!made) must(Status(made.error()));
        tuner_.emplace(*std::move(made));
        must(tuner_->set_graphics_target(workload.graphics, now));
        for (int i = 0; i < static_cast<int>(workload.clients.size()); ++i) attach(i, now);
    }
    void attach(int client, TimeNs now) override {
        const ClientLoad& load = workload_.clients[static_cast<size_t>(client)];
        must(tuner_->add_session(session_of(client), now, load.weight));
        must(tuner_->set_compute_target(session_of(client), load.target, now));
    }
    void detach(int client, TimeNs now) override { must(tuner_->remove_session(session_of(client), now)); }
    void add(TimeNs now, std::span<const Sample> samples) override { tuner_->add(now, samples); }
    uint32_t tick(TimeNs now) override { return tuner_->tick(now).level; }
    const Tuner* tuner() const override { return &*tuner_; }

 private:
    const Workload& workload_;
    std::optional<Tuner> tuner_;
};

}  // namespace

std::unique_ptr<Controller> fixed_level(uint32_t tpcs) { return std::make_unique<Fixed>(tpcs); }

std::unique_ptr<Controller> additive_increase(const Workload& workload, const Ladder& ladder, uint32_t start) {
    return std::make_unique<AdditiveIncrease>(workload, ladder, start);
}

std::unique_ptr<Controller> slo_tuner(const Workload& workload, const Ladder& ladder, uint32_t start, TimeNs now) {
    return std::make_unique<SloTuner>(workload, ladder, start, now);
}

}  // namespace vuda::tuner::eval
