// The session page: memory that vudad shares with one process, for what must not cost a message.
//
//   vudad -> process   which TPCs compute must keep off, whether kernels wait (both read before every launch), which
//                      samples are wanted
//   process -> vudad   which split it follows, launches, and a ring of timing samples
//
// vudad makes it (page_memory.h) and sends the descriptor with HelloReply; the process maps it. Each side trusts only
// what it wrote itself. vudad's half is mapped read-only in the process; that guards against accidents, not against the
// process.
//
// Needs libc only. Every word is a lock-free atomic, so that a torn or hostile word is a wrong number and nothing
// worse.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vuda::page {

inline constexpr uint64_t kMagic = 0x3130656761707556;  // "Vupage01"; another layout is another magic
inline constexpr size_t kMaskWords = 4;                 // 256 TPCs, as many as a Topology message may hold
inline constexpr size_t kSplitSlots = 4;
// At 10,000 samples a second the ring holds 0.8 s; vudad takes them out every 100 ms, or 400 ms after a second without.
inline constexpr uint64_t kRingCells = 8192;
// The process maps what follows writable: a multiple of every page size that Linux has on x86-64 and Arm.
inline constexpr size_t kProcessHalf = 65536;

// vuda.v1.Mode
enum class SplitMode : uint32_t { kUnspecified = 0, kIntraSm = 1, kInterSm = 2, kSliced = 3 };

// How the GPU is split now.
struct Split {
    uint64_t generation = 0;  // 0: nothing was ever asked for. The number of the change that made it
    SplitMode mode = SplitMode::kUnspecified;
    uint32_t applied_tpcs = 0;          // TPCs that compute may use; 0: not known
    uint64_t disable[kMaskWords] = {};  // bit t of word t / 64: compute must not use TPC t (its place in Topology.tpcs)
    // Mode sliced, for the renderer: its part of the GPU's time, 1..999 (0: no share was asked for), and the time that
    // a frame may take from the one before (0: no target).
    uint32_t graphics_permille = 0;
    uint64_t frame_ns = 0;
};

enum class SampleKind : uint32_t {
    // One frame, from its submission until its fence is signalled.
    kFrame = 1,
    // From one frame to the next: present to present, or submission to submission where nothing is presented.
    kInterval = 2,
    // vuda_step_begin to vuda_step_end.
    kStep = 3,
    // Compute without marks: how long a wait for the GPU took.
    kSync = 4,
    // What a frame took on the GPU, by its own clock: begin of its first work to end of its last.
    kGpuFrame = 5,
};
inline constexpr uint32_t kSampleKinds = 5;

constexpr uint32_t wanted_bit(SampleKind kind) { return 1u << static_cast<uint32_t>(kind); }
inline constexpr uint32_t kAllSamples = 0x3e;

struct Sample {
    SampleKind kind = SampleKind::kFrame;
    uint64_t id = 0;           // frames: counted from 1 in each process; steps: what the program gave
    uint64_t end_ns = 0;       // CLOCK_MONOTONIC
    uint64_t duration_ns = 0;  // at most kDurationLimit
};
inline constexpr uint64_t kDurationLimit = (uint64_t{1} << 56) - 1;

// ---- Layout

using Word = std::atomic<uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

struct SplitSlot {
    Word generation;
    Word mode_and_tpcs;  // mode in the upper 32 bits
    Word disable[kMaskWords];
    Word graphics_permille;
    Word frame_ns;
};
static_assert(sizeof(SplitSlot) == 64);

struct DaemonHalf {
    Word magic;
    Word bytes;   // of the whole page
    Word wanted;  // wanted_bit of each kind that somebody listens to
    Word hold;    // not 0: kernels wait until it is again (launch_hold.h)
    Word reserved[4];
    // Slot `version % kSplitSlots` is the valid one. A writer fills another slot and then moves the version on, so a
    // reader is never left with half a split, not even by a vudad that died while it wrote.
    alignas(64) Word version;
    alignas(64) SplitSlot splits[kSplitSlots];
    alignas(64) Word tail;  // samples taken out so far
};
static_assert(sizeof(DaemonHalf) <= kProcessHalf);

struct Cell {
    Word sequence;           // ticket + 1 once the cell is complete
    Word kind_and_duration;  // kind in the upper 8 bits
    Word end_ns;
    Word id;
};
static_assert(sizeof(Cell) == 32);

