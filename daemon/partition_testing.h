// Layouts of GPUs as messages, for tests.
#pragma once

#include "shim/partition/testing_topologies.h"
#include "vuda/v1/session.pb.h"

namespace vuda::daemon {

inline v1::Topology to_message(const partition::Topology& layout) {
    v1::Topology topology;
    for (const partition::Tpc& tpc : layout.tpcs) {
        v1::Tpc& out = *topology.add_tpcs();
        out.set_gpc(tpc.gpc);
        out.set_graphics(tpc.graphics);
        for (const uint32_t sm : tpc.sms) out.add_sms(sm);
    }
    return topology;
}

inline v1::ClientMessage partition_report(v1::Backend backend, const partition::Topology& layout = {},
                                          const std::string& why = "") {
    v1::ClientMessage message;
    v1::PartitionReport& report = *message.mutable_partition_report();
    report.set_backend(backend);
    *report.mutable_topology() = to_message(layout);
    if (!why.empty()) {
        report.mutable_reason()->set_code(9);
        report.mutable_reason()->set_text(why);
    }
    return message;
}

}  // namespace vuda::daemon
