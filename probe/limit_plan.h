// Which sizes of shared memory to try on a private pair of a renderer and a kernel, what each try means, and what all
// of them say about the table (shim/limits/scg_limit.h). Pure.
//
// Sizes are bytes of one block as the launch descriptor counts them. It is taken for granted that what holds for a size
// holds for the smaller ones (it runs) or the larger ones (it waits, it ends the pair).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shim/limits/scg_limit.h"

namespace vuda::probe {

// Launches of one kernel, one after the other, each waited for, while frames are drawn.
struct Phase {
    uint32_t launches = 0;
    double median_ms = 0;  // from a launch to its end
    uint32_t frames = 0;   // that ended meanwhile
    double frame_ms = 0;   // from one's end to the next one's, median
};

// What is known of one pair when its process has ended.
struct PairReport {
    uint32_t bytes = 0;
    std::optional<Phase> control;  // a kernel of the smallest size
    bool tried = false;            // a kernel of `bytes` was launched
    std::optional<Phase> subject;
    bool lost = false;     // CUDA or Vulkan said that the device is lost
    bool hung = false;     // the process did not come to an end
    bool crashed = false;  // a signal ended it
    uint64_t wrong = 0;    // results of kernels or frames that were not what they should have been
    std::string error;     // in words; empty: none
};

enum class Outcome {
    kBeside,   // runs while frames are drawn
    kWaits,    // runs once the frame is done
    kDies,     // ends the pair
    kUnclear,  // nothing can be said; Judgement::why
};
std::string_view outcome_name(Outcome outcome);

struct Judgement {
    Outcome outcome = Outcome::kUnclear;
    std::string why;  // kUnclear: the reason
};

// A kernel that runs beside frames takes less than a third of one, one that waits more than six tenths: with frames 20
// times as long as the kernel neither is near that.
Judgement judge(const PairReport& report);

// `count` sizes in ascending order, of which none, or all from some size on, end the pair: which to try first (0 is the
// smallest), so that the boundary is found with `deaths` (> 0) deaths at the most, and in as few tries as that allows.
uint32_t careful_pick(uint32_t count, uint32_t deaths);

struct SearchTerms {
    limits::ScgLimit table;
    uint32_t from = 0;     // known to run beside graphics, or to be tried first
    uint32_t to = 0;       // the largest size
    uint32_t step = 1024;  // between two sizes
    bool search = false;   // else only what the table says is tried
    bool over = false;     // sizes above the table's limit, too: that ends pairs
    uint32_t deaths = 2;   // so many at the most
};

// What the tries have shown so far; 0: nothing.
struct Found {
    uint32_t largest_beside = 0;
    uint32_t smallest_waiting = 0;
    uint32_t largest_running = 0;  // beside or not
    uint32_t smallest_dying = 0;
    uint32_t deaths = 0;
    bool unclear = false;
};

class LimitSearch {
 public:
    explicit LimitSearch(const SearchTerms& terms) : terms_(terms) {}

    // The next size to try; nullopt: that was all, or no more deaths are allowed.
    std::optional<uint32_t> next() const;
    void add(uint32_t bytes, Outcome outcome);
    const Found& found() const { return found_; }

 private:
    bool tried(uint32_t bytes) const;
    std::optional<uint32_t> next_limit() const;
    std::optional<uint32_t> next_waiting() const;

    SearchTerms terms_;
    Found found_;
    std::vector<uint32_t> tried_;
    uint32_t unclear_in_a_row_ = 0;
    uint32_t again_ = 0;  // the size whose outcome was unclear
};

enum class Agreement { kAgrees, kNotContradicted, kContradicted, kUnknown };
std::string_view agreement_name(Agreement agreement);

struct TableVerdict {
    Agreement agreement = Agreement::kUnknown;
    std::string text;
};

TableVerdict compare(const limits::ScgLimit& table, const Found& found, uint32_t step);

}  // namespace vuda::probe
