#include "tuner/level_curve.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace vuda::tuner {
namespace {

constexpr double kLeastFactor = 1e-9;
constexpr double kMostFactor = 1e9;

}  // namespace

void LevelCurve::reset(std::vector<double> capacity) {
    capacity_ = std::move(capacity);
    shape_.assign(capacity_.size(), 0);
    known_.clear();
    known_.reserve(capacity_.size());
    all_.resize(capacity_.size());
    changed_from_ = 0;
    changed_to_ = capacity_.size();
    stale_at_ = 0;
    best_shape_ = 0;
    known_at_.assign(capacity_.size(), 0);
    learned_.assign(capacity_.size(), 0);
    factor_ = 1;
    anchor_ = SIZE_MAX;
}

void LevelCurve::adopt(const LevelCurve& from, const std::vector<size_t>& from_index) {
    factor_ = from.factor_;
    for (size_t level = 0; level < shape_.size(); ++level) {
        if (from_index[level] == SIZE_MAX) continue;
        if (const double shape = from.shape_[from_index[level]]; shape > 0) set_shape(level, shape);
        known_at_[level] = from.known_at_[from_index[level]];
        learned_[level] = from.learned_[from_index[level]];
    }
}

void LevelCurve::set_shape(size_t level, double shape) {
    const double before = std::exchange(shape_[level], shape);
    const auto place = std::lower_bound(known_.begin(), known_.end(), level);
    const auto at = static_cast<size_t>(place - known_.begin());
    if (before == 0) known_.insert(place, static_cast<uint16_t>(level));
    if (shape >= best_shape_) {
        best_shape_ = shape;
    } else if (before == best_shape_) {
        best_shape_ = *std::max_element(shape_.begin(), shape_.end());
    }
    // Guesses rest on two measured levels on each side at most.
    renew(at >= 2 ? known_[at - 2] : 0, at + 2 < known_.size() ? known_[at + 2] : shape_.size());
}

void LevelCurve::renew(size_t from, size_t to) {
    changed_from_ = std::min(changed_from_, from);
    changed_to_ = std::max(changed_to_, to);
}

void LevelCurve::enter(size_t level, TimeNs now, bool calm) {
    anchor_ = level;
    arriving_ = forced_ = !calm;
    taught_ = false;
    entered_ = observed_ = now;
    if (level < shape_.size()) renew(level, level + 1);  // it is not stale any more
    if (calm || (known_at_[level] != 0 && now - known_at_[level] > kStaleAfter)) learned_[level] = 0;
}

bool LevelCurve::teach(size_t level, double speed, TimeNs now) {
    if (!(speed > 0) || !std::isfinite(speed)) return false;
    if (level != anchor_) enter(level, now);
    known_at_[level] = now;
    return true;
}

bool LevelCurve::observe(size_t level, double speed, TimeNs now) {
    if (!teach(level, speed, now)) return false;
    if (shape_[level] == 0) doubt_factor(level, speed, now);
    const double shape = shape_[level];
    // After a forced change to a level that is known, a difference is the load's.
    if (std::exchange(arriving_, false) && shape > 0) factor_ = std::clamp(speed / shape, kLeastFactor, kMostFactor);
    // Where a miss has led to, a jump is the load's, mostly of a burst that ends, even while the shape is learned.
    const bool jump = forced_ && taught_ && std::abs(speed / shape / factor_ - 1) > kShift;
    if (shape == 0 || (learned_[level] < kLearning && !jump)) {
        set_shape(level, speed / factor_);
        taught_ = true;
        learned_[level] += now - observed_;
        observed_ = now;
        return false;
    }
    const double deviation = std::abs(speed / shape / factor_ - 1);
    if (deviation > kFollow) factor_ = std::clamp(speed / shape, kLeastFactor, kMostFactor);
    return deviation > kShift;
}

bool LevelCurve::doubtful(size_t level, double speed) const {
    if (level != anchor_ || arriving_ || shape_[level] == 0 || learned_[level] < kLearning) return false;
    const double deviation = std::abs(speed / shape_[level] / factor_ - 1);
    return deviation > kFollow && deviation <= kDoubtful;
}

void LevelCurve::observe_miss(size_t level, double speed, TimeNs now) {
    if (!teach(level, speed, now)) return;
    if (shape_[level] == 0 || now - entered_ < kSurprise) {
        set_shape(level, speed / factor_);
        taught_ = true;
    } else {
        if (now - missed_ > kDoubt || factor_before_ == 0) factor_before_ = factor_;
        missed_ = now;
        factor_ = std::clamp(speed / shape_[level], kLeastFactor, kMostFactor);
    }
}

// A level is measured for the first time just after a miss.  Either the load has grown for good, then factor_ is right,
// or it was a burst and factor_before_ is: the one that puts the new level between "as its neighbour" and "in
// proportion".
void LevelCurve::doubt_factor(size_t level, double speed, TimeNs now) {
    if (factor_before_ == 0 || now - missed_ > kDoubt) return;
    size_t near = SIZE_MAX;
    for (size_t i = 0; i < shape_.size(); ++i) {
        if (shape_[i] == 0) continue;
        if (near == SIZE_MAX ||
            std::abs(capacity_[i] - capacity_[level]) < std::abs(capacity_[near] - capacity_[level]))
            near = i;
    }
    if (near == SIZE_MAX) return;
    const double proportional = shape_[near] * capacity_[level] / capacity_[near];
    const auto [least, most] = std::minmax(shape_[near], proportional);
    const auto outside = [&, least = least, most = most](double factor) {
        const double shape = speed / factor;
        return shape < least ? least / shape : shape > most ? shape / most : 1.0;
    };
    if (outside(factor_before_) < outside(factor_)) factor_ = factor_before_;
    factor_before_ = 0;
}

