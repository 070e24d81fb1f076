#include "daemon/server.h"

#include <fcntl.h>
#include <grp.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/fault_point.h"
#include "daemon/audit.h"
#include "daemon/driver_facts.h"
#include "daemon/event_hub.h"
#include "daemon/frame_server.h"
#include "daemon/grpc_server.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/notify.h"
#include "daemon/partition_metrics.h"
#include "daemon/sim_process.h"
#include "daemon/textfile.h"

namespace vuda::daemon {
namespace {

// Of each kind of the tuner's events in ten seconds. One that finds its level makes some ten decisions; what samples
// could make it do beyond that is counted.
constexpr uint32_t kTunerLines = 100;
// Of changes of a split in a second: when a program joins there are two within milliseconds, and the second one stays.
constexpr uint32_t kSplitLines = 4;
constexpr uint64_t kFeatures = v1::FEATURE_SHARE | v1::FEATURE_EXPORT_REFRESH | v1::FEATURE_SHARED_PAGE |
                               v1::FEATURE_QUOTA | v1::FEATURE_SLO | v1::FEATURE_HEARTBEAT | v1::FEATURE_FAULTS |
                               v1::FEATURE_LIVE_MIRROR | v1::FEATURE_UNSHARE | v1::FEATURE_SUBCONTEXTS |
                               v1::FEATURE_STUCK;

// The group is looked up once a start and reload: a look-up may ask the network.
Settings with_admins(Settings settings) {
    std::array<char, 4096> buffer;
    group entry{};
    group* found = nullptr;
    if (::getgrnam_r(kPartitionAdmins, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
        settings.partition.admin_group = found->gr_gid;
    return settings;
}

// It ticks every 100 ms at the latest, while there is a page.
constexpr std::chrono::seconds kStandstill{3};

constexpr size_t kTargetsLimit = 1 << 20;
constexpr size_t kFaultsLimit = 4 << 20;

Result<std::string> read_small_file(const std::string& path, size_t limit) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW));
    if (!fd) return errno_error(errno, "open " + path);
    std::string text(limit, '\0');
    size_t done = 0;
    while (done < limit) {
        const ssize_t got = ::read(fd.get(), text.data() + done, limit - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno_error(errno, "read " + path);
        if (got == 0) break;
        done += static_cast<size_t>(got);
    }
    text.resize(done);
    return text;
}

// Of this boot of the machine; empty where the kernel does not tell.
std::string boot_id() {
    const Result<std::string> id = read_small_file("/proc/sys/kernel/random/boot_id", 64);
    return id ? id->substr(0, id->find('\n')) : "";
}

std::string sim_socket_for(const Config& config) {
    if (!config.sim) return "";
    return config.control_socket.substr(0, config.control_socket.rfind('/') + 1) + "sim.sock";
}

}  // namespace

struct Server::Impl {
    Impl(boost::asio::io_context& io, ServerOptions given)
        : loop(io),
          options(std::move(given)),
          sim_socket(sim_socket_for(options.config)),
          started(std::chrono::steady_clock::now()),
          log_limit(steady_clock()),
          event_log_limit(steady_clock()),
          split_log_limit(steady_clock(), std::chrono::seconds(1), kSplitLines),
          tuner_log_limit(steady_clock(), std::chrono::seconds(10), kTunerLines),
          rate(steady_clock()),
          deadline(io),
          drain(io),
          textfile_timer(io),
          watchdog(io, notify, [this] { return ticking(); }) {}

    Status bind(std::optional<Listener>& out, const char* name, const std::string& path, uint32_t mode) {
        UniqueFd passed = pick_socket(options.passed, name, path);
        Result<Listener> listener = passed ? Listener::adopt(std::move(passed)) : Listener::bind(path, mode);
        if (!listener) return listener.error();
        if (listener->path() != path)
            spdlog::warn("the {} socket is {}, from the service manager, and not {} of the configuration", name,
                         listener->path(), path);
        out.emplace(*std::move(listener));
        return {};
    }

    void arm(std::optional<TimePoint> when) {
        deadline.cancel();
        if (!when) return;
        deadline.expires_at(*when);
        deadline.async_wait([this](const boost::system::error_code& error) {
            if (!error && registry) registry->expire();
        });
    }

