// The daemon's domain core: sessions, names, and who is let into which TSG when.
//
// Pure logic: no socket, no thread, no clock of its own. Sessions are told things through SessionSink, the rest of the
// daemon through callbacks, time is asked of a Clock. All calls come from one thread, and nothing called from here may
// call back into the registry.
//
// An attach is a *turn* on the name: at most one at a time, because a TSG-level schedule looks at every channel of the
// group, also at those that another program is still setting up. A turn goes: ExportRequest to the owner (push token)
// -> owner pushes its handles -> AttachReply to the attacher (pull token) -> attacher pulls and imports -> AttachDone.
// Every step has a deadline, and whatever ends either session ends the turn. An owner that numbers its sets
// (FEATURE_EXPORT_REFRESH) is asked once ahead, in a turn without an attacher, and may later answer ExportCurrent.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/uuid.h"
#include "daemon/access.h"
#include "daemon/clock.h"
#include "daemon/fault_book.h"
#include "daemon/handle_set.h"
#include "daemon/live_set.h"
#include "daemon/partition.h"
#include "daemon/peer.h"
#include "daemon/session_page.h"
#include "daemon/slo_tuner.h"
#include "daemon/token.h"
#include "vuda/v1/control.pb.h"
#include "vuda/v1/session.pb.h"

namespace vuda::daemon {

using SessionId = uint64_t;

// Hardware limit of channels in one TSG.
inline constexpr uint32_t kChannelsPerTsg = 128;
inline constexpr uint32_t kVeidLimit = 64;
// RM gives them from the top down. Of a TSG that an earlier vudad served, that many contexts at once are assumed.
inline constexpr uint64_t kVeidsNotKnown = uint64_t{0xffff} << 48;

enum class Transport { kFrames, kGrpc };

// The way from the registry to one session's process. Both calls queue and return at once.
class SessionSink {
 public:
    virtual void send(const v1::ServerMessage& message) = 0;
    // With the descriptors of `handles`. Only to sessions with FEATURE_LIVE_MIRROR, which are of transport kFrames.
    virtual void send_with(const v1::ServerMessage& message, std::vector<HeldPtr> handles) {
        const std::vector<HeldPtr> not_sent = std::move(handles);
        send(message);
    }
    // Nothing more will be sent; deliver what is queued, then end the connection.
    virtual void close(const Error& reason) = 0;

 protected:
    ~SessionSink() = default;
};

// What may change while the daemon runs (SIGHUP).
struct Settings {
    // Per user id, root included: a runaway program of root is as much of a nuisance.
    uint32_t sessions_per_uid = 256;
    uint32_t names_per_uid = 16;
    uint32_t handles_per_uid = 16384;  // fds held for one user's TSGs
    // CUDA processes that share one TSG at a time. What vudad starts with is less (config.h).
    uint32_t programs_per_tsg = 128;
    // They may have their launch descriptors at the same addresses. vudad starts with no.
    bool same_addresses = true;

    Milliseconds attach_default{2000};  // AttachRequest.deadline_ms = 0
    Milliseconds attach_max{10000};     // longer requests are cut to this
    Milliseconds export_limit{1000};    // owner: ExportRequest to the last HandlePush
    Milliseconds turn_limit{2000};      // attacher: AttachReply to AttachDone
    Milliseconds mirror_limit{40};      // those who share: MirrorUpdate to MirrorDone; 0: nothing is followed

    // Owners that announced FEATURE_HEARTBEAT; 0: never.
    Milliseconds heartbeat{5000};  // asked after this long without a word; silent when the same again brings none
    Milliseconds release{30000};   // its session ends after this long without a word

    AllowList attach;  // who may attach to any name, whatever its owner said

    PartitionSettings partition;

