#include "client/descriptor_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace vuda::client {
namespace {

// FDSize: how many descriptors fit before the kernel must grow the table.
int table_size() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("FDSize:")) return std::stoi(line.substr(7));
    }
    return 0;
}

int open_descriptors() {
    int count = 0;
    for (int fd = 0; fd < 2048; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
    return count;
}

// In a child: a table never shrinks again.
template <typename Body>
void in_child(Body body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body() ? 0 : 1);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST(DescriptorTable, HoldsATransferAfterwards) {
    in_child([] {
        const int before = open_descriptors();
        grow_descriptor_table(0);
        return table_size() >= kTransferDescriptors && open_descriptors() == before;
    });
}

TEST(DescriptorTable, KeepsToTheLimit) {
    in_child([] {
        const rlimit low{100, 100};
        if (::setrlimit(RLIMIT_NOFILE, &low) != 0) return false;
        const int before = open_descriptors();
        grow_descriptor_table(0);
        return table_size() < kTransferDescriptors && open_descriptors() == before;
    });
}

}  // namespace
}  // namespace vuda::client