struct ProcessHalf {
    Word applied;  // generation of the split that launches, or in mode sliced frames, follow
    Word refused;  // kernels that were not run, because they would have ended the TSG
    Word native;   // kernels that ran in a TSG of the process's own, because they would have ended the other
    Word paces;    // not 0: its frames can be held back
    alignas(64) Word launches;  // of one thread, which needs no locked instruction for it
    Word launches_of_others;    // of all other threads
    alignas(64) Word head;      // tickets given out
    alignas(64) Word lost;      // samples that found the ring full
    alignas(4096) Cell ring[kRingCells];
};

struct Page {
    DaemonHalf daemon;
    std::byte gap[kProcessHalf - sizeof(DaemonHalf)];
    ProcessHalf process;
};
static_assert(offsetof(Page, process) == kProcessHalf);
static_assert(alignof(Page) == 4096, "mmap promises no more");
inline constexpr size_t kPageBytes = sizeof(Page);

// Kernels of the process that went through the partitioner.
inline uint64_t launches(const Page& page) {
    return page.process.launches.load(std::memory_order_relaxed) +
           page.process.launches_of_others.load(std::memory_order_relaxed);
}

// ---- vudad's side

// One thread at a time.
class SplitWriter {
 public:
    explicit SplitWriter(DaemonHalf& half) : half_(half) {}

    void publish(const Split& split) {
        const uint64_t next = version_ + 1;  // our own count: what the page says could have been changed
        SplitSlot& slot = half_.splits[next % kSplitSlots];
        // Release: a reader that meets one of these in a slot which it took for an older version sees that the version
        // has moved.
        slot.generation.store(split.generation, std::memory_order_release);
        slot.mode_and_tpcs.store(uint64_t{static_cast<uint32_t>(split.mode)} << 32 | split.applied_tpcs,
                                 std::memory_order_release);
        for (size_t i = 0; i < kMaskWords; ++i) slot.disable[i].store(split.disable[i], std::memory_order_release);
        slot.graphics_permille.store(split.graphics_permille, std::memory_order_release);
        slot.frame_ns.store(split.frame_ns, std::memory_order_release);
        half_.version.store(next, std::memory_order_release);
        version_ = next;
    }

    // Kinds of sample that the process should take from now on, wanted_bit() of each.
    void want(uint32_t kinds) { half_.wanted.store(kinds, std::memory_order_relaxed); }

 private:
    DaemonHalf& half_;
    uint64_t version_ = 0;
};

// Takes samples out. One thread at a time. Whatever the process writes, a call does bounded work and reads inside the
// page only.
class SampleReader {
 public:
    explicit SampleReader(Page& page) : page_(page) {}

    // Calls take(const Sample&) for each complete sample, oldest first, kRingCells at most. Returns how many there
    // were.
    template <typename Take>
    size_t drain(Take take) {
        size_t taken = 0;
        for (uint64_t left = kRingCells; left > 0; --left) {
            Sample sample;
            const Found found = look(sample);
            if (found == Found::kNothing && !give_up_on_cell()) break;
            if (found == Found::kSample) {
                take(static_cast<const Sample&>(sample));
                ++taken;
            } else {
                ++bad_;
            }
            ++tail_;
        }
        waiting_ = claimed() ? tail_ + 1 : 0;
        page_.daemon.tail.store(tail_, std::memory_order_release);
        return taken;
    }

    // Cells that held no sample: never completed, or of an unknown kind.
    uint64_t bad() const { return bad_; }

    // The process's own word for it.
    uint64_t lost() const { return page_.process.lost.load(std::memory_order_relaxed); }
    uint64_t launches() const { return page::launches(page_); }
    uint64_t applied_generation() const { return page_.process.applied.load(std::memory_order_acquire); }
    uint64_t refused() const { return page_.process.refused.load(std::memory_order_relaxed); }
    uint64_t native() const { return page_.process.native.load(std::memory_order_relaxed); }
    bool paces() const { return page_.process.paces.load(std::memory_order_relaxed) != 0; }

 private:
    enum class Found { kSample, kNothing, kBad };

    Found look(Sample& out) const {
        const Cell& cell = page_.process.ring[tail_ % kRingCells];
        if (cell.sequence.load(std::memory_order_acquire) != tail_ + 1) return Found::kNothing;
        const uint64_t packed = cell.kind_and_duration.load(std::memory_order_relaxed);
        out.end_ns = cell.end_ns.load(std::memory_order_relaxed);
        out.id = cell.id.load(std::memory_order_relaxed);
        const auto kind = static_cast<uint32_t>(packed >> 56);
        if (kind < 1 || kind > kSampleKinds) return Found::kBad;
        out.kind = static_cast<SampleKind>(kind);
        out.duration_ns = packed & kDurationLimit;
        return Found::kSample;
    }

