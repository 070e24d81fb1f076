// A set of measured values and its order statistics.
#pragma once

#include <cstddef>
#include <vector>

namespace vuda::bench {

class Samples {
 public:
    void add(double value) {
        values_.push_back(value);
        sorted_ = false;
    }
    void clear() { values_.clear(); }
    size_t size() const { return values_.size(); }
    bool empty() const { return values_.empty(); }

    // Nearest-rank percentile, `p` in 0..100: the smallest value that at least p % of the samples do not exceed.
    // 0 when there are no samples.
    double percentile(double p);
    double median() { return percentile(50); }
    double max() { return percentile(100); }

 private:
    std::vector<double> values_;
    bool sorted_ = true;
};

}  // namespace vuda::bench
