// Command lines of the stand-ins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vuda::sim::standin {

struct CommonOptions {
    int gpu = 0;                  // index in /dev/nvidiaN
    double seconds = 2.0;         // length of the measurement
    std::string ready_file;       // made once the first work is done
    std::string start_file;       // work on, but measure only from the moment this file exists; empty: measure at once
    double linger = 0;            // seconds of further, unmeasured work after the measurement
    bool report_trace = false;    // when each measured unit of work ended and how long it took
    bool hold = false;            // then keep everything allocated until SIGTERM
    bool keep_lost = false;       // also when the device was lost
    bool fork_child = false;      // fork after set-up; the child opens a device of its own and leaves
    bool exec_self = false;       // set up, then execute this program anew and run there
    bool close_range = false;     // close every descriptor from 3 up before set-up
    bool illegal_method = false;  // send one in the middle of the run
};

struct RendererOptions {
    CommonOptions common;
    double vertex_ms = 0.2;
    double fragment_ms = 9.8;
    uint32_t draws = 1;
    double gap_ms = 0;                // pause after each frame, in which no draw runs
    double fps = 0;                   // 0: as fast as the GPU goes
    uint64_t frames = 0;              // stop after so many, 0: time decides
    bool legacy = false;              // channels without context share
    bool no_control_buffers = false;  // graphics state points at nothing
    uint32_t map_every = 0;           // frames after which another control buffer is mapped; 0: none is
    uint32_t spare = 0;               // control buffers that nothing points at, until drop_file is there
    std::string drop_file;
};

struct ComputeOptions {
    CommonOptions common;
    double kernel_ms = 0.72;
    uint32_t blocks = 0;  // 0: as many as fill the GPU `waves` times
    uint32_t waves = 2;
    uint32_t blocks_per_sm = 1;
    uint32_t sm_bound_permille = 0;
    uint32_t shared_memory = 1024;
    bool guard = false;  // asks VUDA before each launch, as its hook in CUDA does
    bool retry = false;  // after a kernel was refused: new contexts, once
    uint32_t bandwidth_permille = 0;
    uint64_t kernels = 0;          // stop after so many, 0: time decides
    uint32_t threads = 1;          // each submits on a channel of its own
    uint32_t contexts = 1;         // made at the same moment, each by a thread
    double gap_ms = 0;             // pause between kernels
    double fps = 0;                // kernels a second to start; 0: the next one as soon as the last one is done
    bool spin = false;             // an empty loop: needs neither control state nor local memory
    bool no_setup = false;         // leave out the compute set-up methods
    std::vector<int> masked_tpcs;  // launch mask
    std::string split_log;         // gets a line for each split that launches follow
};

// 0: run; else the exit status to end with, after help (0 -> -1) or a message.
int parse(int argc, char** argv, RendererOptions& options);
int parse(int argc, char** argv, ComputeOptions& options);

}  // namespace vuda::sim::standin
