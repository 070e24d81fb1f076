#include "client/descriptor_table.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace vuda::client {

void grow_descriptor_table(int fd) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == 0) return;
    const auto highest = std::min<rlim_t>(limit.rlim_cur, kTransferDescriptors) - 1;
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, static_cast<int>(highest));
    if (copy >= 0) ::close(copy);
}

}  // namespace vuda::client
