#pragma once

namespace vuda::partition {

extern const char kProbePtx[];

}  // namespace vuda::partition
