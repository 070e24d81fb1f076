#include "cli/partition_view.h"

#include <algorithm>
#include <set>
#include <vector>

#include "cli/table.h"

namespace vuda::cli {
namespace {

std::vector<uint32_t> graphics_tpcs(const v1::Topology& topology) {
    std::vector<uint32_t> tpcs;
    for (int i = 0; i < topology.tpcs_size(); ++i) {
        if (topology.tpcs(i).graphics()) tpcs.push_back(static_cast<uint32_t>(i));
    }
    return tpcs;
}

size_t gpc_count(const v1::Topology& topology) {
    std::set<uint32_t> gpcs;
    for (const v1::Tpc& tpc : topology.tpcs()) gpcs.insert(tpc.gpc());
    return gpcs.size();
}

std::string topology_text(const v1::Topology& topology) {
    if (topology.tpcs_size() == 0) return "unknown";
    const std::vector<uint32_t> graphics = graphics_tpcs(topology);
    return std::to_string(gpc_count(topology)) + " GPCs, " + std::to_string(topology.tpcs_size()) +
           " TPCs, graphics on " +
           (graphics.size() == static_cast<size_t>(topology.tpcs_size()) ? "all" : ranges_text(graphics));
}

std::string levels_text(const v1::PartitionInfo& partition) {
    std::string text;
    for (const uint32_t level : partition.levels()) text += (text.empty() ? "" : ",") + std::to_string(level);
    return text;
}

std::string compute_text(const v1::PartitionInfo& partition) {
    if (partition.mode() == v1::MODE_SLICED) {
        return partition.compute_percent() == 0 ? "in turn" : std::to_string(partition.compute_percent()) + "% of time";
    }
    const int all = partition.topology().tpcs_size();
    return all == 0 ? "all" : std::to_string(partition.applied_tpcs()) + "/" + std::to_string(all);
}

Json topology_json(const v1::Topology& topology) {
    if (topology.tpcs_size() == 0) return nullptr;
    Json json{{"gpcs", gpc_count(topology)},
              {"tpcs", topology.tpcs_size()},
              {"graphics_tpcs", graphics_tpcs(topology)},
              {"tpc", Json::array()}};
    for (const v1::Tpc& tpc : topology.tpcs()) {
        json["tpc"].push_back(Json{{"gpc", tpc.gpc()},
                                   {"graphics", tpc.graphics()},
                                   {"sms", std::vector<uint32_t>(tpc.sms().begin(), tpc.sms().end())}});
    }
    return json;
}

}  // namespace

std::string mode_name(v1::Mode mode) {
    switch (mode) {
        case v1::MODE_INTRA_SM: return "intra-sm";
        case v1::MODE_INTER_SM: return "inter-sm";
        case v1::MODE_SLICED: return "sliced";
        default: return "unknown";
    }
}

std::string backend_name(v1::Backend backend) {
    switch (backend) {
        case v1::BACKEND_UNSPECIFIED: return "";
        case v1::BACKEND_NONE: return "none";
        case v1::BACKEND_SCG: return "scg";
        case v1::BACKEND_QMD_MASK: return "qmd-mask";
        default: return "unknown";
    }
}

std::string quota_text(const v1::PartitionInfo& partition) {
    if (partition.automatic()) return "auto";
    if (partition.quota_percent() != 0) return std::to_string(partition.quota_percent()) + "%";
    return partition.quota_tpcs() == 0 ? "none" : std::to_string(partition.quota_tpcs());
}

std::string ranges_text(std::span<const uint32_t> ascending) {
    std::string text;
    for (size_t first = 0; first < ascending.size();) {
        size_t last = first;
        while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
        text += (text.empty() ? "" : ",") + std::to_string(ascending[first]);
        if (last > first) text += "-" + std::to_string(ascending[last]);
        first = last + 1;
    }
    return text;
}

std::string partition_text(const v1::StatusReply& status) {
    Table table({"SPLIT OF", "MODE", "QUOTA", "COMPUTE TPCS", "LEVELS", "GPU", "NOTE"});
    for (const v1::TsgInfo& tsg : status.tsgs()) {
        if (!tsg.has_partition()) continue;
        const v1::PartitionInfo& partition = tsg.partition();
        table.add({printable(tsg.name()), mode_name(partition.mode()), quota_text(partition), compute_text(partition),
                   levels_text(partition), topology_text(partition.topology()), printable(partition.note())});
    }
    return table.empty() ? "" : table.to_string();
}

Json partition_json(const v1::TsgInfo& tsg) {
    if (!tsg.has_partition()) return nullptr;
    const v1::PartitionInfo& partition = tsg.partition();
    return Json{
        {"mode", mode_name(partition.mode())},
        {"automatic", partition.automatic()},
        {"quota_tpcs", partition.quota_tpcs() == 0 ? Json(nullptr) : Json(partition.quota_tpcs())},
        {"quota_percent", partition.quota_percent() == 0 ? Json(nullptr) : Json(partition.quota_percent())},
        {"applied_tpcs", partition.applied_tpcs()},
        {"compute_percent", partition.compute_percent() == 0 ? Json(nullptr) : Json(partition.compute_percent())},
        {"frame_us", partition.frame_us() == 0 ? Json(nullptr) : Json(partition.frame_us())},
        {"levels", std::vector<uint32_t>(partition.levels().begin(), partition.levels().end())},
        {"topology", topology_json(partition.topology())},
        {"generation", partition.generation()},
        {"note", partition.note()}};
}

}  // namespace vuda::cli
