// One process's conversation with vudad: a thread, started when there is something to say, and one connection that is
// kept while there is something to keep.
//
// Callers record what they want and wake the thread; only attach waits. The thread owns the connection and is the only
// caller of the preload's callbacks.
//
// Nothing here matters to the program: when vudad is away, every call ends in an error within its deadline.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/frame_io.h"
#include "base/result.h"
#include "base/uuid.h"
#include "client/allow_list.h"
#include "client/backoff.h"
#include "client/handles.h"
#include "client/messages.h"
#include "client/mirror_progress.h"
#include "client/output.h"
#include "client/own_fd.h"
#include "client/report.h"

namespace vuda::client {

// What the session needs from its process. Called on the session's thread, without locks held.
class SessionHost {
 public:
    virtual ~SessionHost() = default;
    virtual Result<HandleSet> export_host(uint64_t held) = 0;
    virtual void detach_command(const Error& reason) = 0;
    virtual void guard_fd(int fd, bool guarded) = 0;
    virtual void register_failed(const Error& error) = 0;
    // vudad took the registration. Called again for each next vudad.
    virtual void registered() {}
    // Which TSGs were found dead since the last call, with the driver's number of the error; whether the GPU began, or
    // ceased, to repeat page faults without end. A few memory reads. Called once more when nothing is shared any
    // longer.
    struct Faults {
        bool own = false;     // the one that this process registered
        bool shared = false;  // the one that it attached to
        uint32_t own_xid = 0;
        uint32_t shared_xid = 0;
        bool stuck = false;
        bool stuck_over = false;
        uint32_t replays = 0;  // a second
    };
    virtual Faults look_for_faults() { return {}; }
    // Owner: the set `held` and mirror_delta() are as good as an export.
    virtual bool follows_from(uint64_t) { return false; }
    // Owner: what changed since export_host or the last call. Empty: nothing. `idle`: of MirrorChange::rest, a piece.
    virtual Result<MirrorChange> mirror_delta(bool idle) { return static_cast<void>(idle), MirrorChange{}; }
    // Attacher: takes over what the owner changed; an error says what is missing.
    virtual Status mirror_update(const MirrorChange&) { return {}; }
    // Owner: which subcontexts of its TSG other programs have.
    virtual void others_subcontexts(const Subcontexts&) {}
    // The session page came with a greeting; `fd` is closed afterwards. Not used: what is wrong with it.
    virtual Status page_received(int fd, uint64_t bytes) {
        static_cast<void>(fd), static_cast<void>(bytes);
        return {};
    }
};

struct SessionOptions {
    std::string socket;  // handle socket of vudad
    std::string client_version;
    std::string driver_version;                              // empty: no NVIDIA driver
    std::string program;                                     // executable's base name
    std::string executable = {};                             // its path; empty: not known
    Backoff::Random random = Backoff::differs_by_process();  // when to come back; a test's own in tests
};

struct SessionSnapshot {
    SharingState state = SharingState::kUnspecified;
    std::string name;
    uint32_t channels = 0;
    Error reason;
};

// The line for a program's user. `consequence`: what comes of it; empty: nothing.
std::string launch_refused_text(const LargeKernel& kernel, const std::string& consequence);

class Session {
 public:
    // `host` and `reporter` outlive the session.
    Session(SessionOptions options, SessionHost& host, Reporter& reporter);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    void set_registration(const std::string& name, const Uuid& gpu, const AllowList& allow = {});
    void clear_registration();
    // Who may attach from now on; changes nothing when there is no registration.
    void set_allowed(const AllowList& allow);

    // An attach is to come: greet vudad already. Nothing waits for this, and nothing is said if it fails.
    void connect_ahead(const std::string& name);
    // How many strides (rm/va_layout.h) CUDA's addresses are to be moved up, once vudad has greeted.
    // nullopt: not within `timeout`, or there is no vudad.
    std::optional<uint32_t> va_slot(std::chrono::milliseconds timeout);
    // `va_base`: the lowest GPU virtual address that CUDA uses; 0: not known.
    // Waits for this thread's turn, vudad's answer and the handles, `timeout` at most. After success attach_done must
    // follow; until then, or until the timeout has passed, other threads wait.
    Result<HandleSet> attach(const std::string& name, const Uuid& gpu, uint32_t channels,
                             std::chrono::milliseconds timeout, const LimitTerms& terms = {}, uint64_t va_base = 0);
    void attach_done(const AttachOutcome& outcome);

