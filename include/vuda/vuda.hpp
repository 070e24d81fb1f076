// C++17 face of vuda.h: no dependencies, nothing to link beside -lvuda. vuda.h says what each call does and when to
// make it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vuda/vuda.h"

namespace vuda::api {

// What a call did: true on success, otherwise the code and the words.
class [[nodiscard]] Outcome {
 public:
    // `code` from a call of vuda.h that this thread has just made.
    explicit Outcome(int code) : code_(code) {
        if (code != VUDA_OK) message_ = vuda_last_error();
    }
    explicit operator bool() const { return code_ == VUDA_OK; }
    int code() const { return code_; }                       // enum vuda_result
    const std::string& message() const { return message_; }  // what happened and what to do next; empty on success

 private:
    int code_;
    std::string message_;
};

struct State {
    vuda_sharing_state state = VUDA_STATE_NONE;
    std::string name;            // TSG owned or attached to
    std::uint32_t channels = 0;  // in another program's TSG
    std::string reason;          // last thing that went wrong
};

inline State get_state() {
    vuda_state raw{};
    raw.size = sizeof raw;
    vuda_get_state(&raw);  // cannot fail: the size is right
    return State{static_cast<vuda_sharing_state>(raw.state), raw.name, raw.channels, raw.reason};
}

struct Partition {
    vuda_mode mode{};  // 0: nothing was asked for
    vuda_backend backend = VUDA_BACKEND_UNKNOWN;
    std::uint32_t applied_tpcs = 0;
    std::uint32_t total_tpcs = 0;
    std::uint32_t graphics_tpcs = 0;
    std::uint64_t generation = 0;
    std::uint64_t launches = 0;
    std::string reason;
};

inline Partition get_partition() {
    vuda_partition raw{};
    raw.size = sizeof raw;
    vuda_get_partition(&raw);  // cannot fail: the size is right
    return Partition{static_cast<vuda_mode>(raw.mode),
                     static_cast<vuda_backend>(raw.backend),
                     raw.applied_tpcs,
                     raw.total_tpcs,
                     raw.graphics_tpcs,
                     raw.generation,
                     raw.launches,
                     raw.reason};
}

// Who may attach beside this user and root: numeric ids, at most VUDA_MAX_ALLOWED of each.
struct Allowed {
    std::vector<std::uint32_t> uids;
    std::vector<std::uint32_t> gids;
};
inline Outcome set_allowed(const Allowed& allowed) {
    vuda_allowed raw{};
    raw.size = sizeof raw;
    // A count that does not fit is too large for the call as well.
    const auto count = [](const auto& ids) {
        return static_cast<std::uint32_t>(ids.size() > VUDA_MAX_ALLOWED ? VUDA_MAX_ALLOWED + 1 : ids.size());
    };
    raw.uid_count = count(allowed.uids);
    raw.uids = allowed.uids.data();
    raw.gid_count = count(allowed.gids);
    raw.gids = allowed.gids.data();
    return Outcome(vuda_set_allowed(&raw));
}
// Whom the environment names, as without set_allowed.
inline Outcome clear_allowed() { return Outcome(vuda_set_allowed(nullptr)); }

inline Outcome set_mode(vuda_mode mode) { return Outcome(vuda_set_mode(mode)); }
inline Outcome set_quota(std::uint32_t tpcs) { return Outcome(vuda_set_quota(tpcs)); }

inline Outcome set_over_limit(vuda_over_limit policy) { return Outcome(vuda_set_over_limit(policy)); }

// Members that are left out are no target.
struct Slo {
    double frame_ms = 0, frame_miss = 0;
    double latency_ms = 0, latency_miss = 0;
    double throughput = 0;
    double weight = 0;
};
inline Outcome set_slo(const Slo& slo) {
    const vuda_slo raw{sizeof raw,     0,         slo.frame_ms, slo.frame_miss, slo.latency_ms, slo.latency_miss,
                       slo.throughput, slo.weight};
    return Outcome(vuda_set_slo(&raw));
}
inline Outcome clear_slo() { return Outcome(vuda_set_slo(nullptr)); }

// One marked step: from construction to destruction.
class Step {
 public:
    explicit Step(std::uint64_t id) : id_(id) { vuda_step_begin(id_); }
    ~Step() { vuda_step_end(id_); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

 private:
    std::uint64_t id_;
};

// A wish to share that lasts as long as the object: its end is vuda_detach(). Keep one per process, and keep it at
// least until the GPU context that it is for exists.
class Sharing {
 public:
    Sharing() = default;
    Sharing(Sharing&& other) noexcept : active_(other.active_) { other.active_ = false; }
    Sharing& operator=(Sharing&& other) noexcept {
        if (this != &other) {
            end();
            active_ = other.active_;
            other.active_ = false;
        }
        return *this;
    }
    Sharing(const Sharing&) = delete;
    Sharing& operator=(const Sharing&) = delete;
    ~Sharing() { end(); }

    // Others may attach to this process's renderer under `name`.
    Outcome register_as(const std::string& name) { return note(vuda_register(name.c_str())); }
    // The next CUDA context goes into the TSG called `name`.
    Outcome attach(const std::string& name) { return note(vuda_attach(name.c_str())); }
    // With that many channels; without attach: into this process's own renderer's TSG.
    Outcome reserve(std::uint32_t channels = VUDA_ALL_CHANNELS) { return note(vuda_reserve(channels)); }

    void end() {
        if (active_)
            vuda_detach();  // nothing to do about a failure: what was asked for ends with the process at the latest
        active_ = false;
    }

 private:
    Outcome note(int code) {
        active_ = active_ || code == VUDA_OK;
        return Outcome(code);
    }

    bool active_ = false;
};

}  // namespace vuda::api
