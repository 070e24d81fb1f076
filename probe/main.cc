// vuda-probe: finds out what a GPU can do for the partitioner, on a timeslice group of its own, and prints a report.
#include <sysexits.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "probe/limit_command.h"
#include "probe/private_tsg.h"
#include "shim/partition/levels.h"
#include "shim/partition/rm_topology.h"
#include "shim/partition/scg.h"

namespace {

using namespace vuda;
using Json = nlohmann::json;

constexpr auto kLimit = std::chrono::milliseconds(1000);

std::string hex(uint32_t value) {
    char text[16];
    std::snprintf(text, sizeof text, "%04x", value);
    return text;
}

int status_for(const Error& error) {
    switch (error.code) {
        case Code::kNotFound:
        case Code::kUnavailable: return EX_UNAVAILABLE;
        case Code::kFailedPrecondition: return EX_CONFIG;
        default: return EX_SOFTWARE;
    }
}

class Report {
 public:
    explicit Report(bool json) : json_(json) {}

    void fact(const std::string& name, const Json& value) {
        facts_[name] = value;
        if (!json_)
            std::printf("%-22s %s\n", (name + ":").c_str(),
                        value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
    }
    // One submission. False: the channel is dead, and nothing more may be sent.
    bool step(const std::string& name, partition::ShadowChannel& channel, uint32_t compute_class,
              const std::vector<partition::Method>& methods) {
        Json sent = Json::array();
        for (const partition::Method& method : methods) sent.push_back({hex(method.address), method.data});
        const auto words = partition::push_buffer(compute_class, methods, channel.semaphore(), channel.next_payload());
        const auto took = channel.submit(words, kLimit);
        Json line = {{"step", name}, {"methods", sent}, {"ok", took.ok()}};
        if (took) {
            line["us"] = static_cast<double>(took->count()) / 1000;
        } else {
            line["error"] = took.error().text;
        }
        steps_.push_back(line);
        if (!json_)
            std::printf("%-44s %s\n", name.c_str(),
                        took ? (std::to_string(took->count() / 1000) + " us").c_str() : took.error().text.c_str());
        return took.ok();
    }
    int finish(const std::string& verdict, int status) {
        facts_["steps"] = steps_;
        fact("verdict", verdict);
        if (json_) std::printf("%s\n", facts_.dump().c_str());
        return status;
    }

 private:
    bool json_;
    Json facts_ = Json::object();
    Json steps_ = Json::array();
};

int fail(const Error& error) {
    std::fprintf(stderr, "vuda-probe: %s\n", error.to_string().c_str());
    return status_for(error);
}

int scg(int gpu, bool json, bool send) {
    Result<probe::PrivateTsg> tsg = probe::PrivateTsg::make(gpu);
    if (!tsg) return fail(tsg.error());
    const uint32_t cls = tsg->classes().compute;
    Report report(json);
    report.fact("gpu", gpu);
    report.fact("driver", tsg->driver());
    report.fact("compute class", hex(cls));
    report.fact("channel class", hex(tsg->classes().gpfifo));
    const Result<partition::GpuLayout> layout = partition::read_layout(
        [&](uint32_t command, void* params, uint32_t size) { return tsg->subdevice_control(command, params, size); });
    if (layout) {
        const partition::Topology& topology = layout->topology;
        report.fact("gpcs", topology.gpc_count());
        report.fact("tpcs", topology.tpcs.size());
        report.fact("tpcs with graphics", topology.graphics_count());
        report.fact("sms", topology.sm_count());
    } else {
        report.fact("layout", layout.error().text);
    }

    Result<partition::ShadowChannel> channel =
        partition::ShadowChannel::make(probe::PrivateTsg::os(), tsg->abi(), tsg->place());
    if (!channel) return fail(channel.error());
    if (!report.step("a channel of our own runs", *channel, cls, {}))
        return report.finish("a plain channel does not run", EX_SOFTWARE);
    if (!partition::has_scg(cls)) {
        return report.finish(
            "this GPU's compute class has no SCG control methods; none was sent. VUDA uses launch masks here", EX_OK);
    }
    if (!send) {
        return report.finish(
            "this GPU's compute class has SCG control methods; add --send to try them on a timeslice group that "
            "nothing else uses",
            EX_OK);
    }
    if (!layout)
        return report.finish("the layout is unknown, so no level can be tried; please send this report", EX_OK);
    const partition::Topology& topology = layout->topology;
    const Result<partition::Levels> levels = partition::Levels::make(topology, partition::Mode::kInterSm);
    if (!levels) return report.finish(levels.error().text, EX_OK);
    const auto sms_per_tpc = static_cast<uint32_t>(topology.sm_count() / topology.tpcs.size());
    for (const uint32_t tpcs : levels->counts()) {
        const auto methods = partition::scg_methods(cls, partition::Mode::kInterSm, tpcs * sms_per_tpc);
        if (!methods) return fail(methods.error());
        if (!report.step("inter-sm, " + std::to_string(tpcs) + " TPCs for compute", *channel, cls, *methods))
            return report.finish("the GPU refused; please send this report", EX_SOFTWARE);
    }
    const auto back = partition::scg_methods(cls, partition::Mode::kIntraSm, 0);
    if (!back) return fail(back.error());
    if (!report.step("intra-sm again", *channel, cls, *back))
        return report.finish("the GPU refused; please send this report", EX_SOFTWARE);
    return report.finish("every method ran; please send this report", EX_OK);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Finds out what a GPU can do for VUDA, on channels of its own"};
    app.set_version_flag("--version", VUDA_VERSION);
    app.require_subcommand(1);
    int gpu = 0;
    bool json = false;
    bool send = false;
    CLI::App* command =
        app.add_subcommand("scg", "SCG control methods: is there what mode inter-sm needs on Turing to Ada?");
    command->add_option("--gpu", gpu, "N of /dev/nvidiaN")->check(CLI::Range(0, 31));
    command->add_flag("--json", json, "One line of JSON instead of text");
    command->add_flag("--send", send,
                      "Also send the methods, where the class has them. Save your work first: a GPU that takes one "
                      "badly needs a reboot");
    command->footer(
        "Needs no privilege and changes nothing that outlives it. Exit status: 0 as reported, 69 no GPU or driver, 70 "
        "the GPU refused\n"
        "something, 78 a driver whose layouts are not known.");
    probe::LimitOptions limit;
    const auto add_pair_options = [&](CLI::App& to) {
        to.add_option("--gpu", limit.gpu, "N of /dev/nvidiaN")->check(CLI::Range(0, 31));
        to.add_flag("--json", limit.json, "One line of JSON instead of text");
        to.add_option("--seconds", limit.seconds, "Seconds of launches of each size")
            ->check(CLI::Range(0.1, 30.0))
            ->capture_default_str();
        to.add_option("--step", limit.step, "Bytes between two sizes")
            ->check(CLI::Range(128, 65536))
            ->capture_default_str();
        to.add_option("--pair", limit.pair)->group("");
        to.add_option("--device", limit.device)->group("");
    };
    CLI::App* limits =
        app.add_subcommand("limit", "Shared memory a block may take beside graphics: is it what VUDA's table says?");
    add_pair_options(*limits);
    limits->add_flag("--all", limit.all,
                     "Also sizes above the limit, which end a timeslice group of vuda-probe's own and leave an Xid in "
                     "the kernel's log");
    CLI::Option* from = limits->add_option("--from", limit.from, "Search from this size on, bytes a block");
    CLI::Option* to = limits->add_option("--to", limit.to, "Up to this one");
    from->check(CLI::Range(2048, 1 << 20))->needs(to);
    to->check(CLI::Range(2048, 1 << 20))->needs(from);
    limits->add_option("--deaths", limit.deaths, "With --all: groups that may be ended at the most")
        ->check(CLI::Range(1, 16))
        ->capture_default_str();
    const char* const pair_footer =
        "Tries kernels beside a small renderer, in processes of its own that share with nobody. Sizes are bytes of "
        "shared memory a block\nas the launch descriptor counts them. Needs no privilege and changes nothing that "
        "outlives it. Exit status: 0 as reported, 69 no GPU,\ndriver or renderer, 70 the table is wrong or the GPU "
        "took it badly, 75 the tries do not tell, 78 a driver whose layouts are not known.";
    limits->footer(pair_footer);
    CLI::App* l1 = app.add_subcommand("l1", "Does the 3D class's SET_L1_CONFIGURATION move that limit?");
    add_pair_options(*l1);
    l1->add_flag("--all", limit.all, "Also a size above the limit, as with limit");
    l1->add_option("--values", limit.values,
                   "Values to send. On an H200 1 was a class error (Xid 69), after which that GPU took no renderer "
                   "until it was reset")
        ->required()
        ->delimiter(',')
        ->check(CLI::Range(1, 6));
    l1->footer(pair_footer);
    try {
        app.parse(argc, argv);
        if (limits->parsed() && limit.to != 0 && limit.to <= limit.from)
            throw CLI::ValidationError("--to", "not above --from");
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? EX_OK : EX_USAGE;
    }
    if (limits->parsed()) return probe::limit_command(limit);
    if (l1->parsed()) return probe::l1_command(limit);
    return scg(gpu, json, send);
}
