#include "cli/doctor.h"

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "cli/table.h"
#include "rm/driver_table.h"
#include "rm/driver_version.h"

namespace vuda::cli {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxText = 1 << 20;  // no file read here is near this size

class Doctor {
 public:
    explicit Doctor(const DoctorInput& input) : input_(input) {}

    std::vector<Check> run() {
        if (has_gpu()) {
            driver();
            devices();
            libcuda();
            icd();
        } else {
            add("gpu", Outcome::kSkip, "no NVIDIA driver and no /dev/nvidiactl: GPU programs run here as without VUDA",
                "to try VUDA without a GPU use the simulated one: vudad --sim, then vudactl run as usual");
        }
        daemon();
        libraries();
        return std::move(checks_);
    }

 private:
    fs::path at(const fs::path& path) const { return input_.root / path.relative_path(); }

    bool exists(const fs::path& path) const {
        std::error_code ignored;
        return fs::exists(at(path), ignored);
    }

    std::optional<std::string> read(const fs::path& path) const {
        std::ifstream in(path, std::ios::binary);
        if (!in) return std::nullopt;
        std::string text(kMaxText, '\0');
        in.read(text.data(), static_cast<std::streamsize>(text.size()));
        text.resize(static_cast<size_t>(in.gcount()));
        return text;
    }

    std::vector<fs::path> entries(const fs::path& folder, std::string_view extension) const {
        std::vector<fs::path> found;
        std::error_code failed;
        for (fs::directory_iterator it(at(folder), failed), end; !failed && it != end; it.increment(failed)) {
            if (extension.empty() || it->path().extension() == extension) found.push_back(it->path());
        }
        std::sort(found.begin(), found.end());
        return found;
    }

    void add(std::string name, Outcome outcome, const std::string& detail, std::string remedy = {}) {
        checks_.push_back({std::move(name), outcome, printable(detail), std::move(remedy)});
    }

    bool has_gpu() const { return exists(rm::kDriverVersionFile) || exists("/dev/nvidiactl"); }

    void driver() {
        const std::optional<std::string> text = read(at(rm::kDriverVersionFile));
        if (!text) {
            add("driver", Outcome::kFail, std::string(rm::kDriverVersionFile) + " cannot be read",
                "load the driver: modprobe nvidia");
            return;
        }
        const Result<rm::DriverVersion> version = rm::parse_proc_driver_version(*text);
        if (!version) {
            add("driver", Outcome::kFail, version.error().text,
                "report this file's text: " + std::string(rm::kDriverVersionFile));
            return;
        }
        const rm::DriverSupport support = rm::find_driver(*version);
        std::string detail = version->to_string() + ": " + std::string(rm::verdict_name(support.verdict));
        if (!support.note.empty()) detail += " (" + std::string(support.note) + ")";
        if (rm::redirection_allowed(support.verdict)) {
            add("driver", Outcome::kPass, detail);
        } else {
            add("driver", Outcome::kFail, detail,
                "programs run as without VUDA; install a release that vudactl driver list names");
        }
    }

    void device(const std::string& name, const fs::path& node, const std::string& missing_remedy) {
        const std::string path = at(node).string();
        if (access(path.c_str(), F_OK) != 0) {
            add(name, Outcome::kFail, node.string() + " is missing", missing_remedy);
        } else if (access(path.c_str(), R_OK | W_OK) != 0) {
            add(name, Outcome::kFail, node.string() + ": no permission to read and write",
                "check its mode and group (ls -l " + node.string() +
                    "); some distributions want you in group video or render");
        } else {
            add(name, Outcome::kPass, node.string());
        }
    }

    void devices() {
        const std::string make_nodes =
            "create the nodes: nvidia-modprobe -u -c 0 (once after boot), or start nvidia-persistenced";
        device("device", "/dev/nvidiactl", make_nodes);
        std::set<std::string> minors;
        for (const fs::path& gpu : entries("/proc/driver/nvidia/gpus", "")) {
            const std::string text = read(gpu / "information").value_or("");
            const std::string key = "Device Minor:";
            const size_t start = text.find(key);
            if (start == std::string::npos) continue;
            const size_t digit = text.find_first_of("0123456789", start + key.size());
            if (digit == std::string::npos) continue;
            minors.insert(text.substr(digit, text.find_first_not_of("0123456789", digit) - digit));
        }
        if (minors.empty()) minors.insert("0");
        for (const std::string& minor : minors) device("device", "/dev/nvidia" + minor, make_nodes);
        device("uvm", "/dev/nvidia-uvm",
               "load it and create its node: modprobe nvidia-uvm, then nvidia-modprobe -u -c 0");
    }

