// Orders to libvuda_faulty_os.so, which a test preloads into a program: which of its system calls fail, and how. The
// orders lie in memory that both share, so that a test breaks and heals a running program at will.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vuda::faults {

enum class Call : uint32_t {
    kOpen,        // of a path that contains `path`
    kWrite,       // to a regular file
    kRename,      //
    kAccept,      //
    kReceiveFds,  // recvmsg: the descriptors are lost, as the kernel does it when the table is full (MSG_CTRUNC)
    kMemfd,       //
    kDup,         // fcntl F_DUPFD_CLOEXEC
    kMapShared,   // mmap of a file, shared; with MAP_FIXED what was there is gone, as mmap(2) warns
    kSocket,      //
    kPipe,        //
    kPeerPidfd,   // getsockopt SO_PEERPIDFD
    kThread,      // pthread_create
    kCount
};

inline constexpr char kOrdersVariable[] = "VUDA_TEST_FAULTY_OS";  // path of the file with the orders

struct Orders {
    struct One {
        std::atomic<int32_t> error;  // errno; 0: as ever
        std::atomic<int32_t> spare;  // how many go well before
        std::atomic<int32_t> times;  // how often it fails then
        std::atomic<uint32_t> done;  // how often it has failed
    };
    One calls[static_cast<size_t>(Call::kCount)];
    char path[128];    // for kOpen
    char caller[128];  // only calls from an object whose file name contains this; empty: all
};

}  // namespace vuda::faults
