#pragma once

namespace vuda::partition {

extern const char kProbePtx[];
extern const char kNativePtx[];

}  // namespace vuda::partition
