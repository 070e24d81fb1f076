// Inside of Engine; nothing outside sim/model/engine*.cc includes it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/model/engine.h"
#include "sim/model/occupancy.h"
#include "sim/model/random.h"
#include "sim/model/rates.h"

namespace vuda::sim {

// Work left below this many nanoseconds is rounding error.
inline constexpr double kDoneNs = 1e-3;

// The engine's own records. A namespace apart: the resource manager has a Tsg and a Channel, too.
namespace engine {

struct Item {
    Work work;
    uint64_t cookie = 0;
    TimeNs submitted = 0;
    TimeNs start = -1;
    SmSet sms;
    size_t next_draw = 0;          // Frame: first draw that has not started
    uint32_t blocks_unplaced = 0;  // Kernel
    uint32_t blocks_running = 0;   // Kernel
    bool beside_draw = false;      // Kernel: a draw ran when it started
};

struct Tsg;

struct Channel {
    ChannelId id{};
    Tsg* tsg = nullptr;
    ChannelOptions options;
    std::deque<Item> items;  // front: the one whose turn it is
};

struct Tsg {
    TsgId id{};
    bool faulted = false;
    TimeNs timeslice_ns = 0;  // 0: default
    ScgMode mode = ScgMode::kIntraSm;
    std::optional<int> quota;
    SmSet quota_sms;    // SMs of quota_tpcs
    TpcSet quota_tpcs;  // inter-SM mode: compute's TPCs
    bool even = true;   // what the quota leaves to graphics is evenly split
    uint32_t graphics_channels = 0;
    TimeNs run_time = 0;
    std::vector<Channel*> channels;
    // Channels with work, the one whose front has been waiting longest first: blocks and the 3D pipe are handed out in
    // this order, so that no channel starves beside a busy one.
    std::vector<Channel*> ready;
};

// The draw in the 3D pipe.
struct RunningDraw {
    Channel* channel = nullptr;  // null: the pipe is empty
    uint64_t serial = 0;         // counts draws; 0 is none
    GraphicsPart part = GraphicsPart::kVertex;
    double left_ns = 0;
    double rate = 0;
    double sm_speed = 0;  // SMs held x their use, for Stats
};

// Blocks of one kernel that were placed at one moment and end at one moment.
struct Wave {
    Channel* channel = nullptr;
    Placement placement;
    double left_ns = 0;
    double rate = 0;
    uint64_t stuck_behind = 0;  // serial of the draw that has to end first; 0: none
};

}  // namespace engine
using namespace engine;  // NOLINT(google-build-using-namespace): this header is the engine's sources' only

class Engine::Impl {
 public:
    Impl(Topology topology, const Params& params)
        : topology_(std::move(topology)),
          params_(params),
          random_(params.seed),
          occupancy_(topology_),
          all_sms_(topology_.sms_of(topology_.all_tpcs())),
          graphics_sms_(topology_.sms_of(topology_.graphics_tpcs())) {}

    // occupancy_ points into this object.
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    TsgId create_tsg(TimeNs timeslice_ns);
    Status destroy_tsg(TsgId id);
    Result<ChannelId> create_channel(TsgId id, const ChannelOptions& options);
    Status destroy_channel(ChannelId id);
    Status set_channel_enabled(ChannelId id, bool enabled);
    Status submit(ChannelId id, Work work, uint64_t cookie);
    Status set_mode(TsgId id, ScgMode mode);
    Status set_quota(TsgId id, std::optional<int> tpcs);
    Status set_timeslice(TsgId id, TimeNs timeslice_ns);
    Status fault_tsg(TsgId id, FaultKind kind, ChannelId culprit);
    Result<TsgInfo> tsg_info(TsgId id) const;
    std::vector<TimeNs> timeslices() const;
    Result<ChannelInfo> channel_info(ChannelId id) const;
    void advance_to(TimeNs t);
    Stats stats() const;

    const Topology topology_;
    const Params params_;
    TimeNs now_ = 0;
    TimeNs next_event_ = kNever;
    std::vector<Completion> completions_;
    std::vector<Fault> faults_;

 private:
    Tsg* find_tsg(TsgId id) const;
    Channel* find_channel(ChannelId id) const;
    TimeNs timeslice(const Tsg& tsg) const;
    void apply_quota(Tsg& tsg) const;

    bool in_flight() const { return draw_.channel != nullptr || !waves_.empty(); }
    bool serial_kernel(const Kernel& kernel, const Tsg& tsg) const;
    static bool frame_in_progress(const Tsg& tsg);
    bool can_run(const Channel& channel) const;
    bool has_work(const Tsg& tsg) const;
    bool another_waits() const;
    Tsg* next_in_turn() const;

    void became_ready(Channel& channel);
    void finish_front(Channel& channel, WorkStatus status);
    void end_all(Channel& channel, WorkStatus status);
    void stop_running(const Channel& channel);
    void stop_tsg(Tsg& tsg, FaultKind kind, ChannelId culprit, uint64_t cookie);

    double jittered(TimeNs ns);
    void begin_slice();
    void start_units(Tsg& tsg);
    bool start_front(Channel& channel);  // true: something started or ended
    bool start_draw(Channel& channel, Item& item, const Frame& frame);
    double fullest(const Placement& placement) const;
    bool start_wave(Channel& channel, Item& item, const Kernel& kernel);
    void end_draw_part();
    void end_wave(size_t index);

    TpcSet graphics_tpcs_now(const Tsg& tsg) const;
    void update_rates();
    void settle();  // after any change: pick the TSG, start what can start, find the next event
    // Brings the work left up to now().  Called before every change and never else, so that the size of the steps in
    // which a caller advances cannot change a rounding.
    void integrate();
    void fire();

    TimeNs integrated_to_ = 0;
    Stats stats_;
    Random random_;
    Occupancy occupancy_;
    const SmSet all_sms_;
    const SmSet graphics_sms_;
    std::map<uint32_t, std::unique_ptr<Tsg>> tsgs_;  // in order of creation: the order of the turns
    std::map<uint32_t, std::unique_ptr<Channel>> channels_;
    uint32_t last_id_ = 0;

    Tsg* loaded_ = nullptr;        // its units may run
    Tsg* switching_to_ = nullptr;  // non-null: the engine is busy with the switch until switch_end_
    uint32_t last_loaded_ = 0;     // id, for the order of turns also after that TSG is gone
    TimeNs switch_end_ = 0;
    TimeNs slice_end_ = 0;
    bool draining_ = false;  // the slice is over: nothing starts, what runs ends
    RunningDraw draw_;
    uint64_t draw_serial_ = 0;
    std::vector<Wave> waves_;
};

}  // namespace vuda::sim
