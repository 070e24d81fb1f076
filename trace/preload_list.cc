#include "trace/preload_list.h"

#include <vector>

namespace vuda::trace {
namespace {

// The dynamic linker takes colons and spaces as separators.
std::vector<std::string_view> entries(std::string_view list) {
    std::vector<std::string_view> out;
    while (!list.empty()) {
        const size_t end = list.find_first_of(": ");
        if (end != 0) out.push_back(list.substr(0, end));
        list.remove_prefix(end == list.npos ? list.size() : end + 1);
    }
    return out;
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::string with_library(std::string_view list, std::string_view library) {
    std::string out;
    bool placed = false;
    const auto add = [&out](std::string_view entry) {
        if (!out.empty()) out += ':';
        out += entry;
    };
    const std::vector<std::string_view> have = entries(list);
    for (const std::string_view entry : have) placed = placed || entry == library;
    for (const std::string_view entry : have) {
        if (!placed && base_name(entry) == "libvuda_sim.so") {
            add(library);
            placed = true;
        }
        add(entry);
    }
    if (!placed) add(library);
    return out;
}

}  // namespace vuda::trace
