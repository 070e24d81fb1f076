// Targets of a TSG and what came out, as `vudactl slo`, `status` and `top` print them. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/status_view.h"
#include "vuda/v1/control.pb.h"

namespace vuda::cli {

// "no data", "tuning", "meeting", "infeasible"; "missed" where nothing is tuned for it.
std::string slo_state_name(v1::SloState state, bool automatic);

// One target in words, "-" for what is not known: who ("frames", "session 7"), "16.67 ms", "1%", attained, missed,
// margin, state.
struct SloWords {
    std::string who, bound, allowed, attained, missed, margin, state;
};
SloWords slo_words(const v1::SloTarget& target, bool automatic);

// A line for each target; empty when no TSG has one.
std::string slo_text(const v1::StatusReply& status);
// Of one TSG: its targets, the tuner's choice and why.
std::string slo_text(const v1::TsgInfo& tsg);
// null when it has no target and nothing is tuned.
Json slo_json(const v1::TsgInfo& tsg);

// A fraction as "0.01" or "1%"; INVALID_ARGUMENT otherwise.
Result<double> parse_fraction(const std::string& text);

}  // namespace vuda::cli
