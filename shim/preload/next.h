// The next definition of each function that libvuda_preload.so interposes: another preload's, or libc's. Before these
// are resolved (other constructors run first) and where there is none, the system call itself.
#pragma once

#include <sys/types.h>

#include <cstdarg>

namespace vuda::shim::next {

// Looks everything up once; called from the constructor. Allocates nothing itself.
void resolve();

int open(const char* path, int flags, mode_t mode);
int open64(const char* path, int flags, mode_t mode);
int openat(int dir, const char* path, int flags, mode_t mode);
int openat64(int dir, const char* path, int flags, mode_t mode);
int ioctl(int fd, unsigned long request, void* arg);
int close(int fd);
int close_range(unsigned first, unsigned last, int flags);
void closefrom(int first);
int dup(int fd);
int dup2(int from, int to);
int dup3(int from, int to, int flags);

}  // namespace vuda::shim::next