    // While a process has a page. Events of its own accord are none of the timer's business.
    void drain_later() {
        if (draining || stopping || !registry->has_pages()) return;
        draining = true;
        ticked = std::chrono::steady_clock::now();
        drain.expires_after(registry->drain_interval());
        drain.async_wait([this](const boost::system::error_code& error) {
            draining = false;
            if (error || !registry) return;
            registry->drain_pages();
            registry->tune();
            drain_later();
        });
    }

    // The loop may serve and the tuner stand still, if only by a mistake of ours: it is to be missed, too.
    bool ticking() const {
        return stopping || !registry || !registry->has_pages() ||
               std::chrono::steady_clock::now() - ticked < kStandstill;
    }

    // The folder may hang: a thread of its own writes, and only where a file is wanted is there one.
    void write_textfile_later(Milliseconds pause) {
        textfile_timer.cancel();
        const std::string& path = options.config.metrics_textfile;
        if (path.empty() || stopping) return;
        if (!textfile) textfile.emplace();
        textfile_timer.expires_after(pause);
        textfile_timer.async_wait([this](const boost::system::error_code& error) {
            if (error || stopping || !textfile) return;
            textfile->write(options.config.metrics_textfile, metrics());
            write_textfile_later(options.config.metrics_interval);
        });
    }

    void say_ready() {
        const std::string text = status_text();
        spdlog::info("vudad {} serves {} and {}", VUDA_VERSION, control->path(), handles->path());
        VUDA_FAULT_POINT(daemon_serving_before_ready);
        notify.ready(text);
        VUDA_FAULT_POINT(daemon_ready_said);
        watchdog.start();
        write_textfile_later(Milliseconds(0));
        if (on_ready) on_ready();
    }

    std::string targets_path() const { return options.state_dir + "/targets"; }

    void load_targets() {
        if (options.state_dir.empty()) return;
        remove_leftover(targets_path());
        const Result<std::string> text = read_small_file(targets_path(), kTargetsLimit);
        if (!text) {
            if (text.error().code != Code::kNotFound)
                spdlog::warn("targets are not kept from before: {}", text.error().to_string());
            return;
        }
        VUDA_FAULT_POINT(daemon_state_read);
        size_t bad = 0;
        registry->load_targets(parse_targets(*text, boot_id(), bad));
        if (bad > 0) spdlog::warn("{}: {} lines that mean nothing here were left out", targets_path(), bad);
    }

    // Whoever sets targets must not wait for a disk.
    void keep_targets() {
        if (options.state_dir.empty()) return;
        VUDA_FAULT_POINT(daemon_targets_changed);
        if (!state) state.emplace("state");
        state->write(targets_path(), to_text(registry->targets(), boot_id()));
    }

    std::string faults_path() const { return options.state_dir + "/faults"; }

    void load_faults() {
        if (options.state_dir.empty()) return;
        remove_leftover(faults_path());
        const Result<std::string> text = read_small_file(faults_path(), kFaultsLimit);
        if (!text) {
            if (text.error().code != Code::kNotFound)
                spdlog::warn("who is held off is not kept from before: {}", text.error().to_string());
            return;
        }
        const size_t bad = registry->load_faults(*text);
        if (bad > 0) spdlog::warn("{}: {} lines that mean nothing here were left out", faults_path(), bad);
    }

    void keep_faults() {
        if (options.state_dir.empty()) return;
        if (!state) state.emplace("state");
        state->write(faults_path(), registry->faults_text());
    }

    std::string status_text() const {
        return std::to_string(registry->session_count()) + " sessions, " + std::to_string(registry->name_count()) +
               " names, " + std::to_string(registry->sessions_sharing()) + " sharing" +
               (options.config.sim ? ", simulated GPU" : "");
    }

    v1::DaemonInfo info() const {
        v1::DaemonInfo out;
        out.set_version(VUDA_VERSION);
        out.set_pid(static_cast<uint32_t>(::getpid()));
        out.set_uptime_ms(static_cast<uint64_t>(
            std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - started).count()));
        out.set_socket(control->path());
        out.set_handle_socket(handles->path());
        out.set_simulated(options.config.sim);
        out.set_sim_socket(sim_socket);
        DriverFacts driver;
        if (options.config.sim) {
            driver = {"", v1::DRIVER_VERDICT_SUPPORTED, "simulated GPU '" + options.config.sim_preset + "'"};
        } else {
            driver = read_driver_facts();
        }
        out.set_driver_version(driver.version);
        out.set_driver_verdict(driver.verdict);
        out.set_driver_note(driver.note);
        const AllowList& access = registry->settings().attach;
        out.mutable_attach_uids()->Assign(access.uids.begin(), access.uids.end());
        out.mutable_attach_gids()->Assign(access.gids.begin(), access.gids.end());
        return out;
    }