    // Channels were given back.
    void detached(const Error& reason);
    // One context of several left the TSG that was attached to.
    void context_left(uint64_t veids, uint32_t channels);
    // Owner: of its own renderer's TSG (vuda_private_own_subcontexts).
    void own_subcontexts(uint64_t taken, uint64_t stale);
    void set_state(SharingState state, const Error& reason);

    // A Vulkan device of this process was lost. Returns when vudad has heard of it, or soon: programs end of this.
    void device_lost();
    // The program is about to end, perhaps because of a fault that nobody has looked for yet, or of `unfit`: what
    // does_not_fit() would have been told.
    void ending(const std::optional<LargeKernel>& unfit = {});

    // A kernel was refused and the program wishes to run unshared then: vudad is told, and one line says what comes of
    // it. Returns at once. False: this process attached to nothing, and nothing was said.
    bool does_not_fit(const LargeKernel& kernel);

    // The renderer of this process mapped control buffers: they are sent to those who share, if there are any. Returns
    // when they have them, or vudad's deadline has passed; not waiting again before that has caught up.
    void control_buffers_changed();

    SessionSnapshot snapshot() const;

    // What this process can do about a split; told to vudad now and after each greeting.
    void set_partition_state(const partition::PartitionState& state);
    // What the program wants of the TSG that it owns or shares: sent as soon as it does, and to each next vudad. The
    // last word counts. vudad's answer is in partition_answer().
    void set_mode(partition::Mode mode);
    void set_quota(const QuotaWish& quota);
    void set_targets(const TargetsWish& targets);
    // The newest refusal or remark; kOk without text: none.
    Error partition_answer() const;

 private:
    enum class Link { kDown, kGreeting, kUp };

    struct Registration {
        std::string name;
        Uuid gpu;
        AllowList allow;
        bool operator==(const Registration&) const = default;
    };

    struct AttachOp {
        std::string name;
        Uuid gpu;
        uint32_t channels;
        Deadline deadline;
        LimitTerms terms;
        uint64_t va_base = 0;
        uint64_t id = 0;     // 0: not sent yet
        bool tried = false;  // a link was made for it
        uint64_t link = 0;   // which link brought the answer
        std::optional<Result<AttachReply>> answer;
    };

    // Callers' side; mutex_ held.
    Status ensure_thread_locked();
    void wake_locked();
    void queue_locked(std::string body);
    void queue_share_locked();
    void queue_subcontexts_locked();
    void fail_attach_locked(const Error& error);
    bool wants_link_locked() const;
    bool watches_locked() const;
    uint64_t next_id_locked() { return ++last_id_; }

    Error attach_failed(const Error& error);

    // Session thread's side.
    static void* thread_main(void* self);
    void run();
    void step();
    void refresh_wake_pipe();
    void connect_link();
    void drop_link(const Error& error);
    void retry_later_locked();
    bool flush();
    void send_due();
    void send_registration_locked(std::vector<Error>& refused);
    void send_partition_wishes_locked();
    void partition_answered(uint64_t id, const Error* error, const std::string& note);
    void take_page(const HelloReply& reply);
    void read_link();
    void drain_wake_pipe();
    void handle(const ServerMessage& message);
    void greeted(const HelloReply& reply);
    void answered(uint64_t id, const Error* error, const AttachReply* attach);
    void send_unfit_locked(std::optional<LargeKernel>& hopeless);
    void unfit_answered(uint64_t id, const Error* error, const DoesNotFitReply* reply);
    void say_unfit(const LargeKernel& kernel, const std::string& consequence);
    void serve_export(const ExportRequest& request);
    void look_at_once(std::unique_lock<std::mutex>& lock);
    void look(bool device_lost);
    void tsg_died(bool own, uint32_t xid);
    // ---- session_stuck.cc ----
    void stuck(uint32_t replays);
    void stuck_over();
    std::optional<std::string> shared_tsg_locked() const;
    void queue_stuck_locked(bool over);
    void send_mirrors();
    void mirrors_answered(uint64_t id, const Error* error, uint32_t late);
    void mirror(const MirrorUpdate& update);
    void stop_mirroring_locked();
    void told_of_fault(const FaultNotice& notice);
    void commanded_to_detach(const Error& reason);
    void registration_failed(const Error& error);

