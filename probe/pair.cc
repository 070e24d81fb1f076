#include "probe/pair.h"

#include <dlfcn.h>
#include <sysexits.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "client/session_abi.h"

namespace vuda::probe {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kLaunchesAtLeast = 10;

void tell(std::FILE* out, const Json& line) {
    std::fprintf(out, "%s\n", line.dump().c_str());
    std::fflush(out);
}

Json error_json(const Error& error) { return {{"text", error.to_string()}, {"lost", error.code == Code::kDataLoss}}; }

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

struct Launches {
    double begun_ms = 0;
    double ended_ms = 0;
    std::vector<double> ms;
};

// One after the other for so long. The first few are left out: memory and clocks get ready.
Status launch_for(Pair& pair, uint32_t bytes, double seconds, Launches& out) {
    for (int i = 0; i < 3; ++i) {
        if (const auto ms = pair.launch(bytes); !ms) return ms.error();
    }
    const auto begun = PairClock::now();
    const auto end = begun + std::chrono::duration_cast<PairClock::duration>(std::chrono::duration<double>(seconds));
    out.begun_ms = pair_ms(begun);
    while (PairClock::now() < end || out.ms.size() < kLaunchesAtLeast) {
        const auto ms = pair.launch(bytes);
        if (!ms) return ms.error();
        out.ms.push_back(*ms);
        out.ended_ms = pair_ms(PairClock::now());
    }
    return {};
}

Json phase_json(const Launches& launches, const std::vector<PairFrame>& frames) {
    std::vector<double> between;
    uint32_t inside = 0;
    for (size_t i = 1; i < frames.size(); ++i) {
        if (frames[i].end_ms < launches.begun_ms || frames[i].end_ms > launches.ended_ms) continue;
        ++inside;
        between.push_back(frames[i].end_ms - frames[i - 1].end_ms);
    }
    return {{"launches", launches.ms.size()},
            {"median_ms", median(launches.ms)},
            {"frames", inside},
            {"frame_ms", median(std::move(between))}};
}

// Ends and joins the renderer's thread.
class Drawing {
 public:
    explicit Drawing(Pair& pair) : pair_(pair), thread_([this] { drawn_ = pair_.draw(); }) {}
    ~Drawing() { static_cast<void>(end()); }
    Drawing(const Drawing&) = delete;
    Drawing& operator=(const Drawing&) = delete;
    const Status& end() {
        if (thread_.joinable()) {
            pair_.stop();
            thread_.join();
        }
        return drawn_;
    }

 private:
    Pair& pair_;
    Status drawn_;
    std::thread thread_;  // last: it uses the others
};

template <typename Number>
bool read(const char* text, Number& out) {
    const char* end = text + std::strlen(text);
    const auto [at, error] = std::from_chars(text, end, out);
    return error == std::errc() && at == end;
}

}  // namespace

Status set_l1(uint32_t value) {
    using Send = int (*)(uint32_t value, vuda_private_error * error);
    const auto send = reinterpret_cast<Send>(::dlsym(RTLD_DEFAULT, "vuda_shim_private_l1"));
    if (send == nullptr) return Error{Code::kFailedPrecondition, "libvuda_preload.so is not in this process", ""};
    vuda_private_error error{};
    if (send(value, &error) == 0) return {};
    return Error{static_cast<Code>(error.code), error.text, error.hint};
}

int try_pair(Pair& pair, const PairOptions& options, std::FILE* out) {
    const Result<PairGpu> gpu = pair.open();
    if (!gpu) {
        tell(out, {{"pair", {{"error", error_json(gpu.error())}}}});
        return exit_status(gpu.error().code);
    }
    Json made = {{"gpu", gpu->name},          {"driver", gpu->driver},
                 {"cuda", gpu->cuda},         {"capability", {gpu->capability_major, gpu->capability_minor}},
                 {"reserved", gpu->reserved}, {"largest", gpu->largest}};
    if (options.l1) {
        if (const Status set = set_l1(*options.l1); !set) {
            made["error"] = error_json(set.error());
            tell(out, {{"pair", made}});
            return EX_SOFTWARE;
        }
        made["l1"] = *options.l1;
    }
    tell(out, {{"pair", made}});

    Launches control, subject;
    Json result = Json::object();
    Json last = Json::object();
    {
        Drawing drawing(pair);
        Status ran = launch_for(pair, gpu->reserved, options.seconds / 2, control);
        if (ran) {
            tell(out, {{"tries", options.bytes}});
            ran = launch_for(pair, options.bytes, options.seconds, subject);
            if (!ran) result["error"] = error_json(ran.error());
        } else {
            last["error"] = error_json(ran.error());
        }
        uint64_t wrong = 0;
        if (ran) {
            const Result<uint64_t> counted = pair.wrong_results();
            if (counted)
                wrong = *counted;
            else
                result["error"] = error_json(counted.error());
        }
        result["wrong"] = wrong;
        tell(out, {{"launches", result}});
        const Status& drawn = drawing.end();
        if (!drawn) last["error"] = error_json(drawn.error());
        const std::vector<PairFrame> frames = pair.frames();
        last["wrong"] = pair.wrong_frames();
        if (!control.ms.empty()) last["control"] = phase_json(control, frames);
        if (!subject.ms.empty()) last["subject"] = phase_json(subject, frames);
    }
    tell(out, {{"frames", last}});
    return EX_OK;
}

bool parse_pair_options(int argc, char** argv, PairOptions& options, std::string& gpu) {
    bool good = argc % 2 == 1;
    for (int i = 1; good && i + 1 < argc; i += 2) {
        const std::string_view name = argv[i];
        const char* value = argv[i + 1];
        if (name == "--gpu") {
            gpu = value;
        } else if (name == "--bytes") {
            good = read(value, options.bytes) && options.bytes > 0;
        } else if (name == "--l1") {
            options.l1 = 0;
            good = read(value, *options.l1);
        } else if (name == "--seconds") {
            good = read(value, options.seconds) && options.seconds > 0 && options.seconds <= 60;
        } else {
            good = false;
        }
    }
    if (!good || options.bytes == 0) {
        std::fprintf(stderr,
                     "usage: %s --gpu GPU --bytes BYTES [--l1 VALUE] [--seconds SECONDS]; vuda-probe limit starts it\n",
                     argv[0]);
        return false;
    }
    return true;
}

}  // namespace vuda::probe