    std::string metrics() const {
        using enum MetricsText::Type;
        const Counters& count = registry->counters();
        MetricsText text;
        const auto one = [&text](const char* name, MetricsText::Type type, const char* help, double value) {
            text.family(name, type, help);
            text.sample(value);
        };
        text.family("vuda_build_info", kGauge, "Version of the daemon.");
        text.sample(1, {{"version", VUDA_VERSION}, {"simulated", options.config.sim ? "true" : "false"}});
        one("vuda_sessions", kGauge, "Processes with a session.", static_cast<double>(registry->session_count()));
        one("vuda_sessions_sharing", kGauge, "Processes whose channels run in a named TSG.",
            static_cast<double>(registry->sessions_sharing()));
        one("vuda_tsgs", kGauge, "Registered names.", static_cast<double>(registry->name_count()));
        one("vuda_attach_waiting", kGauge, "Attaches that wait for their turn or have it.",
            static_cast<double>(registry->waiting_count()));
        one("vuda_handles", kGauge, "Exported RM objects that the daemon holds.",
            static_cast<double>(registry->handle_count()));
        text.family("vuda_connections", kGauge, "Open connections.");
        text.sample(static_cast<double>(grpc->connections()), {{"socket", "control"}});
        text.sample(static_cast<double>(frames->connections()), {{"socket", "handles"}});
        one("vuda_reaper_backlog", kGauge, "Descriptors from peers that wait to be closed.",
            static_cast<double>(reaper.backlog()));
        one("vuda_sessions_total", kCounter, "Sessions opened.", static_cast<double>(count.sessions_opened));
        one("vuda_registrations_total", kCounter, "Names registered.", static_cast<double>(count.registrations));
        text.family("vuda_attaches_total", kCounter, "Attach attempts that ended.");
        text.sample(static_cast<double>(count.attaches), {{"result", "sharing"}});
        text.sample(static_cast<double>(count.attach_failures), {{"result", "failed"}});
        one("vuda_attach_seconds_total", kCounter, "Time that attaching took, as the programs report it.",
            static_cast<double>(count.attach_us_sum) / 1e6);
        one("vuda_exports_total", kCounter, "Handle sets received from owners.", static_cast<double>(count.exports));
        one("vuda_faults_total", kCounter, "TSGs that died.", static_cast<double>(count.faults));
        one("vuda_fault_reports_total", kCounter, "Reports of programs whose TSG died.",
            static_cast<double>(count.fault_reports));
        const auto& faults = registry->faults();
        one("vuda_tsgs_faulted", kGauge, "Names whose TSG is dead until the owner registers again.",
            static_cast<double>(std::count_if(faults.names().begin(), faults.names().end(),
                                              [](const auto& entry) { return entry.second.dead; })));
        one("vuda_quarantined", kGauge, "Programs that are held off from a name.",
            static_cast<double>(faults.holds_in_force(std::chrono::steady_clock::now())));
        one("vuda_stuck", kGauge, "Programs that share and whose GPU repeats page faults, as after a bad access.",
            static_cast<double>(registry->sessions_stuck()));
        one("vuda_unshared", kGauge, "Programs that run unshared for a while, because a kernel was too large to share.",
            static_cast<double>(faults.unfit_in_force(std::chrono::steady_clock::now())));
        one("vuda_tokens_refused_total", kCounter, "Transfers with a token that was wrong, used, or another's.",
            static_cast<double>(count.tokens_refused));
        one("vuda_split_changes_total", kCounter, "Changes of what compute may use.",
            static_cast<double>(count.splits));
        one("vuda_requests_delayed_total", kCounter, "Times that a user who asked too often had to wait.",
            static_cast<double>(rate.waits()));
        one("vuda_owners_silent_total", kCounter, "Owners of names that did not answer.",
            static_cast<double>(count.silences));
        one("vuda_owners_released_total", kCounter, "Sessions ended because their process did not answer.",
            static_cast<double>(count.silent_ends));
        one("vuda_mirror_updates_total", kCounter, "Changes of control buffers that renderers sent to who shares.",
            static_cast<double>(count.mirror_updates));
        one("vuda_mirrors_late_total", kCounter, "Programs that a renderer did not wait for any longer.",
            static_cast<double>(count.mirrors_late));
        one("vuda_mirrors_failed_total", kCounter, "Changes that a program could not take over.",
            static_cast<double>(count.mirrors_failed));
        one("vuda_mirrors_refused_total", kCounter, "Changes that vudad did not take.",
            static_cast<double>(count.mirrors_refused));
        v1::StatusReply status;
        registry->fill_status(status);
        add_partition_metrics(text, status, registry->samples());
        one("vuda_protocol_errors_total", kCounter, "Connections ended because the peer broke the protocol.",
            static_cast<double>(protocol_errors));
        return std::move(text).take();
    }

