// Where the libraries are that `vudactl run` hands to a program.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace vuda::cli {

struct Libraries {
    std::string preload;                // absolute path of libvuda_preload.so; empty: not found
    std::string sim;                    // absolute path of libvuda_sim.so; empty: not found
    std::string fit;                    // absolute path of libvuda_fit.so; empty: not found
    std::string explicit_layer;         // folder for VK_ADD_LAYER_PATH (build tree); empty: none
    std::string layer_manifest;         // JSON file of the layer that the loader will read; empty: not found
    std::vector<std::string> searched;  // folders looked at, for error messages
};

struct LibraryPaths {
    std::filesystem::path executable_dir;      // folder of vudactl itself
    std::filesystem::path relative_libdir;     // from bindir to libdir/vuda, e.g. "../lib/x86_64-linux-gnu/vuda"
    std::filesystem::path installed_libdir;    // libdir/vuda as configured
    std::filesystem::path installed_manifest;  // the implicit layer's manifest as configured
    std::filesystem::path root = "/";          // prefix for everything installed (vudactl doctor --root)
};

// A build tree comes first: a freshly built vudactl must never pick up an older installed shim. All parts are taken
// from the same place as the preload library.
Libraries find_libraries(const LibraryPaths& paths);

// The paths of this build; executable_dir from /proc/self/exe.
LibraryPaths default_library_paths();

}  // namespace vuda::cli
