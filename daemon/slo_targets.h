// The targets of each name, and the file that keeps them over a restart. Pure.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "daemon/peer.h"
#include "tuner/types.h"
#include "vuda/v1/control.pb.h"

namespace vuda::daemon {

struct NameTargets {
    uid_t uid = 0;  // the owner's: what one user chose is nothing to another
    tuner::GraphicsTarget frames;
    tuner::ComputeTarget steps;                      // of every process that shares the name
    std::map<ProcessKey, tuner::ComputeTarget> own;  // instead of `steps`, of one
    std::map<ProcessKey, double> weights;            // those that somebody chose
    bool automatic = false;                          // the quota was left to the tuner because of them

    bool any() const;  // a target; weights alone are none
    bool empty() const { return !any() && weights.empty(); }
    const tuner::ComputeTarget& of(const ProcessKey& process) const;
    double weight_of(const ProcessKey& process) const;
};

using TargetTable = std::map<std::string, NameTargets, std::less<>>;

// Processes of one name with targets of their own, or a weight; a further one replaces the one with the lowest pid.
inline constexpr size_t kOwnTargets = 256;

// Applies a request, whose names and sessions the caller has looked up. `process`: of request.session_id(); null for 0.
// INVALID_ARGUMENT, naming the field; then nothing is changed.
Status apply(const v1::SetSloRequest& request, const ProcessKey* process, NameTargets& targets);

// What a process states of itself, all of it: frames when it owns the name, steps when it shares it (`process` is not
// null). INVALID_ARGUMENT, naming the field; then nothing is changed.
Status apply(const v1::SetTargetsRequest& request, bool owner, const ProcessKey* process, NameTargets& targets);

// Lines of words; the first one names the format. `boot`: process targets of another boot of the machine mean nothing.
std::string to_text(const TargetTable& table, std::string_view boot);
// Whatever the text is. Lines that say nothing valid are left out and counted.
TargetTable parse_targets(std::string_view text, std::string_view boot, size_t& bad_lines);

}  // namespace vuda::daemon
