// Which instance of a module's variables in the program's context belongs to which in ours, by the constant banks that
// descriptors of the same kernel had in both (qmd.h, ModuleBanks). Of one context of the program. Pure.
#pragma once

#include <map>
#include <utility>

#include "shim/partition/qmd.h"

namespace vuda::partition {

inline bool has_variables(const ModuleBanks& banks) { return banks != ModuleBanks{}; }

class BankMap {
 public:
    // A kernel has `here` in our context and `home` in the program's. False, and it is not taken in: they are not
    // alike, or what is known already says otherwise.
    bool learn(const ModuleBanks& here, const ModuleBanks& home);
    // Modules went away: what was learned before may be wrong of those that come to the same place.
    void outdate() { ++age_; }
    // Gives the program's to a descriptor that has ours. False, and nothing is changed: it has none of the known ones.
    bool give(const QmdLayout& layout, uint8_t* qmd) const;

 private:
    struct Home {
        uint64_t place;
        unsigned age;
    };
    std::map<std::pair<unsigned, uint64_t>, Home> homes_;  // by bank and place in ours
    unsigned age_ = 0;
};

}  // namespace vuda::partition
