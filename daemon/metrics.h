// Prometheus text exposition format, version 0.0.4.
//
// A serialiser of our own: Debian packages prometheus-cpp's core only together with its HTTP server and push client
// (civetweb, curl), and its registry is a set of locked objects, whereas vudad has a handful of numbers that live on
// one thread. Source: https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace vuda::daemon {

class MetricsText {
 public:
    // kSummary: samples with the label "quantile".
    enum class Type { kCounter, kGauge, kSummary };
    using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

    // Starts a metric; its samples follow. `name` is ours and valid; counters end in _total.
    void family(std::string_view name, Type type, std::string_view help);
    void sample(double value, Labels labels = {});

    std::string take() && { return std::move(text_); }

 private:
    std::string text_;
    std::string name_;
};

}  // namespace vuda::daemon
