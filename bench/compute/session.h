// One CUDA context with the load's kernel, ready to launch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "bench/common/samples.h"
#include "bench/compute/gpu.h"
#include "bench/compute/holes.h"
#include "bench/compute/options.h"

namespace vuda::bench {

class Session {
 public:
    // Makes the context current on the calling thread, which must be the one that uses and destroys the session.
    static Result<std::unique_ptr<Session>> open(const CudaGpu& gpu, const ComputeOptions& options);

    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    ~Session();

    // One launch, synchronised. Returns the milliseconds from submitting to synchronised.
    Result<double> launch();

    // `count` launches, one after the other, then waits for all. Adds the nanoseconds that each call took to `ns`.
    Status launch_batch(uint32_t count, Samples& ns);

    // Compares what the last launch left, and counts what kernels found wrong with the launches before it.
    // Returns the number of wrong blocks and kernels since the last call.
    Result<uint64_t> check_results();

    // Multiprocessors (%smid) that blocks ran on since the last clear_sms(), ascending.
    Result<std::vector<uint32_t>> sms();
    Status clear_sms();

    // With ComputeOptions::report_holes: from here on it is kept when launches ran. There is room for the first 65536;
    // those that did nothing are left out.
    void time_launches() { timing_ = true; }
    Result<std::vector<LaunchTime>> launch_times();

    // Also forgets what earlier launches left: the next one checks nothing.
    void set_iterations(uint32_t iterations);
    uint32_t iterations() const { return options_.iterations; }
    uint32_t blocks() const { return options_.blocks; }
    double context_ms() const { return context_ms_; }

 private:
    Session(const CudaGpu& gpu, const ComputeOptions& options);
    Status open_all();
    Status submit();
    Status allocate(CUdeviceptr* pointer, size_t bytes, uint32_t word = 0);

    const CudaGpu gpu_;
    const CudaApi& api_;
    ComputeOptions options_;
    bool retained_ = false;
    CUmodule module_ = nullptr;
    CUfunction function_ = nullptr;
    CUstream stream_ = nullptr;
    CUdeviceptr marks_ = 0;   // one word a block
    CUdeviceptr errors_ = 0;  // one word, then kSmWords of them, a bit for each multiprocessor
    CUdeviceptr data_ = 0;    // memory load
    CUdeviceptr begins_ = 0;  // report_holes: nanoseconds of kTimedLaunches launches, and one place for all others
    CUdeviceptr ends_ = 0;
    bool timing_ = false;
    uint32_t timed_ = 0;    // launches in begins_ and ends_
    uint32_t vectors_ = 0;  // of 16 bytes in data_
    uint32_t index_ = 0;    // of the next launch
    uint32_t errors_seen_ = 0;
    double context_ms_ = 0;
    std::vector<uint32_t> host_marks_;
};

}  // namespace vuda::bench
