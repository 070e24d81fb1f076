// Puts vudad's splits into force with SCG methods, in the process that has the renderer: they steer its whole TSG.
//
// A thread of its own: it sleeps until the session page has another split, and waits for the GPU while it submits.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "proto/page/session_page.h"
#include "shim/partition/scg.h"

namespace vuda::partition {

class ScgFollower {
 public:
    struct Host {
        // Runs methods on a channel in the renderer's TSG and waits for them.
        std::function<Status(const std::vector<Method>&)> run;
        // Once: the GPU or the driver refused, nothing is sent any more.
        std::function<void(const Error&)> failed;
    };

    // `compute_class` has SCG methods (has_scg). `page` outlives the follower.
    ScgFollower(page::Page& page, uint32_t compute_class, uint32_t sms_per_tpc, Host host)
        : page_(page), compute_class_(compute_class), sms_per_tpc_(sms_per_tpc), host_(std::move(host)) {}
    // Waits for a submission that is under way.
    ~ScgFollower();
    ScgFollower(const ScgFollower&) = delete;
    ScgFollower& operator=(const ScgFollower&) = delete;

    // RESOURCE_EXHAUSTED: no thread could be made.
    Status start();

 private:
    static void* thread_main(void* self);
    void run();
    Status apply(const page::Split& split);

    page::Page& page_;
    const uint32_t compute_class_;
    const uint32_t sms_per_tpc_;
    const Host host_;
    std::atomic<bool> stopping_{false};
    bool started_ = false;
    bool limited_ = false;  // inter-sm methods were sent, and intra-sm ones not since
    pthread_t thread_{};
};

}  // namespace vuda::partition
