#include "shim/partition/native_fault.h"

#include <signal.h>

#include <string>
#include <thread>

#include "shim/partition/native_scope.h"

namespace vuda::partition {
namespace {

constexpr CuResult kQueueNotReady = 600;  // CUDA_ERROR_NOT_READY
constexpr CuResult kSurprise = 999;       // CUDA_ERROR_UNKNOWN
constexpr unsigned kPortable = 1;         // CU_MEMHOSTALLOC_PORTABLE: for all contexts
constexpr unsigned kUntilReached = 0;     // CU_STREAM_WAIT_VALUE_GEQ
constexpr unsigned kOwnStream = 1;        // CU_STREAM_NON_BLOCKING
constexpr size_t kWatcherStack = 256 << 10;
// A proof that takes longer has failed: there is no wait for a stream that ends by itself.
constexpr std::chrono::seconds kProofTime{2};

// What a driver says that is going away, which is no kernel's doing.
bool is_ending(CuResult result) {
    return result == 3 || result == 4 || result == 201 || result == 709;  // NOT_INITIALIZED, DEINITIALIZED,
                                                                          // INVALID_CONTEXT, CONTEXT_IS_DESTROYED
}

Error no_numbers(const std::string& what, CuResult result) {
    return Error{Code::kUnimplemented, what + " (CUDA error " + std::to_string(result) + ")", ""};
}

}  // namespace

NativeFault::~NativeFault() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        if (!started_) return;
    }
    changes_.notify_all();
    ::pthread_join(thread_, nullptr);
}

void NativeFault::listen(Listener* listener) {
    const std::lock_guard lock(listener_mutex_);
    listener_ = listener;
}

Status NativeFault::open(CuContext own, CuContext context) {
    if (!cuda_.has_values()) return no_numbers("this CUDA has no streams that wait for numbers", 0);
    void* memory = nullptr;
    {
        const CurrentContext current(cuda_, own);
        if (const CuResult r = cuda_.host_alloc(&memory, kLanes * kStride * sizeof(uint32_t), kPortable); r != 0)
            return no_numbers("CUDA has no memory of the host's", r);
    }
    numbers_ = static_cast<uint32_t*>(memory);
    for (size_t lane = 0; lane < kLanes; ++lane) number(lane).store(0);
    own_ = own;
    Status proved = prove(own, context);
    if (!proved) numbers_ = nullptr;
    return proved;
}

// A stream of the program's context that waits is let go by the host, and another time by a stream of ours.
Status NativeFault::prove(CuContext own, CuContext context) {
    CuStream waits = nullptr, writes = nullptr;
    CuResult r = 0;
    const auto in = [&](CuContext where, const auto& call) {
        if (r != 0) return;
        const CurrentContext current(cuda_, where);
        r = current.result() != 0 ? current.result() : call();
    };
    const auto state = [&] {
        const CurrentContext current(cuda_, context);
        return current.result() != 0 ? current.result() : cuda_.stream_query(waits);
    };
    in(own, [&] { return cuda_.stream_create(&writes, kOwnStream); });
    in(context, [&] { return cuda_.stream_create(&waits, kOwnStream); });
    for (const uint32_t value : {1u, 2u}) {
        in(context, [&] { return cuda_.stream_wait_value(waits, address(0), value, kUntilReached); });
        if (r != 0) break;
        if (r = state(); r != kQueueNotReady) {
            r = r == 0 ? kSurprise : r;
            break;
        }
        r = 0;
        if (value == 1) {
            number(0).store(value);
        } else {
            in(own, [&] { return cuda_.stream_write_value(writes, address(0), value, 0); });
        }
        const auto deadline = std::chrono::steady_clock::now() + kProofTime;
        while (r == 0 && (r = state()) == kQueueNotReady && std::chrono::steady_clock::now() < deadline) {
            r = 0;
            std::this_thread::yield();
        }
    }
    const CuResult came_of_it = r;
    // Whatever came of it, the streams are to end.
    number(0).store(2);
    r = 0;
    if (waits != nullptr) in(context, [&] { return cuda_.stream_destroy(waits); });
    r = 0;
    if (writes != nullptr) in(own, [&] { return cuda_.stream_destroy(writes); });
    if (came_of_it != 0) return no_numbers("a stream does not wait for a number of the host's", came_of_it);
    lanes_[0].wanted.store(2);
    return {};
}

CuResult NativeFault::signal(size_t lane, CuStream stream) {
    const std::lock_guard lock(mutex_);
    if (const CuResult failed = error()) return failed;
    const uint32_t value = lanes_[lane].wanted.load() + 1;
    if (const CuResult r = cuda_.stream_write_value(stream, address(lane), value, 0); r != 0) return r;
    lanes_[lane].stream.store(stream);
    lanes_[lane].wanted.store(value);
    if (!started_) {
        pthread_attr_t attributes;
        ::pthread_attr_init(&attributes);
        ::pthread_attr_setstacksize(&attributes, kWatcherStack);
        // The program's signals are the program's business.
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        started_ = ::pthread_create(&thread_, &attributes, &NativeFault::thread_main, this) == 0;
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        ::pthread_attr_destroy(&attributes);
    }
    if (idle_) changes_.notify_all();
    return 0;
}

CuResult NativeFault::wait(size_t lane, CuStream stream) {
    return cuda_.stream_wait_value(stream, address(lane), lanes_[lane].wanted.load(), kUntilReached);
}

bool NativeFault::done(size_t lane) const {
    return static_cast<int32_t>(number(lane).load(std::memory_order_acquire) - lanes_[lane].wanted.load()) >= 0;
}

bool NativeFault::under_way() const {
    for (size_t lane = 0; lane < kLanes; ++lane) {
        if (!done(lane)) return true;
    }
    return false;
}

void* NativeFault::thread_main(void* self) {
    ::pthread_setname_np(::pthread_self(), "vuda-native");
    static_cast<NativeFault*>(self)->look_after();
    return nullptr;
}

void NativeFault::look_after() {
    NativeErrand quiet;
    const OnErrand errand(quiet);
    std::unique_lock lock(mutex_);
    for (;;) {
        idle_ = true;
        changes_.wait(lock, [&] { return stopping_ || (error() == 0 && under_way()); });
        idle_ = false;
        if (!stopping_) changes_.wait_for(lock, kInterval, [&] { return stopping_; });
        if (stopping_) return;
        lock.unlock();
        look();
        lock.lock();
    }
}

void NativeFault::look() {
    for (size_t lane = 0; lane < kLanes && error() == 0; ++lane) {
        if (!done(lane)) suspect(lanes_[lane].stream.load());
    }
}

void NativeFault::suspect(CuStream stream) {
    if (!works() || error() != 0) return;
    CuResult said = 0;
    {
        const CurrentContext current(cuda_, own_);
        said = current.result() != 0 ? current.result() : cuda_.stream_query(stream);
    }
    if (said != 0 && said != kQueueNotReady && !is_ending(said)) failed(said);
}

void NativeFault::failed(CuResult error) {
    CuResult none = 0;
    if (!error_.compare_exchange_strong(none, error, std::memory_order_acq_rel)) return;
    {
        const std::lock_guard lock(listener_mutex_);
        if (listener_ != nullptr) listener_->native_fault(error);
    }
    // With the lock no number comes to be wanted between.
    const std::lock_guard lock(mutex_);
    for (size_t lane = 0; lane < kLanes; ++lane) number(lane).store(lanes_[lane].wanted.load());
}

}  // namespace vuda::partition
