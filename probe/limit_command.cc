#include "probe/limit_command.h"

#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/uuid.h"
#include "probe/limit_plan.h"
#include "probe/pair_child.h"
#include "probe/private_tsg.h"
#include "rm/abi.h"

namespace vuda::probe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Runs beside graphics on every GPU that is known: shows that pairs can be made.
constexpr uint32_t kHarmless = 16 * 1024;

std::string now() {
    const std::time_t seconds = std::time(nullptr);
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

// The build tree, an unpacked archive or the installed place.
std::string find_preload(const fs::path& bin) {
    for (const fs::path& folder : {bin / "../lib", bin / VUDA_RELATIVE_LIBDIR, fs::path(VUDA_INSTALLED_LIBDIR)}) {
        std::error_code ignored;
        const fs::path file = (folder / "libvuda_preload.so").lexically_normal();
        if (fs::is_regular_file(file, ignored)) return file.string();
    }
    return "";
}

// How both drivers know /dev/nvidiaN.
Result<std::string> uuid_of(int gpu) {
    Result<PrivateTsg> tsg = PrivateTsg::make(gpu);
    if (!tsg) return tsg.error();
    rm::GidInfoParams gid{};
    gid.flags = rm::kGidBinary;
    Uuid uuid;
    if (tsg->subdevice_control(rm::ctrl::kGpuGetGidInfo, &gid, sizeof gid) != rm::nv::kOk ||
        gid.length != uuid.bytes.size()) {
        return Error{Code::kInternal, "the driver does not tell the GPU's UUID", ""};
    }
    std::memcpy(uuid.bytes.data(), gid.data, uuid.bytes.size());
    return uuid.to_string();
}

// Makes pairs and writes down what becomes of them.
class Tries {
 public:
    static Result<Tries> prepare(const LimitOptions& options);

    // What becomes of a kernel of that size on a new pair. kUnclear, with error(): no pair could be made.
    Judgement run(uint32_t bytes, std::optional<uint32_t> l1 = std::nullopt);
    const std::optional<PairGpu>& gpu() const { return gpu_; }
    limits::ScgLimit table() const { return limits::scg_limit(gpu_->capability_major, gpu_->capability_minor); }
    const Error& error() const { return error_; }
    bool last_died() const { return last_died_; }
    // Whether pairs can still be made and work.
    bool fresh_pair_works() {
        say("a fresh pair, to see whether all is well");
        return run(kHarmless).outcome == Outcome::kBeside;
    }
    int finish(const Json& report, const std::string& verdict, const std::string& text, int status);

 private:
    explicit Tries(const LimitOptions& options) : options_(options) {}
    void say(const std::string& line) const {
        if (!options_.json) std::printf("%s\n", line.c_str());
    }

    LimitOptions options_;
    PairCommand command_;
    std::optional<PairGpu> gpu_;
    Error error_{Code::kOk, "", ""};
    bool last_died_ = false;
    Json tries_ = Json::array();
};

Result<Tries> Tries::prepare(const LimitOptions& options) {
    Tries tries(options);
    std::error_code ignored;
    const fs::path bin = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    const bool simulated = std::getenv("VUDA_SIM_SOCKET") != nullptr;
    tries.command_.program =
        options.pair.empty() ? (bin / (simulated ? "vuda-sim-pair" : "vuda-probe-pair")).string() : options.pair;
    // Before a GPU is looked for: whoever lacks it shall hear of it on any machine.
    if (const Status there = pair_is_there(tries.command_.program); !there) return there.error();
    tries.command_.preload = find_preload(bin);
    if (tries.command_.preload.empty()) {
        return Error{Code::kUnavailable, "libvuda_preload.so is neither beside this program nor installed",
                     "a pair needs it to share"};
    }
    tries.command_.gpu = options.device;
    if (options.device.empty()) {
        const Result<std::string> uuid = uuid_of(options.gpu);
        if (!uuid) return uuid.error();
        tries.command_.gpu = *uuid;
    }
    tries.command_.options.seconds = options.seconds;
    return tries;
}

Judgement Tries::run(uint32_t bytes, std::optional<uint32_t> l1) {
    command_.options.bytes = bytes;
    command_.options.l1 = l1;
    const Result<PairRun> ran = run_pair(command_);
    if (!ran) {
        error_ = ran.error();
        return {Outcome::kUnclear, error_.to_string()};
    }
    const PairReport& report = ran->report;
    if (!gpu_) gpu_ = ran->gpu;
    if (!gpu_ && error_.code == Code::kOk) error_ = Error{Code::kUnavailable, report.error, ""};
    Judgement judgement = judge(report);
    // A pair that never came to the kernel may have died of the method.
    last_died_ = judgement.outcome == Outcome::kDies || (l1 && report.lost);
    Json line = {{"bytes", bytes}};
    if (l1) line["l1"] = *l1;
    line["outcome"] = outcome_name(judgement.outcome);
    if (!judgement.why.empty()) line["why"] = judgement.why;
    if (!report.error.empty()) line["error"] = report.error;
    if (report.subject) {
        line["kernel_ms"] = report.subject->median_ms;
        line["frame_ms"] = report.subject->frame_ms;
        line["launches"] = report.subject->launches;
        line["frames"] = report.subject->frames;
    }
    if (report.control) {
        line["smallest_kernel_ms"] = report.control->median_ms;
        line["frame_beside_smallest_ms"] = report.control->frame_ms;
    }
    tries_.push_back(line);
    char text[160];
    std::snprintf(text, sizeof text, "%7u bytes%s  %-8s", bytes,
                  l1 ? (", SET_L1_CONFIGURATION " + std::to_string(*l1)).c_str() : "",
                  std::string(outcome_name(judgement.outcome)).c_str());
    std::string said = text;
    if (report.subject) {
        std::snprintf(text, sizeof text, "  a kernel %.2f ms (the smallest %.2f), a frame %.2f ms",
                      report.subject->median_ms, report.control ? report.control->median_ms : 0.0,
                      report.subject->frame_ms);
        said += text;
    }
    if (!judgement.why.empty()) said += "  " + judgement.why;
    if (judgement.why.empty() && !report.error.empty()) said += "  " + report.error;
    say(said);
    return judgement;
}

int Tries::finish(const Json& report, const std::string& verdict, const std::string& text, int status) {
    Json all = {{"program", "vuda-probe"}, {"date", now()}};
    if (gpu_) {
        all["gpu"] = gpu_->name;
        all["capability"] = std::to_string(gpu_->capability_major) + "." + std::to_string(gpu_->capability_minor);
        all["driver"] = gpu_->driver;
        all["cuda"] = gpu_->cuda;
        const limits::ScgLimit table = this->table();
        all["table"] = {{"bytes", table.bytes}, {"beside", table.beside}, {"measured", table.measured}};
    }
    all["tries"] = tries_;
    all.update(report);
    all["verdict"] = verdict;
    all["text"] = text;
    if (options_.json)
        std::printf("%s\n", all.dump().c_str());
    else
        std::printf("%s: %s\n", verdict.c_str(), text.c_str());
    return status;
}

int fail(const Error& error) {
    std::fprintf(stderr, "vuda-probe: %s\n", error.to_string().c_str());
    return error.code == Code::kNotFound ? EX_UNAVAILABLE : exit_status(error.code);
}

void warn() {
    std::fprintf(stderr,
                 "vuda-probe: this ends timeslice groups of its own; each leaves an Xid in the kernel's log. Other "
                 "programs' are not touched. Should the GPU take it badly all the same, it needs a reset\n");
}

Json found_json(const Found& found) {
    Json json = Json::object();
    const auto put = [&](const char* name, uint32_t bytes) {
        if (bytes != 0) json[name] = bytes;
    };
    put("largest_beside", found.largest_beside);
    put("smallest_waiting", found.smallest_waiting);
    put("largest_running", found.largest_running);
    put("smallest_dying", found.smallest_dying);
    return json;
}

constexpr char kBroken[] = "a fresh pair does not work any more; reset the GPU, or reboot, before it is used to share";

// The first pair, which says what GPU this is. 0: go on.
int begin(Tries& tries) {
    const Judgement first = tries.run(kHarmless);
    if (!tries.gpu()) return fail(tries.error());
    if (first.outcome != Outcome::kBeside)
        return tries.finish({}, "unknown", "no pair can be made that shares: " + first.why, EX_TEMPFAIL);
    return 0;
}

}  // namespace

