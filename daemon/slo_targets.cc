#include "daemon/slo_targets.h"

#include <charconv>
#include <limits>
#include <vector>

#include "daemon/registry.h"
#include "daemon/state_words.h"

namespace vuda::daemon {
namespace {

constexpr std::string_view kFormat = "vuda-targets";
constexpr std::string_view kVersion = "1";
constexpr size_t kNames = 1024;  // as many as splits are kept for

std::string text_of(double value) {
    char text[32];
    const auto [end, error] = std::to_chars(text, text + sizeof text, value);
    return error == std::errc() ? std::string(text, end) : "0";
}

std::string words_for(const tuner::ComputeTarget& target) {
    return text_of(target.latency_ms) + " " + text_of(target.latency_miss) + " " + text_of(target.throughput);
}

// Three words from `first` on.
bool read(const std::vector<std::string_view>& words, size_t first, tuner::ComputeTarget& out) {
    tuner::ComputeTarget target;
    if (words.size() != first + 3 || !read_number(words[first], target.latency_ms) ||
        !read_number(words[first + 1], target.latency_miss) || !read_number(words[first + 2], target.throughput) ||
        !target.validate() || !target.any())
        return false;
    out = target;
    return true;
}

// Bounded; the process with the lowest pid goes for a new one.
template <typename Value>
void keep(std::map<ProcessKey, Value>& of, const ProcessKey& process, const Value& value, bool any) {
    if (!any) {
        of.erase(process);
        return;
    }
    if (!of.contains(process) && of.size() >= kOwnTargets) of.erase(of.begin());
    of[process] = value;
}

// One line of the file after its first. False: it says nothing valid.
bool read_line(const std::vector<std::string_view>& words, bool this_boot, TargetTable& table, NameTargets*& current) {
    if (words[0] == "name") {
        current = nullptr;
        NameTargets targets;
        if (words.size() != 4 || !valid_name(words[1]) || !read_number(words[2], targets.uid) || table.size() >= kNames)
            return false;
        if (words[3] != "auto" && words[3] != "kept") return false;
        targets.automatic = words[3] == "auto";
        current = &table.insert_or_assign(std::string(words[1]), std::move(targets)).first->second;
        return true;
    }
    if (current == nullptr) return false;
    if (words[0] == "frames") {
        tuner::GraphicsTarget target;
        if (words.size() != 3 || !read_number(words[1], target.frame_ms) || !read_number(words[2], target.miss) ||
            !target.validate())
            return false;
        current->frames = target;
        return true;
    }
    if (words[0] == "steps") return read(words, 1, current->steps);
    if (words[0] == "weight") {
        ProcessKey key;
        double weight = 0;
        if (words.size() != 4 || !read_number(words[1], key.pid) || !read_number(words[2], key.unique) ||
            !read_number(words[3], weight) || !tuner::validate_weight(weight))
            return false;
        if (this_boot && current->weights.size() < kOwnTargets) current->weights[key] = weight;
        return true;
    }
    if (words[0] == "process") {
        ProcessKey key;
        tuner::ComputeTarget target;
        if (words.size() < 3 || !read_number(words[1], key.pid) || !read_number(words[2], key.unique) ||
            !read(words, 3, target))
            return false;
        if (this_boot && current->own.size() < kOwnTargets) current->own[key] = target;
        return true;
    }
    return false;
}

}  // namespace

bool NameTargets::any() const { return frames.any() || steps.any() || !own.empty(); }

const tuner::ComputeTarget& NameTargets::of(const ProcessKey& process) const {
    const auto found = own.find(process);
    return found == own.end() ? steps : found->second;
}

double NameTargets::weight_of(const ProcessKey& process) const {
    const auto found = weights.find(process);
    return found == weights.end() ? 1 : found->second;
}

Status apply(const v1::SetTargetsRequest& request, bool owner, const ProcessKey* process, NameTargets& targets) {
    const tuner::GraphicsTarget frames{request.frame_ms(), request.frame_miss()};
    const tuner::ComputeTarget steps{request.latency_ms(), request.latency_miss(), request.throughput()};
    if (Status valid = frames.validate(); !valid) return valid;
    if (Status valid = steps.validate(); !valid) return valid;
    if (request.weight() != 0) {
        if (Status valid = tuner::validate_weight(request.weight()); !valid) return valid;
    }
    if (frames.any() && !owner)
        return Error{Code::kInvalidArgument, "frame_ms is a target of a renderer that owns a name",
                     "latency_ms and throughput are compute's"};
    if ((steps.any() || request.weight() != 0) && process == nullptr)
        return Error{Code::kInvalidArgument, "latency_ms, throughput and weight are of a process that shares a TSG",
                     "frame_ms is the renderer's"};
    if (owner) targets.frames = frames;
    if (process == nullptr) return {};
    keep(targets.own, *process, steps, steps.any());
    keep(targets.weights, *process, request.weight(), request.weight() != 0);
    return {};
}

Status apply(const v1::SetSloRequest& request, const ProcessKey* process, NameTargets& targets) {
    const bool frames = request.frame_ms() != 0 || request.frame_miss() != 0;
    const bool steps = request.latency_ms() != 0 || request.latency_miss() != 0 || request.throughput() != 0;
    const bool weight = request.weight() != 0;
    if (request.clear()) {
        if (frames || steps || weight)
            return Error{Code::kInvalidArgument, "clear goes with no target", "clear first, then set"};
        if (process != nullptr) {
            targets.own.erase(*process);
            targets.weights.erase(*process);
        } else {
            targets.frames = {};
            targets.steps = {};
            targets.own.clear();
            targets.weights.clear();
        }
        return {};
    }
    if (!frames && !steps && !weight)
        return Error{Code::kInvalidArgument, "no target was given", "frame_ms, latency_ms or throughput; or clear"};
    if (weight && process == nullptr)
        return Error{Code::kInvalidArgument, "weight is of one session", "name the session"};
    if (weight) {
        if (Status valid = tuner::validate_weight(request.weight()); !valid) return valid;
    }
    if (frames && process != nullptr)
        return Error{Code::kInvalidArgument, "frame_ms is not a target of a compute session",
                     "leave the session out: frames are the owner's"};
    const tuner::GraphicsTarget frame_target{request.frame_ms(), request.frame_miss()};
    const tuner::ComputeTarget step_target{request.latency_ms(), request.latency_miss(), request.throughput()};
    if (Status valid = frame_target.validate(); frames && !valid) return valid;
    if (Status valid = step_target.validate(); steps && !valid) return valid;
    if (frames) targets.frames = frame_target;
    if (process == nullptr) {
        if (steps) targets.steps = step_target;
        return {};
    }
    if (steps) keep(targets.own, *process, step_target, true);
    if (weight) keep(targets.weights, *process, request.weight(), true);
    return {};
}

std::string to_text(const TargetTable& table, std::string_view boot) {
    std::string text = std::string(kFormat) + " " + std::string(kVersion) + " " + std::string(boot) + "\n";
    for (const auto& [name, targets] : table) {
        if (targets.empty()) continue;
        text += "name " + name + " " + std::to_string(targets.uid) + (targets.automatic ? " auto\n" : " kept\n");
        if (targets.frames.any())
            text += "frames " + text_of(targets.frames.frame_ms) + " " + text_of(targets.frames.miss) + "\n";
        if (targets.steps.any()) text += "steps " + words_for(targets.steps) + "\n";
        for (const auto& [process, target] : targets.own)
            text += "process " + std::to_string(process.pid) + " " + std::to_string(process.unique) + " " +
                    words_for(target) + "\n";
        for (const auto& [process, weight] : targets.weights)
            text += "weight " + std::to_string(process.pid) + " " + std::to_string(process.unique) + " " +
                    text_of(weight) + "\n";
    }
    return text;
}

TargetTable parse_targets(std::string_view text, std::string_view boot, size_t& bad_lines) {
    TargetTable table;
    bad_lines = 0;
    bool known = false;
    bool this_boot = false;
    bool first = true;
    NameTargets* current = nullptr;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::vector<std::string_view> words = words_of(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (first) {
            first = false;
            known = words.size() >= 2 && words[0] == kFormat && words[1] == kVersion;
            this_boot = words.size() == 3 && !boot.empty() && words[2] == boot;
            if (!known) ++bad_lines;
            continue;
        }
        if (words.empty()) continue;
        if (!known || !read_line(words, this_boot, table, current)) ++bad_lines;
    }
    std::erase_if(table, [](const auto& entry) { return entry.second.empty(); });
    return table;
}

}  // namespace vuda::daemon
