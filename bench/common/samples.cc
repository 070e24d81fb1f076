#include "bench/common/samples.h"

#include <algorithm>
#include <cmath>

namespace vuda::bench {

double Samples::percentile(double p) {
    if (values_.empty()) return 0;
    if (!sorted_) {
        std::sort(values_.begin(), values_.end());
        sorted_ = true;
    }
    const double rank = std::ceil(std::clamp(p, 0.0, 100.0) / 100.0 * static_cast<double>(values_.size()));
    return values_[rank < 1 ? 0 : static_cast<size_t>(rank) - 1];
}

}  // namespace vuda::bench
