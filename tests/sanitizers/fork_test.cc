// What tests with children rely on: fork in a process whose other threads are allocating.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

namespace {

// Of several size classes, each with a lock of its own.
void allocate_some() {
    std::vector<std::unique_ptr<std::byte[]>> some;
    for (size_t size = 16; size <= 16384; size *= 2) some.push_back(std::make_unique<std::byte[]>(size));
}

class Allocating {
 public:
    Allocating() {
        for (int i = 0; i < 4; ++i) {
            threads_.emplace_back([this] {
                while (!stop_) allocate_some();
            });
        }
    }
    ~Allocating() {
        stop_ = true;
        for (std::thread& thread : threads_) thread.join();
    }

 private:
    std::atomic<bool> stop_{false};
    std::vector<std::thread> threads_;
};

TEST(Sanitizer, ChildrenOfAProcessThatAllocatesMayAllocateAndStartThreads) {
    const Allocating busy;
    for (int i = 0; i < 100; ++i) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            ::alarm(20);  // ends one that waits for ever
            allocate_some();
            std::thread(allocate_some).join();
            ::_exit(0);
        }
        int status = -1;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_EQ(status, 0) << "child " << i << (WIFSIGNALED(status) ? " waited for ever" : "");
    }
}

}  // namespace
