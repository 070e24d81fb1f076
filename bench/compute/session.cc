#include "bench/compute/session.h"

#include <algorithm>
#include <string>

#include "bench/common/clock.h"
#include "bench/common/try.h"
#include "bench/compute/kernels_ptx.h"

namespace vuda::bench {
namespace {

constexpr size_t kSmWords = 32;
constexpr uint32_t kTimedLaunches = 65536;

}  // namespace

Session::Session(const CudaGpu& gpu, const ComputeOptions& options) : gpu_(gpu), api_(*gpu_.api), options_(options) {
    if (options_.blocks == 0)
        options_.blocks =
            options_.load == ComputeLoad::kTiny ? 1 : 8 * static_cast<uint32_t>(std::max(1, gpu_.multiprocessors));
    if (options_.load == ComputeLoad::kTiny) options_.threads = std::min(options_.threads, 32u);
    if (options_.load == ComputeLoad::kMemory) vectors_ = static_cast<uint32_t>(options_.bytes / 16);
}

Result<std::unique_ptr<Session>> Session::open(const CudaGpu& gpu, const ComputeOptions& options) {
    std::unique_ptr<Session> session(new Session(gpu, options));  // the constructor is private, so no make_unique
    VUDA_BENCH_TRY(session->open_all());
    return session;
}

Status Session::open_all() {
    const auto start = Clock::now();
    CUcontext context = nullptr;
    VUDA_BENCH_TRY(api_.check(api_.primary_context_retain(&context, gpu_.device), "make the CUDA context"));
    context_ms_ = ms_between(start, Clock::now());
    retained_ = true;
    VUDA_BENCH_TRY(api_.check(api_.context_set_current(context), "make the CUDA context current"));
    VUDA_BENCH_TRY(api_.check(api_.stream_create(&stream_, kCuStreamNonBlocking), "make a stream"));
    VUDA_BENCH_TRY(api_.check(api_.module_load_data(&module_, kKernelsPtx), "load the kernels"));
    const std::string name = std::string("vuda_") + load_name(options_.load) + (options_.report_holes ? "_timed" : "");
    VUDA_BENCH_TRY(api_.check(api_.module_get_function(&function_, module_, name.c_str()), "find the kernel " + name));
    if (options_.shared_bytes > 0)
        VUDA_BENCH_TRY(
            api_.check(api_.function_set_attribute(function_, kCuFunctionMaxDynamicSharedBytes,
                                                   static_cast<int>(options_.shared_bytes)),
                       "ask for " + std::to_string(options_.shared_bytes) + " bytes of shared memory a block"));
    VUDA_BENCH_TRY(allocate(&marks_, size_t{4} * options_.blocks));
    VUDA_BENCH_TRY(allocate(&errors_, 4 * (1 + kSmWords)));
    if (vectors_ > 0) VUDA_BENCH_TRY(allocate(&data_, size_t{16} * vectors_));
    if (options_.report_holes) {
        const size_t bytes = sizeof(uint64_t) * (kTimedLaunches + 1);
        VUDA_BENCH_TRY(allocate(&begins_, bytes, ~uint32_t{0}));
        VUDA_BENCH_TRY(allocate(&ends_, bytes));
    }
    host_marks_.resize(options_.blocks);
    return {};
}

// Filled, which takes as long as it takes: the first launch must find the memory memset.
Status Session::allocate(CUdeviceptr* pointer, size_t bytes, uint32_t word) {
    VUDA_BENCH_TRY(
        api_.check(api_.memory_allocate(pointer, bytes), "allocate " + std::to_string(bytes) + " bytes of GPU memory"));
    VUDA_BENCH_TRY(api_.check(api_.memory_set_32(*pointer, word, bytes / 4), "clear GPU memory"));
    // memory_set_32 may return early, and the stream does not wait for the default stream.
    return api_.check(api_.stream_synchronize(nullptr), "clear GPU memory");
}

Session::~Session() {
    // After a lost device these fail, which changes nothing.
    if (stream_) api_.stream_destroy(stream_);
    for (const CUdeviceptr pointer : {marks_, errors_, data_, begins_, ends_})
        if (pointer != 0) api_.memory_free(pointer);
    if (module_) api_.module_unload(module_);
    if (retained_) {
        api_.context_set_current(nullptr);
        api_.primary_context_release(gpu_.device);
    }
}

Status Session::submit() {
    uint32_t iterations = options_.iterations;
    float one = 1;
    float minus_one = -1;
    const size_t place = timing_ && timed_ < kTimedLaunches ? timed_++ : kTimedLaunches;
    CUdeviceptr begin = begins_ + sizeof(uint64_t) * place;
    CUdeviceptr end = ends_ + sizeof(uint64_t) * place;
    // A kernel takes as many as it has; only NAME_timed has the last two.
    void* fma[] = {&marks_, &errors_, &index_, &iterations, &one, &minus_one, &begin, &end};
    void* memory[] = {&marks_, &errors_, &index_, &iterations, &data_, &vectors_, &begin, &end};
    void* tiny[] = {&marks_, &errors_, &index_, &begin, &end};
    void** parameters = options_.load == ComputeLoad::kFma      ? fma
                        : options_.load == ComputeLoad::kMemory ? memory
                                                                : tiny;
    return api_.check(api_.launch_kernel(function_, options_.blocks, 1, 1, options_.threads, 1, 1,
                                         options_.shared_bytes, stream_, parameters, nullptr),
                      "launch a kernel");
}

Status Session::launch_batch(uint32_t count, Samples& ns) {
    for (uint32_t i = 0; i < count; ++i) {
        const auto start = Clock::now();
        VUDA_BENCH_TRY(submit());
        ns.add(ms_between(start, Clock::now()) * 1e6);
        ++index_;
    }
    return api_.check(api_.stream_synchronize(stream_), "wait for the kernels");
}

Result<double> Session::launch() {
    const auto start = Clock::now();
    VUDA_BENCH_TRY(submit());
    VUDA_BENCH_TRY(api_.check(api_.stream_synchronize(stream_), "wait for a kernel"));
    const double ms = ms_between(start, Clock::now());
    ++index_;
    return ms;
}

Result<uint64_t> Session::check_results() {
    if (index_ == 0) return uint64_t{0};
    uint32_t errors = 0;
    VUDA_BENCH_TRY(api_.check(api_.copy_to_host(&errors, errors_, sizeof errors), "read the error count"));
    VUDA_BENCH_TRY(
        api_.check(api_.copy_to_host(host_marks_.data(), marks_, 4 * host_marks_.size()), "read the results"));
    uint64_t wrong = errors - errors_seen_;
    errors_seen_ = errors;
    for (uint32_t block = 0; block < options_.blocks; ++block)
        if (host_marks_[block] != (index_ - 1) * 2654435761u + block) ++wrong;
    return wrong;
}

Result<std::vector<uint32_t>> Session::sms() {
    uint32_t words[kSmWords];
    VUDA_BENCH_TRY(api_.check(api_.copy_to_host(words, errors_ + 4, sizeof words), "read the multiprocessors"));
    std::vector<uint32_t> sms;
    for (uint32_t sm = 0; sm < 32 * kSmWords; ++sm)
        if ((words[sm / 32] >> (sm % 32) & 1) != 0) sms.push_back(sm);
    return sms;
}

Status Session::clear_sms() {
    VUDA_BENCH_TRY(api_.check(api_.memory_set_32(errors_ + 4, 0, kSmWords), "clear GPU memory"));
    return api_.check(api_.stream_synchronize(nullptr), "clear GPU memory");
}

Result<std::vector<LaunchTime>> Session::launch_times() {
    std::vector<uint64_t> begins(timed_);
    std::vector<uint64_t> ends(timed_);
    std::vector<LaunchTime> times;
    if (timed_ == 0) return times;
    const size_t bytes = sizeof(uint64_t) * timed_;
    VUDA_BENCH_TRY(api_.check(api_.copy_to_host(begins.data(), begins_, bytes), "read when launches began"));
    VUDA_BENCH_TRY(api_.check(api_.copy_to_host(ends.data(), ends_, bytes), "read when launches ended"));
    for (uint32_t i = 0; i < timed_; ++i)
        if (ends[i] != 0) times.push_back({begins[i], ends[i]});
    return times;
}

void Session::set_iterations(uint32_t iterations) {
    options_.iterations = iterations;
    index_ = 0;
}

}  // namespace vuda::bench
