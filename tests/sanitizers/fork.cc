// In every program built with clang 14's AddressSanitizer, which leaves its locks as they are over fork (later ones
// take them): a child of a process whose other threads were allocating waits for ever for a holder that it does not
// have.
#include <pthread.h>

// Of the runtime that the program is linked with; what it does itself before it looks for leaks, in the same order.
extern "C" void __asan_init();
namespace __lsan {
void LockThreadRegistry();
void UnlockThreadRegistry();
void LockAllocator();
void UnlockAllocator();
}  // namespace __lsan
namespace __sanitizer {
void StackDepotLockAll();
void StackDepotUnlockAll();
}  // namespace __sanitizer

namespace {

void lock() {
    __lsan::LockThreadRegistry();
    __lsan::LockAllocator();
    __sanitizer::StackDepotLockAll();
}

void unlock() {
    __sanitizer::StackDepotUnlockAll();
    __lsan::UnlockAllocator();
    __lsan::UnlockThreadRegistry();
}

void survive_fork() {
    __asan_init();
    pthread_atfork(lock, unlock, unlock);
}

// Before the constructors of all libraries, whose own handlers may allocate: the first to be registered is the last
// before fork and the first after it.
__attribute__((section(".preinit_array"), used)) void (*const g_survive_fork)() = survive_fork;

}  // namespace
