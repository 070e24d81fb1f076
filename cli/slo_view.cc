#include "cli/slo_view.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "cli/table.h"

namespace vuda::cli {
namespace {

std::string number(double value, const char* format = "%.4g") {
    char text[40];
    std::snprintf(text, sizeof text, format, value);
    return text;
}

std::string percent(double fraction) { return number(100 * fraction, "%.3g") + "%"; }

std::string kind_name(v1::SloKind kind) {
    switch (kind) {
        case v1::SLO_KIND_FRAME: return "frame";
        case v1::SLO_KIND_LATENCY: return "latency";
        case v1::SLO_KIND_THROUGHPUT: return "throughput";
        default: return "unknown";
    }
}

std::string unit(const v1::SloTarget& target, double value) {
    return number(value) + (target.kind() == v1::SLO_KIND_THROUGHPUT ? " /s" : " ms");
}

void add_rows(Table& table, const v1::TsgInfo& tsg) {
    for (const v1::SloTarget& target : tsg.slo().targets()) {
        const SloWords words = slo_words(target, tsg.slo().automatic());
        table.add({printable(tsg.name()), words.who, words.bound, words.allowed, words.attained, words.missed,
                   words.margin, words.state});
    }
}

const std::vector<std::string> kHeader = {"TARGET OF", "WHO",    "BOUND",  "MAY MISS",
                                          "ATTAINED",  "MISSED", "MARGIN", "STATE"};

}  // namespace

std::string slo_state_name(v1::SloState state, bool automatic) {
    switch (state) {
        case v1::SLO_STATE_NO_DATA: return "no data";
        case v1::SLO_STATE_TUNING: return automatic ? "tuning" : "missed";
        case v1::SLO_STATE_MEETING: return "meeting";
        case v1::SLO_STATE_INFEASIBLE: return automatic ? "infeasible" : "missed";
        default: return "unknown";
    }
}

SloWords slo_words(const v1::SloTarget& target, bool automatic) {
    SloWords words;
    const bool floor = target.kind() == v1::SLO_KIND_THROUGHPUT;
    const bool known = target.samples() > 0;
    words.who = target.kind() == v1::SLO_KIND_FRAME ? "frames"
                : target.session_id() == 0          ? "steps"
                                                    : "session " + std::to_string(target.session_id());
    words.bound = (floor ? ">= " : "") + unit(target, target.bound());
    words.allowed = floor ? "-" : percent(target.allowed_miss());
    words.attained = known ? unit(target, target.attained()) : "-";
    words.missed = known && !floor ? percent(target.miss()) : "-";
    words.margin = known ? percent(target.margin()) : "-";
    words.state = slo_state_name(target.state(), automatic);
    return words;
}

std::string slo_text(const v1::StatusReply& status) {
    Table table(kHeader);
    for (const v1::TsgInfo& tsg : status.tsgs()) add_rows(table, tsg);
    return table.empty() ? "" : table.to_string();
}

std::string slo_text(const v1::TsgInfo& tsg) {
    const v1::SloInfo& slo = tsg.slo();
    const std::string name = printable(tsg.name());
    if (slo.targets().empty() && !slo.automatic()) return name + ": no targets\n";
    std::string text;
    if (!slo.targets().empty()) {
        Table table(kHeader);
        add_rows(table, tsg);
        text = table.to_string();
    }
    if (!slo.automatic()) {
        const v1::PartitionInfo& partition = tsg.partition();
        if (!partition.automatic() && partition.quota_tpcs() > 0) {
            return text + name + ": the quota is fixed at " + std::to_string(partition.quota_tpcs()) +
                   " TPCs; vudactl quota " + name + " auto leaves it to the tuner\n";
        }
        return text + name + ": nothing is tuned" +
               (partition.note().empty() ? "" : ": " + printable(partition.note())) + "\n";
    }
    text += name + ": compute has " + std::to_string(slo.level_tpcs()) + " TPCs";
    if (slo.infeasible()) text += ", the best compromise: no level holds all targets";
    if (slo.holding()) text += "; waits for samples";
    text += "\n";
    if (slo.shares_size() > 1) {
        for (const v1::SloShare& share : slo.shares()) {
            text += "session " + std::to_string(share.session_id()) + ": " +
                    (share.idle() ? "idle, may use all" : std::to_string(share.tpcs()) + " TPCs") + ", weight " +
                    number(share.weight()) + "\n";
        }
    }
    if (!slo.last_change().empty()) text += "last change: " + printable(slo.last_change()) + "\n";
    return text;
}

Json slo_json(const v1::TsgInfo& tsg) {
    if (!tsg.has_slo()) return nullptr;
    const v1::SloInfo& slo = tsg.slo();
    Json json{{"regime", slo.regime()},
              {"automatic", slo.automatic()},
              {"level_tpcs", slo.level_tpcs() == 0 ? Json(nullptr) : Json(slo.level_tpcs())},
              {"holding", slo.holding()},
              {"infeasible", slo.infeasible()},
              {"last_change", slo.last_change()},
              {"shares", Json::array()},
              {"targets", Json::array()}};
    for (const v1::SloShare& share : slo.shares()) {
        json["shares"].push_back(Json{{"session", share.session_id()},
                                      {"weight", share.weight()},
                                      {"tpcs", share.tpcs()},
                                      {"idle", share.idle()}});
    }
    for (const v1::SloTarget& target : slo.targets()) {
        json["targets"].push_back(
            Json{{"kind", kind_name(target.kind())},
                 {"session", target.session_id() == 0 ? Json(nullptr) : Json(target.session_id())},
                 {"state", slo_state_name(target.state(), slo.automatic())},
                 {"bound", target.bound()},
                 {"allowed_miss", target.allowed_miss()},
                 {"attained", target.samples() > 0 ? Json(target.attained()) : Json(nullptr)},
                 {"miss", target.miss()},
                 {"margin", target.margin()},
                 {"samples", target.samples()}});
    }
    return json;
}

Result<double> parse_fraction(const std::string& text) {
    const bool percent = text.ends_with('%');
    const char* end = text.data() + text.size() - (percent ? 1 : 0);
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (percent) value /= 100;
    if (error != std::errc() || stop != end || !(value >= 0 && value <= 1))
        return Error{Code::kInvalidArgument, "'" + text + "' is not a fraction", "0 to 1, or a percentage"};
    return value;
}

}  // namespace vuda::cli
