// Members that speak gRPC: what vudad counts, and what happens in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/load/crew.h"

namespace vuda::load {

// What is in vudad at a moment; from its metrics.
struct Counts {
    double sessions = -1;
    double names = -1;
    double handles = -1;
    double waiting = -1;
    double handle_connections = -1;
    double control_connections = -1;
    double reaper = -1;
    bool empty() const {
        return sessions == 0 && names == 0 && handles == 0 && waiting == 0 && handle_connections == 0;
    }
};

// Answers kStatus. After kStallWatch it has a Watch stream that it never reads.
Member start_prober(const std::string& control_socket);
std::optional<Counts> probe(const Member& prober);

// An event, as the watcher got it.
struct Seen {
    int64_t at_ns = 0;  // of the steady clock, when it was read
    std::array<char, 24> kind{};
    std::array<char, 72> name{};
};

// Sends every "unregister" and "owner-silent" as a packet on its line; kWatch begins it and is answered.
Member start_watcher(const std::string& control_socket);
// The next one of that kind and name; nullopt when it does not come in time.
std::optional<Seen> wait_event(const Member& watcher, const std::string& kind, const std::string& name,
                               Milliseconds patience = Milliseconds(60'000));

}  // namespace vuda::load