    HoldSettings faults;
    HoldSettings unshare = kUnshareDefaults;
};

// What HelloReply says.
struct Identity {
    std::string version;
    std::string handle_socket;
    uint64_t features = 0;
    bool simulated = false;
};

struct Counters {
    uint64_t sessions_opened = 0;
    uint64_t registrations = 0;
    uint64_t attaches = 0;         // AttachDone with SHARING
    uint64_t attach_failures = 0;  // refused, timed out, or reported as failed
    uint64_t exports = 0;          // complete handle sets received
    uint64_t tokens_refused = 0;
    uint64_t faults = 0;           // TSGs that died, as their owners said or whoever shared them with one that had gone
    uint64_t fault_reports = 0;    // Fault messages taken
    uint64_t attach_us_sum = 0;    // of AttachDone.attach_us with SHARING
    uint64_t splits = 0;           // changes of what compute may use
    uint64_t silences = 0;         // owners of names that did not answer
    uint64_t silent_ends = 0;      // of these, sessions ended for it
    uint64_t mirror_updates = 0;   // changes of control buffers that were passed on
    uint64_t mirrors_refused = 0;  // and that were not
    uint64_t mirrors_late = 0;     // programs that a renderer did not wait for any longer
    uint64_t mirrors_failed = 0;   // programs that could not take a change over
};

// What a push may bring.
struct PushTicket {
    uint64_t turn = 0;
    size_t handle_limit = 0;
};

struct PullTicket {
    HandleSetPtr handles;
    uint32_t channels_in_use = 0;
    uint64_t generation = 0;  // the owner's number of this set
};

class Registry {
 public:
    struct Hooks {
        std::function<void(const v1::Event&)> event;
        // The earliest deadline changed; call expire() then.
        std::function<void(std::optional<TimePoint>)> deadline;
        // targets() changed.
        std::function<void()> targets = {};
        // faults() changed.
        std::function<void()> faults = {};
    };

    Registry(Identity identity, Settings settings, Clock clock, TokenSource tokens, Hooks hooks);
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;

    void set_settings(const Settings& settings);
    const Settings& settings() const { return settings_; }
    uint64_t features() const { return identity_.features; }

    // A process connected and said Hello. An older session of the same process is closed and replaced: after execve the
    // process is the same and its former program is gone. `sink` must outlive the session, i.e. stay valid until
    // close_session() or its close(). `page`: the one that goes with HelloReply; null when none does.
    Result<SessionId> open_session(const Peer& peer, Transport transport, const v1::Hello& hello, uint64_t request_id,
                                   SessionSink& sink, std::unique_ptr<SessionPage> page = nullptr);
    // Any message but Hello.
    void receive(SessionId session, const v1::ClientMessage& message);
    // A MirrorUpdate, with what its descriptors became.
    void receive_mirror(SessionId session, const v1::ClientMessage& message, std::vector<HeldPtr> added);
    // MirrorDone{to} would answer what this session was sent, and was not given yet: no request of its own.
    bool awaits_mirror(SessionId session, uint64_t to) const;
    // The connection or the process ended. Unknown ids are ignored (the session may have been replaced).
    void close_session(SessionId session, const Error& reason);

    // Transfers on the handle socket. A ticket stays good only while its turn lasts.
    Result<PushTicket> begin_push(std::string_view token, const Peer& peer);
    // `generation`: the owner's number of this set, 0 when it gives none.
    Status complete_push(const PushTicket& ticket, HandleSetPtr handles, uint32_t channels_in_use,
                         uint64_t generation = 0);
    void abandon_push(const PushTicket& ticket, const Error& reason);
    Result<PullTicket> redeem_pull(std::string_view token, const Peer& peer);

    // Operator's request: tells the session to stop sharing; withdraws the names it owns.
    Status detach(SessionId session, const Peer& caller);

    // Who changes a split: a session (its own request), or an operator (session 0).
    struct Writer {
        Peer peer;
        std::string program;
        SessionId session = 0;
    };
    // The later of two writers wins; its note and the event "partition" name what it replaced. Errors: session.proto.
    Result<v1::SetModeReply> set_mode(const v1::SetModeRequest& request, const Writer& by);
    Result<v1::SetQuotaReply> set_quota(const v1::SetQuotaRequest& request, const Writer& by);
    // Targets of a name; who may change its split may set them. Errors: control.proto.
    Result<v1::SetSloReply> set_slo(const v1::SetSloRequest& request, const Writer& by);
    const TargetTable& targets() const { return slo_.table(); }
    // What an earlier daemon kept. Before anything is registered.
    void load_targets(TargetTable table) { slo_.load(std::move(table)); }
    // Lets programs that are held off come back. Errors: control.proto.
    Result<v1::UnquarantineReply> unquarantine(const v1::UnquarantineRequest& request, const Peer& caller);
    const FaultBook& faults() const { return faults_; }
    // What an earlier daemon kept (FaultBook::to_text). Returns how many lines mean nothing.
    size_t load_faults(std::string_view text);
    std::string faults_text() const;
    // Lets the tuners look at what came and choose levels. After drain_pages().
    void tune();

    // Decides every split anew, after set_settings().
    void refresh_splits();

    // Takes timing samples out of the sessions' pages. Call it, and tune(), every drain_interval() while has_pages().
    static constexpr Milliseconds kDrainInterval{100};
    static constexpr Milliseconds kTunerInterval{20};  // while a tuner runs
    Milliseconds drain_interval() const;
    bool has_pages() const;
    void drain_pages();
    struct Samples {
        SessionId session = 0;
        std::string name;  // TSG that it owns or shares; may be empty
        page::SampleKind kind = page::SampleKind::kFrame;
        SampleSummary summary;
    };
    std::vector<Samples> samples() const;

