#include "tuner/tuner.h"

#include "tuner/impl.h"

namespace vuda::tuner {

Result<Tuner> Tuner::make(Ladder ladder, TimeNs now, std::optional<uint32_t> start_tpcs, Settings settings) {
    if (Status valid = ladder.validate(); !valid) return valid.error();
    if (!(settings.graphics_alone_fps >= 0 && settings.graphics_alone_fps <= 1e6))
        return Error{Code::kInvalidArgument, "graphics_alone_fps is out of range", "from 0 to 1,000,000"};
    auto impl = std::make_unique<Impl>(std::move(ladder), now, 0, settings);
    if (start_tpcs) {
        impl->force_level(*start_tpcs, now);
        impl->take_events();
        impl->counters_ = {};
    }
    return Tuner(std::move(impl));
}

Tuner::Tuner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tuner::Tuner(Tuner&&) noexcept = default;
Tuner& Tuner::operator=(Tuner&&) noexcept = default;
Tuner::~Tuner() = default;

Status Tuner::set_ladder(Ladder ladder, TimeNs now) { return impl_->set_ladder(std::move(ladder), now); }
const Ladder& Tuner::ladder() const { return impl_->ladder_; }
Status Tuner::set_graphics_target(const GraphicsTarget& target, TimeNs now) {
    return impl_->set_graphics_target(target, now);
}
Status Tuner::set_compute_target(SessionId session, const ComputeTarget& target, TimeNs now) {
    return impl_->set_compute_target(session, target, now);
}
const GraphicsTarget& Tuner::graphics_target() const { return impl_->graphics_target_; }
std::optional<ComputeTarget> Tuner::compute_target(SessionId session) const {
    const auto it = impl_->sessions_.find(session);
    if (it == impl_->sessions_.end()) return std::nullopt;
    return it->second.target;
}
Status Tuner::add_session(SessionId session, TimeNs now, double weight) {
    return impl_->add_session(session, now, weight);
}
Status Tuner::remove_session(SessionId session, TimeNs now) { return impl_->remove_session(session, now); }
Status Tuner::set_weight(SessionId session, double weight, TimeNs now) {
    return impl_->set_weight(session, weight, now);
}
void Tuner::add(TimeNs now, std::span<const Sample> samples) { impl_->add(now, samples); }
const Decision& Tuner::tick(TimeNs now) { return impl_->tick(now); }
const Decision& Tuner::decision() const { return impl_->decision_; }
void Tuner::force_level(uint32_t tpcs, TimeNs now) { impl_->force_level(tpcs, now); }
void Tuner::note_applied(TimeNs now) { impl_->note_applied(now); }
std::vector<Event> Tuner::take_events() { return impl_->take_events(); }
const Counters& Tuner::counters() const { return impl_->counters_; }
size_t Tuner::memory_bytes() const { return impl_->memory_bytes(); }

}  // namespace vuda::tuner
