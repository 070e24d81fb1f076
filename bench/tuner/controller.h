// The tuner and what it is compared with.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "bench/tuner/plant.h"
#include "bench/tuner/speeds.h"
#include "tuner/tuner.h"

namespace vuda::tuner::eval {

class Controller {
 public:
    virtual ~Controller() = default;
    // `now` and the samples' times are on a clock that may jump.
    virtual void attach(int client, TimeNs now) { (void)client, (void)now; }
    virtual void detach(int client, TimeNs now) { (void)client, (void)now; }
    virtual void add(TimeNs now, std::span<const Sample> samples) { (void)now, (void)samples; }
    virtual uint32_t tick(TimeNs now) = 0;  // level
    virtual const Tuner* tuner() const { return nullptr; }
};

std::unique_ptr<Controller> fixed_level(uint32_t tpcs);
// Every half second: one level less when a frame was late too often, else one more when compute wants it or all is
// well.
std::unique_ptr<Controller> additive_increase(const Workload& workload, const Ladder& ladder, uint32_t start);
std::unique_ptr<Controller> slo_tuner(const Workload& workload, const Ladder& ladder, uint32_t start, TimeNs now);

inline SessionId session_of(int client) { return static_cast<SessionId>(client) + 1; }

}  // namespace vuda::tuner::eval