    std::optional<TimePoint> next_deadline() const;
    void expire();

    void fill_status(v1::StatusReply& reply) const;

    const Counters& counters() const { return counters_; }
    size_t session_count() const { return sessions_.size(); }
    size_t sessions_sharing() const;
    size_t sessions_stuck() const;
    size_t name_count() const { return tsgs_.size(); }
    size_t handle_count() const;
    size_t waiting_count() const;

 private:
    struct Session;
    struct Tsg;
    struct Waiter;
    struct Turn;
    struct NamedSplit;
    struct Sharer;
    struct Ended;
    struct Mirroring;

    Session* find(SessionId id);
    Tsg* find_turn(uint64_t serial);

    // registry.cc
    uint32_t free_va_slot(const std::string& name, uint32_t held) const;
    void on_register(Session& session, uint64_t id, const v1::RegisterRequest& request);
    void on_unregister(Session& session, uint64_t id, const v1::UnregisterRequest& request);
    void on_state_report(Session& session, const v1::StateReport& report);
    void replace_sessions_of(const ProcessKey& process);
    void remove_tsg(const std::string& name, const Error& reason);
    void reply(Session& session, uint64_t id, v1::ServerMessage message);
    void reply_error(Session& session, uint64_t id, const Error& error);
    void emit(const char* kind, std::string_view name, const Session& session, const Error* reason = nullptr);
    // The owner registered the name, or changed who may attach: with the lists.
    void emit_access(const char* kind, const Tsg& tsg, const Session& owner);
    // A refusal of somebody who has no session, or of what it asks about another's.
    void emit_refused(const char* kind, std::string_view name, const Peer& peer, SessionId session,
                      const Error& reason);
    void update_deadline();

    // registry_attach.cc
    void on_attach(Session& session, uint64_t id, const v1::AttachRequest& request);
    void on_attach_done(Session& session, uint64_t id, const v1::AttachDone& done);
    void on_detach_notice(Session& session, const v1::DetachNotice& notice);
    void on_export_refused(Session& session, const v1::ExportRefused& refused);
    void on_export_current(Session& session, const v1::ExportCurrent& current);
    Tsg* exporting(const Session& session, const std::string& token);
    void begin_turn(Tsg& tsg, const Waiter& waiter);
    void export_ahead(Tsg& tsg);
    void hand_over(Tsg& tsg);
    Status addresses_apart(const Session& session, const Tsg& tsg);
    Status admissible(const Session& session, const Waiter& waiter, const Tsg& tsg);
    void start_next(Tsg& tsg);
    void fail_turn(Tsg& tsg, const Error& error);
    void fail_waiter(const Waiter& waiter, const Tsg& tsg, const Error& error);
    void leave_tsg(Session& session);

    // registry_mirror.cc
    size_t handle_room(const Tsg& tsg, uid_t uid);
    template <typename Visit>
    void each_mirror(Tsg& tsg, Visit visit);
    bool has_mirrors(Tsg& tsg);
    bool may_follow(const Tsg& tsg);
    uint32_t live_ms(Tsg& tsg);
    Status on_mirror_update(Session& owner, uint64_t id, const v1::MirrorUpdate& update, std::vector<HeldPtr> added);
    void on_mirror_done(Session& session, const v1::MirrorDone& done);
    void hold(Session& session);
    void caught_up(Session& session);
    void send_mirrors(Session& session, Tsg& tsg);
    void follow(Tsg& tsg);
    void expire_mirrors(Tsg& tsg);

    // registry_veids.cc
    void on_subcontexts(Session& session, const v1::Subcontexts& now);
    void follow_veids(Tsg& tsg);

    // registry_partition.cc
    template <typename Visit>
    void each_sharer(Tsg& tsg, Visit visit);
    NamedSplit& split_of(const Tsg& tsg);
    void open_split(Tsg& tsg);
    void close_split(const Tsg& tsg);
    SplitFacts split_facts(Tsg& tsg);
    void refresh_split(Tsg& tsg, const Session* cause);
    void sync_page(Session& session);
    void emit_split(const Tsg& tsg, const Peer& by, const std::string& program, SessionId session);
    void on_partition_report(Session& session, uint64_t id, const v1::PartitionReport& report);
    void on_set_mode(Session& session, uint64_t id, v1::SetModeRequest request);
    void on_set_quota(Session& session, uint64_t id, v1::SetQuotaRequest request);
    Result<Tsg*> splittable(const std::string& name, const Peer& caller, const char* refused = "partition-refused");
    std::string grant_wish(Tsg& tsg, SplitWish wish, const Writer& by);
    void fill_split(const Tsg& tsg, v1::TsgInfo& out) const;
    void fill_split(const Session& session, v1::SessionInfo& out) const;