    void on_event(const v1::Event& event) {
        // What an ordinary client can cause as often as it likes must not fill the journal.
        const std::string& kind = event.kind();
        const bool repeated = kind == "access" || kind == "attach-failed" || kind.starts_with("fault") ||
                              kind.starts_with("stuck") || kind == "quarantined" || kind == "unshared" ||
                              kind == "recovered" || kind == "partition" || kind.starts_with("tuner-") ||
                              kind.starts_with("owner-") || kind.ends_with("-refused");
        if (!repeated) {
            audit(event);
        } else if (const auto held = (kind == "partition"          ? split_log_limit
                                      : kind.starts_with("tuner-") ? tuner_log_limit
                                                                   : event_log_limit)
                                         .admit(event.peer().uid(), kind.c_str())) {
            audit(event);
            if (*held > 0)
                spdlog::warn("{} more {} events of uid {} were not logged", *held, event.kind(), event.peer().uid());
        }
        hub.publish(event);
        if (!status_due) {
            // After the registry has finished what it is doing.
            status_due = true;
            boost::asio::post(loop, [this] {
                status_due = false;
                if (!stopping && ready) notify.status(status_text());
                drain_later();
            });
        }
    }

    boost::asio::io_context& loop;
    ServerOptions options;
    const std::string sim_socket;
    const TimePoint started;
    RateLimiter log_limit;
    RateLimiter event_log_limit;
    RateLimiter split_log_limit;  // what a person does is logged, what a loop does is counted
    RateLimiter tuner_log_limit;  // each decision is logged: there are few
    RequestRate rate;
    EventHub hub;
    FdReaper reaper;
    uint64_t protocol_errors = 0;
    boost::asio::steady_timer deadline;
    boost::asio::steady_timer drain;
    bool draining = false;
    TimePoint ticked;  // when the timer was set last
    boost::asio::steady_timer textfile_timer;
    std::optional<TextfileWriter> textfile;
    std::optional<TextfileWriter> state;
    Notify notify;
    Watchdog watchdog;
    std::function<void()> on_ready;
    bool ready = false;
    bool stopping = false;
    bool status_due = false;

    std::optional<Listener> control;
    std::optional<Listener> handles;
    std::optional<Registry> registry;
    std::optional<ProtocolContext> protocol;
    std::optional<FrameServer> frames;
    std::optional<GrpcServer> grpc;
    std::optional<SimProcess> sim;
};

Server::Server(boost::asio::io_context& loop, ServerOptions options)
    : impl_(std::make_unique<Impl>(loop, std::move(options))) {}
Server::~Server() = default;