int limit_command(const LimitOptions& options) {
    Result<Tries> made = Tries::prepare(options);
    if (!made) return fail(made.error());
    Tries& tries = *made;
    if (options.all) warn();
    if (const int status = begin(tries); status != 0) return status;
    const limits::ScgLimit table = tries.table();
    if (options.to > table.bytes && !options.all) {
        std::fprintf(stderr, "vuda-probe: sizes above %u bytes may end the pair: add --all\n", table.bytes);
        return EX_USAGE;
    }
    SearchTerms terms;
    terms.table = table;
    terms.search = options.all || options.to != 0;
    terms.over = options.all;
    terms.step = options.step;
    terms.deaths = options.deaths;
    terms.from = options.from != 0 ? options.from : kHarmless;
    terms.to = options.to != 0 ? options.to : options.all ? tries.gpu()->largest : table.bytes;
    LimitSearch search(terms);
    search.add(kHarmless, Outcome::kBeside);
    bool fresh = true;
    while (const auto bytes = search.next()) {
        search.add(*bytes, tries.run(*bytes).outcome);
        if (tries.last_died()) fresh = tries.fresh_pair_works();
        if (!fresh) break;
    }
    const Found& found = search.found();
    const TableVerdict verdict = compare(table, found, options.step);
    Json report = {{"found", found_json(found)}, {"deaths", found.deaths}, {"fresh_pair_works", fresh}};
    if (!fresh) return tries.finish(report, std::string(agreement_name(verdict.agreement)), kBroken, EX_SOFTWARE);
    const int status = verdict.agreement == Agreement::kContradicted ? EX_SOFTWARE
                       : verdict.agreement == Agreement::kUnknown    ? EX_TEMPFAIL
                                                                     : EX_OK;
    return tries.finish(report, std::string(agreement_name(verdict.agreement)), verdict.text, status);
}