void LevelCurve::scale(double factor) { factor_ = std::clamp(factor_ * factor, kLeastFactor, kMostFactor); }

Knowledge LevelCurve::measured(size_t level, TimeNs now) const {
    const bool stale = level != anchor_ && now - known_at_[level] > kStaleAfter;
    return stale ? Knowledge::kStale : Knowledge::kMeasured;
}

LevelCurve::Gap LevelCurve::gap(const size_t (&below)[2], const size_t (&above)[2]) const {
    Gap gap;
    const auto line = [&](size_t a, size_t b) {
        gap.slope = (shape_[b] - shape_[a]) / (capacity_[b] - capacity_[a]);
        gap.offset = shape_[a] - gap.slope * capacity_[a];
    };
    if (below[0] != SIZE_MAX && above[0] != SIZE_MAX) {
        gap.knowledge = Knowledge::kInterpolated;
        line(below[0], above[0]);
        return gap;
    }
    const size_t* side = below[0] != SIZE_MAX ? below : above;
    if (side[0] == SIZE_MAX) return gap;
    gap.same = shape_[side[0]];
    gap.proportion = gap.same / capacity_[side[0]];
    gap.knowledge = Knowledge::kGuess;
    if (side[1] == SIZE_MAX) {
        gap.slope = gap.proportion;
        return gap;
    }
    gap.knowledge = Knowledge::kExtrapolated;
    line(side[0], side[1]);
    return gap;
}

Estimate LevelCurve::guess(size_t level, const Gap& gap) const {
    const double straight = gap.offset + gap.slope * capacity_[level];
    if (gap.knowledge != Knowledge::kExtrapolated) return {straight, gap.knowledge};
    // A straight line may leave the possible: between "no gain" and "in proportion".
    const double proportional = gap.proportion * capacity_[level];
    const bool more = proportional > gap.same;
    // The farther of the two was better, against all sense: one of them was measured badly.
    const bool against = more ? straight < gap.same * (1 - kFollow) : straight > gap.same * (1 + kFollow);
    const double least = more ? gap.same : proportional, most = more ? proportional : gap.same;
    const double within = std::min(std::max(straight, least), most);
    return {against ? (gap.same + proportional) / 2 : within, against ? Knowledge::kGuess : gap.knowledge};
}

// Loops without a branch, which the compiler makes vectors of.
void LevelCurve::guess(size_t from, size_t to, const Gap& gap) {
    const double* const capacity = capacity_.data();
    double* const speed = all_.speed.data();
    // A line that goes against all sense does so most of all at the farther end.
    if (gap.knowledge == Knowledge::kExtrapolated &&
        (guess(from, gap).knowledge == Knowledge::kGuess || guess(to - 1, gap).knowledge == Knowledge::kGuess)) {
        for (size_t level = from; level < to; ++level) {
            const Estimate one = guess(level, gap);
            speed[level] = one.speed;
            all_.knowledge[level] = one.knowledge;
        }
        return;
    }
    std::fill(all_.knowledge.data() + from, all_.knowledge.data() + to, gap.knowledge);
    const double offset = gap.offset, slope = gap.slope, same = gap.same, proportion = gap.proportion;
    if (gap.knowledge != Knowledge::kExtrapolated) {
        for (size_t level = from; level < to; ++level) speed[level] = offset + slope * capacity[level];
    } else if (proportion * capacity[from] > same) {
        for (size_t level = from; level < to; ++level) {
            const double straight = offset + slope * capacity[level], most = proportion * capacity[level];
            const double at_least = straight < same ? same : straight;
            speed[level] = at_least < most ? at_least : most;
        }
    } else {
        for (size_t level = from; level < to; ++level) {
            const double straight = offset + slope * capacity[level], least = proportion * capacity[level];
            const double at_most = straight < same ? straight : same;
            speed[level] = at_most < least ? least : at_most;
        }
    }
}

Estimate LevelCurve::at(size_t level, TimeNs now) const {
    if (shape_[level] > 0) return {factor_ * shape_[level], measured(level, now)};
    const auto next = static_cast<size_t>(std::lower_bound(known_.begin(), known_.end(), level) - known_.begin());
    const Estimate one = guess(level, around(next));
    return {factor_ * one.speed, one.knowledge};
}

// The gap before the measured level number `next`, or behind the last.
LevelCurve::Gap LevelCurve::around(size_t next) const {
    const auto known = [this](size_t i) { return i < known_.size() ? size_t{known_[i]} : SIZE_MAX; };
    return gap({known(next - 1), known(next - 2)}, {known(next), known(next + 1)});
}

const Estimates& LevelCurve::all(TimeNs now) {
    if (changed_from_ >= changed_to_ && now < stale_at_) return all_;
    if (now >= stale_at_) {
        changed_from_ = 0;
        changed_to_ = shape_.size();
        stale_at_ = INT64_MAX;
    }
    const auto from = std::lower_bound(known_.begin(), known_.end(), changed_from_);
    auto i = static_cast<size_t>(from - known_.begin());
    for (size_t level = i == 0 ? 0 : known_[i - 1] + 1u; level < changed_to_; ++i) {
        const size_t end = i < known_.size() ? known_[i] : shape_.size();
        if (level < end) guess(level, end, around(i));
        if (end == shape_.size()) break;
        all_.speed[end] = shape_[end];
        all_.knowledge[end] = measured(end, now);
        if (all_.knowledge[end] == Knowledge::kMeasured) stale_at_ = std::min(stale_at_, known_at_[end] + kStaleAfter);
        level = end + 1;
    }
    changed_from_ = shape_.size();
    changed_to_ = 0;
    return all_;
}

}  // namespace vuda::tuner
