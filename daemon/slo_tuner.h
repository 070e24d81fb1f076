// The tuners of the named TSGs: targets in, samples in, levels out. Pure; the registry drives it (registry_slo.cc).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/slo_targets.h"
#include "proto/page/session_page.h"
#include "tuner/tuner.h"

namespace vuda::daemon {

class SloTuner {
 public:
    struct Sharer {
        uint64_t session = 0;
        ProcessKey process;
    };
    // What the registry knows of one name at a tick.
    struct View {
        bool automatic = false;        // the quota is the tuner's, and some program keeps to it
        uint32_t total_tpcs = 0;       // of the GPU; 0: layout unknown, nothing can be tuned
        std::vector<uint32_t> levels;  // ascending
        uint32_t applied_tpcs = 0;
        std::vector<Sharer> sharers;  // processes whose steps count
        bool in_force = false;        // all of them follow the split by now
    };

    // A name is registered by a user: drops targets that another one chose.
    void open(const std::string& name, uid_t uid);
    // Nobody owns it any more. The targets stay.
    void close(const std::string& name);

    // `process` as for apply(). A name without any target is forgotten.
    Status set(const std::string& name, uid_t uid, const v1::SetSloRequest& request, const ProcessKey* process);
    Status set(const std::string& name, uid_t uid, const v1::SetTargetsRequest& request, bool owner,
               const ProcessKey* process);
    // Null: no target.
    NameTargets* targets(std::string_view name);
    const TargetTable& table() const { return table_; }
    // From the file, before anything is registered.
    void load(TargetTable table) { table_ = std::move(table); }

    // A sample of the owner's frames or of a sharer's steps. `now` is CLOCK_MONOTONIC, as the samples' own clock;
    // a process in a time namespace of its own has another, so an end that is seconds off counts as now.
    void take_frame(const std::string& name, const page::Sample& sample, int64_t now);
    void take_step(const std::string& name, uint64_t session, const page::Sample& sample, int64_t now);
    // Samples of a sharer that found its ring full.
    void lost_steps(const std::string& name, uint64_t session, uint64_t count, int64_t now);

    // The level that compute should have, once that is known. `events`: what happened, appended.
    std::optional<uint32_t> tick(const std::string& name, const View& view, int64_t now,
                                 std::vector<tuner::Event>& events);
    // How the level is divided among the processes that share the name; null: nothing is tuned.
    const std::vector<tuner::SessionShare>* shares(std::string_view name) const;
    bool running() const { return !running_.empty(); }
    bool runs(std::string_view name) const { return running_.contains(name); }

    // False: nothing to say, neither targets nor a tuner.
    bool fill(std::string_view name, v1::SloInfo& out) const;

 private:
    struct Known {
        ProcessKey process;
        int64_t last_marked = INT64_MIN;  // when it last sent a step that it marked itself
    };
    struct Running {
        explicit Running(tuner::Tuner made) : tuner(std::move(made)) {}

        tuner::Tuner tuner;
        std::map<uint64_t, Known> sessions;
        std::vector<tuner::Sample> pending;
        int64_t last_fenced = INT64_MIN;  // when the owner last sent a frame's time up to its fence
        bool automatic = false;
        bool to_be_applied = false;  // the level changed and is not in force everywhere
        std::string last_change;
    };
    template <typename Change>
    Status change(const std::string& name, uid_t uid, Change change);
    static void sync(Running& running, const NameTargets* targets, const View& view, int64_t now);

    TargetTable table_;
    std::map<std::string, Running, std::less<>> running_;
};

}  // namespace vuda::daemon
