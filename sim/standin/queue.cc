#include "sim/standin/queue.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

namespace vuda::sim::standin {

void Queue::set_object(uint32_t subchannel, uint32_t cls) {
    words_.push_back(work::header(work::kOpIncrement, subchannel, work::kSetObject, 1));
    words_.push_back(cls);
}

void Queue::method(uint32_t subchannel, uint32_t method, uint32_t data) {
    words_.push_back(work::header(work::kOpIncrement, subchannel, method, 1));
    words_.push_back(data);
}

void Queue::block(uint32_t subchannel, uint32_t method, const void* words, uint32_t bytes) {
    words_.push_back(work::header(work::kOpNonIncrement, subchannel, method, bytes / 4));
    const size_t at = words_.size();
    words_.resize(at + bytes / 4);
    std::memcpy(words_.data() + at, words, bytes);
}

uint32_t Queue::submit() {
    ++value_;
    words_.push_back(work::header(work::kOpIncrement, 0, work::kSemAddressLow, 5));
    words_.push_back(static_cast<uint32_t>(memory_.semaphore_address));
    words_.push_back(static_cast<uint32_t>(memory_.semaphore_address >> 32));
    words_.push_back(value_);
    words_.push_back(0);
    words_.push_back(work::kSemExecuteRelease | work::kSemExecuteTimestamp);

    const auto bytes = static_cast<uint32_t>(words_.size() * 4);
    if (push_at_ + bytes > memory_.push_bytes) push_at_ = 0;
    std::memcpy(memory_.push + push_at_, words_.data(), bytes);
    const uint64_t entry = work::gpfifo_entry(memory_.push_address + push_at_, static_cast<uint32_t>(words_.size()));
    std::memcpy(memory_.ring + uint64_t{put_} * 8, &entry, sizeof entry);
    push_at_ += (bytes + 63) / 64 * 64;
    put_ = (put_ + 1) % memory_.ring_entries;
    __atomic_store_n(reinterpret_cast<uint32_t*>(memory_.userd + work::kGpPut), put_, __ATOMIC_RELEASE);
    device_->ring(token_);
    words_.clear();
    return value_;
}

bool Queue::device_lost() const {
    if (memory_.notifier == nullptr) return false;
    const auto* status = reinterpret_cast<const uint16_t*>(memory_.notifier + offsetof(rm::Notification, status));
    return __atomic_load_n(status, __ATOMIC_ACQUIRE) != 0;
}

uint32_t Queue::error_code() const {
    uint32_t code = 0;
    if (memory_.notifier != nullptr)
        std::memcpy(&code, memory_.notifier + offsetof(rm::Notification, info32), sizeof code);
    return code;
}

work::Whereabouts Queue::report() const {
    work::Whereabouts found{};
    std::memcpy(&found, memory_.semaphore + kReportOffset, sizeof found);
    return found;
}

uint64_t Queue::last_timestamp_ns() const {
    uint64_t time = 0;
    std::memcpy(&time, memory_.semaphore + offsetof(work::Semaphore, timestamp_ns), sizeof time);
    return time;
}

Waited Queue::wait(uint32_t value, std::chrono::milliseconds limit, const std::atomic<bool>& stop) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    auto* word = reinterpret_cast<uint32_t*>(memory_.semaphore);
    for (;;) {
        const uint32_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (static_cast<int32_t>(seen - value) >= 0) return Waited::kDone;
        if (device_lost()) return Waited::kDeviceLost;
        if (stop.load(std::memory_order_relaxed)) return Waited::kInterrupted;
        if (std::chrono::steady_clock::now() > deadline) return Waited::kTimeout;
        // Short naps: the notifier and `stop` are looked at in between.
        const timespec nap{0, 20'000'000};
        syscall(SYS_futex, word, FUTEX_WAIT, seen, &nap, nullptr, 0);
    }
}

}  // namespace vuda::sim::standin
