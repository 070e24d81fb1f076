// Words about faults, for logs, the status and refusals. Pure but for the clock on the wall.
#pragma once

#include <string>

#include "daemon/fault_book.h"
#include "daemon/peer.h"
#include "vuda/v1/control.pb.h"
#include "vuda/v1/session.pb.h"

namespace vuda::daemon {

int64_t unix_ms();

// "Xid 31 (MMU fault)", with what the reporter said, cleaned.
std::string cause_text(const v1::Fault& fault);

// By what a program is known again.
Suspect suspect_of(const Peer& peer);
// "/usr/bin/python3, pid 4711, uid 1000"
std::string who_text(const Suspect& who, pid_t pid);

// "40 s", "11 min": rounded up.
std::string time_text(Milliseconds time);
Milliseconds left_of(TimePoint until, TimePoint now);

// Without a peer.
v1::Event fault_event(const char* kind, const std::string& name, TimePoint now);

}  // namespace vuda::daemon
