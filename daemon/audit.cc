#include "daemon/audit.h"

#include <spdlog/spdlog.h>
#include <sys/uio.h>

// File, line and function of this source in every record would say nothing.
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <syslog.h>
#include <systemd/sd-journal.h>

#include "base/result.h"
#include "daemon/log.h"

namespace vuda::daemon {
namespace {

int syslog_priority(spdlog::level::level_enum level) {
    switch (level) {
        case spdlog::level::warn: return LOG_WARNING;
        case spdlog::level::debug: return LOG_DEBUG;
        default: return LOG_INFO;
    }
}

}  // namespace

spdlog::level::level_enum audit_level(const v1::Event& event) {
    const std::string& kind = event.kind();
    if (kind == "attach-failed" || kind == "faulted" || kind == "fault-reported" || kind == "quarantined" ||
        kind == "stuck" || kind == "unshared" || kind == "owner-silent" || kind == "mirror-late" ||
        kind == "mirror-failed" || kind.ends_with("-refused"))
        return spdlog::level::warn;
    if (kind == "session-open" || kind == "session-close") return spdlog::level::debug;
    return spdlog::level::info;
}

std::string audit_text(const v1::Event& event) {
    std::string text = event.kind();
    if (!event.name().empty()) text += " " + event.name();
    if (event.session_id() != 0) text += " session " + std::to_string(event.session_id());
    const v1::PeerInfo& peer = event.peer();
    if (event.has_peer())
        text += " pid " + std::to_string(peer.pid()) + " (" + peer.program() + ") uid " + std::to_string(peer.uid());
    if (!event.reason().text().empty()) text += ": " + event.reason().text();
    return text;
}

std::vector<std::string> audit_fields(const v1::Event& event) {
    std::vector<std::string> fields;
    const auto add = [&fields](const char* key, const std::string& value) {
        if (!value.empty()) fields.push_back(std::string(key) + "=" + value);
    };
    const v1::PeerInfo& peer = event.peer();
    add("VUDA_EVENT", event.kind());
    add("VUDA_NAME", event.name());
    if (event.session_id() != 0) add("VUDA_SESSION", std::to_string(event.session_id()));
    if (event.has_peer()) {
        add("VUDA_CLIENT_PID", std::to_string(peer.pid()));
        add("VUDA_CLIENT_UID", std::to_string(peer.uid()));
        add("VUDA_CLIENT_GID", std::to_string(peer.gid()));
        add("VUDA_CLIENT_PROGRAM", peer.program());
    }
    // Names that the daemon gave itself; VUDA_EVENT and VUDA_SESSION are there already.
    for (const auto& [key, value] : event.fields()) {
        if (key != "VUDA_EVENT" && key != "VUDA_SESSION") add(key.c_str(), value);
    }
    if (event.reason().code() != 0) {
        const uint32_t code = event.reason().code();
        add("VUDA_CODE", std::string(code_name(code <= 16 ? static_cast<Code>(code) : Code::kUnknown)));
    }
    add("VUDA_REASON", event.reason().text());
    return fields;
}

void audit(const v1::Event& event) {
    const spdlog::level::level_enum level = audit_level(event);
    if (!spdlog::should_log(level)) return;
    if (!log_is_journal()) return spdlog::log(level, "{}", audit_text(event));
    std::vector<std::string> fields = audit_fields(event);
    fields.push_back("MESSAGE=" + audit_text(event));
    fields.push_back("PRIORITY=" + std::to_string(syslog_priority(level)));
    fields.emplace_back("SYSLOG_IDENTIFIER=vudad");
    std::vector<iovec> parts;
    parts.reserve(fields.size());
    for (std::string& field : fields) parts.push_back({field.data(), field.size()});
    // Without a journal that takes it, the line at least.
    if (::sd_journal_sendv(parts.data(), static_cast<int>(parts.size())) < 0)
        spdlog::log(level, "{}", audit_text(event));
}

}  // namespace vuda::daemon
