// One simulated GPU: its identity, and the execution of what channels submit, on top of the timing model (sim/model).
//
// It fetches GPFIFO entries, decodes push buffers (work/format.h), hands work to the model and, as the model's clock
// reaches it, does what the work does to memory: semaphores, error notifiers, faults. Single-threaded; time is whatever
// the caller says.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/uuid.h"
#include "sim/model/engine.h"
#include "sim/pushbuffer/format.h"
#include "sim/rm/kernel_log.h"
#include "sim/rm/objects.h"
#include "sim/rm/rules.h"

namespace vuda::sim {

// What programs can ask about the chip.
struct Identity {
    std::string name;        // "NVIDIA H200 (simulated)"
    std::string short_name;  // "GH100-A"
    Uuid uuid;
    uint32_t gpu_id = 0;  // PCI domain/bus/slot packed as RM does: bus << 8 | slot
    uint32_t bus = 0;
    uint16_t pci_device = 0;
    uint32_t gpfifo = 0, compute = 0, copy = 0, three_d = 0, usermode = 0;  // newest classes
    uint32_t gfx_tpcs = 0;
    uint32_t gfx_gpc_mask = 0;
};

class Gpu {
 public:
    // Errors: kNotFound for an unknown preset (sim/model/topology.h).
    static Result<std::unique_ptr<Gpu>> make(int index, std::string_view preset, const Rules& rules, KernelLog& log);

    const Identity& identity() const { return identity_; }
    const Engine& engine() const { return engine_; }
    const std::shared_ptr<Memory>& usermode_page() const { return usermode_; }
    // Is the class one of this chip's (or an older one that it still takes)?
    bool has_class(uint32_t cls) const;

    // The resource manager's side.
    void add(Tsg& tsg);
    void remove(Tsg& tsg);
    uint32_t add(Channel& channel);  // gives it its ChID
    void remove(Channel& channel);
    // A GR object was allocated on the channel.
    void add_object(Channel& channel, uint32_t cls);
    void set_scheduled(Channel& channel, bool scheduled);
    void set_timeslice(Tsg& tsg, uint64_t microseconds);
    Channel* channel_by_token(uint32_t token);
    // Writes `xid` into the notifier of every channel of the TSG, ends all of them, and logs it. `culprit` may be null.
    void kill(Tsg& tsg, const Channel* culprit, uint32_t xid, const std::string& text);

    // The channel was stopped by whoever ends it: its notifier says so, with a number that looks like a fault's.
    void stopped(Channel& channel);

    // A fault without a cause in any work: ends the graphics-engine TSGs in which the process has a channel. False: it
    // has none.
    bool fault_of(pid_t pid, uint32_t xid);
    bool has_graphics_channel(pid_t pid) const;

    // New GPFIFO entries of the channel. Ignored for channels that cannot run.
    void fetch(Channel& channel);
    void fetch_all();
    // True when the doorbell was written since the last call.
    bool take_doorbell();

    // After an illegal method or a front-end fault no foreign context can join a TSG with graphics, until reset().
    bool wedged() const { return wedged_; }
    void reset() { wedged_ = false; }

    TimeNs now() const { return engine_.now(); }
    TimeNs next_event() const { return engine_.next_event_time(); }
    // Runs the model up to `time` and carries out everything that becomes due. Returns how many semaphores were
    // released.
    size_t run_until(TimeNs time);

    // Sees each address that was written and that a waiter may sleep on (a FUTEX_WAKE in the server).
    using Wake = std::function<void(void* word)>;
    void set_wake(Wake wake) { wake_ = std::move(wake); }

 private:
    void notify(const Channel& channel, uint32_t xid);
    std::vector<Channel*> graphics_channels(pid_t pid) const;
    struct Release {
        uint64_t address = 0;
        uint64_t payload = 0;
        bool timestamp = false;
    };
    struct Check {
        work::Launch launch{};
    };
    struct Method {
        uint32_t cls = 0;
        uint32_t method = 0;
        uint32_t data = 0;
    };
    struct Point {
        work::ControlBuffer buffer{};
    };
    struct Report {
        uint64_t address = 0;
    };
    struct Nothing {};
    using Effect = std::variant<Nothing, Release, Check, Method, Point, Report>;
    struct Pending {
        Channel* channel = nullptr;
        Effect effect;
    };

    Gpu(int index, Identity identity, Engine engine, const Rules& rules, KernelLog& log);

    void submit(Channel& channel, Work work, Effect effect);
    void mark(Channel& channel, Effect effect) { submit(channel, Marker{}, std::move(effect)); }
    void decode(Channel& channel, const std::vector<uint32_t>& words);
    void host_method(Channel& channel, uint32_t method, uint32_t data);
    void class_method(Channel& channel, uint32_t subchannel, uint32_t method, const uint32_t* data, uint32_t count);
    void launch(Channel& channel, const work::Launch& launch);
    void frame(Channel& channel, const uint32_t* data, uint32_t count);
    void carry_out(Channel& channel, const Effect& effect);
    void release(Channel& channel, const Release& release);
    void check(Channel& channel, const work::Launch& launch);
    bool touches_stale_veid(Channel& channel);
    void run_method(Channel& channel, const Method& method);
    void report(Channel& channel, uint64_t address, const SmSet& sms);
    void mmu_fault(Channel& channel, const char* unit, uint64_t address, const char* access);
    void collect();
    void write_time();

    Identity identity_;
    Engine engine_;
    const Rules& rules_;
    KernelLog& log_;
    std::shared_ptr<Memory> usermode_;
    std::map<uint32_t, Channel*> channels_;  // by ChID
    std::map<uint64_t, Pending> pending_;    // by cookie
    uint64_t next_cookie_ = 1;
    bool wedged_ = false;
    size_t released_ = 0;
    Wake wake_;
    std::vector<Completion> completions_;  // reused
};

}  // namespace vuda::sim
