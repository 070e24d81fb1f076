#include "cli/over_limit_view.h"

#include "cli/fault_view.h"
#include "cli/table.h"
#include "shim/limits/over_limit.h"

namespace vuda::cli {
namespace {

bool chosen(v1::OverLimit policy) {
    const std::string name = over_limit_name(policy);
    return !name.empty() && name != limits::over_limit_text(limits::kDefaultOverLimit);
}

}  // namespace

std::string over_limit_name(v1::OverLimit policy) {
    return std::string(limits::over_limit_text(static_cast<limits::OverLimit>(policy)));
}

std::string over_limit_text(const v1::StatusReply& status) {
    std::string text;
    for (const v1::SessionInfo& session : status.sessions()) {
        if (session.launches_refused() == 0 && session.launches_native() == 0 && !chosen(session.over_limit()))
            continue;
        text += "session " + std::to_string(session.session_id()) + ", kernels too large to share";
        if (session.shared_memory_limit() != 0)
            text += " (over " + std::to_string(session.shared_memory_limit()) + " bytes a block)";
        text += ": " + (session.launches_native() == 0 ? std::string()
                                                       : std::to_string(session.launches_native()) + " ran native, ");
        text += std::to_string(session.launches_refused()) + " refused";
        if (const std::string policy = over_limit_name(session.over_limit()); !policy.empty())
            text += ", policy " + policy;
        if (!session.native_reason().empty()) text += ": " + printable(session.native_reason());
        text += "\n";
    }
    return text;
}

std::string unfit_text(const v1::StatusReply& status) {
    Table table({"UNSHARED FROM", "PROGRAM", "WANTS, BYTES A BLOCK", "CAN SHARE", "WHEN", "TIMES", "MAY COME BACK"});
    for (const v1::Unfit& one : status.unfit()) {
        table.add({printable(one.name()), printable(one.program()) + ", uid " + std::to_string(one.uid()),
                   std::to_string(one.bytes()), std::to_string(one.limit()), duration_text(one.age_ms()) + " ago",
                   std::to_string(one.times()), come_back_text(one.left_ms())});
    }
    return table.empty() ? "" : table.to_string();
}

Json unfit_json(const v1::Unfit& unfit) {
    return Json{{"name", unfit.name()},   {"program", unfit.program()}, {"uid", unfit.uid()},
                {"bytes", unfit.bytes()}, {"limit", unfit.limit()},     {"fitted", unfit.fitted()},
                {"times", unfit.times()}, {"age_ms", unfit.age_ms()},   {"left_ms", unfit.left_ms()}};
}

}  // namespace vuda::cli
