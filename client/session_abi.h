// The private seam between libvuda_preload.so and libvuda.so: plain C types, looked up with dlsym, so that the preload
// needs libc only and libvuda.so is loaded only in a process that makes a GPU context.
//
// Both libraries come from one build; kVudaPrivateAbi is checked all the same, because a program may bring its own
// libvuda.so.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VUDA_PRIVATE_ABI 9u

// An error without ownership questions: fixed buffers, always terminated. code: google.rpc.Code, 0 = no error.
struct vuda_private_error {
    int32_t code;
    char text[256];
    char hint[160];
};

// One exported RM object (vuda.v1.Handle). The receiver of an array of these owns every fd in it.
struct vuda_private_handle {
    uint32_t kind;  // vuda.v1.HandleKind: 1 TSG, 2 control buffer
    int32_t fd;
    uint64_t va;       // GPU virtual address, bytes
    uint64_t length;   // bytes
    uint64_t offset;   // bytes
    uint64_t mapping;  // owner's number of the mapping, never used again; 0: it gives none
};

struct vuda_private_handles {
    struct vuda_private_handle* items;  // malloc'ed by the filler, freed by the receiver
    uint32_t count;
    uint32_t channels_in_use;  // owner's channels in the TSG
    uint64_t generation;       // number of this set, > 0; another one after each change of what it holds
    // For an attacher: bit N: a program computed in subcontext (VEID) N and is gone. To be taken before it computes.
    uint64_t stale_veids;
    uint64_t unknown_veids;  // likewise, or not: those are taken that can be had
};

// A control buffer that is no longer mapped.
struct vuda_private_range {
    uint64_t va;      // GPU virtual address, bytes
    uint64_t length;  // bytes
    uint64_t mapping;
};

// What changed in a set of control buffers: `removed` first, then `added` (control buffers only).
struct vuda_private_mirror {
    uint64_t from;  // generation that this goes on from; 0 in an update: `added` is part of the set as it is
    uint64_t to;
    struct vuda_private_range* removed;
    uint32_t removed_count;
    uint32_t added_count;
    struct vuda_private_handle* added;
    uint32_t more;  // mirror_delta: there is more, call it again
    uint32_t rest;  // mirror_delta: there is more that nobody waits for, call it with `idle` when nobody does
};

#define VUDA_PRIVATE_MIRROR_PART 64u

// What this process was asked to do: environment (VUDA_REGISTER, VUDA_ATTACH, VUDA_RESERVE, VUDA_SHARE, VUDA_REQUIRE,
// VUDA_SOCKET, VUDA_HANDLE_SOCKET; read with secure_getenv) overlaid with what the program said through vuda.h.
struct vuda_private_wishes {
    char register_name[65];    // empty: do not register. Names are passed on as given; vudad's rules are applied by
                               // register and attach
    char attach_name[65];      // empty: do not attach to another process
    uint32_t reserve;          // GR channels to move; UINT32_MAX = all, also when nothing was said
    uint8_t share_in_process;  // move CUDA's channels into this process's own renderer TSG
    uint8_t require;           // failure to share is an error (vudactl run --require)
};

// What look_for_faults found.
struct vuda_private_faults {
    uint32_t own_xid;     // number of the error (Xid) that the renderer's own TSG died of
    uint32_t shared_xid;  // likewise, of the one that was attached to
    uint32_t replays;     // page faults that the GPU repeats a second
};