    // Folders in which the dynamic loader finds libraries: LD_LIBRARY_PATH, ld.so.conf.d, the usual ones.
    std::vector<fs::path> library_folders() const {
        std::vector<fs::path> folders;
        for (std::string& entry : split(get_env(input_.env, "LD_LIBRARY_PATH").value_or("")))
            folders.emplace_back(std::move(entry));
        for (const fs::path& file : entries("/etc/ld.so.conf.d", ".conf")) {
            const std::string text = read(file).value_or("");
            for (size_t start = 0; start < text.size();) {
                const size_t end = std::min(text.find('\n', start), text.size());
                if (text[start] == '/') folders.emplace_back(text.substr(start, end - start));
                start = end + 1;
            }
        }
        for (const char* usual :
             {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu",
              "/lib/aarch64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/lib", "/usr/local/lib"}) {
            folders.emplace_back(usual);
        }
        return folders;
    }

    // Path (without root) of a library named as ld.so names it; "" if it is nowhere.
    std::string find_library(const std::string& name) const {
        if (name.find('/') != std::string::npos) return exists(name) ? name : std::string();
        for (const fs::path& folder : library_folders()) {
            if (exists(folder / name)) return (folder / name).string();
        }
        return {};
    }

    static std::vector<std::string> split(const std::string& list) {
        std::vector<std::string> items;
        for (size_t start = 0; start < list.size();) {
            const size_t end = std::min(list.find(':', start), list.size());
            if (end > start) items.push_back(list.substr(start, end - start));
            start = end + 1;
        }
        return items;
    }

    void libcuda() {
        const std::string found = find_library("libcuda.so.1");
        if (found.empty()) {
            add("libcuda", Outcome::kFail, "libcuda.so.1 is in none of the loader's folders",
                "install the driver's CUDA library (Debian: libcuda1; containers: run with NVIDIA's container "
                "toolkit)");
        } else {
            add("libcuda", Outcome::kPass, found);
        }
    }

    // "library_path" of a Vulkan driver's or layer's manifest; "" if it is not one.
    static std::string manifest_library(const std::string& text, const char* object) {
        const Json json = Json::parse(text, nullptr, false);
        if (!json.is_object() || !json.contains(object) || !json[object].is_object()) return {};
        const Json& body = json[object];
        if (!body.contains("library_path") || !body["library_path"].is_string()) return {};
        return body["library_path"].get<std::string>();
    }

    // The Vulkan loader's rule: a path with '/' is relative to the manifest, a bare name is searched as dlopen does it.
    std::string library_of_manifest(const fs::path& manifest_on_disk, const std::string& library) const {
        if (library.find('/') == std::string::npos) return find_library(library);
        const fs::path path(library);
        const fs::path on_disk = path.is_absolute() ? at(path) : manifest_on_disk.parent_path() / path;
        std::error_code ignored;
        return fs::exists(on_disk, ignored) ? path.string() : std::string();
    }

    void icd() {
        std::vector<fs::path> manifests;
        std::string chosen_by;
        for (const char* variable : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) {
            const std::string value = get_env(input_.env, variable).value_or("");
            if (value.empty()) continue;
            chosen_by = variable;
            for (const std::string& item : split(value)) manifests.push_back(at(item));
            break;  // the loader ignores the older variable when the newer one is set
        }
        if (chosen_by.empty()) {
            for (const char* folder :
                 {"/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d"}) {
                const std::vector<fs::path> found = entries(folder, ".json");
                manifests.insert(manifests.end(), found.begin(), found.end());
            }
        }
        for (const fs::path& manifest : manifests) {
            const std::string library = manifest_library(read(manifest).value_or(""), "ICD");
            if (library.find("nvidia") == std::string::npos) continue;
            if (library_of_manifest(manifest, library).empty()) {
                add("icd", Outcome::kFail, manifest.string() + " names " + library + ", which is not there",
                    "install the driver's Vulkan library (Debian: nvidia-vulkan-icd; headless: also libegl1)");
            } else {
                add("icd", Outcome::kPass, manifest.string() + " -> " + library);
            }
            return;
        }
        if (!chosen_by.empty()) {
            add("icd", Outcome::kFail, chosen_by + " names no NVIDIA Vulkan driver",
                "unset " + chosen_by + " or name nvidia_icd.json in it");
        } else {
            add("icd", Outcome::kFail,
                "no Vulkan driver manifest of NVIDIA's in /etc/vulkan/icd.d and /usr/share/vulkan/icd.d",
                "install the driver's Vulkan part (Debian: nvidia-vulkan-icd)");
        }
    }

