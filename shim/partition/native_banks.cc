#include "shim/partition/native_banks.h"

#include <iterator>

namespace vuda::partition {

bool BankMap::learn(const ModuleBanks& here, const ModuleBanks& home) {
    for (unsigned i = 0; i < std::size(here.banks); ++i) {
        const uint64_t ours = here.banks[i].place, theirs = home.banks[i].place;
        if ((ours == 0) != (theirs == 0) || here.banks[i].size_bits() != home.banks[i].size_bits()) return false;
        const auto known = homes_.find({i, ours});
        if (known != homes_.end() && known->second.place != theirs && known->second.age == age_) return false;
    }
    for (unsigned i = 0; i < std::size(here.banks); ++i) {
        if (here.banks[i].place != 0) homes_[{i, here.banks[i].place}] = {home.banks[i].place, age_};
    }
    return true;
}

bool BankMap::give(const QmdLayout& layout, uint8_t* qmd) const {
    const ModuleBanks ours = read_module_banks(layout, qmd);
    if (!has_variables(ours)) return false;
    ModuleBanks theirs;
    for (unsigned i = 0; i < std::size(ours.banks); ++i) {
        if (ours.banks[i].place == 0) continue;
        const auto home = homes_.find({i, ours.banks[i].place});
        if (home == homes_.end()) return false;
        theirs.banks[i].place = home->second.place;
    }
    return write_module_banks(layout, qmd, theirs);
}

}  // namespace vuda::partition
