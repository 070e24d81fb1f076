// The splits and the timing samples as metrics.
#pragma once

#include <vector>

#include "daemon/metrics.h"
#include "daemon/registry.h"
#include "vuda/v1/control.pb.h"

namespace vuda::daemon {

void add_partition_metrics(MetricsText& text, const v1::StatusReply& status,
                           const std::vector<Registry::Samples>& samples);

}  // namespace vuda::daemon
