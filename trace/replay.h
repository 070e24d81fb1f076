// A trace fed to the production redirector, with the trace itself in the kernel's place: what would have been
// rewritten?
#pragma once

#include <string>
#include <vector>

#include "shim/preload/redirector.h"
#include "trace/record.h"

namespace vuda::trace {

struct ReplayOptions {
    shim::Wishes wishes;
    shim::Options redirector;
    // With wishes.attach: the TSG that "vudad" offers. fds in an offer are never used; they only name things.
    shim::Offer offer;
};

// One thing that the redirector did other than forward a call as it came.
struct Rewrite {
    enum class Kind : uint8_t {
        kEdited,    // forwarded with changed fields
        kAnswered,  // not forwarded: the redirector answered
        kAction,    // a call of the redirector's own
    };
    Kind kind = Kind::kEdited;
    size_t record = 0;  // the record that caused it
    std::string text;   // one line, handles as recorded
};

struct Replay {
    std::vector<Rewrite> rewrites;
    std::vector<std::string> notices;  // what the redirector had to say: refusals, the host it found, ...
    Trace kernel;                      // the calls as the kernel would have seen them
    size_t caller_mismatches = 0;      // calls after which the program would have seen other bytes than in the trace
    size_t objects_left = 0;           // tracked when the trace ended
};

// Actions are answered with success, and new context shares with VEID 63, as a real driver does when nothing is in the
// way.
Replay replay(const Trace& trace, const ReplayOptions& options);

}  // namespace vuda::trace
