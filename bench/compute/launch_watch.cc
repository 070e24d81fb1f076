#include "bench/compute/launch_watch.h"

#include "bench/compute/loaded_library.h"

namespace vuda::bench {

LaunchWatch::LaunchWatch(const std::string& library) {
    LoadedLibrary(library).find("vuda_private_watch_launches", &watch_);
}

}  // namespace vuda::bench
