// A program that registers and then replaces itself, N times over, with its connection leaked into what comes next. For
// vudad_test.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "daemon/test_support.h"

int main(int argc, char** argv) {
    using namespace vuda::daemon;
    if (argc != 3) return 64;
    const int generation = std::atoi(argv[2]);
    FrameClient frames(argv[1]);
    frames.set_program("generation-" + std::to_string(generation));
    if (!frames.open() || !frames.register_name("game")->has_register_reply()) return 1;
    if (generation > 0) {
        ::fcntl(frames.fd(), F_SETFD, 0);
        ::execl(argv[0], argv[0], argv[1], std::to_string(generation - 1).c_str(), nullptr);
        return 1;
    }
    ::pause();
    return 0;
}
