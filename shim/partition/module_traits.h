// What a program's code image says about itself: whether its kernels fetch managed variables by page faults, and
// whether they launch kernels themselves. Either can end a TSG that is shared, and no call of CUDA tells.
//
// An image is what cuModuleLoadData and cuLibraryLoadData take: a cubin (ELF), a fat binary, the wrapper around one
// that compilers make, or PTX as text. Nothing of it is trusted; reading stops at the first thing that is not as it
// should be.
//
// Seen in what nvcc 13.0 makes, for sm_75 to sm_100; none of it is documented:
//   * a __managed__ variable is a symbol of type OBJECT whose st_other has the bit 4 (STO_CUDA_MANAGED);
//   * a module that was linked with NVIDIA's device runtime has undefined symbols __cuda_syscall_cnp...; a kernel that
//   may
//     come to launch names them among its externals (.nv.info.KERNEL, attribute 0x0f);
//   * the section .nv.shared.KERNEL is as large as the kernel's static shared memory, from sm_90 on with the 1,024
//     bytes that CUDA reserves.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vuda::partition {

struct ModuleTraits {
    bool understood = false;      // some member was read to its end, and none was damaged
    bool compressed = false;      // there are members that were not read: they are compressed
    bool managed = false;         // it has __managed__ variables
    bool launches = false;        // its kernels can launch kernels
    uint32_t largest_shared = 0;  // bytes a block of its largest kernel, without dynamic ones; known where it launches
};

inline constexpr size_t kUnknownLength = SIZE_MAX;

// `image` may be any address; `length` bytes there belong to it at the most, where that is known. Members for all
// architectures count: which one CUDA takes is not guessed. Allocates nothing that is larger than 64 KiB; costs about a
// microsecond a section and symbol table of each member.
ModuleTraits inspect_image(const void* image, size_t length = kUnknownLength);

// What the largest kernel of a module may want, bytes of shared memory a block. `raised`: the most dynamic shared
// memory that the program allowed one of them (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES); 0: it did not ask.
uint32_t largest_child(const ModuleTraits& traits, uint32_t raised);
// Kernels of such a module must not run in a TSG that is shared: those that they launch may want more than `limit`
// bytes; 0: there is no limit. What no image tells is left out: without asking, a launch may have dynamic shared memory
// up to 48 KiB together with the static.
bool children_may_exceed(const ModuleTraits& traits, uint32_t raised, uint32_t limit);

}  // namespace vuda::partition
