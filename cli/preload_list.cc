#include "cli/preload_list.h"

#include <algorithm>

namespace vuda::cli {
namespace {

constexpr std::string_view kShimName = "libvuda_preload.so";
constexpr std::string_view kSimName = "libvuda_sim.so";

std::string_view file_name(std::string_view path) {
    const size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool is_separator(char c) { return c == ':' || c == ' '; }

}  // namespace

std::vector<std::string> split_preload(std::string_view value) {
    std::vector<std::string> entries;
    size_t start = 0;
    for (size_t i = 0; i <= value.size(); ++i) {
        if (i < value.size() && !is_separator(value[i])) continue;
        if (i > start) entries.emplace_back(value.substr(start, i - start));
        start = i + 1;
    }
    return entries;
}

std::string edit_preload(std::string_view current, const PreloadEdit& edit) {
    std::vector<std::string> entries = split_preload(current);
    const auto named = [](std::string_view name) {
        return [name](const std::string& entry) { return file_name(entry) == name; };
    };

    // The sim entry is taken out first and put back behind the shim, wherever that ends up. Its own place counts only
    // when there is no shim yet.
    std::string sim = edit.sim_entry == SimEntry::kInsert ? edit.sim : std::string();
    const auto first_sim = std::find_if(entries.begin(), entries.end(), named(kSimName));
    if (first_sim != entries.end() && edit.sim_entry == SimEntry::kKeep) sim = *first_sim;

    auto place = std::find_if(entries.begin(), entries.end(), named(kShimName));
    if (place == entries.end()) place = first_sim;
    if (place == entries.end()) place = entries.insert(place, edit.shim);
    *place = edit.shim;

    std::vector<std::string> result;
    for (auto it = entries.begin(); it != entries.end(); ++it) {
        if (it == place) {
            result.push_back(edit.shim);
            if (!sim.empty()) result.push_back(sim);
        } else if (file_name(*it) != kShimName && file_name(*it) != kSimName) {
            result.push_back(*it);
        }
    }

    std::string joined;
    for (const std::string& entry : result) {
        if (!joined.empty()) joined += ':';
        joined += entry;
    }
    return joined;
}

bool fits_preload_list(std::string_view path) { return !path.empty() && path.find_first_of(": $") == path.npos; }

}  // namespace vuda::cli
