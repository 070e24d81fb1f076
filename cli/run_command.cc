#include "cli/run_command.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cli/allow_option.h"
#include "cli/child.h"
#include "cli/daemon_client.h"
#include "cli/elf_check.h"
#include "cli/libraries.h"
#include "cli/preload_list.h"
#include "cli/query_commands.h"
#include "cli/sharing_watch.h"
#include "cli/status_view.h"
#include "cli/table.h"

namespace vuda::cli {
namespace {

void note(const std::string& text) { std::fprintf(stderr, "vudactl: %s\n", printable(text).c_str()); }

// What --require can know before the program starts.
Status check_daemon(DaemonClient& client, const RunOptions& options) {
    const Result<v1::StatusReply> status = client.call(&v1::Vuda::Stub::GetStatus, v1::StatusRequest());
    if (!status) return status.error();
    const v1::DaemonInfo& daemon = status->daemon();
    if (!verdict_allows_sharing(daemon.driver_verdict())) {
        return Error{Code::kFailedPrecondition,
                     "driver " +
                         (daemon.driver_version().empty()
                              ? std::string("absent")
                              : daemon.driver_version() + " is " + verdict_name(daemon.driver_verdict())) +
                         (daemon.driver_note().empty() ? "" : " (" + daemon.driver_note() + ")"),
                     "vudactl driver list names the releases that can share"};
    }
    bool found = options.attach_name.empty();
    for (const v1::TsgInfo& tsg : status->tsgs()) {
        found = found || tsg.name() == options.attach_name;
        if (tsg.name() == options.register_name) {
            return Error{Code::kFailedPrecondition,
                         "the name '" + tsg.name() + "' is taken by pid " + std::to_string(tsg.owner().pid()) + " (" +
                             tsg.owner().program() + ")",
                         "choose another name or end that program"};
        }
    }
    if (found) return {};
    return Error{Code::kFailedPrecondition, "no TSG is registered as '" + options.attach_name + "'",
                 "start the renderer first, with --register " + options.attach_name};
}

}  // namespace

int run_command(const std::string& socket, const RunOptions& options, const std::vector<std::string>& command) {
    if (const Status valid = check_run_options(options); !valid) return fail(valid.error());

    const Result<std::string> uids = ids_of_users(options.allow_users);
    if (!uids) return fail(uids.error());
    const Result<std::string> gids = ids_of_groups(options.allow_groups);
    if (!gids) return fail(gids.error());

    RunFacts facts;
    facts.socket = socket;
    facts.allow_uids = *uids;
    facts.allow_gids = *gids;
    facts.libraries = find_libraries(default_library_paths());
    const Environment env = current_environment();

    const Result<std::string> program = resolve_program(command[0], env);
    if (!program) {
        note(program.error().to_string());
        return program.error().code == Code::kNotFound ? kExitNotFound : kExitNotExecutable;
    }

    // The program's sake comes first: each of these is a reason not to share, none is a reason not to run, unless
    // --require says so.
    const auto cannot_share = [&](const Error& reason) {
        if (options.require) return Error{Code::kUnavailable, reason.text + ", and --require was given", reason.hint};
        return Error{Code::kOk, reason.text + ": running " + command[0] + " without sharing", reason.hint};
    };
    std::optional<Error> trouble;
    if (facts.libraries.preload.empty() || !fits_preload_list(facts.libraries.preload)) {
        facts.preload = false;
        trouble = facts.libraries.preload.empty()
                      ? Error{Code::kUnavailable, "libvuda_preload.so not found",
                              "vudactl doctor says where it was looked for"}
                      : Error{Code::kUnavailable, "LD_PRELOAD cannot hold the path " + facts.libraries.preload,
                              "use a folder without spaces, ':' and '$'"};
    } else if (const auto obstacle = preload_obstacle(*program, getuid(), getgid())) {
        facts.preload = false;
        trouble = Error{Code::kUnavailable, "LD_PRELOAD cannot reach " + *program + ": " + *obstacle, ""};
    }
    if (trouble) {
        const Error error = cannot_share(*trouble);
        note(error.to_string());
        if (options.require) return exit_status(error.code);
    }

    if (options.fit_kernels && facts.preload && facts.libraries.fit.empty()) {
        note("libvuda_fit.so is not beside " + facts.libraries.preload + ": the libraries of " + command[0] +
             " choose kernels as without --fit-kernels");
    }

    // Before gRPC makes its threads.
    SignalRelay relay;
    Result<DaemonClient> client = DaemonClient::connect(socket);
    SharingWatch watch;
    Status ready;
    if (!client) {
        ready = client.error();
    } else {
        const v1::HandshakeReply& reply = client->handshake();
        facts.daemon = RunFacts::Daemon{reply.handle_socket(), reply.simulated(), reply.sim_socket()};
        if (reply.simulated() && facts.libraries.sim.empty()) {
            ready = Error{Code::kUnavailable,
                          "the daemon's GPU is simulated, but libvuda_sim.so is not beside libvuda_preload.so",
                          "install the simulator"};
        } else if (options.require) {
            ready = check_daemon(*client, options);
        }
    }
    if (!ready) {
        const Error error = cannot_share(ready.error());
        // One line is enough for one program.
        if (!trouble) note(error.to_string());
        if (options.require) return exit_status(error.code);
    }
    if (options.require) watch.start(*client);

    Error exec_error;
    const int status = relay.run(*program, command, run_environment(env, options, facts), &exec_error,
                                 [&](pid_t pid) { watch.set_root(pid); });
    if (!exec_error.text.empty()) {
        note(exec_error.to_string());
        return status;
    }
    // A program that ended well but shared nothing has not done what --require asked for.
    if (options.require && status == 0 && client && !watch.shared(options)) {
        note(watch.why_not(command[0]));
        return exit_status(Code::kUnavailable);
    }
    return status;
}

}  // namespace vuda::cli
