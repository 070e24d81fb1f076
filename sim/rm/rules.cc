#include "sim/rm/rules.h"

#include <array>

namespace vuda::sim {

namespace {

constexpr std::array<RuleInfo, kRuleCount> kRules = {{
#define VUDA_SIM_RULE(enumerator, name, what, source) {Rule::enumerator, name, what, source},
    VUDA_SIM_RULES(VUDA_SIM_RULE)
#undef VUDA_SIM_RULE
}};

}  // namespace

std::span<const RuleInfo> all_rules() { return kRules; }

const RuleInfo& rule_info(Rule rule) { return kRules[static_cast<size_t>(rule)]; }

std::optional<Rule> find_rule(std::string_view name) {
    for (const RuleInfo& info : kRules) {
        if (info.name == name) return info.rule;
    }
    return std::nullopt;
}

}  // namespace vuda::sim
