#include "cli/fault_view.h"

#include <algorithm>

#include "cli/table.h"

namespace vuda::cli {
namespace {

std::string culprit_text(const v1::FaultInfo& fault) {
    if (!fault.has_culprit()) return "nobody";
    return printable(fault.culprit().program()) + ", pid " + std::to_string(fault.culprit().pid()) + ", uid " +
           std::to_string(fault.culprit().uid());
}

bool is_culprit(const v1::FaultInfo& fault, const v1::Quarantine& quarantine) {
    return fault.has_culprit() && fault.culprit().uid() == quarantine.uid() &&
           fault.culprit().program() == quarantine.program();
}

void add_rows(Table& table, const v1::FaultInfo& fault) {
    const auto& held = fault.quarantines();
    const auto newest =
        std::find_if(held.begin(), held.end(), [&](const v1::Quarantine& one) { return is_culprit(fault, one); });
    table.add({printable(fault.name()), fault_state_name(fault.state()), printable(fault.text()),
               duration_text(fault.age_ms()) + " ago", culprit_text(fault),
               newest == held.end() ? std::string() : std::to_string(newest->faults()),
               newest == held.end() ? std::string() : come_back_text(newest->left_ms())});
    // Of earlier faults.
    for (const v1::Quarantine& one : held) {
        if (one.left_ms() == 0 || is_culprit(fault, one)) continue;
        table.add({printable(fault.name()), "", "an earlier fault", "",
                   printable(one.program()) + ", uid " + std::to_string(one.uid()), std::to_string(one.faults()),
                   come_back_text(one.left_ms())});
    }
}

}  // namespace

std::string fault_state_name(v1::FaultState state) {
    switch (state) {
        case v1::FAULT_STATE_SHARING: return "sharing";
        case v1::FAULT_STATE_FAULTED: return "faulted";
        case v1::FAULT_STATE_QUARANTINED: return "quarantined";
        default: return "unknown";
    }
}

std::string fault_text(const v1::StatusReply& status) {
    Table table({"FAULT OF", "STATE", "CAUSE", "WHEN", "TAKEN FOR THE CAUSE", "FAULTS", "MAY COME BACK"});
    for (const v1::TsgInfo& tsg : status.tsgs()) {
        if (tsg.has_fault()) add_rows(table, tsg.fault());
    }
    for (const v1::FaultInfo& fault : status.faults()) add_rows(table, fault);
    return table.empty() ? "" : table.to_string();
}

Json fault_json(const v1::FaultInfo& fault) {
    Json json{{"name", fault.name()},
              {"state", fault_state_name(fault.state())},
              {"xid", fault.xid()},
              {"text", fault.text()},
              {"unix_ms", fault.unix_ms()},
              {"age_ms", fault.age_ms()},
              {"owner_uid", fault.owner_uid()},
              {"culprit", nullptr},
              {"quarantines", Json::array()}};
    if (fault.has_culprit()) {
        json["culprit"] = Json{
            {"program", fault.culprit().program()}, {"pid", fault.culprit().pid()}, {"uid", fault.culprit().uid()}};
    }
    for (const v1::Quarantine& one : fault.quarantines()) {
        json["quarantines"].push_back(
            Json{{"program", one.program()}, {"uid", one.uid()}, {"faults", one.faults()}, {"left_ms", one.left_ms()}});
    }
    return json;
}

std::string come_back_text(uint64_t left_ms) {
    return left_ms == 0 ? "now" : "in " + duration_text((left_ms + 999) / 1000 * 1000);
}

std::string unquarantine_text(const v1::UnquarantineReply& reply) {
    std::string text = reply.names().empty() ? "nobody is held off, and no fault is known" : "";
    for (const std::string& name : reply.names()) text += (text.empty() ? "" : ", ") + printable(name);
    if (!reply.names().empty()) {
        text += reply.lifted() == 0   ? ": nobody was held off"
                : reply.lifted() == 1 ? ": 1 program may attach again"
                                      : ": " + std::to_string(reply.lifted()) + " programs may attach again";
    }
    if (!reply.note().empty()) text += "; " + printable(reply.note());
    return text + "\n";
}

}  // namespace vuda::cli