int l1_command(const LimitOptions& options) {
    Result<Tries> made = Tries::prepare(options);
    if (!made) return fail(made.error());
    Tries& tries = *made;
    if (options.all) warn();
    std::fprintf(
        stderr,
        "vuda-probe: a value that this GPU does not know is a class error, which ends the pair, leaves an Xid, "
        "and may leave a GPU that has to be reset\n");
    if (const int status = begin(tries); status != 0) return status;
    const limits::ScgLimit table = tries.table();
    // A size that waits, and with --all one that ends the pair, unless the method moves the limit.
    std::vector<uint32_t> sizes = {table.bytes};
    if (options.all) sizes.push_back(table.bytes + options.step);
    bool fresh = true;
    bool clear = true;
    Json report = {{"moved", Json::array()}};
    for (const uint32_t bytes : sizes) {
        const Outcome before = tries.run(bytes).outcome;
        if (tries.last_died()) fresh = tries.fresh_pair_works();
        for (const uint32_t value : options.values) {
            if (!fresh) break;
            const Outcome after = tries.run(bytes, value).outcome;
            if (tries.last_died()) fresh = tries.fresh_pair_works();
            if (after == Outcome::kUnclear || before == Outcome::kUnclear) {
                clear = false;
            } else if (after != before) {
                report["moved"].push_back({{"value", value},
                                           {"bytes", bytes},
                                           {"before", outcome_name(before)},
                                           {"after", outcome_name(after)}});
            }
        }
        if (!fresh) break;
    }
    report["fresh_pair_works"] = fresh;
    const bool moved = !report["moved"].empty();
    if (!fresh) return tries.finish(report, "broken", kBroken, EX_SOFTWARE);
    if (!moved && !clear) return tries.finish(report, "unknown", "the tries do not tell", EX_TEMPFAIL);
    return tries.finish(report, moved ? "moved" : "not moved",
                        moved ? "the limit depends on SET_L1_CONFIGURATION: please send this report"
                              : "no value that was sent moves the limit",
                        EX_OK);
}

}  // namespace vuda::probe
