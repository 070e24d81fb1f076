// A program to be recorded. Leaves with 0 when every call gave it what it must get.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "rm/abi.h"

namespace {

using namespace vuda::rm;

#define REQUIRE(condition)                                               \
    do {                                                                 \
        if (!(condition)) {                                              \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            return 1;                                                    \
        }                                                                \
    } while (false)

int contexts(int ctl) {
    AllocArgs client{};
    client.hClass = cls::kRootClient;
    REQUIRE(ioctl(ctl, rm_request(escape::kAlloc, sizeof client), &client) == 0);
    REQUIRE(client.hObjectNew == 0xc1d00001);
    ContextShareParams params{7, kCtxShareAsync, 0};
    AllocArgs share{};
    share.hRoot = client.hObjectNew;
    share.hObjectNew = 5;
    share.hClass = cls::kContextShare;
    share.pAllocParms = reinterpret_cast<uintptr_t>(&params);
    REQUIRE(ioctl(ctl, rm_request(escape::kAlloc, sizeof share), &share) == 0);
    REQUIRE(params.subctxId == 63);
    return 0;
}

int run(const char* mode) {
    const int ctl = open("/dev/nvidiactl", O_RDWR);
    REQUIRE(ctl >= 0);
    errno = 0;
    REQUIRE(open("/dev/nvidia9", O_RDWR) == -1 && errno == EACCES);
    const int uvm = open("/dev/nvidia-uvm", O_RDWR);
    REQUIRE(uvm >= 0);
    if (contexts(ctl) != 0) return 1;

    UvmInitializeArgs init{};
    errno = 4242;
    REQUIRE(ioctl(uvm, uvm::kInitialize, &init) == 0 && errno == 4242);
    // An argument that is not there, and one the driver refuses.
    REQUIRE(ioctl(ctl, rm_request(0xee, 4096), nullptr) == -1 && errno == ENOTTY);
    REQUIRE(ioctl(ctl, rm_request(0xee, 64), reinterpret_cast<void*>(1)) == -1 && errno == ENOTTY);

    const int copy = dup(ctl);
    REQUIRE(copy >= 0);
    REQUIRE(contexts(copy) == 0);
    void* page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, ctl, 0);
    REQUIRE(page != MAP_FAILED);
    munmap(page, 4096);

    // Not NVIDIA's: must not appear.
    const int other = open("/dev/null", O_RDWR);
    REQUIRE(other >= 0);
    close(other);

    if (std::strcmp(mode, "fork") == 0) {
        const pid_t child = fork();
        if (child == 0) _exit(contexts(ctl));
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    if (std::strcmp(mode, "threads") == 0) {
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([ctl] {
                for (int i = 0; i < 50; ++i) (void)contexts(ctl);
            });
        }
        for (std::thread& thread : threads) thread.join();
    }
    if (std::strcmp(mode, "close_range") == 0) {
        // Takes away everything, and a number that was ctl's becomes another file's.
        close_range(3, ~0u, 0);
        const int reused = open("/dev/null", O_RDWR);
        REQUIRE(reused == 3);
        UvmInitializeArgs again{};
        (void)ioctl(reused, 0x5401, &again);
        const int ctl2 = open("/dev/nvidiactl", O_RDWR);
        REQUIRE(ctl2 == 4);
        return contexts(ctl2);
    }
    close(copy);
    close(ctl);
    return 0;
}

}  // namespace

int main(int argc, char** argv) { return run(argc > 1 ? argv[1] : ""); }
