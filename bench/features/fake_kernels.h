// kernels.cu on the host.
#pragma once

namespace vuda::bench::features {

enum class FakeRun { kDone, kUnknown, kAssertFailed };

inline constexpr unsigned kFakeProcessors = 2;

struct FakeShape {
    unsigned blocks;
    unsigned threads;
    unsigned residents;  // blocks that a multiprocessor holds at a time
};

bool has_fake_kernel(const char* name);
// Everything is done when it returns. `arguments` as cuLaunchKernel takes them.
FakeRun run_fake_kernel(const char* name, FakeShape shape, void** arguments);
// What `feature_table` is.
void* fake_constants(unsigned long* bytes);

// A two-dimensional array of words, which textures and surfaces name by its address.
struct FakeArray {
    unsigned width;
    unsigned height;
    unsigned* words;
};

}  // namespace vuda::bench::features