    // registry_slo.cc
    void open_targets(Tsg& tsg);
    void on_set_targets(Session& session, uint64_t id, const v1::SetTargetsRequest& request);
    std::string follow_targets(Tsg& tsg, const Writer& by);
    bool shares(const Session& session, const Tsg& tsg) const;
    void drain_into_tuner(Session& session, const std::vector<page::Sample>& samples);
    void tune(Tsg& tsg);
    void emit_tuner(const Tsg& tsg, const tuner::Event& told);
    void fill_slo(const Tsg& tsg, v1::TsgInfo& out) const;

    // registry_liveness.cc
    void heard(Session& session);
    void expect_words(const Session& owner);
    void ask(Session& owner);
    void fall_silent(Session& owner);
    void beat();
    Error silent_error(const Session& owner) const;
    void end_silent(SessionId owner);

    // registry_faults.cc, registry_quarantine.cc
    void on_fault(Session& session, uint64_t id, const v1::Fault& fault);
    Status take_fault(Session& session, const v1::Fault& fault);
    void sharer_died(Session& session, const std::string& name, const v1::Fault& fault);
    void tsg_died(Tsg& tsg, const v1::Fault& fault, Session& reporter);
    void write_down(const std::string& name, uid_t owner, const std::vector<Sharer>& sharers, const v1::Fault& fault,
                    const Session& reporter);
    void tell_dead(Session& session, const std::string& name);
    void blame_self(Session& session, const std::string& name);
    Sharer sharer_of(const Session& session, TimePoint joined, TimePoint since) const;
    static std::vector<Sharer>::const_iterator likeliest(const std::vector<Sharer>& sharers);
    std::vector<Sharer> sharers_of(const Tsg& tsg) const;
    void left(const Session& session);
    void name_ends(Tsg& tsg);
    void name_works(Tsg& tsg);
    Status not_held_off(const Session& session, const Tsg& tsg) const;
    std::string dead_text(const std::string& name) const;
    void emit_quarantined(const std::string& name, Milliseconds time);
    void end_quarantines();
    void fill_fault(const NameFaults& entry, v1::FaultInfo& out) const;
    void faults_changed();

    // registry_stuck.cc
    Status take_stuck(Session& session, const v1::Fault& fault);
    bool began_before(const Session& session) const;
    void fill_stuck(const Session& session, v1::SessionInfo& out) const;

    // registry_unfit.cc
    void on_does_not_fit(Session& session, uint64_t id, const v1::DoesNotFit& said);
    Result<Milliseconds> take_unfit(Session& session, const v1::DoesNotFit& said);
    Status fits(const Session& session, const Waiter& waiter, const Tsg& tsg) const;
    void end_unshares(const std::vector<std::string>& names);
    void fill_unfit(v1::StatusReply& out) const;

    // registry_resume.cc
    void claim_share(Session& session, const v1::StateReport& report);
    void settle_claims(Tsg& tsg);

    Identity identity_;
    Settings settings_;
    Clock clock_;
    TokenTable tokens_;
    Hooks hooks_;
    Counters counters_;
    std::map<SessionId, std::unique_ptr<Session>> sessions_;
    std::map<std::string, std::unique_ptr<Tsg>, std::less<>> tsgs_;
    std::map<std::string, NamedSplit, std::less<>> splits_;
    SloTuner slo_;
    FaultBook faults_;
    std::vector<Ended> ended_;           // TSGs that died or lost their name lately
    std::vector<page::Sample> drained_;  // of one session, while it is drained
    TimePoint next_look_;                // when the first of the pages is due
    uint64_t last_generation_ = 0;       // of all splits: a program that goes from name to name sees it rise
    SessionId last_drained_ = 0;
    SessionId last_session_ = 0;
    uint64_t last_tsg_ = 0;
    uint64_t last_turn_ = 0;
    std::optional<TimePoint> announced_deadline_;
    std::optional<TimePoint> next_beat_;  // when beat() has something to do, or earlier

 public:
    ~Registry();
};

// 1..64 of [A-Za-z0-9._-], not starting with '.' or '-': safe in paths, shell words and metric labels.
bool valid_name(std::string_view name);

}  // namespace vuda::daemon
