#include "cli/query_commands.h"

#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>

#include "cli/daemon_client.h"
#include "cli/doctor.h"
#include "cli/fault_view.h"
#include "cli/libraries.h"
#include "cli/partition_view.h"
#include "cli/run_environment.h"
#include "cli/slo_view.h"
#include "cli/status_view.h"
#include "cli/table.h"
#include "rm/driver_table.h"

namespace vuda::cli {
namespace {

// A full disk or a closed pipe must not look like success to a script.
int print(const std::string& text) {
    constexpr int kIoError = 74;  // EX_IOERR
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    return written ? 0 : kIoError;
}

int fail_with_answer(const Error& error, bool json) {
    if (json) print(to_pretty(error_json(error)));
    return cli::fail(error);
}

template <typename Request, typename Reply>
Result<Reply> ask(const std::string& socket, DaemonClient::Method<Request, Reply> method, const Request& request) {
    Result<DaemonClient> client = DaemonClient::connect(socket);
    if (!client) return client.error();
    return client->call(method, request);
}

// Of a change that is in force when vudad answers, from the request on: this program's start and greeting come before.
class Stopwatch {
 public:
    std::string in_force() const {
        const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start_;
        char text[48];
        std::snprintf(text, sizeof text, ", in force after %.2f ms", passed.count());
        return text;
    }