// Called by libvuda from its session thread, never while a call from the preload is in progress on that thread.
struct vuda_private_callbacks {
    void* context;
    // Export the renderer's TSG (first) and control buffers now. 0, or -1 with `error` filled. When the set numbered
    // `held` (0: none) is still complete, nothing is exported: 0, with count 0 and that generation.
    int (*export_host)(void* context, uint64_t held, struct vuda_private_handles* out,
                       struct vuda_private_error* error);
    // vudad ended sharing for this process. Applies to the next GPU context. Code UNAVAILABLE (14): vudad or the owner
    // went away, later contexts may ask again. Any other code: libvuda has already forgotten the wishes, so that later
    // contexts are native until the program asks again.
    void (*detach_command)(void* context, const struct vuda_private_error* reason);
    // libvuda owns an fd that the program must not be able to close by accident (close, close_range, dup2 over it).
    // libvuda ends the guard (guarded 0) before it closes the fd itself.
    void (*guard_fd)(void* context, int fd, int guarded);
    // Optional. The registration asked for with vuda_private_register was refused, or vudad cannot be reached: what
    // `require` acts on. At most once per cause.
    void (*register_failed)(void* context, const struct vuda_private_error* error);
    // Optional. One RM_CONTROL on the subdevice of a context that shares; returns its NV_STATUS. Comes from libvuda's
    // partition thread, also while another thread is in a call from the preload.
    uint32_t (*subdevice_control)(void* context, uint32_t command, void* params, uint32_t size);
    // Optional, for a process with a renderer. One RM_CONTROL on the subdevice of its GPU; returns its NV_STATUS.
    uint32_t (*host_control)(void* context, uint32_t command, void* params, uint32_t size);
    // Optional. Compute class of the renderer's GPU; 0: there is no renderer, or the driver does not tell.
    uint32_t (*host_compute_class)(void* context);
    // Optional. Runs `count` methods of the compute class (pairs: address, data) in the renderer's TSG and waits for
    // them; `ns`: how long that took. 0, or -1 with `error` filled. Only for classes that have SCG control methods.
    int (*host_methods)(void* context, const uint32_t* pairs, uint32_t count, uint64_t* ns,
                        struct vuda_private_error* error);
    // Optional. Looks at the error notifiers of this process's channels in a shared TSG, and at how often the GPU
    // repeats page faults. What was found since the last look. Called every 50 ms while the process shares, and once
    // when it has ceased to: a few memory reads.
    uint32_t (*look_for_faults)(void* context, struct vuda_private_faults* out);
    // Optional, for a process with a renderer that was exported. What changed in its control buffers since the last
    // export or the last call, at most VUDA_PRIVATE_MIRROR_PART of them new; both arrays are malloc'ed and the
    // caller's, as are the fds. 0, with empty arrays when nothing changed; or -1 with `error` filled. `idle` 0: what a
    // mapping call waits for; 1: a piece of what others may let go of, and nobody waits for.
    int (*mirror_delta)(void* context, int idle, struct vuda_private_mirror* out, struct vuda_private_error* error);
    // Optional. 1: the set numbered `held` and what mirror_delta says of it are as good as an export; 0: export anew.
    int (*follows_from)(void* context, uint64_t held);
    // Optional, for a process that shares. The renderer's control buffers changed: takes that over into the address
    // spaces of the contexts that share. The fds stay the caller's. 0, or -1 with `error` filled: what is missing.
    int (*mirror_update)(void* context, const struct vuda_private_mirror* update, struct vuda_private_error* error);
    // Optional, for a process with a renderer. Subcontexts (bit N) of its TSG that other processes have (`taken`), and
    // those in which one computed that is gone, and that nobody took since.
    void (*others_subcontexts)(void* context, uint64_t taken, uint64_t stale);
    // Optional. From now on (`on`) GPU contexts that the calling thread makes share with nobody, whatever was asked
    // for, and are not reported; 0 ends that. May be called from within CUDA, outside of any ioctl.
    void (*unshared_contexts)(void* context, int on);
    // Optional, for a process with a renderer. The timeslice of its TSG, microseconds, from now on; 0: the driver's
    // own, as it also is while anybody shares the TSG. 1: it is so, or cannot be; 0: not now, ask again. Comes from a
    // thread of the program's, at the beginning of each frame: a few loads where nothing changes.
    int (*turn_slice)(void* context, uint32_t us);
};

// Results of look_for_faults.
#define VUDA_PRIVATE_OWN_TSG 1u     // it died
#define VUDA_PRIVATE_SHARED_TSG 2u  // likewise
#define VUDA_PRIVATE_STUCK 4u       // the GPU repeats page faults without end, since the looks before
#define VUDA_PRIVATE_STUCK_OVER 8u  // no longer

// What libvuda looks up in the preload with dlsym(RTLD_DEFAULT, ...):
//   uint32_t vuda_preload_abi_version(void)   its presence means that the preload is in this process, so vuda.h can do
//   something; void vuda_preload_wishes_changed(void)    optional; called on the program's thread, without a lock,
//   after vuda.h changed the wishes.
//                                             It registers a renderer's TSG that exists already.

// What vuda-probe's pair looks up there: sends SET_L1_CONFIGURATION of the 3D class, with `value` (1 to 6), to the
// subcontext of this process's renderer, and waits for it. FAILED_PRECONDITION in a process that was asked to register
// or to attach: only a TSG that nobody else has a handle of is sent it. 0, or -1 with `error` filled:
//   int vuda_shim_private_l1(uint32_t value, struct vuda_private_error* error)

uint32_t vuda_private_abi(void);

void vuda_private_get_wishes(struct vuda_private_wishes* out);

// Once per process (again after fork, in the child, when the child makes its own context). Connects lazily; never
// blocks.
void vuda_private_start(const struct vuda_private_callbacks* callbacks, const char* driver_version);

// Register the renderer's TSG under `name`, for those whom vuda_set_allowed, else VUDA_ALLOW_UIDS and VUDA_ALLOW_GIDS,
// name. Returns at once; a refused or lost registration is retried with back-off
// when vudad comes back, and reported on stderr at most once per cause. A second call replaces name and GPU.
void vuda_private_register(const char* name, const uint8_t gpu_uuid[16]);

