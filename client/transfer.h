// Moving handles over a connection of their own: the token says which transfer it is, the kernel says who we are.
#pragma once

#include <string>

#include "base/frame_io.h"
#include "base/result.h"
#include "client/handles.h"

namespace vuda::client {

// Owner to vudad. The descriptors stay the caller's; vudad gets its own references. `stored`: return when vudad has
// taken the set over, so that what is said on the session afterwards comes afterwards.
Status push_handles(const std::string& socket, const Token& token, const HandleSet& set, Deadline deadline,
                    bool stored = false);

// vudad to attacher: exactly `expected` handles, the TSG first and only there.
Result<HandleSet> pull_handles(const std::string& socket, const Token& token, size_t expected, Deadline deadline);

}  // namespace vuda::client
