// A program that shares, as vudad sees one: a session on the handle socket, with an owner's and an attacher's duties.
//
// Speaks the frames of docs/wire-protocol.md; descriptors that stand for RM objects are duplicates of /dev/null, since
// vudad does not look into them. One thread; while it waits for an answer it goes on answering vudad.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/frame_io.h"
#include "base/unique_fd.h"
#include "tests/load/daemon.h"
#include "vuda/v1/session.pb.h"

namespace vuda::load {

// An answer's code: 0, a canonical code, or that there was no answer.
inline constexpr int kLost = -1;  // the connection ended
inline constexpr int kLate = -2;  // nothing came in time

class Session {
 public:
    // `buffers`: control buffers of an owner's export.
    Session(std::string socket, std::string program, uint32_t buffers = 16);

    // Connects and says Hello; the code of what came back. An older connection is dropped.
    int open();
    // Without a word.
    void drop();
    bool is_open() const { return socket_.valid(); }

    int register_name(const std::string& name);
    int unregister(const std::string& name);
    struct Attach {
        int code = kLost;
        double reply_ms = 0;  // AttachRequest to AttachReply
        double whole_ms = 0;  // to AttachDoneReply, handles in hand
        uint32_t handles = 0;
    };
    Attach attach(const std::string& name, uint32_t channels = 1);
    // Leaves AttachRequest out there: its answer is not waited for.
    void ask_attach(const std::string& name);
    void detach();
    int set_quota(uint32_t tpcs);
    int set_mode(v1::Mode mode);
    void report(v1::SharingState state);
    void report_partition();
    // A transfer with a token that nobody issued.
    int bad_token();
    // Bytes that are no frame, on a connection of their own.
    void garbage();

    int call(v1::ClientMessage& message);
    bool send(const v1::ClientMessage& message);
    // Serves vudad until `other` is readable or the deadline; kLost when the connection ended.
    int serve(int other, Clock::time_point deadline);
    int fd() const { return socket_.get(); }
    const std::string& path() const { return path_; }
    // Exports carried out, and those for which vudad's copy was good.
    uint64_t exports() const { return exports_; }
    uint64_t pings() const { return pings_; }

 private:
    std::optional<v1::ServerMessage> next();
    int wait_answer(uint64_t id, Clock::time_point deadline, v1::ServerMessage* out);
    bool read_some();
    void obey(const v1::ServerMessage& message);
    void export_handles(const v1::ExportRequest& request);
    uint32_t pull(const std::string& token);

    const std::string path_;
    const std::string program_;
    const uint32_t buffers_;
    UniqueFd socket_;
    UniqueFd object_;
    FrameDecoder decoder_;
    uint64_t last_id_ = 0;
    uint64_t generation_ = 0;
    uint64_t exports_ = 0;
    uint64_t pings_ = 0;
};

inline const std::string kGpu(16, '\x11');

}  // namespace vuda::load
