#include "tuner/shares.h"

#include <algorithm>
#include <cmath>

namespace vuda::tuner {

void divide(uint32_t level, const std::vector<Claim>& claims, std::vector<SessionShare>& out) {
    out.clear();
    double sum = 0;
    uint32_t counted = 0;
    for (const Claim& claim : claims) {
        if (!claim.counted) continue;
        sum += claim.weight;
        ++counted;
    }
    std::vector<std::pair<double, size_t>> remainders;
    uint32_t given = 0;
    for (const Claim& claim : claims) {
        SessionShare share;
        share.session = claim.session;
        share.counted = claim.counted;
        if (!claim.counted) {
            share.share = 1;
            share.tpcs = level;
        } else {
            share.share = claim.weight / sum;
            const double exact = share.share * level;
            share.tpcs = std::max<uint32_t>(1, static_cast<uint32_t>(exact));
            remainders.emplace_back(exact - share.tpcs, out.size());
            given += share.tpcs;
        }
        out.push_back(share);
    }
    if (counted == 0) return;
    std::stable_sort(remainders.begin(), remainders.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (size_t i = 0; given < level; i = (i + 1) % remainders.size(), ++given) ++out[remainders[i].second].tpcs;
    // The minimum of one may have given out too many: take from those that have most above their due.
    while (given > std::max(level, counted)) {
        SessionShare* most = nullptr;
        for (SessionShare& share : out) {
            if (!share.counted || share.tpcs < 2) continue;
            if (most == nullptr || share.tpcs - share.share * level > most->tpcs - most->share * level) most = &share;
        }
        if (most == nullptr) break;
        --most->tpcs;
        --given;
    }
    uint32_t next = 0;
    for (SessionShare& share : out) {
        if (!share.counted) continue;
        share.first_tpc = next % level;
        next += share.tpcs;
    }
}

}  // namespace vuda::tuner
