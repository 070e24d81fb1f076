#include "shim/partition/native_errand.h"

namespace vuda::partition {

void NativeErrand::on_upload(uint8_t* qmd, CuContext from) {
    if (layout == nullptr || !has_version(*layout, qmd)) return;
    switch (kind) {
        case Kind::kQuiet: return;
        case Kind::kWithhold:
            if (from != context) return;
            banks = read_module_banks(*layout, qmd);
            make_empty(*layout, qmd);
            came = true;
            return;
        case Kind::kRun:
            came = from == context && write_module_banks(*layout, qmd, banks);
            // Better nothing than a kernel that works on other variables than the program's.
            if (!came) make_empty(*layout, qmd);
            return;
        case Kind::kGraph:
            if (from == context && map->give(*layout, qmd)) ++given;
            return;
        case Kind::kSkip: came = false; return;
    }
}

}  // namespace vuda::partition