    void daemon() {
        const fs::path socket = at(input_.socket);
        struct stat info {};
        if (stat(socket.c_str(), &info) != 0) {
            add("socket", Outcome::kFail, input_.socket + " is missing",
                "start the daemon: systemctl start vudad (without a GPU: vudad --sim)");
            add("daemon", Outcome::kSkip, "not asked: there is no socket");
            return;
        }
        if (!S_ISSOCK(info.st_mode)) {
            add("socket", Outcome::kFail, input_.socket + " is not a socket", "remove it and start the daemon again");
            add("daemon", Outcome::kSkip, "not asked: there is no socket");
            return;
        }
        if (access(socket.c_str(), R_OK | W_OK) != 0) {
            char buffer[4096];
            struct group entry {};
            struct group* found = nullptr;
            getgrgid_r(info.st_gid, &entry, buffer, sizeof buffer, &found);
            const std::string group = found != nullptr ? found->gr_name : std::to_string(info.st_gid);
            add("socket", Outcome::kFail, input_.socket + ": no permission; it belongs to group " + group,
                "become a member and log in again: usermod -aG " + group + " $USER");
            add("daemon", Outcome::kSkip, "not asked: no permission");
            return;
        }
        add("socket", Outcome::kPass, input_.socket);
        if (!input_.ask_daemon) {
            add("daemon", Outcome::kSkip, "not asked: --root names another machine's files");
            return;
        }
        const Result<v1::HandshakeReply> reply = input_.ask_daemon(input_.socket);
        if (!reply) {
            const std::string& hint = reply.error().hint;
            add("daemon", Outcome::kFail, reply.error().text, hint.empty() ? "see journalctl -u vudad" : hint);
        } else {
            add("daemon", Outcome::kPass,
                "vudad " + reply->daemon_version() + (reply->simulated() ? ", simulated GPU" : ""));
        }
    }

    void libraries() {
        const Libraries& libraries = input_.libraries;
        if (libraries.preload.empty()) {
            std::string looked;
            for (const std::string& folder : libraries.searched) looked += (looked.empty() ? "" : ", ") + folder;
            add("preload", Outcome::kFail, "libvuda_preload.so is not in " + looked,
                "install VUDA's libraries, or use the vudactl of the build tree");
            add("layer", Outcome::kSkip, "not looked for without the preload library");
            return;
        }
        if (!fits(libraries.preload)) {
            add("preload", Outcome::kFail,
                libraries.preload + ": LD_PRELOAD cannot hold a path with a space, ':' or '$'",
                "build or install VUDA in a folder without these characters");
        } else {
            add("preload", Outcome::kPass, libraries.preload);
        }
        if (libraries.layer_manifest.empty()) {
            add("layer", Outcome::kFail, "the Vulkan layer's manifest is not installed",
                "install VUDA's layer (libVkLayer_vuda.so and its manifest)");
            return;
        }
        const std::string library = manifest_library(read(libraries.layer_manifest).value_or(""), "layer");
        if (library.empty()) {
            add("layer", Outcome::kFail, libraries.layer_manifest + " is not a layer manifest", "install VUDA again");
        } else if (library_of_manifest(libraries.layer_manifest, library).empty()) {
            add("layer", Outcome::kFail, libraries.layer_manifest + " names " + library + ", which is not there",
                "install VUDA again");
        } else {
            add("layer", Outcome::kPass, libraries.layer_manifest);
        }
    }

    static bool fits(const std::string& path) { return path.find_first_of(": $") == std::string::npos; }

    const DoctorInput& input_;
    std::vector<Check> checks_;
};

const char* outcome_text(Outcome outcome) {
    switch (outcome) {
        case Outcome::kPass: return "PASS";
        case Outcome::kFail: return "FAIL";
        case Outcome::kSkip: return "SKIP";
    }
    return "?";
}

}  // namespace

std::vector<Check> examine(const DoctorInput& input) { return Doctor(input).run(); }

int failures(const std::vector<Check>& checks) {
    return static_cast<int>(
        std::count_if(checks.begin(), checks.end(), [](const Check& c) { return c.outcome == Outcome::kFail; }));
}

std::string doctor_text(const std::vector<Check>& checks) {
    std::string text;
    for (const Check& check : checks) {
        text += std::string(outcome_text(check.outcome)) + "  " + check.name + ": " + check.detail + "\n";
        if (!check.remedy.empty()) text += "      -> " + check.remedy + "\n";
    }
    const int failed = failures(checks);
    text +=
        failed == 0 ? "nothing failed\n" : std::to_string(failed) + (failed == 1 ? " check" : " checks") + " failed\n";
    return text;
}

Json doctor_json(const std::vector<Check>& checks) {
    Json json{{"schema", kJsonSchema}, {"failed", failures(checks)}, {"checks", Json::array()}};
    for (const Check& check : checks) {
        std::string outcome = outcome_text(check.outcome);
        std::transform(outcome.begin(), outcome.end(), outcome.begin(),
                       [](char c) { return static_cast<char>(c - 'A' + 'a'); });
        json["checks"].push_back(
            Json{{"name", check.name}, {"outcome", outcome}, {"detail", check.detail}, {"remedy", check.remedy}});
    }
    return json;
}

}  // namespace vuda::cli
