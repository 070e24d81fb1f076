// The size of this process's table of descriptors, which the kernel doubles on demand.
#pragma once

namespace vuda::client {

// Descriptors that a transfer of handles may add: a renderer's TSG and control buffers, with room.
inline constexpr int kTransferDescriptors = 512;

// Makes the table large enough for that, as far as RLIMIT_NOFILE allows, and leaves nothing open. In a process with
// threads growing the table waits for an RCU grace period (expand_fdtable in Linux fs/file.c): 14 ms was measured in
// the middle of an attach that brought 97 descriptors. Call it where nobody waits. `fd`: any open descriptor.
void grow_descriptor_table(int fd);

}  // namespace vuda::client
