// Session operations by the million, in every order that comes up.
#pragma once

#include "tests/load/crew.h"
#include "tests/load/session.h"

namespace vuda::load {

// Within a member: order.count operations of the part that order.name plays, "owner-N" or "attacher-N" of
// order.period_s owners. Answer: numbers[0] operations done, [1] answers of a code that cannot be, [2] the last such
// code, [3] attaches that came to share, [4] pings answered.
Answer soak_some(Session& session, const Order& order);

// Likewise through gRPC. For a member of its own: gRPC's threads do not survive a fork.
void soak_grpc(int line, const std::string& control_socket);

}  // namespace vuda::load
