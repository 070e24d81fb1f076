// Runs with libvuda_sim.so preloaded and checks, one scenario a run, that simulated files behave as files do. Exit
// status 0 is good; else a line on stderr says what was wrong.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "rm/abi.h"
#include "sim/standin/device.h"

namespace {

using namespace vuda;
using sim::standin::Device;

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            std::fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            return 1;                                                                                      \
        }                                                                                                  \
    } while (false)

rm::Handle new_client(int fd, uint32_t* status = nullptr) {
    rm::AllocArgs root{};
    root.hClass = rm::cls::kRootClient;
    if (ioctl(fd, rm::rm_request(rm::escape::kAlloc, sizeof root), &root) != 0) return 0;
    if (status != nullptr) *status = root.status;
    return root.hObjectNew;
}

uint32_t free_client(int fd, rm::Handle client) {
    rm::FreeArgs args{client, 0, client, 0xdead};
    (void)ioctl(fd, rm::rm_request(rm::escape::kFree, sizeof args), &args);
    return args.status;
}

int looks_like_devices() {
    struct Expected {
        const char* path;
        unsigned major_number, minor_number;
    };
    for (const Expected& expected :
         {Expected{"/dev/nvidiactl", 195, 255}, {"/dev/nvidia0", 195, 0}, {"/dev/nvidia-uvm", 511, 0}}) {
        struct stat info;
        CHECK(stat(expected.path, &info) == 0 && S_ISCHR(info.st_mode));
        CHECK(major(info.st_rdev) == expected.major_number && minor(info.st_rdev) == expected.minor_number);
        CHECK(lstat(expected.path, &info) == 0 && S_ISCHR(info.st_mode));
        CHECK(fstatat(AT_FDCWD, expected.path, &info, 0) == 0 && S_ISCHR(info.st_mode));
        CHECK(access(expected.path, R_OK | W_OK) == 0);
        UniqueFd fd(open(expected.path, O_RDWR | O_CLOEXEC));
        CHECK(fd.valid() && (fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
        CHECK(fstat(fd.get(), &info) == 0 && S_ISCHR(info.st_mode) &&
              info.st_rdev == makedev(expected.major_number, expected.minor_number));
        CHECK(fstatat(fd.get(), "", &info, AT_EMPTY_PATH) == 0 && S_ISCHR(info.st_mode));
        struct statx extended;
        CHECK(statx(fd.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended) == 0 && S_ISCHR(extended.stx_mode));
        CHECK(extended.stx_rdev_major == expected.major_number && extended.stx_rdev_minor == expected.minor_number);
        CHECK(statx(AT_FDCWD, expected.path, 0, STATX_BASIC_STATS, &extended) == 0 && S_ISCHR(extended.stx_mode));
    }
    errno = 0;
    CHECK(open("/dev/nvidia7", O_RDWR) == -1 && errno == ENODEV);
    struct stat info;
    CHECK(stat("/dev/nvidia7", &info) == -1 && errno == ENOENT);
    // Other files pass through.
    UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    CHECK(null.valid() && fstat(null.get(), &info) == 0 && info.st_rdev == makedev(1, 3));
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(fstat(pair[0], &info) == 0 && S_ISSOCK(info.st_mode));
    int waiting = 0;
    CHECK(ioctl(pair[0], FIONREAD, &waiting) == 0);
    close(pair[0]);
    close(pair[1]);
    return 0;
}

int reads_version() {
    for (const bool with_stdio : {false, true}) {
        char text[256] = {};
        if (with_stdio) {
            FILE* file = fopen("/proc/driver/nvidia/version", "r");
            CHECK(file != nullptr && fgets(text, sizeof text, file) != nullptr);
            fclose(file);
        } else {
            UniqueFd file(open("/proc/driver/nvidia/version", O_RDONLY));
            CHECK(file.valid() && read(file.get(), text, sizeof text - 1) > 0);
        }
        CHECK(std::strstr(text, "580.159.04") != nullptr && std::strstr(text, "simulated") != nullptr);
    }
    return 0;
}

int keeps_errno_and_fails_like_a_kernel() {
    UniqueFd fd(open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
    CHECK(fd.valid());
    errno = 77;
    CHECK(new_client(fd.get()) != 0);
    CHECK(errno == 77);
    CHECK(ioctl(fd.get(), rm::rm_request(rm::escape::kAlloc, 48), nullptr) == -1 && errno == EFAULT);
    CHECK(ioctl(fd.get(), rm::rm_request(rm::escape::kAlloc, 48), reinterpret_cast<void*>(0x10)) == -1 &&
          errno == EFAULT);
    CHECK(ioctl(fd.get(), rm::rm_request(rm::escape::kAlloc, 44), &fd) == -1 && errno == EINVAL);
    CHECK(ioctl(fd.get(), 0x1234, nullptr) == -1 && errno == ENOTTY);
    rm::ControlArgs bad{new_client(fd.get()), 0, rm::ctrl::kGpuGetProbedIds, 0, 0x10, 384, 0};
    bad.hObject = bad.hClient;
    CHECK(ioctl(fd.get(), rm::rm_request(rm::escape::kControl, sizeof bad), &bad) == -1 && errno == EFAULT);
    CHECK(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 0) == MAP_FAILED && errno == EINVAL);
    return 0;
}

int follows_dup_fork_and_exec(char** argv) {
    UniqueFd fd(open("/dev/nvidiactl", O_RDWR));  // inherited over exec on purpose
    const rm::Handle client = new_client(fd.get());
    CHECK(client != 0);
    UniqueFd copy(dup(fd.get()));
    fd.reset();
    // The open file is still open: its client lives.
    const pid_t child = fork();
    if (child == 0) {
        const std::string number = std::to_string(copy.get());
        const std::string handle = std::to_string(client);
        (void)fcntl(copy.get(), F_SETFD, 0);
        execl(argv[0], argv[0], "free-client", number.c_str(), handle.c_str(), nullptr);
        _exit(99);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(free_client(copy.get(), client) == rm::nv::kInvalidClient);  // the child freed it
    return 0;
}

bool send_fd(int socket, int fd) {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
    return sendmsg(socket, &message, 0) == 1;
}

UniqueFd receive_fd(int socket) {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    int fd = -1;
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message) != nullptr)
        std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return UniqueFd(fd);
}

// A TSG goes to another process in a descriptor; the owner dies; the other still imports it.
int exports_between_processes() {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    const pid_t owner = fork();
    if (owner == 0) {
        auto device = Device::open(0, 0, 0xd0, 0xd1);
        if (!device) _exit(1);
        rm::ChannelGroupParams tsg{};
        tsg.engineType = rm::kEngineGr0;
        if (!device->alloc(0xd0, 0x20, rm::cls::kChannelGroup, &tsg)) _exit(2);
        UniqueFd fresh(open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
        rm::ExportObjectParams params{rm::kObjectTypeRm, 0xd0, 0xd0, 0x20, fresh.get(), 0};
        if (!device->control(device->client(), rm::ctrl::kExportObjectToFd, &params, sizeof params)) _exit(3);
        if (!send_fd(pair[1], fresh.get())) _exit(4);
        // A second export to the same file is refused.
        if (device->control(device->client(), rm::ctrl::kExportObjectToFd, &params, sizeof params)) _exit(5);
        _exit(device->last_status() == rm::nv::kStateInUse ? 0 : 6);
    }
    UniqueFd received = receive_fd(pair[0]);
    int status = 0;
    CHECK(waitpid(owner, &status, 0) == owner && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(received.valid());
    auto device = Device::open(0, 0, 0xd0, 0xd1);
    CHECK(device.ok());
    rm::ImportObjectParams import{received.get(), rm::kObjectTypeRm, 0xd0, 0xd0, 0x99};
    CHECK(device->control(device->client(), rm::ctrl::kImportObjectFromFd, &import, sizeof import).ok());
    rm::TsgInfoParams info{};
    CHECK(device->control(0x99, rm::ctrl::kTsgGetInfo, &info, sizeof info).ok() && info.tsgId != 0);
    close(pair[0]);
    close(pair[1]);
    return 0;
}

int survives_closed_descriptors() {
    UniqueFd first(open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
    CHECK(new_client(first.get()) != 0);
    // Closes the preload's own connection, too, and puts another file under its number.
    for (int fd = first.get() + 1; fd < 2000; fd++) close(fd);
    for (int i = 0; i < 1000; i++) (void)!dup(0);
    CHECK(new_client(first.get()) != 0);
    for (int fd = first.get() + 1; fd < 2000; fd++) close(fd);
    return 0;
}

int serves_threads() {
    std::vector<std::thread> threads;
    std::vector<int> wrong(8);
    for (size_t i = 0; i < wrong.size(); i++) {
        threads.emplace_back([&wrong, i] {
            for (int round = 0; round < 50; round++) {
                UniqueFd fd(open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
                const rm::Handle client = new_client(fd.get());
                if (client == 0 || free_client(fd.get(), client) != rm::nv::kOk) wrong[i]++;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int count : wrong) CHECK(count == 0);
    return 0;
}

int forks_in_the_middle() {
    UniqueFd fd(open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
    CHECK(new_client(fd.get()) != 0);
    std::thread busy([&] {
        for (int i = 0; i < 200; i++) (void)new_client(fd.get());
    });
    int good = 0;
    for (int i = 0; i < 20; i++) {
        const pid_t child = fork();
        if (child == 0) {
            UniqueFd own(open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
            _exit(own.valid() && new_client(own.get()) != 0 ? 0 : 1);
        }
        int status = 0;
        if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0) good++;
    }
    busy.join();
    CHECK(good == 20);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string scenario = argc > 1 ? argv[1] : "";
    if (scenario == "devices") return looks_like_devices();
    if (scenario == "version") return reads_version();
    if (scenario == "errors") return keeps_errno_and_fails_like_a_kernel();
    if (scenario == "inherit") return follows_dup_fork_and_exec(argv);
    if (scenario == "export") return exports_between_processes();
    if (scenario == "closed") return survives_closed_descriptors();
    if (scenario == "threads") return serves_threads();
    if (scenario == "fork") return forks_in_the_middle();
    if (scenario == "free-client" && argc == 4)
        return free_client(std::atoi(argv[2]), static_cast<rm::Handle>(std::strtoul(argv[3], nullptr, 10))) ==
                       rm::nv::kOk
                   ? 0
                   : 1;
    std::fprintf(stderr, "unknown scenario '%s'\n", scenario.c_str());
    return 64;
}
