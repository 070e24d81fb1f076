// What the fault tests happen in: a daemon, a simulated GPU that outlives it, a renderer that owns "game" and a compute
// program that shares with it. Both work all the time and must not notice what happens to others.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/deployment.h"
#include "tests/faults/points.h"

namespace vuda::faults {

enum class Binary { kDaemon, kClient, kShim };  // vudad, libvuda.so, libvuda_preload.so
std::string path_of(Binary binary);

// What went wrong over a whole run, and how long the worst took: the rows of the report.
struct Tally {
    size_t kills = 0;
    size_t stale_names = 0;
    size_t stale_descriptors = 0;  // in vudad or on the GPU
    size_t stale_files = 0;        // locks held, temporary files
    size_t lost_grants = 0;        // a program and vudad disagree on who shares
    size_t disturbed = 0;          // programs that were not the victim and noticed
    double slowest_ms = 0;         // from the death (daemon: from the next one's READY) to the next program's sharing
    std::string slowest;           // at which point
};
Tally& tally();

class World {
 public:
    World();
    ~World();

    // False: it did not come up (and the test has failed).
    bool ready() const { return ready_; }
    e2e::Deployment& vuda() { return *deployment_; }
    e2e::Process& renderer() { return *renderer_; }
    e2e::Process& compute() { return *compute_; }

    // A program under the shim that says on stderr whether it shares. With a point: under copies of our libraries in
    // which the point does the deed.
    e2e::Command program(const std::string& wish, const std::string& name, std::vector<std::string> argv) const;
    e2e::Command victim(const std::string& wish, const std::string& name, std::vector<std::string> argv, Binary binary,
                        const std::string& point, Deed deed = Deed::kKill);
    // Starts a program that holds its GPU context until SIGTERM, and waits until it has worked.
    std::unique_ptr<e2e::Process> start_held(e2e::Command command);
    // The two halves of it, for a program that does not get there by itself.
    std::unique_ptr<e2e::Process> start(e2e::Command command);
    void wait_worked(e2e::Process& process);  // the newest one that was started
    // Of a victim that a point holds: its thread goes on.
    void let_go(e2e::Process& process, Binary binary, const std::string& point);
    // SIGTERM; it must have worked, to the end, without a word but `said`.
    void expect_ends_well(e2e::Process& process);

    // Sets targets, and waits until vudad has them on the disk.
    void keep_targets(const std::string& frame_ms);
    std::string state_file() { return vuda().folder() + "/state/targets"; }
    std::string metrics_file() { return vuda().folder() + "/metrics/vuda.prom"; }

    // Puts a deed into the running daemon.
    void arm_daemon(const std::string& point, Deed deed = Deed::kKill);
    // The daemon died of the point. Looks at what it left, starts the next one, waits until the two have come back.
    void daemon_died(const std::string& point);
    // For a death of the daemon before it was ready: started from a copy with the deed.
    void start_daemon_that_dies(const std::string& point);

    // Once the victim is gone: exactly these names and sharing programs, nothing left over, and the next program
    // shares. `died`: since when the clock of recovery runs.
    void expect_recovered(const std::string& point, e2e::Clock::time_point died);
    // What a program said of itself on stderr (program()) is what vudad says of it.
    void expect_agreement(const std::string& point, e2e::Process& process);
    // Both survivors, to their end.
    void expect_undisturbed();

 private:
    // What a sanitizer wrote, of any program of this world; "" without one.
    std::string sanitizer_reports() const;
    std::string gpu_counts() const { return deployment_->simctl({"counts"}); }
    std::set<std::string> files() const;

    std::unique_ptr<e2e::Deployment> deployment_;
    std::unique_ptr<e2e::Process> renderer_;
    std::unique_ptr<e2e::Process> compute_;
    bool ready_ = false;
    size_t daemon_fds_ = 0;
    std::string counts_;
    std::set<std::string> files_;
    e2e::Clock::time_point back_;  // when the newest daemon was ready
    int serial_ = 0;
    std::string ready_file_;  // of the newest program
    std::string victims_;     // folder of the newest victim's libraries, with a slash
};

// Programs.
const std::vector<std::string>& short_compute();
const std::vector<std::string>& held_compute();
const std::vector<std::string>& held_renderer();
const std::vector<std::string>& mapping_renderer();  // one more control buffer with each frame, until SIGTERM
std::string text_of(const std::string& path);        // empty where there is none
bool says_it_shares(const e2e::Process& process);

}  // namespace vuda::faults
