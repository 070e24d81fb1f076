#include "bench/tuner/rate_plant.h"

#include <algorithm>
#include <cmath>

namespace vuda::tuner::eval {

RatePlant::RatePlant(const Workload& workload, const Speeds& speeds, uint64_t seed)
    : workload_(workload),
      speeds_(speeds),
      frames_(workload, seed),
      clients_(workload.clients.size()),
      shares_(workload.clients.size(), 1.0),
      level_(speeds.unpartitioned) {
    for (size_t i = 0; i < clients_.size(); ++i) {
        clients_[i].random = sim::Random(seed * 31 + i + 1);
        if (const TimeNs period = workload.clients[i].period; period > 0)
            clients_[i].next_release = static_cast<TimeNs>(clients_[i].random.below(static_cast<uint64_t>(period)));
    }
}

void RatePlant::set_level(uint32_t tpcs) {
    level_ = speeds_.unpartitioned;
    for (size_t i = 0; i < speeds_.levels.size(); ++i) {
        if (speeds_.ladder.tpcs[i] == tpcs) level_ = speeds_.levels[i];
    }
    if (frame_released_ >= 0) frame_left_ += static_cast<double>(workload_.switch_penalty);
}

void RatePlant::set_load(double graphics, double compute) {
    graphics_load_ = graphics;
    compute_load_ = compute;
}

void RatePlant::set_client(int client, bool on) {
    Client& c = clients_[static_cast<size_t>(client)];
    c.on = on;
    c.next_release = std::max(c.next_release, now_);
    if (!on) c.queue.clear();
}

double RatePlant::graphics_speed() const {
    const bool computing =
        std::any_of(clients_.begin(), clients_.end(), [](const Client& c) { return !c.queue.empty(); });
    return computing ? level_.graphics : 1.0;
}

double RatePlant::compute_speed(size_t client) const {
    return shares_[client] * (frame_released_ >= 0 ? level_.compute_busy : level_.compute_idle);
}

void RatePlant::release() {
    if (frame_released_ < 0 && next_frame_ <= now_) {
        frame_released_ = now_;
        frame_left_ = static_cast<double>(frame_ns(workload_.renderer.frame)) * graphics_load_ * frames_.next_factor();
    }
    for (size_t i = 0; i < clients_.size(); ++i) {
        Client& client = clients_[i];
        const ClientLoad& load = workload_.clients[i];
        while (client.on && client.next_release <= now_ && (load.period > 0 || client.queue.empty())) {
            const double work = load.kernels * speeds_.kernel_ns * compute_load_ * noise(client.random, load.noise);
            if (static_cast<int>(client.queue.size()) < load.most_queued)
                client.queue.push_back({client.next_release, work});
            if (load.period == 0) break;
            client.next_release += load.period;
        }
    }
}

void RatePlant::run_until(TimeNs until, std::vector<Done>& out) {
    while (true) {
        release();
        const double graphics = graphics_speed();
        double next = static_cast<double>(until - now_);
        if (frame_released_ >= 0) {
            next = std::min(next, frame_left_ / graphics);
        } else {
            next = std::min(next, static_cast<double>(next_frame_ - now_));
        }
        for (size_t i = 0; i < clients_.size(); ++i) {
            const Client& client = clients_[i];
            if (!client.queue.empty()) next = std::min(next, client.queue.front().left / compute_speed(i));
            if (client.on && workload_.clients[i].period > 0)
                next = std::min(next, static_cast<double>(client.next_release - now_));
        }
        const TimeNs step = std::max<TimeNs>(0, static_cast<TimeNs>(std::ceil(next)));
        const auto passed = static_cast<double>(step);
        // Speeds of before the step, for all.
        std::vector<double>& speeds = scratch_;
        speeds.clear();
        for (size_t i = 0; i < clients_.size(); ++i) speeds.push_back(compute_speed(i));
        now_ += step;
        if (frame_released_ >= 0) frame_left_ -= passed * graphics;
        for (size_t i = 0; i < clients_.size(); ++i) {
            Client& client = clients_[i];
            if (client.queue.empty()) continue;
            client.queue.front().left -= passed * speeds[i];
            if (client.queue.front().left > 0.5) continue;
            const TimeNs released = client.queue.front().released;
            client.queue.erase(client.queue.begin());
            out.push_back({static_cast<int>(i), now_, now_ - released});
            if (workload_.clients[i].period == 0) client.next_release = now_;
            // What waited starts now, with all of its work to do.
        }
        if (frame_released_ >= 0 && frame_left_ <= 0.5) {
            out.push_back({-1, now_, now_ - frame_released_});
            next_frame_ = frames_.after(frame_released_, now_);
            frame_released_ = -1;
        }
        if (now_ >= until) return;
    }
}

}  // namespace vuda::tuner::eval