    // Somebody took the ticket of the cell that comes next, if the process's word is to be believed.
    bool claimed() const { return page_.process.head.load(std::memory_order_relaxed) - tail_ - 1 < kRingCells; }

    // A thread that ended between taking its ticket and completing the cell would hold up all that follow. A cell that
    // the last drain already waited for is passed over.
    bool give_up_on_cell() const { return waiting_ == tail_ + 1 && claimed(); }

    Page& page_;
    uint64_t tail_ = 0;     // our own: the page's is for the process to read
    uint64_t waiting_ = 0;  // 1 + the tail whose cell the last drain waited for; 0: it waited for none
    uint64_t bad_ = 0;
};

// ---- The process's side. Any thread, any number of them.

// False when vudad changed the split several times during the call: keep to the one read before.
inline bool read_split(const DaemonHalf& half, Split& out) {
    for (int attempt = 0; attempt < 4; ++attempt) {
        const uint64_t version = half.version.load(std::memory_order_acquire);
        const SplitSlot& slot = half.splits[version % kSplitSlots];
        Split read;
        read.generation = slot.generation.load(std::memory_order_acquire);
        const uint64_t packed = slot.mode_and_tpcs.load(std::memory_order_acquire);
        for (size_t i = 0; i < kMaskWords; ++i) read.disable[i] = slot.disable[i].load(std::memory_order_acquire);
        read.graphics_permille = static_cast<uint32_t>(slot.graphics_permille.load(std::memory_order_acquire));
        read.frame_ns = slot.frame_ns.load(std::memory_order_acquire);
        // The writer comes to this slot again kSplitSlots - 1 versions later.
        if (half.version.load(std::memory_order_relaxed) - version >= kSplitSlots - 1) continue;
        read.mode = static_cast<SplitMode>(packed >> 32);
        read.applied_tpcs = static_cast<uint32_t>(packed);
        out = read;
        return true;
    }
    return false;
}

class SampleWriter {
 public:
    explicit SampleWriter(Page& page) : page_(page) {}

    bool wanted(SampleKind kind) const {
        return (page_.daemon.wanted.load(std::memory_order_relaxed) & wanted_bit(kind)) != 0;
    }

    // False: nobody listens, or the ring is full and the sample was counted as lost.
    bool push(const Sample& sample) {
        if (!wanted(sample.kind)) return false;
        ProcessHalf& half = page_.process;
        uint64_t ticket = half.head.load(std::memory_order_relaxed);
        do {
            // A difference below zero is a ticket that went stale since; the exchange notices.
            if (static_cast<int64_t>(ticket - page_.daemon.tail.load(std::memory_order_acquire)) >=
                static_cast<int64_t>(kRingCells)) {
                half.lost.fetch_add(1, std::memory_order_relaxed);
                return false;
            }
        } while (!half.head.compare_exchange_weak(ticket, ticket + 1, std::memory_order_relaxed));

        Cell& cell = half.ring[ticket % kRingCells];
        const uint64_t duration = sample.duration_ns < kDurationLimit ? sample.duration_ns : kDurationLimit;
        cell.kind_and_duration.store(uint64_t{static_cast<uint32_t>(sample.kind)} << 56 | duration,
                                     std::memory_order_relaxed);
        cell.end_ns.store(sample.end_ns, std::memory_order_relaxed);
        cell.id.store(sample.id, std::memory_order_relaxed);
        cell.sequence.store(ticket + 1, std::memory_order_release);
        return true;
    }

    void count_launch() { page_.process.launches_of_others.fetch_add(1, std::memory_order_relaxed); }
    // The same without a locked instruction, which before a launch would wait for all that the driver has just written
    // to the GPU's queue. Always the same thread of the process.
    void count_own_launch() {
        Word& launches = page_.process.launches;
        launches.store(launches.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    void set_applied(uint64_t generation) { page_.process.applied.store(generation, std::memory_order_release); }
    void count_refused(uint32_t kernels = 1) { page_.process.refused.fetch_add(kernels, std::memory_order_relaxed); }
    void count_native() { page_.process.native.fetch_add(1, std::memory_order_relaxed); }
    void set_paces() { page_.process.paces.store(1, std::memory_order_relaxed); }
    uint64_t applied() const { return page_.process.applied.load(std::memory_order_relaxed); }

 private:
    Page& page_;
};

}  // namespace vuda::page
