// `vudactl doctor`: what on this machine keeps programs from sharing a GPU, and what to do about it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/daemon_client.h"
#include "cli/libraries.h"
#include "cli/run_environment.h"
#include "cli/status_view.h"

namespace vuda::cli {

enum class Outcome { kPass, kFail, kSkip };

struct Check {
    std::string name;  // stable, for scripts: "driver", "device", "uvm", "icd", "libcuda", "socket", "daemon",
                       // "preload", "layer"
    Outcome outcome = Outcome::kSkip;
    std::string detail;  // what was found
    std::string remedy;  // what to do; failed checks always have one
};

struct DoctorInput {
    std::filesystem::path root = "/";  // every path below is looked up in it
    Environment env;
    std::string socket;
    Libraries libraries;
    // Empty: not asked, because the machine under `root` is not the one we run on.
    std::function<Result<v1::HandshakeReply>(const std::string& socket)> ask_daemon;
};

std::vector<Check> examine(const DoctorInput& input);

std::string doctor_text(const std::vector<Check>& checks);
Json doctor_json(const std::vector<Check>& checks);
int failures(const std::vector<Check>& checks);

}  // namespace vuda::cli
