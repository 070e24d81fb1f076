// What vuda-load can measure. Each starts a vudad of its own and adds rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/load/crew.h"
#include "tests/load/figures.h"

namespace vuda::load {

struct Options {
    std::string vudad;
    uint32_t sessions = 100;
    uint32_t count = 0;     // starts, victims, or operations; 0: the scenario's own default
    double seconds = 10;    // of measuring
    double rate = 300;      // cycles a second of all sessions together
    double limit_ms = 5;    // for p99 of RPCs
    uint32_t buffers = 16;  // control buffers of an owner
    std::string rests;      // soak: file for when nobody was there
    uint32_t rest_ms = 0;   // soak: and for how long
    uint32_t grow_kb = 0;   // soak: resident memory that may come on top; 0: the default
};

// Start to READY, then an idle daemon's processor time, memory and descriptors.
void measure_start(const Options& options, Figures& figures);
// Register and attach with `sessions` processes, all at work.
void measure_rpc(const Options& options, Figures& figures);
// SIGKILL to the event that the name is free: running, stopped, unreaped, with the connection held by another.
void measure_death(const Options& options, Figures& figures);
// Owners that are stopped: what it costs those who want to attach, and until the name is free.
void measure_silent(const Options& options, Figures& figures);
// Register and attach of `sessions` processes beside one that floods without reading, one that sends garbage, a Watch
// stream that is not read, and a stopped owner.
void measure_stall(const Options& options, Figures& figures);
// Programs with libvuda's own session: vudad is killed and started again, until all names are back.
void measure_restart(const Options& options, Figures& figures);
// `count` session operations; nothing may grow.
void measure_soak(const Options& options, Figures& figures);

// Sessions at work: a quarter owns names, a quarter registers and unregisters, half attaches to the first quarter's.
class Field {
 public:
    Field(const std::string& handle_socket, const Options& options);
    // False: one of them was refused.
    bool open();
    void begin(double seconds, double cycles_per_s);
    struct Result {
        std::vector<double> registers;
        std::vector<double> replies;
        std::vector<double> attaches;
        size_t failed = 0;  // members that had an error, or no answer
        int code = 0;       // one of these errors
    };
    Result collect(double seconds);
    pid_t pid_of_owner(size_t number) const { return owners_[number].pid(); }

 private:
    std::vector<Member> owners_;
    std::vector<Member> registrants_;
    std::vector<Member> attachers_;
};

}  // namespace vuda::load
