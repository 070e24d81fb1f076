#include "probe/limit_plan.h"

#include <algorithm>

namespace vuda::probe {
namespace {

constexpr double kBesideAtMost = 1.0 / 3;  // of a frame
constexpr double kWaitsAtLeast = 0.6;
constexpr uint32_t kFramesAtLeast = 5;
constexpr uint32_t kTriesOfOneSize = 2;

std::string number(double value) {
    std::string text = std::to_string(value);
    text.resize(text.find('.') + 3);
    return text;
}

}  // namespace

std::string_view outcome_name(Outcome outcome) {
    switch (outcome) {
        case Outcome::kBeside: return "beside";
        case Outcome::kWaits: return "waits";
        case Outcome::kDies: return "dies";
        case Outcome::kUnclear: return "unclear";
    }
    return "";
}

std::string_view agreement_name(Agreement agreement) {
    switch (agreement) {
        case Agreement::kAgrees: return "agrees";
        case Agreement::kNotContradicted: return "not contradicted";
        case Agreement::kContradicted: return "contradicted";
        case Agreement::kUnknown: return "unknown";
    }
    return "";
}

Judgement judge(const PairReport& report) {
    const auto unclear = [&](const std::string& why) {
        return Judgement{Outcome::kUnclear, report.error.empty() ? why : why + ": " + report.error};
    };
    if (!report.tried) return unclear("no kernel of that size was launched");
    if (report.control) {
        const Phase& control = *report.control;
        if (control.frames < kFramesAtLeast) return unclear("no frames were drawn beside the kernels");
        if (control.median_ms > control.frame_ms * kBesideAtMost) {
            return unclear("the pair does not share: the smallest kernel took " + number(control.median_ms) +
                           " ms beside frames of " + number(control.frame_ms) + " ms");
        }
    }
    // A pair that hangs after that may not have been able to tell how the smallest kernel went.
    if (report.lost || report.hung || report.crashed) return {Outcome::kDies, ""};
    if (!report.control) return unclear("the pair does not tell how the smallest kernel went");
    if (!report.subject) return unclear("CUDA did not run the kernel");
    if (report.wrong != 0) return unclear(std::to_string(report.wrong) + " results were wrong");
    const Phase& subject = *report.subject;
    if (subject.frames < kFramesAtLeast) return unclear("no frames were drawn beside the kernels");
    if (subject.median_ms <= subject.frame_ms * kBesideAtMost) return {Outcome::kBeside, ""};
    if (subject.median_ms >= subject.frame_ms * kWaitsAtLeast) return {Outcome::kWaits, ""};
    return unclear("a kernel took " + number(subject.median_ms) + " ms beside frames of " + number(subject.frame_ms) +
                   " ms, which is neither");
}

uint32_t careful_pick(uint32_t count, uint32_t deaths) {
    if (count <= 1) return 0;
    // Sizes whose boundary t tries find with d deaths: the sum of t over i, i from 1 to d. reach[d] is that for the
    // tries so far, before[d] for one try less.
    std::vector<uint64_t> reach(deaths + 1, 0), before;
    while (reach[deaths] < count) {
        before = reach;
        for (uint32_t d = 1; d <= deaths; ++d) reach[d] = before[d] + before[d - 1] + 1;
    }
    // If this one dies, the sizes below it are for one death less and one try less.
    return static_cast<uint32_t>(std::min<uint64_t>(before[deaths - 1], count - 1));
}

bool LimitSearch::tried(uint32_t bytes) const { return std::ranges::find(tried_, bytes) != tried_.end(); }

std::optional<uint32_t> LimitSearch::next() const {
    if (unclear_in_a_row_ >= kTriesOfOneSize) return std::nullopt;
    if (again_ != 0) return again_;
    // What is known to be harmless comes first: it shows that pairs can be made at all.
    for (const uint32_t bytes : {terms_.from, terms_.table.beside, terms_.table.bytes}) {
        const bool wanted = !terms_.search || (bytes >= terms_.from && bytes <= terms_.to);
        if (bytes != 0 && wanted && !tried(bytes) && (found_.smallest_dying == 0 || bytes < found_.smallest_dying))
            return bytes;
    }
    if (!terms_.search) return std::nullopt;
    if (const auto bytes = next_limit()) return bytes;
    return next_waiting();
}

// Where kernels begin to end the pair.
std::optional<uint32_t> LimitSearch::next_limit() const {
    const uint32_t runs = found_.largest_running;
    if (!terms_.over || runs == 0 || found_.deaths >= terms_.deaths) return std::nullopt;
    const uint32_t end = found_.smallest_dying != 0 ? found_.smallest_dying : terms_.to + 1;
    if (end <= runs + terms_.step) return std::nullopt;
    // If the table is right, one death shows it.
    if (runs == terms_.table.bytes && found_.smallest_dying == 0) return runs + terms_.step;
    const uint32_t count = (end - 1 - runs) / terms_.step;
    return runs + terms_.step * (1 + careful_pick(count, terms_.deaths - found_.deaths));
}

// Where they begin to wait. No size above one that ran is tried here.
std::optional<uint32_t> LimitSearch::next_waiting() const {
    const uint32_t low = found_.largest_beside;
    const uint32_t high = found_.smallest_waiting;
    if (low == 0 || high == 0) return std::nullopt;
    const uint32_t count = (high - low) / terms_.step;
    if (count <= 1) return std::nullopt;
    return low + terms_.step * (count / 2);
}

void LimitSearch::add(uint32_t bytes, Outcome outcome) {
    if (outcome == Outcome::kUnclear) {
        found_.unclear = true;
        again_ = bytes;
        ++unclear_in_a_row_;
        return;
    }
    again_ = 0;
    unclear_in_a_row_ = 0;
    found_.unclear = false;
    tried_.push_back(bytes);
    const auto smaller = [&](uint32_t& what) { what = what == 0 ? bytes : std::min(what, bytes); };
    switch (outcome) {
        case Outcome::kBeside:
            found_.largest_beside = std::max(found_.largest_beside, bytes);
            found_.largest_running = std::max(found_.largest_running, bytes);
            break;
        case Outcome::kWaits:
            smaller(found_.smallest_waiting);
            found_.largest_running = std::max(found_.largest_running, bytes);
            break;
        case Outcome::kDies:
            smaller(found_.smallest_dying);
            ++found_.deaths;
            break;
        case Outcome::kUnclear: break;
    }
}

TableVerdict compare(const limits::ScgLimit& table, const Found& found, uint32_t step) {
    const auto bytes = [](uint32_t value) { return std::to_string(value) + " bytes"; };
    if (found.smallest_dying != 0 && found.smallest_dying <= table.bytes) {
        return {Agreement::kContradicted, "a kernel of " + bytes(found.smallest_dying) +
                                              " ends the pair, which the table lets run: please report this"};
    }
    if (found.largest_running > table.bytes) {
        return {Agreement::kContradicted,
                "kernels run up to " + bytes(found.largest_running) + ", more than the table's " + bytes(table.bytes)};
    }
    if (table.beside != 0 && found.smallest_waiting != 0 && found.smallest_waiting <= table.beside) {
        return {Agreement::kContradicted, "a kernel of " + bytes(found.smallest_waiting) +
                                              " waits for frames to end, which the table says runs beside them"};
    }
    if (found.unclear || found.largest_running == 0) return {Agreement::kUnknown, "the tries do not tell"};
    const bool limit_shown =
        found.largest_running == table.bytes && found.smallest_dying != 0 && found.smallest_dying <= table.bytes + step;
    const bool beside_shown =
        table.beside == 0 || (found.largest_beside == table.beside && found.smallest_waiting <= table.beside + step);
    if (limit_shown && beside_shown) {
        return {Agreement::kAgrees, "kernels run up to " + bytes(table.bytes) + " as in the table, and " +
                                        bytes(found.smallest_dying) + " end the pair"};
    }
    // It promises no more than `beside`: cards differ.
    if (table.beside != 0 && found.largest_beside > table.beside) {
        return {Agreement::kNotContradicted, "a kernel of " + bytes(found.largest_beside) +
                                                 " runs beside frames here, where the table promises it up to " +
                                                 bytes(table.beside)};
    }
    return {Agreement::kNotContradicted, "nothing that was tried contradicts the table"};
}

}  // namespace vuda::probe
