// vudad as the session's tests need it: one thread, real sockets, scripted answers, a record of what it was told.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/frame_io.h"
#include "base/unique_fd.h"
#include "vuda/v1/session.pb.h"

namespace vuda::client {

class FakeDaemon {
 public:
    struct Script {
        bool greet = true;
        uint64_t features = 1;
        std::optional<v1::Error> hello_error;
        std::string hello_raw;  // sent in place of the greeting, as it is
        std::optional<v1::Error> register_error;
        bool export_on_register = false;
        bool answer_attach = true;
        std::optional<v1::Error> attach_error;
        std::string attach_token = "0123456789abcdef";
        uint32_t handles = 3;                                  // announced by AttachReply
        bool close_on_attach = false;                          // dies instead of answering
        std::function<void(v1::HandleBundle&)> change_bundle;  // last frame of a transfer
        std::optional<v1::Error> pull_error;
        std::string pull_raw;  // sent in place of handles, as it is
        bool answer_pull = true;
        int extra_fds = 0;           // more or fewer fds than handles
        uint32_t page_bytes = 0;     // announced by the greeting
        uint32_t va_slot = 0;        // likewise
        int page_fd = -1;            // and sent with it; borrowed
        uint64_t held_ms = 600'000;  // answers DoesNotFit
        bool answer_unfit = true;
        std::optional<v1::Error> partition_error;  // answers SetMode, SetQuota, SetTargets
        bool answer_mirrors = true;
        std::optional<v1::Error> mirror_error;
    };

    struct Record {
        std::vector<v1::Hello> hellos;
        std::vector<v1::RegisterRequest> registers;
        std::vector<std::string> unregisters;
        std::vector<v1::AttachRequest> attaches;
        std::vector<v1::AttachDone> dones;
        std::vector<v1::StateReport> reports;
        size_t notices = 0;
        std::vector<v1::ExportRefused> refusals;
        std::vector<std::string> current;  // tokens of ExportCurrent
        uint64_t pushed_generation = 0;
        std::vector<v1::Handle> pushed;  // of the last push
        size_t pushed_fds = 0;
        size_t push_frames = 0;
        uint32_t pushed_channels = 0;
        bool push_complete = false;
        size_t pushes = 0;  // complete ones
        std::vector<v1::PartitionReport> partitions;
        std::vector<v1::SetModeRequest> modes;
        std::vector<v1::SetQuotaRequest> quotas;
        std::vector<v1::SetTargetsRequest> targets;
        std::vector<v1::Fault> faults;
        std::vector<v1::MirrorUpdate> mirrors;
        std::vector<size_t> mirror_fds;  // of each
        uint64_t last_mirror = 0;        // id of the last of them
        std::vector<v1::MirrorDone> mirrored;
        std::vector<v1::DoesNotFit> unfits;
        std::vector<v1::Subcontexts> subcontexts;
        size_t pongs = 0;
        size_t sessions = 0;  // open now
        size_t bad_frames = 0;
    };

    explicit FakeDaemon(std::string path);
    ~FakeDaemon();

    void script(const std::function<void(Script&)>& change);
    // Waits up to ten seconds for `condition`; false when it did not come true.
    bool wait_for(const std::function<bool(const Record&)>& condition);
    Record record();

    // To every session.
    void send(const v1::ServerMessage& message);
    void send_raw(const std::string& bytes, int fd = -1);
    void drop_sessions();

 private:
    struct Connection {
        UniqueFd socket;
        FrameDecoder decoder;
        std::deque<UniqueFd> fds;
        bool session = false;
        bool over = false;
    };

    void run();
    void post(std::function<void()> job);
    bool read(Connection& connection);
    void on_frame(Connection& connection, const std::string& body);
    void on_client(Connection& connection, const v1::ClientMessage& message);
    void on_push(Connection& connection, const v1::HandleBundle& bundle);
    void on_pull(Connection& connection, const v1::HandlePull& pull);
    void reply(Connection& connection, uint64_t id, v1::ServerMessage message, std::span<const int> fds = {});

    const std::string path_;
    UniqueFd listener_;
    UniqueFd wake_read_, wake_write_;
    std::mutex mutex_;
    std::condition_variable changed_;
    Script script_;
    Record record_;
    std::vector<std::function<void()>> jobs_;
    bool stopping_ = false;
    std::list<Connection> connections_;  // daemon's thread only
    std::thread thread_;
};

}  // namespace vuda::client