    const SessionOptions options_;
    SessionHost& host_;
    Reporter& reporter_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    pthread_t thread_{};
    bool thread_running_ = false;
    bool stopping_ = false;
    OwnFd wake_read_;
    OwnFd wake_write_;

    Link link_ = Link::kDown;
    bool was_connected_ = false;  // at least once
    uint64_t links_ = 0;          // greetings so far: the number of the link that is up, or was last
    bool fresh_wish_ = false;     // connect now, whatever the back-off says
    Deadline retry_at_{};
    Backoff backoff_;
    std::vector<std::string> outbox_;  // bodies for the link that is up
    uint64_t last_id_ = 0;

    std::optional<Registration> wanted_;   // what the process wants
    std::optional<Registration> sent_;     // what this link was told
    std::optional<Registration> refused_;  // what this link refused
    uint64_t registration_id_ = 0;
    bool registered_ = false;      // vudad said yes on this link
    bool was_registered_ = false;  // vudad said yes to wanted_ at least once

    std::shared_ptr<AttachOp> attach_;
    bool turn_taken_ = false;
    Deadline turn_ends_{};
    uint64_t turn_link_ = 0;  // the link that the turn was granted on
    std::string attach_name_;

    SharingState state_ = SharingState::kUnspecified;
    uint32_t channels_ = 0;
    uint32_t veid_ = 0;   // of the newest attach
    uint64_t veids_ = 0;  // bit N: subcontext N is ours
    // In the TSG of this process's own renderer: its contexts', and those that nobody has any more.
    uint64_t own_taken_ = 0;
    uint64_t own_stale_ = 0;
    uint64_t va_base_ = 0;  // where CUDA's addresses begin
    std::string will_attach_;
    std::optional<uint32_t> va_slot_;   // as the first vudad said
    uint64_t links_lost_ = 0;           // or not made
    uint32_t control_buffers_ = 0;      // likewise
    bool device_lost_ = false;          // said by the layer, and not looked into yet
    uint64_t looks_asked_ = 0;          // at once, by callers that wait
    uint64_t looks_done_ = 0;           // and what they found is with vudad
    std::string shared_name_;           // of the TSG that it attached to last
    std::optional<LargeKernel> unfit_;  // what vudad is to know, and has not answered
    uint64_t unfit_id_ = 0;             // request on this link; 0: to be sent
    uint64_t fault_id_ = 0;             // request on this link that is not answered; 0: none
    bool dead_turn_ = false;            // the TSG died while channels were being moved into it
    bool owner_gone_ = false;           // whose TSG the channels are in; its name may be another's by now
    Error reason_{Code::kOk, "", ""};

    MirrorProgress mirrors_;    // as owner
    Deadline mirrors_quiet_{};  // no mapping call came for a while; what is left may go

    std::optional<Deadline> stuck_since_;  // the GPU repeats page faults
    uint32_t stuck_replays_ = 0;           // a second

    uint64_t features_ = 0;  // that vudad offered on this link
    std::optional<partition::PartitionState> partition_;
    std::optional<partition::Mode> mode_;
    std::optional<QuotaWish> quota_;
    std::optional<TargetsWish> targets_;
    uint64_t mode_id_ = 0;  // request on this link; 0: to be sent
    uint64_t quota_id_ = 0;
    uint64_t targets_id_ = 0;
    Error partition_answer_{Code::kOk, "", ""};

    // Session thread only.
    bool page_lost_ = false;  // no descriptor was left for it
    OwnFd connection_;
    FrameDecoder decoder_;
    Output output_;
    std::vector<UniqueFd> arrived_fds_;  // of messages that bring some, until theirs is complete
    uint64_t hello_id_ = 0;
    Deadline greeting_ends_{};
    Deadline up_since_{};
    Deadline next_look_{};
    bool looks_ = false;  // it shared when step() last ran: one more look, when it no longer does
};

}  // namespace vuda::client
