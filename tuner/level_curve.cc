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
    known_at_.assign(capacity_.size(), 0);
    learned_.assign(capacity_.size(), 0);
    factor_ = 1;
    anchor_ = SIZE_MAX;
}

void LevelCurve::adopt(const LevelCurve& from, const std::vector<size_t>& from_index) {
    factor_ = from.factor_;
    for (size_t level = 0; level < shape_.size(); ++level) {
        if (from_index[level] == SIZE_MAX) continue;
        shape_[level] = from.shape_[from_index[level]];
        known_at_[level] = from.known_at_[from_index[level]];
        learned_[level] = from.learned_[from_index[level]];
    }
}

void LevelCurve::enter(size_t level, TimeNs now, bool calm) {
    anchor_ = level;
    arriving_ = !calm;
    entered_ = observed_ = now;
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
    double& shape = shape_[level];
    // After a forced change to a level that is known, a difference is the load's.
    if (std::exchange(arriving_, false) && shape > 0) factor_ = std::clamp(speed / shape, kLeastFactor, kMostFactor);
    if (shape == 0 || learned_[level] < kLearning) {
        shape = speed / factor_;
        learned_[level] += now - observed_;
        observed_ = now;
        return false;
    }
    const double deviation = std::abs(speed / shape / factor_ - 1);
    if (deviation > kFollow) factor_ = std::clamp(speed / shape, kLeastFactor, kMostFactor);
    return deviation > kShift;
}

void LevelCurve::observe_miss(size_t level, double speed, TimeNs now) {
    if (!teach(level, speed, now)) return;
    if (shape_[level] == 0 || now - entered_ < kSurprise) {
        shape_[level] = speed / factor_;
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

Estimate LevelCurve::measured(size_t level, TimeNs now) const {
    const bool stale = level != anchor_ && now - known_at_[level] > kStaleAfter;
    return {shape_[level] * factor_, stale ? Knowledge::kStale : Knowledge::kMeasured};
}

LevelCurve::Gap LevelCurve::gap(const size_t (&below)[2], const size_t (&above)[2]) const {
    Gap gap;
    const auto line = [&](size_t a, size_t b) {
        gap.slope = factor_ * (shape_[b] - shape_[a]) / (capacity_[b] - capacity_[a]);
        gap.offset = factor_ * shape_[a] - gap.slope * capacity_[a];
    };
    if (below[0] != SIZE_MAX && above[0] != SIZE_MAX) {
        gap.knowledge = Knowledge::kInterpolated;
        line(below[0], above[0]);
        return gap;
    }
    const size_t* side = below[0] != SIZE_MAX ? below : above;
    if (side[0] == SIZE_MAX) return gap;
    gap.same = factor_ * shape_[side[0]];
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
    if (more ? straight < gap.same * (1 - kFollow) : straight > gap.same * (1 + kFollow))
        return {(gap.same + proportional) / 2, Knowledge::kGuess};
    return {std::clamp(straight, more ? gap.same : proportional, more ? proportional : gap.same), gap.knowledge};
}

Estimate LevelCurve::at(size_t level, TimeNs now) const {
    if (shape_[level] > 0) return measured(level, now);
    size_t below[2] = {SIZE_MAX, SIZE_MAX}, above[2] = {SIZE_MAX, SIZE_MAX};
    for (size_t i = level; i-- > 0 && below[1] == SIZE_MAX;) {
        if (shape_[i] > 0) below[below[0] == SIZE_MAX ? 0 : 1] = i;
    }
    for (size_t i = level + 1; i < shape_.size() && above[1] == SIZE_MAX; ++i) {
        if (shape_[i] > 0) above[above[0] == SIZE_MAX ? 0 : 1] = i;
    }
    return guess(level, gap(below, above));
}

void LevelCurve::all(TimeNs now, std::vector<Estimate>& out) const {
    out.resize(shape_.size());
    size_t below[2] = {SIZE_MAX, SIZE_MAX};
    for (size_t level = 0; level < shape_.size();) {
        if (shape_[level] > 0) {
            out[level] = measured(level, now);
            below[1] = below[0];
            below[0] = level++;
            continue;
        }
        // The next two measured levels serve the whole gap.
        size_t above[2] = {SIZE_MAX, SIZE_MAX}, end = level;
        for (; end < shape_.size() && shape_[end] == 0; ++end) {
        }
        if (end < shape_.size()) above[0] = end;
        for (size_t i = end + 1; i < shape_.size() && above[1] == SIZE_MAX; ++i) {
            if (shape_[i] > 0) above[1] = i;
        }
        for (const Gap whole = gap(below, above); level < end; ++level) out[level] = guess(level, whole);
    }
}

double LevelCurve::best_known() const { return factor_ * *std::max_element(shape_.begin(), shape_.end()); }

}  // namespace vuda::tuner
