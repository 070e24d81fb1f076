// Whether a wait on a descriptor has completed for the reason that one waits for.
//
// Asio's async_wait can complete though nothing happened to the descriptor: the state that Asio keeps for a closed
// descriptor is used again for the next one, also while an event of the former is still in the loop's queue, and a
// completed wait, unlike a read, is not tried on the descriptor before the handler runs. Who would take that for the
// end of a process or connection looks here first, and waits again when there is nothing to see.
#pragma once

#include <poll.h>

namespace vuda::daemon {

// Now. `events`: POLLIN, or 0 for its end or an error, which always count.
inline bool is_ready(int fd, short events) {
    pollfd entry{fd, events, 0};
    return ::poll(&entry, 1, 0) == 1;
}

}  // namespace vuda::daemon
