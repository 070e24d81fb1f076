// What the gRPC side needs of the daemon. gRPC's threads touch none of it: they post to the loop.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>

#include "daemon/event_hub.h"
#include "daemon/rate_limiter.h"
#include "daemon/registry.h"
#include "daemon/request_rate.h"
#include "vuda/v1/control.pb.h"

namespace vuda::daemon {

struct ControlContext {
    boost::asio::io_context& loop;
    Registry& registry;
    EventHub& events;
    RateLimiter& log_limit;
    RequestRate& rate;
    std::function<v1::DaemonInfo()> daemon_info;
    std::function<std::string()> metrics;
    uint64_t features = 0;
};

}  // namespace vuda::daemon
