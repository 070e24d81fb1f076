#include "bench/tuner/engine_plant.h"

#include "bench/tuner/must.h"

namespace vuda::tuner::eval {
namespace {

constexpr uint64_t kFrameCookie = UINT64_MAX;
constexpr uint64_t kInnerKernel = 0;  // all but a step's last

}  // namespace

EnginePlant::EnginePlant(const Workload& workload, uint64_t seed)
    : workload_(workload),
      engine_(must(sim::Engine::make(workload.gpu))),
      frames_(workload, seed),
      clients_(workload.clients.size()) {
    tsg_ = engine_.create_tsg();
    graphics_ = must(engine_.create_channel(tsg_, {.kind = sim::ChannelKind::kGraphics}));
    for (size_t i = 0; i < clients_.size(); ++i) {
        clients_[i].channel =
            must(engine_.create_channel(tsg_, {.kind = sim::ChannelKind::kCompute, .veid = 1, .runqueue = 1}));
        clients_[i].random = sim::Random(seed * 31 + i + 1);
        if (const TimeNs period = workload.clients[i].period; period > 0)
            clients_[i].next_release = static_cast<TimeNs>(clients_[i].random.below(static_cast<uint64_t>(period)));
    }
}

void EnginePlant::set_level(uint32_t tpcs) {
    level_ = tpcs;
    if (engine_.topology().scg() == sim::ScgControl::kNone) return;  // by mask, at each submission
    must(engine_.set_mode(tsg_, tpcs == kUnpartitioned ? engine_.topology().default_mode() : sim::ScgMode::kInterSm));
    if (tpcs != kUnpartitioned) must(engine_.set_quota(tsg_, static_cast<int>(tpcs)));
}

void EnginePlant::set_load(double graphics, double compute) {
    graphics_load_ = graphics;
    compute_load_ = compute;
}

void EnginePlant::set_client(int client, bool on) {
    Client& c = clients_[static_cast<size_t>(client)];
    if (c.on == on) return;
    c.on = on;
    if (on) {
        c.channel = must(engine_.create_channel(tsg_, {.kind = sim::ChannelKind::kCompute, .veid = 1, .runqueue = 1}));
        c.next_release = std::max(c.next_release, engine_.now());
        c.under_way = 0;
    } else {
        must(engine_.destroy_channel(c.channel));
    }
}

void EnginePlant::submit_step(size_t index, TimeNs released) {
    Client& client = clients_[index];
    const ClientLoad& load = workload_.clients[index];
    sim::Kernel kernel = workload_.kernel;
    const double factor = compute_load_ * noise(client.random, load.noise);
    kernel.block_ns = static_cast<TimeNs>(static_cast<double>(kernel.block_ns) * factor);
    if (level_ != kUnpartitioned && engine_.topology().scg() == sim::ScgControl::kNone)
        kernel.disabled_tpcs =
            engine_.topology().all_tpcs() & ~engine_.topology().compute_tpcs(static_cast<int>(level_));
    for (int k = 1; k < load.kernels; ++k) must(engine_.submit(client.channel, kernel, kInnerKernel));
    const uint64_t cookie = next_cookie_++;
    released_[cookie] = released;
    must(engine_.submit(client.channel, kernel, cookie));
    ++client.under_way;
}

void EnginePlant::release() {
    const TimeNs now = engine_.now();
    if (frame_released_ < 0 && next_frame_ <= now) {
        frame_released_ = now;
        must(engine_.submit(graphics_, scaled(workload_.renderer.frame, graphics_load_ * frames_.next_factor()),
                            kFrameCookie));
    }
    for (size_t i = 0; i < clients_.size(); ++i) {
        Client& client = clients_[i];
        const ClientLoad& load = workload_.clients[i];
        while (client.on && client.next_release <= now && (load.period > 0 || client.under_way == 0)) {
            if (static_cast<int>(client.under_way) < load.most_queued) submit_step(i, client.next_release);
            if (load.period == 0) break;
            client.next_release += load.period;
        }
    }
}

void EnginePlant::run_until(TimeNs until, std::vector<Done>& out) {
    while (true) {
        release();
        TimeNs next = std::min(until, engine_.next_event_time());
        if (frame_released_ < 0) next = std::min(next, next_frame_);
        for (size_t i = 0; i < clients_.size(); ++i) {
            if (clients_[i].on && workload_.clients[i].period > 0) next = std::min(next, clients_[i].next_release);
        }
        engine_.advance_to(next);
        engine_.take_completions(done_);
        for (const sim::Completion& done : done_) {
            if (done.cookie == kInnerKernel) continue;
            if (done.cookie == kFrameCookie) {
                out.push_back({-1, done.end, done.end - frame_released_});
                next_frame_ = frames_.after(frame_released_, done.end);
                frame_released_ = -1;
                continue;
            }
            const auto it = released_.find(done.cookie);
            const TimeNs released = it->second;
            released_.erase(it);
            if (done.status != sim::WorkStatus::kDone) continue;
            for (size_t i = 0; i < clients_.size(); ++i) {
                if (clients_[i].channel != done.channel) continue;
                --clients_[i].under_way;
                if (workload_.clients[i].period == 0) clients_[i].next_release = done.end;
                out.push_back({static_cast<int>(i), done.end, done.end - released});
            }
        }
        if (engine_.now() >= until) return;
    }
}

}  // namespace vuda::tuner::eval
