#include "sim/preload/control.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "rm/abi.h"
#include "sim/protocol/protocol.h"

namespace vuda::sim::preload {

namespace {

using protocol::Type;

// Where the connection sits: out of the way of programs that count descriptors from below.
constexpr int kLowestFd = 900;

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_once_t g_once = PTHREAD_ONCE_INIT;
int g_socket = -1;
pid_t g_pid = 0;
ino_t g_inode = 0;  // of g_socket: a program may close our descriptor and get another file under its number
unsigned char* g_buffer = nullptr;

bool still_ours(int fd) {
    struct stat info;
    // fstat is interposed by this very library: go to the kernel.
    return fd >= 0 && syscall(SYS_newfstatat, fd, "", &info, AT_EMPTY_PATH) == 0 && S_ISSOCK(info.st_mode) &&
           info.st_ino == g_inode;
}

void before_fork() { pthread_mutex_lock(&g_lock); }
void after_fork_in_parent() { pthread_mutex_unlock(&g_lock); }
void after_fork_in_child() {
    // The parent's connection says who the parent is; the child needs its own.
    if (still_ours(g_socket)) syscall(SYS_close, g_socket);
    g_socket = -1;
    g_pid = getpid();
    pthread_mutex_unlock(&g_lock);
}

void install_fork_handlers() { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

int connect_server(ino_t* inode) {
    const char* path = secure_getenv("VUDA_SIM_SOCKET");
    sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    if (path == nullptr || strlen(path) >= sizeof address.sun_path) return -1;
    memcpy(address.sun_path, path, strlen(path));
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        syscall(SYS_close, fd);
        return -1;
    }
    const int high = fcntl(fd, F_DUPFD_CLOEXEC, kLowestFd);
    const int kept = high >= 0 ? high : fd;
    if (high >= 0) syscall(SYS_close, fd);
    struct stat info;
    *inode = syscall(SYS_newfstatat, kept, "", &info, AT_EMPTY_PATH) == 0 ? info.st_ino : 0;
    return kept;
}

// Holds the lock and a connection of this process for one call.
class Call {
 public:
    Call() {
        pthread_once(&g_once, install_fork_handlers);
        pthread_mutex_lock(&g_lock);
        if (g_buffer == nullptr) g_buffer = static_cast<unsigned char*>(malloc(protocol::kMaxPacket));
        const pid_t pid = getpid();
        if (g_socket >= 0 && g_pid != pid) {
            // A child that came without fork(): vfork shares our memory with the parent, so leave the parent's
            // connection alone.
            ino_t inode = 0;
            socket_ = connect_server(&inode);
            temporary_ = true;
            return;
        }
        if (!still_ours(g_socket)) {
            g_socket = connect_server(&g_inode);
            g_pid = pid;
        }
        socket_ = g_socket;
    }
    ~Call() {
        if (temporary_ && socket_ >= 0) syscall(SYS_close, socket_);
        pthread_mutex_unlock(&g_lock);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    bool ready() const { return socket_ >= 0 && g_buffer != nullptr; }

    bool send(const void* head, size_t head_length, const void* body = nullptr, size_t body_length = 0) {
        iovec parts[2] = {{const_cast<void*>(head), head_length}, {const_cast<void*>(body), body_length}};
        msghdr message;
        memset(&message, 0, sizeof message);
        message.msg_iov = parts;
        message.msg_iovlen = body_length != 0 ? 2 : 1;
        ssize_t sent;
        do sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        return sent >= 0 || drop();
    }

    // The answer in buffer(), its descriptor in *fd (-1 without one). Blocks: the server always answers.
    ssize_t receive(int* fd = nullptr) {
        iovec part = {g_buffer, protocol::kMaxPacket};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
        msghdr message;
        memset(&message, 0, sizeof message);
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        ssize_t got;
        do got = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
        while (got < 0 && errno == EINTR);
        int received = -1;
        for (cmsghdr* head = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr; head != nullptr;
             head = CMSG_NXTHDR(&message, head)) {
            if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
                memcpy(&received, CMSG_DATA(head), sizeof received);
        }
        if (fd != nullptr) {
            *fd = received;
        } else if (received >= 0) {
            syscall(SYS_close, received);
        }
        if (got <= 0) drop();
        return got;
    }

    const unsigned char* buffer() const { return g_buffer; }

 private:
    bool drop() {
        if (!temporary_ && still_ours(g_socket)) syscall(SYS_close, g_socket);
        if (!temporary_) g_socket = -1;
        if (!temporary_) socket_ = -1;
        return false;
    }

    int socket_ = -1;
    bool temporary_ = false;
};

template <typename T>
bool as(const Call& call, ssize_t length, Type type, T* out) {
    if (length < static_cast<ssize_t>(sizeof *out)) return false;
    memcpy(out, call.buffer(), sizeof *out);
    return out->header.magic == protocol::kMagic && out->header.type == type;
}

protocol::Header head(Type type) { return {protocol::kMagic, type}; }

// Copies within this process through the kernel, so that a bad pointer is EFAULT as in a real ioctl and not a crash.
bool copy_from(uint64_t address, void* out, size_t length) {
    const iovec local = {out, length};
    const iovec remote = {reinterpret_cast<void*>(address), length};
    const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (got < 0 && (errno == ENOSYS || errno == EPERM)) {
        memcpy(out, reinterpret_cast<const void*>(address), length);  // no such call here (seccomp): trust the pointer
        return true;
    }
    return got == static_cast<ssize_t>(length);
}

bool copy_to(uint64_t address, const void* in, size_t length) {
    const iovec local = {const_cast<void*>(in), length};
    const iovec remote = {reinterpret_cast<void*>(address), length};
    const ssize_t got = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
    if (got < 0 && (errno == ENOSYS || errno == EPERM)) {
        memcpy(reinterpret_cast<void*>(address), in, length);
        return true;
    }
    return got == static_cast<ssize_t>(length);
}

int finish_ioctl(const Call& call, ssize_t length, const protocol::Done& done) {
    size_t at = sizeof done;
    for (uint32_t i = 0; i < done.writes; i++) {
        protocol::Write write;
        if (static_cast<size_t>(length) - at < sizeof write) return EIO;
        memcpy(&write, call.buffer() + at, sizeof write);
        at += sizeof write;
        if (static_cast<size_t>(length) - at < write.length) return EIO;
        if (!copy_to(write.address, call.buffer() + at, write.length)) return EFAULT;
        at += write.length;
    }
    return done.error;
}

int query(protocol::What what, char* text, size_t capacity, size_t* length) {
    Call call;
    if (!call.ready()) return ENXIO;
    const protocol::Query question = {head(Type::kQuery), what, 0};
    if (!call.send(&question, sizeof question)) return ENXIO;
    const ssize_t got = call.receive();
    protocol::Answer answer;
    if (!as(call, got, Type::kAnswer, &answer)) return ENXIO;
    *length = static_cast<size_t>(got) - sizeof answer;
    if (*length > capacity) *length = capacity;
    memcpy(text, call.buffer() + sizeof answer, *length);
    return answer.error;
}

}  // namespace

bool enabled() {
    const char* path = secure_getenv("VUDA_SIM_SOCKET");
    return path != nullptr && path[0] != '\0';
}

int open_device(const SimFile& device, int flags, int* fd) {
    Call call;
    if (!call.ready()) return ENXIO;
    const protocol::Open message = {head(Type::kOpen), device.kind, device.minor};
    if (!call.send(&message, sizeof message)) return ENXIO;
    int received = -1;
    const ssize_t got = call.receive(&received);
    protocol::Opened opened;
    if (!as(call, got, Type::kOpened, &opened)) return ENXIO;
    if (opened.error != 0) return opened.error;
    if (received < 0) return EMFILE;
    if ((flags & O_CLOEXEC) == 0) fcntl(received, F_SETFD, 0);
    *fd = received;
    return 0;
}

static int run_ioctl(const SimFile& file, unsigned long request, void* argument) {
    Call call;
    if (!call.ready()) return EIO;
    const protocol::Ioctl start = {head(Type::kIoctl), file.id, request, reinterpret_cast<uint64_t>(argument)};
    const bool sized = rm::ioctl_type(request) == rm::kRmIoctlType && file.kind < 2;
    const size_t length = sized ? rm::ioctl_size(request) : 0;
    unsigned char inline_argument[1 << 14];  // the size field has 14 bits
    if (length != 0 && !copy_from(start.address, inline_argument, length)) return EFAULT;
    if (!call.send(&start, sizeof start, inline_argument, length)) return EIO;
    for (;;) {
        const ssize_t got = call.receive();
        protocol::NeedRead need;
        protocol::NeedFile which;
        protocol::Done done;
        if (as(call, got, Type::kDone, &done)) return finish_ioctl(call, got, done);
        if (as(call, got, Type::kNeedRead, &need) && need.length <= 64 * 1024) {
            protocol::SupplyRead supply = {head(Type::kSupplyRead), 0, 0};
            void* bytes = malloc(need.length);
            if (bytes == nullptr || !copy_from(need.address, bytes, need.length)) supply.error = EFAULT;
            const bool sent = call.send(&supply, sizeof supply, bytes, supply.error == 0 ? need.length : 0);
            free(bytes);
            if (!sent) return EIO;
        } else if (as(call, got, Type::kNeedFile, &which)) {
            SimFile named;
            const protocol::SupplyFile supply = {head(Type::kSupplyFile), identify(which.fd, &named) ? named.id : 0};
            if (!call.send(&supply, sizeof supply)) return EIO;
        } else {
            return EIO;
        }
    }
}

// The real driver goes on writing into the program's control page. Here the page becomes memory of the server's.
static void share_control_page(const SimFile& file, const void* argument) {
    rm::UvmToolsInitEventTrackerArgs args;
    constexpr size_t kPage = 4096;
    int memory = -1;
    off_t offset = 0;
    if (!copy_from(reinterpret_cast<uint64_t>(argument), &args, sizeof args) || args.rmStatus != 0 ||
        call_map(file, kPage, &memory, &offset) != 0)
        return;
    syscall(SYS_mmap, args.controlBuffer, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, offset);
    syscall(SYS_close, memory);
}

int call_ioctl(const SimFile& file, unsigned long request, void* argument) {
    const int error = run_ioctl(file, request, argument);
    if (error == 0 && file.kind == 3 && request == rm::uvm::kToolsInitEventTracker) share_control_page(file, argument);
    return error;
}

int call_map(const SimFile& file, size_t length, int* fd, off_t* offset) {
    Call call;
    if (!call.ready()) return EIO;
    const protocol::Map message = {head(Type::kMap), file.id, length};
    if (!call.send(&message, sizeof message)) return EIO;
    int received = -1;
    const ssize_t got = call.receive(&received);
    protocol::Mapped mapped;
    if (!as(call, got, Type::kMapped, &mapped)) return EIO;
    if (mapped.error != 0) return mapped.error;
    if (received < 0) return EMFILE;
    *fd = received;
    *offset = static_cast<off_t>(mapped.offset);
    return 0;
}

int version_file(int flags, int* fd) {
    char text[512];
    size_t length = 0;
    if (const int error = query(protocol::What::kVersionText, text, sizeof text, &length); error != 0) return ENOENT;
    const int file = memfd_create("nvidia-version", (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0);
    if (file < 0) return errno;
    if (write(file, text, length) != static_cast<ssize_t>(length) || lseek(file, 0, SEEK_SET) != 0) {
        syscall(SYS_close, file);
        return EIO;
    }
    *fd = file;
    return 0;
}

int gpu_count() {
    char text[16];
    size_t length = 0;
    if (query(protocol::What::kGpus, text, sizeof text, &length) != 0) return 0;
    int count = 0;
    for (size_t i = 0; i < length && text[i] >= '0' && text[i] <= '9'; i++) count = count * 10 + (text[i] - '0');
    return count;
}

}  // namespace vuda::sim::preload
