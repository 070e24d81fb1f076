#include "daemon/partition_metrics.h"

#include <string>

namespace vuda::daemon {

void add_partition_metrics(MetricsText& text, const v1::StatusReply& status,
                           const std::vector<Registry::Samples>& samples) {
    using enum MetricsText::Type;
    text.family("vuda_tsg_compute_tpcs", kGauge, "TPCs that compute may use beside this TSG's graphics; 0: not known.");
    for (const v1::TsgInfo& tsg : status.tsgs()) {
        if (tsg.has_partition()) text.sample(tsg.partition().applied_tpcs(), {{"name", tsg.name()}});
    }
    text.family("vuda_tsg_split_generation", kGauge, "Number of the change that made the present split.");
    for (const v1::TsgInfo& tsg : status.tsgs()) {
        if (tsg.has_partition()) text.sample(static_cast<double>(tsg.partition().generation()), {{"name", tsg.name()}});
    }
    const auto of_sessions = [&](const char* name, MetricsText::Type type, const char* help,
                                 uint64_t (v1::SessionInfo::*value)() const) {
        text.family(name, type, help);
        for (const v1::SessionInfo& session : status.sessions()) {
            if (session.name().empty()) continue;
            text.sample(static_cast<double>((session.*value)()),
                        {{"session", std::to_string(session.session_id())}, {"name", session.name()}});
        }
    };
    of_sessions("vuda_session_split_generation", kGauge, "Number of the newest split that the process follows.",
                &v1::SessionInfo::applied_generation);
    of_sessions("vuda_session_launches_total", kCounter, "Launches that went through the partitioner.",
                &v1::SessionInfo::launches);
    of_sessions("vuda_session_samples_total", kCounter, "Timing samples taken in.", &v1::SessionInfo::samples);
    of_sessions("vuda_session_samples_lost_total", kCounter, "Timing samples that found the ring full.",
                &v1::SessionInfo::samples_lost);

    const auto labelled = [&](const Registry::Samples& one, double value, const char* quantile) {
        const std::string session = std::to_string(one.session);
        if (quantile == nullptr) {
            text.sample(value, {{"session", session}, {"name", one.name}, {"kind", sample_kind_name(one.kind)}});
        } else {
            text.sample(value, {{"session", session},
                                {"name", one.name},
                                {"kind", sample_kind_name(one.kind)},
                                {"quantile", quantile}});
        }
    };
    text.family("vuda_session_sample_rate", kGauge, "Timing samples a second, of the last second.");
    for (const Registry::Samples& one : samples) labelled(one, one.summary.rate, nullptr);
    text.family("vuda_session_sample_seconds", kSummary, "What the newest timing samples say.");
    for (const Registry::Samples& one : samples) {
        labelled(one, static_cast<double>(one.summary.p50_ns) / 1e9, "0.5");
        labelled(one, static_cast<double>(one.summary.p99_ns) / 1e9, "0.99");
    }
}

}  // namespace vuda::daemon
