// Switches VUDA's hook before launches off and on, where VUDA follows this process's launches.
#pragma once

#include <string>

namespace vuda::bench {

class LaunchWatch {
 public:
    // Looks in `library`, if it is loaded already.
    explicit LaunchWatch(const std::string& library = "libvuda.so.0");
    // False: there is no hook.
    bool set(bool on) const { return watch_ != nullptr && watch_(on ? 1 : 0) != 0; }

 private:
    int (*watch_)(int on) = nullptr;  // vuda_private_watch_launches (client/session_abi.h)
};

}  // namespace vuda::bench
