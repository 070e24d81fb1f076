// SplitMix64: the standard library's distributions differ between implementations, and a seed must give the same run
// everywhere.
#pragma once

#include <cstdint>

namespace vuda::sim {

class Random {
 public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    // [0, 1)
    double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
    // [0, bound), bound > 0; the bias of the remainder does not matter here.
    uint64_t below(uint64_t bound) { return next() % bound; }

 private:
    uint64_t state_;
};

}  // namespace vuda::sim