Status Server::start(std::function<void()> ready, std::function<void(const Error&)> failed) {
    Impl& im = *impl_;
    const Config& config = im.options.config;
    if (config.control_socket == config.handle_socket) {
        return Error{Code::kInvalidArgument, "both sockets are " + config.control_socket, "they must differ"};
    }
    if (Status ok = im.bind(im.control, "control", config.control_socket, config.control_mode); !ok) return ok;
    if (Status ok = im.bind(im.handles, "handles", config.handle_socket, config.handle_mode); !ok) return ok;
    for (const PassedSocket& extra : im.options.passed) {
        spdlog::warn("the service manager passed a socket '{}' that is not used",
                     extra.name.empty() ? extra.path : extra.name);
    }
    im.options.passed.clear();

    im.registry.emplace(Identity{VUDA_VERSION, im.handles->path(), kFeatures, config.sim}, with_admins(config.settings),
                        steady_clock(), random_token,
                        Registry::Hooks{[&im](const v1::Event& event) { im.on_event(event); },
                                        [&im](std::optional<TimePoint> when) { im.arm(when); },
                                        [&im] { im.keep_targets(); }, [&im] { im.keep_faults(); }});
    im.load_targets();
    im.load_faults();
    im.options.protocol_limits.message_bytes = config.message_bytes;
    im.protocol.emplace(ProtocolContext{*im.registry, im.reaper, im.log_limit, steady_clock(),
                                        im.options.protocol_limits, im.protocol_errors});
    im.rate.set_limit(config.requests_per_s);
    im.frames.emplace(im.loop, im.handles->fd(), *im.protocol, im.options.peer_reader, im.log_limit, im.rate);
    GrpcServer::Options grpc_options;
    grpc_options.message_bytes = static_cast<int>(config.message_bytes);
    grpc_options.idle_ms = im.options.grpc_idle_ms;
    im.grpc.emplace(ControlContext{im.loop, *im.registry, im.hub, im.log_limit, im.rate, [&im] { return im.info(); },
                                   [&im] { return im.metrics(); }, kFeatures},
                    im.control->fd(), im.options.peer_reader, grpc_options);
    im.frames->set_limits(config.connections);
    im.grpc->set_limits(config.connections);
    if (Status ok = im.grpc->start(); !ok) return ok;
    im.frames->start();

    im.on_ready = std::move(ready);
    const auto announce = [&im] {
        im.ready = true;
        im.say_ready();
    };
    if (!config.sim) {
        boost::asio::post(im.loop, [&im, announce] {
            if (!im.stopping) announce();
        });
        return {};
    }
    im.sim.emplace(im.loop, SimOptions{im.options.simd, im.sim_socket, config.sim_preset});
    im.sim->start([&im, announce, failed = std::move(failed)](const Status& status) {
        if (im.stopping) return;
        if (status) {
            announce();
        } else if (failed) {
            failed(status.error());
        }
    });
    return {};
}

void Server::reload(const Config& config) {
    Impl& im = *impl_;
    im.notify.reloading();
    for (const std::string& key : needs_restart(im.options.config, config)) {
        spdlog::warn("{} changed; that takes effect at the next start", key);
    }
    im.registry->set_settings(with_admins(config.settings));
    VUDA_FAULT_POINT(daemon_reload_half);
    im.registry->refresh_splits();
    im.frames->set_limits(config.connections);
    im.grpc->set_limits(config.connections);
    set_log_level(config.log_level);
    im.options.config.settings = config.settings;
    im.rate.set_limit(config.requests_per_s);
    im.options.config.connections = config.connections;
    im.options.config.requests_per_s = config.requests_per_s;
    im.options.config.log_level = config.log_level;
    if (im.textfile && im.options.config.metrics_textfile != config.metrics_textfile)
        im.textfile->remove(im.options.config.metrics_textfile);
    im.options.config.metrics_textfile = config.metrics_textfile;
    im.options.config.metrics_interval = config.metrics_interval;
    if (im.ready) im.write_textfile_later(Milliseconds(0));
    spdlog::info("configuration reloaded");
    im.notify.ready(im.status_text());
}

void Server::stop(std::function<void()> done) {
    Impl& im = *impl_;
    if (std::exchange(im.stopping, true)) return;
    im.notify.stopping();
    VUDA_FAULT_POINT(daemon_stopping);
    im.watchdog.stop();
    im.textfile_timer.cancel();
    if (im.textfile) im.textfile->remove(im.options.config.metrics_textfile);
    im.frames->stop();
    im.sim.reset();
    im.grpc->stop([this, done = std::move(done)] {
        Impl& server = *impl_;
        server.deadline.cancel();
        server.drain.cancel();
        server.control.reset();
        VUDA_FAULT_POINT(daemon_socket_removed);
        server.handles.reset();
        spdlog::info("vudad stopped");
        if (done) done();
    });
}

const std::string& Server::control_socket() const { return impl_->control->path(); }
const std::string& Server::handle_socket() const { return impl_->handles->path(); }
size_t Server::frame_connections() const { return impl_->frames->connections(); }
size_t Server::grpc_connections() const { return impl_->grpc->connections(); }
FdReaper& Server::reaper() { return impl_->reaper; }

}  // namespace vuda::daemon
