#include "cli/status_view.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "base/uuid.h"
#include "cli/fault_view.h"
#include "cli/over_limit_view.h"
#include "cli/partition_view.h"
#include "cli/slo_view.h"
#include "cli/table.h"

namespace vuda::cli {
namespace {

// "ROLE_TOOL" without its prefix, in lower case, '_' as '-'.
std::string enum_text(std::string name, std::string_view prefix) {
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
        return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return name.empty() ? "unknown" : name;
}

std::string role_name(v1::Role role) { return enum_text(v1::Role_Name(role), "ROLE_"); }
std::string state_name(v1::SharingState state) { return enum_text(v1::SharingState_Name(state), "SHARING_STATE_"); }

std::string gpu_text(const std::string& bytes) {
    Uuid uuid;
    if (bytes.size() != uuid.bytes.size()) return "?";
    std::memcpy(uuid.bytes.data(), bytes.data(), bytes.size());
    return uuid.to_string();
}

std::string peer_text(const v1::PeerInfo& peer) {
    return printable(peer.program().empty() ? "?" : peer.program()) + " (pid " + std::to_string(peer.pid()) + ", uid " +
           std::to_string(peer.uid()) + ")";
}

std::string code_text(uint32_t code) {
    return std::string(code_name(code <= 16 ? static_cast<Code>(code) : Code::kUnknown));
}

std::string reason_text(const v1::Error& reason) {
    if (reason.code() == 0 && reason.text().empty()) return "";
    std::string text = reason.text().empty() ? code_text(reason.code()) : reason.text();
    if (!reason.hint().empty()) text += "; " + reason.hint();
    return printable(text);
}

Json reason_json(const v1::Error& reason) {
    if (reason.code() == 0 && reason.text().empty()) return nullptr;
    return Json{{"code", code_text(reason.code())}, {"text", reason.text()}, {"hint", reason.hint()}};
}

Json peer_json(const v1::PeerInfo& peer) {
    return Json{{"pid", peer.pid()}, {"uid", peer.uid()}, {"gid", peer.gid()}, {"program", peer.program()}};
}

template <typename Numbers>
Json array_json(const Numbers& numbers) {
    Json array = Json::array();
    for (const auto number : numbers) array.push_back(number);
    return array;
}

Json stuck_json(const v1::SessionInfo& session) {
    if (!session.has_stuck()) return nullptr;
    return Json{{"since_ms", session.stuck().since_ms()}, {"text", session.stuck().text()}};
}

// Why it does not share; when it does, that a kernel of it does not go on, or why the split does not reach it.
std::string why_not(const v1::SessionInfo& session, const v1::StatusReply& status) {
    if (session.has_stuck()) {
        const std::string said = printable(session.stuck().text());
        return "stuck for " + duration_text(session.stuck().since_ms()) + ": the GPU repeats page faults" +
               (said.empty() ? "" : ", " + said) + " (docs/faults.md)";
    }
    if (session.has_reason()) return reason_text(session.reason());
    if (session.state() != v1::SHARING_STATE_SHARING || session.backend() != v1::BACKEND_NONE) return "";
    // The renderer may do it for all.
    for (const v1::SessionInfo& other : status.sessions()) {
        if (other.backend() == v1::BACKEND_SCG && other.name() == session.name()) return "";
    }
    const std::string reason = reason_text(session.backend_reason());
    return "no split" + (reason.empty() ? "" : ": " + reason);
}

std::string ids_text(const char* noun, const google::protobuf::RepeatedField<uint32_t>& ids) {
    std::string text;
    for (const uint32_t id : ids) text += (text.empty() ? "" : ", ") + std::to_string(id);
    return text.empty() ? text : std::string(noun) + (ids.size() == 1 ? " " : "s ") + text;
}

// "user 1000 and groups 44, 109"; empty when both lists are.
std::string ids_text(const google::protobuf::RepeatedField<uint32_t>& uids,
                     const google::protobuf::RepeatedField<uint32_t>& gids) {
    const std::string users = ids_text("user", uids), groups = ids_text("group", gids);
    return users.empty() || groups.empty() ? users + groups : users + " and " + groups;
}

std::string attach_time(const v1::SessionInfo& session) {
    if (session.attach_us() == 0) return "";
    const uint32_t tenths = (session.attach_us() + 50) / 100;
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " ms";
}

}  // namespace

std::string verdict_name(v1::DriverVerdict verdict) {
    return enum_text(v1::DriverVerdict_Name(verdict), "DRIVER_VERDICT_");
}

bool verdict_allows_sharing(v1::DriverVerdict verdict) {
    return verdict == v1::DRIVER_VERDICT_SUPPORTED || verdict == v1::DRIVER_VERDICT_LAYOUT_EQUAL;
}

std::string duration_text(uint64_t ms) {
    const uint64_t s = ms / 1000, min = s / 60, h = min / 60, d = h / 24;
    const auto two = [](uint64_t a, const char* unit_a, uint64_t b, const char* unit_b) {
        return std::to_string(a) + unit_a + (b == 0 ? "" : " " + std::to_string(b) + unit_b);
    };
    if (ms < 1000) return std::to_string(ms) + " ms";
    if (min == 0) return std::to_string(s) + " s";
    if (h == 0) return two(min, " min", s % 60, " s");
    if (d == 0) return two(h, " h", min % 60, " min");
    return two(d, " d", h % 24, " h");
}

std::string status_text(const v1::StatusReply& status) {
    const v1::DaemonInfo& daemon = status.daemon();
    std::string text = "vudad " + printable(daemon.version()) + ", pid " + std::to_string(daemon.pid()) + ", up " +
                       duration_text(daemon.uptime_ms()) + ", " + printable(daemon.socket()) + "\n";
    if (daemon.simulated()) text += "GPU simulated, at " + printable(daemon.sim_socket()) + "\n";
    text += "driver ";
    if (!daemon.driver_version().empty()) text += printable(daemon.driver_version()) + ": ";
    text += verdict_name(daemon.driver_verdict());
    if (!verdict_allows_sharing(daemon.driver_verdict())) text += ", programs run as without VUDA";
    if (!daemon.driver_note().empty()) text += " (" + printable(daemon.driver_note()) + ")";
    text += "\n";

    text += "\n";
    Table tsgs({"TSG", "OWNER", "GPU", "CHANNELS", "BUFFERS", "EXPORTED", "ATTACHED", "FOR"});
    for (const v1::TsgInfo& tsg : status.tsgs()) {
        tsgs.add({printable(tsg.name()), peer_text(tsg.owner()), gpu_text(tsg.gpu_uuid()),
                  std::to_string(tsg.channels()) + "/128", std::to_string(tsg.control_buffers()),
                  tsg.exported() ? "yes" : "no", std::to_string(tsg.attached_sessions_size()),
                  duration_text(tsg.since_ms())});
    }
    text += tsgs.empty() ? "no TSG is registered: start a renderer with vudactl run --register NAME -- PROGRAM\n"
                         : tsgs.to_string();
    // Beside the owner's user and root, who always may.
    for (const v1::TsgInfo& tsg : status.tsgs()) {
        const std::string allowed = ids_text(tsg.allow_uids(), tsg.allow_gids());
        if (!allowed.empty()) text += printable(tsg.name()) + " is open to " + allowed + " too\n";
    }
    const std::string everywhere = ids_text(daemon.attach_uids(), daemon.attach_gids());
    if (!everywhere.empty()) text += "every TSG is open to " + everywhere + " too (vudad.toml)\n";

    const std::string faults = fault_text(status);
    if (!faults.empty()) text += "\n" + faults;
    const std::string unshared = unfit_text(status);
    if (!unshared.empty()) text += "\n" + unshared;
    const std::string split = partition_text(status);
    if (!split.empty()) text += "\n" + split;
    const std::string targets = slo_text(status);
    if (!targets.empty()) text += "\n" + targets;

    text += "\n";
    Table sessions({"SESSION", "PROGRAM", "ROLE", "STATE", "TSG", "CHANNELS", "ATTACH", "SPLIT BY", "FOR", "WHY NOT"});
    for (const v1::SessionInfo& session : status.sessions()) {
        sessions.add({std::to_string(session.session_id()), peer_text(session.peer()), role_name(session.role()),
                      state_name(session.state()), printable(session.name()), std::to_string(session.channels_moved()),
                      attach_time(session), backend_name(session.backend()), duration_text(session.since_ms()),
                      why_not(session, status)});
    }
    text += sessions.empty() ? "no program is connected\n" : sessions.to_string();
    text += over_limit_text(status);
    return text;
}

Json status_json(const v1::StatusReply& status) {
    const v1::DaemonInfo& daemon = status.daemon();
    Json json{
        {"schema", kJsonSchema},
        {"daemon",
         {{"version", daemon.version()},
          {"pid", daemon.pid()},
          {"uptime_ms", daemon.uptime_ms()},
          {"socket", daemon.socket()},
          {"handle_socket", daemon.handle_socket()},
          {"simulated", daemon.simulated()},
          {"sim_socket", daemon.sim_socket()},
          {"driver",
           {{"version", daemon.driver_version()},
            {"verdict", verdict_name(daemon.driver_verdict())},
            {"note", daemon.driver_note()}}},
          {"access",
           {{"attach_uids", array_json(daemon.attach_uids())}, {"attach_gids", array_json(daemon.attach_gids())}}}}},
        {"tsgs", Json::array()},
        {"sessions", Json::array()},
        {"faults", Json::array()},
        {"unfit", Json::array()},
    };
    for (const v1::TsgInfo& tsg : status.tsgs()) {
        json["tsgs"].push_back(Json{{"name", tsg.name()},
                                    {"gpu", gpu_text(tsg.gpu_uuid())},
                                    {"owner_session", tsg.owner_session()},
                                    {"owner", peer_json(tsg.owner())},
                                    {"exported", tsg.exported()},
                                    {"control_buffers", tsg.control_buffers()},
                                    {"channels", tsg.channels()},
                                    {"attached_sessions", array_json(tsg.attached_sessions())},
                                    {"since_ms", tsg.since_ms()},
                                    {"allow_uids", array_json(tsg.allow_uids())},
                                    {"allow_gids", array_json(tsg.allow_gids())},
                                    {"partition", partition_json(tsg)},
                                    {"slo", slo_json(tsg)},
                                    {"fault", tsg.has_fault() ? fault_json(tsg.fault()) : Json(nullptr)}});
    }
    for (const v1::FaultInfo& fault : status.faults()) json["faults"].push_back(fault_json(fault));
    for (const v1::Unfit& unfit : status.unfit()) json["unfit"].push_back(unfit_json(unfit));
    for (const v1::SessionInfo& session : status.sessions()) {
        json["sessions"].push_back(Json{{"id", session.session_id()},
                                        {"peer", peer_json(session.peer())},
                                        {"role", role_name(session.role())},
                                        {"state", state_name(session.state())},
                                        {"name", session.name()},
                                        {"channels_moved", session.channels_moved()},
                                        {"veid", session.veid()},
                                        {"control_buffers", session.control_buffers()},
                                        {"attach_us", session.attach_us()},
                                        {"reason", reason_json(session.reason())},
                                        {"stuck", stuck_json(session)},
                                        {"client_version", session.client_version()},
                                        {"driver_version", session.driver_version()},
                                        {"transport", session.transport()},
                                        {"since_ms", session.since_ms()},
                                        {"backend", backend_name(session.backend())},
                                        {"backend_reason", reason_json(session.backend_reason())},
                                        {"applied_generation", session.applied_generation()},
                                        {"launches", session.launches()},
                                        {"shared_memory_limit", session.shared_memory_limit()},
                                        {"launches_refused", session.launches_refused()},
                                        {"over_limit", over_limit_name(session.over_limit())},
                                        {"launches_native", session.launches_native()},
                                        {"native_reason", session.native_reason()},
                                        {"samples", session.samples()},
                                        {"samples_lost", session.samples_lost()}});
    }
    return json;
}

std::string event_text(const v1::Event& event) {
    std::string micros = std::to_string(event.monotonic_us() % 1000000);
    micros.insert(0, 6 - micros.size(), '0');
    std::string text = std::to_string(event.monotonic_us() / 1000000) + "." + micros + " " + printable(event.kind());
    if (!event.name().empty()) text += " " + printable(event.name());
    const std::string reason = reason_text(event.reason());
    // Neither: of the tuner's own accord.
    if (event.has_peer() || event.session_id() != 0) text += ": session " + std::to_string(event.session_id());
    if (event.has_peer()) text += ", " + peer_text(event.peer());
    if (!reason.empty()) text += ": " + reason;
    return text + "\n";
}

Json event_json(const v1::Event& event) {
    Json fields = Json::object();
    for (const auto& [key, value] : std::map<std::string, std::string>(event.fields().begin(), event.fields().end()))
        fields[key] = value;
    return Json{{"monotonic_us", event.monotonic_us()},
                {"kind", event.kind()},
                {"name", event.name()},
                {"session", event.session_id()},
                {"peer", event.has_peer() ? peer_json(event.peer()) : Json(nullptr)},
                {"reason", reason_json(event.reason())},
                {"fields", fields}};
}

Json error_json(const Error& error) {
    return Json{{"schema", kJsonSchema},
                {"error", {{"code", std::string(code_name(error.code))}, {"text", error.text}, {"hint", error.hint}}}};
}

std::string to_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }
std::string to_pretty(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace vuda::cli
