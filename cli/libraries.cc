#include "cli/libraries.h"

#include <unistd.h>

#include <array>

#include "cli/install_paths.h"

namespace vuda::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLayerManifest = "VkLayer_vuda.json";

bool is_file(const fs::path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

std::string if_exists(const fs::path& path) { return is_file(path) ? path.string() : std::string(); }

}  // namespace

Libraries find_libraries(const LibraryPaths& paths) {
    Libraries found;
    const auto look = [&](const fs::path& folder) {
        const fs::path clean = folder.lexically_normal();
        found.searched.push_back(clean.string());
        if (!is_file(clean / "libvuda_preload.so")) return false;
        found.preload = (clean / "libvuda_preload.so").string();
        found.sim = if_exists(clean / "libvuda_sim.so");
        found.fit = if_exists(clean / "libvuda_fit.so");
        return true;
    };

    // <build>/bin and <build>/lib
    const fs::path build_lib = (paths.executable_dir / ".." / "lib").lexically_normal();
    if (!paths.executable_dir.empty() && look(build_lib)) {
        const fs::path layer_dir = build_lib / kBuildTreeLayerDir;
        if (is_file(layer_dir / kLayerManifest)) {
            found.explicit_layer = layer_dir.string();
            found.layer_manifest = (layer_dir / kLayerManifest).string();
        }
        return found;
    }
    const fs::path manifest = paths.root / paths.installed_manifest.relative_path();
    // A relocated installation (DESTDIR, an unpacked archive), then the configured one.
    const bool installed = (!paths.executable_dir.empty() && look(paths.executable_dir / paths.relative_libdir)) ||
                           look(paths.root / paths.installed_libdir.relative_path());
    if (installed) found.layer_manifest = if_exists(manifest);
    return found;
}

LibraryPaths default_library_paths() {
    LibraryPaths paths;
    std::error_code ignored;
    const fs::path self = fs::read_symlink("/proc/self/exe", ignored);
    if (!self.empty()) paths.executable_dir = self.parent_path();
    paths.relative_libdir = kRelativeLibdir;
    paths.installed_libdir = kInstalledLibdir;
    paths.installed_manifest = kInstalledManifest;
    return paths;
}

}  // namespace vuda::cli