 private:
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string range_text(const rm::DriverRow& row) {
    return row.first == row.last ? row.first.to_string() : row.first.to_string() + " - " + row.last.to_string();
}

}  // namespace

int print_text(const std::string& text) { return print(text); }

int fail(const Error& error) {
    std::fprintf(stderr, "vudactl: %s\n", printable(error.to_string()).c_str());
    return exit_status(error.code);
}

int status_command(const std::string& socket, bool json) {
    const auto reply = ask(socket, &v1::Vuda::Stub::GetStatus, v1::StatusRequest());
    if (!reply) return fail_with_answer(reply.error(), json);
    return print(json ? to_pretty(status_json(*reply)) : status_text(*reply));
}

int watch_command(const std::string& socket, bool json) {
    Result<DaemonClient> client = DaemonClient::connect(socket);
    if (!client) return fail_with_answer(client.error(), json);
    grpc::ClientContext context;
    const auto reader = client->stub().Watch(&context, v1::WatchRequest());
    v1::Event event;
    while (reader->Read(&event)) {
        if (const int failed = print(json ? to_line(event_json(event)) : event_text(event))) {
            context.TryCancel();
            return failed;
        }
    }
    const grpc::Status status = reader->Finish();
    if (status.ok()) return 0;
    return fail_with_answer(client->to_error(status), json);
}

int metrics_command(const std::string& socket) {
    const auto reply = ask(socket, &v1::Vuda::Stub::GetMetrics, v1::MetricsRequest());
    if (!reply) return fail(reply.error());
    return print(reply->text());
}

int detach_command(const std::string& socket, uint64_t session) {
    v1::DetachRequest request;
    request.set_session_id(session);
    const auto reply = ask(socket, &v1::Vuda::Stub::Detach, request);
    return reply ? 0 : fail(reply.error());
}

int quota_command(const std::string& socket, const v1::SetQuotaRequest& request) {
    Result<DaemonClient> client = DaemonClient::connect(socket);
    if (!client) return fail(client.error());
    const Stopwatch since_request;
    const auto reply = client->call(&v1::Vuda::Stub::SetQuota, request);
    if (!reply) return fail(reply.error());
    const std::string in_force = since_request.in_force();
    std::string text = request.name() + ": compute may use ";
    if (reply->applied_percent() > 0) {
        text += std::to_string(reply->applied_percent()) + " % of the time";
    } else {
        text += reply->applied_tpcs() == 0 ? "every TPC" : std::to_string(reply->applied_tpcs()) + " TPCs";
    }
    text += in_force;
    if (!reply->note().empty()) text += "; " + printable(reply->note());
    return print(text + "\n");
}

int mode_command(const std::string& socket, const v1::SetModeRequest& request) {
    Result<DaemonClient> client = DaemonClient::connect(socket);
    if (!client) return fail(client.error());
    const Stopwatch since_request;
    const auto reply = client->call(&v1::Vuda::Stub::SetMode, request);
    if (!reply) return fail(reply.error());
    const std::string in_force = since_request.in_force();
    std::string text = request.name() + ": mode " + mode_name(reply->applied());
    if (reply->applied() == v1::MODE_SLICED) {
        text += ", compute takes turns with frames";
    } else {
        text += ", compute may use " +
                (reply->applied_tpcs() == 0 ? "every TPC" : std::to_string(reply->applied_tpcs()) + " TPCs");
    }
    text += in_force;
    if (!reply->note().empty()) text += "; " + printable(reply->note());
    return print(text + "\n");
}

int slo_command(const std::string& socket, const v1::SetSloRequest& request, bool json) {
    v1::SetSloRequest question;
    question.set_name(request.name());
    question.set_session_id(request.session_id());
    std::string note;
    if (request.SerializeAsString() != question.SerializeAsString()) {
        const auto reply = ask(socket, &v1::Vuda::Stub::SetSlo, request);
        if (!reply) return fail_with_answer(reply.error(), json);
        if (!reply->note().empty()) note = request.name() + ": " + printable(reply->note()) + "\n";
    }
    const auto status = ask(socket, &v1::Vuda::Stub::GetStatus, v1::StatusRequest());
    if (!status) return fail_with_answer(status.error(), json);
    for (const v1::TsgInfo& tsg : status->tsgs()) {
        if (tsg.name() != request.name()) continue;
        return print(json ? to_pretty(Json{{"schema", kJsonSchema}, {"name", tsg.name()}, {"slo", slo_json(tsg)}})
                          : note + slo_text(tsg));
    }
    return fail_with_answer({Code::kNotFound, "no TSG is registered as '" + request.name() + "'", "see vudactl status"},
                            json);
}

int unquarantine_command(const std::string& socket, const v1::UnquarantineRequest& request) {
    const auto reply = ask(socket, &v1::Vuda::Stub::Unquarantine, request);
    if (!reply) return fail(reply.error());
    return print(unquarantine_text(*reply));
}

int doctor_command(const std::string& socket, const std::string& root, bool json) {
    DoctorInput input;
    input.env = current_environment();
    input.socket = socket;
    LibraryPaths paths = default_library_paths();
    if (!root.empty()) {
        input.root = root;
        // This vudactl's own build tree says nothing about the machine under `root`, and neither do our variables.
        paths.root = root;
        paths.executable_dir.clear();
        input.env.clear();
    } else {
        input.ask_daemon = [](const std::string& at) -> Result<v1::HandshakeReply> {
            Result<DaemonClient> client = DaemonClient::connect(at);
            if (!client) return client.error();
            return client->handshake();
        };
    }
    input.libraries = find_libraries(paths);
    const std::vector<Check> checks = examine(input);
    if (const int failed = print(json ? to_pretty(doctor_json(checks)) : doctor_text(checks))) return failed;
    return failures(checks) == 0 ? 0 : 1;
}

int driver_list_command(bool json) {
    if (json) {
        Json list{{"schema", kJsonSchema}, {"drivers", Json::array()}};
        for (const rm::DriverRow& row : rm::driver_rows()) {
            list["drivers"].push_back(
                Json{{"first", row.first.to_string()},
                     {"last", row.last.to_string()},
                     {"verdict", std::string(rm::verdict_name(row.verdict))},
                     {"layout", row.abi != nullptr ? Json(std::string(row.abi->name)) : Json(nullptr)},
                     {"releases_compared", row.compared},
                     {"note", std::string(row.note)}});
        }
        return print(to_pretty(list));
    }
    Table table({"DRIVER", "VERDICT", "LAYOUT", "NOTE"});
    for (const rm::DriverRow& row : rm::driver_rows()) {
        table.add({range_text(row), std::string(rm::verdict_name(row.verdict)),
                   row.abi != nullptr ? std::string(row.abi->name) : std::string("-"), std::string(row.note)});
    }
    return print(table.to_string() + "any other release: unknown, programs run as without VUDA\n");
}

Result<v1::SetQuotaRequest> parse_quota(const std::string& name, const std::string& quota) {
    v1::SetQuotaRequest request;
    request.set_name(name);
    if (quota == "auto") {
        request.set_automatic(true);
    } else if (quota == "none") {
        request.set_none(true);
    } else {
        const bool percent = quota.ends_with('%');
        uint32_t amount = 0;
        const char* end = quota.data() + quota.size() - (percent ? 1 : 0);
        const auto [stop, error] = std::from_chars(quota.data(), end, amount);
        if (error != std::errc() || stop != end || amount == 0 || (percent && amount > 99))
            return Error{Code::kInvalidArgument, "'" + quota + "' is not a quota",
                         "a number of TPCs from 1, '1%' to '99%', 'auto' or 'none'"};
        if (percent) {
            request.set_percent(amount);
        } else {
            request.set_tpcs(amount);
        }
    }
    return request;
}

Result<v1::Mode> parse_mode(const std::string& mode) {
    if (mode == "intra-sm") return v1::MODE_INTRA_SM;
    if (mode == "inter-sm") return v1::MODE_INTER_SM;
    if (mode == "sliced") return v1::MODE_SLICED;
    return Error{Code::kInvalidArgument, "'" + mode + "' is not a mode", "intra-sm, inter-sm or sliced"};
}

}  // namespace vuda::cli