// Ask vudad for the TSG called `name`. Blocks until admitted, refused or `timeout_ms` passed. 0: `out` holds the TSG
// (first) and its control buffers, and vuda_private_attach_done must follow. -1: `error` is filled and is this
// process's state until the next call; showing it is the caller's business. Threads that attach at the same moment take
// turns.
// `va_base`: the lowest GPU virtual address that CUDA uses; 0: not known.
int vuda_private_attach(const char* name, const uint8_t gpu_uuid[16], uint32_t channels, uint64_t va_base,
                        uint32_t timeout_ms, struct vuda_private_handles* out, struct vuda_private_error* error);

// After vuda_private_start, in a process that wishes to attach: by how many strides of 8 GiB CUDA's addresses are to be
// moved up, so that they are apart from those of other programs in the TSG. -1: not known within `timeout_ms`.
int vuda_private_va_slot(uint32_t timeout_ms);

// End of the attach turn. `reason` is NULL on success.
// `veids`: bit N: subcontext N is this context's, to compute in (`veid`) or taken besides.
void vuda_private_attach_done(uint32_t channels_moved, uint32_t veid, uint64_t veids, uint32_t control_buffers,
                              uint32_t attach_us, const struct vuda_private_error* reason);

// Of the TSG of this process's own renderer: the subcontexts that CUDA contexts of this process have (bit N), and those
// in which a program computed that has none any more. Any thread, without a lock; 0, 0 when there is no such TSG.
void vuda_private_own_subcontexts(uint64_t taken, uint64_t stale);

// One of the process's contexts left the TSG that was attached to, and others go on: the subcontexts (bit N) and
// channels that are left.
void vuda_private_context_left(uint64_t veids, uint32_t channels);

// The process's CUDA context went away, or sharing ended for another reason (may be NULL).
void vuda_private_detached(const struct vuda_private_error* reason);

// The process's renderer mapped control buffers. Returns when all who share its TSG have them too, at once when nobody
// shares, and within vudad's deadline in any case. Any thread, without a lock.
void vuda_private_mirror_changed(void);

// For `vudactl status`: this process does not share, and why. state: vuda.v1.SharingState.
void vuda_private_report(uint32_t state, const struct vuda_private_error* reason);

// Timing samples, for libVkLayer_vuda.so. kind: page::SampleKind (proto/page/session_page.h); times in nanoseconds of
// CLOCK_MONOTONIC. Any thread, without a lock; a sample that nobody listens to costs next to nothing.
int vuda_private_wants_samples(uint32_t kind);
void vuda_private_sample(uint32_t kind, uint64_t id, uint64_t end_ns, uint64_t duration_ns);

// For libVkLayer_vuda.so: a call of Vulkan said VK_ERROR_DEVICE_LOST. Any thread; only the first one matters. Returns
// when vudad has heard of it, or after 100 ms: the program may be about to end.
void vuda_private_device_lost(void);
// The program ends. Looks for a fault that it may end of; the same wait, and none where nothing is shared.
void vuda_private_ending(void);

// For libVkLayer_vuda.so, at the beginning of each frame: this process can hold frames back. 1: compute takes turns
// with them (mode sliced), by these terms (page::Split); 0: frames go as they come. Any thread, without a lock.
int vuda_private_turns(uint32_t* graphics_permille, uint64_t* frame_ns);
// Likewise, at the beginning of each frame while compute takes turns, and afterwards with 0 until it returns 1: the
// timeslice that the renderer's TSG should have (vuda_private_callbacks::turn_slice).
int vuda_private_turn_slice(uint32_t us);

// For a program that writes its launch descriptors itself: the simulated GPU's stand-in for CUDA. Call it before each
// launch: `mask` gets the TPCs that it must keep off (bit t of word t / 64), the result is that split's generation, 0
// when there is none. The first call makes the program its own backend.
uint64_t vuda_private_disable_mask(uint64_t mask[4]);

// Likewise, before a kernel that wants so much shared memory a block, where `limit` is possible beside graphics; bytes.
// 0: run it; else it was refused, and this is the CUresult for the program.
int vuda_private_own_kernel(uint32_t shared_memory, uint32_t limit);

// For benchmarks, to see in one process what following launches costs: 0 keeps CUDA from calling the partitioner before
// launches (they then run as if no split was asked for, and are not counted), anything else undoes that. Returns 0 when
// no partitioner follows launches here, or CUDA refuses.
int vuda_private_watch_launches(int on);

// pthread_atfork child handler: forget everything, close the session's fds, touch no lock and call no callback.
// vuda_private_start comes again before anything else. A child made without atfork handlers (clone) is noticed by its
// pid at the next call.
void vuda_private_after_fork_in_child(void);

#ifdef __cplusplus
}
#endif
