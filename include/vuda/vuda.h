/*
 * VUDA: a Vulkan renderer and CUDA compute on one NVIDIA GPU at the same time.
 *
 * A renderer owns a timeslice group (TSG) of GPU channels. A CUDA program whose channels are put into that TSG runs
 * beside the renderer instead of in turns with it. These calls say what a process wants; libvuda_preload.so, which
 * `vudactl run` loads, does it while the graphics and CUDA drivers set up their channels. Nothing here runs per frame
 * or per kernel launch.
 *
 * Programs need not call anything: `vudactl run --register NAME -- PROG` and `vudactl run --attach NAME -- PROG` say
 * the same through the environment. What a program says through this header wins over the environment.
 *
 * Errors. Every call returns VUDA_OK or a negative enum vuda_result; vuda_last_error() has the words. An error never
 * changes how the program runs: without sharing, everything works as without VUDA.
 *
 * Threads. Every call may be made from any thread at any time. None of them waits for vudad or for the GPU.
 *
 * fork. A child starts with what the environment says and shares nothing with its parent's session; calls made by the
 * parent have to be repeated in the child, before it makes its own GPU context. exec starts afresh.
 *
 * Link with -lvuda (libvuda.so.0; needs libc only).
 */
#ifndef VUDA_VUDA_H
#define VUDA_VUDA_H

#include <stddef.h>
#include <stdint.h>

#define VUDA_VERSION_MAJOR 0
#define VUDA_VERSION_MINOR 1
#define VUDA_VERSION_PATCH 0
/* major << 16 | minor << 8 | patch, as vuda_version() returns it. */
#define VUDA_VERSION ((uint32_t)(VUDA_VERSION_MAJOR << 16 | VUDA_VERSION_MINOR << 8 | VUDA_VERSION_PATCH))

/* For vuda_reserve: every channel of CUDA's graphics-engine (GR) TSG. */
#define VUDA_ALL_CHANNELS UINT32_MAX
/* Channels that one TSG can hold, the renderer's and all attached ones together. A limit of the GPU's runlist format.
 */
#define VUDA_MAX_CHANNELS 128u
/* Longest name of a TSG in bytes, without the terminator. */
#define VUDA_MAX_NAME 64u

#ifdef __cplusplus
extern "C" {
#endif

enum vuda_result {
    VUDA_OK = 0,
    VUDA_E_INVALID = -1,  /* an argument is outside its documented range */
    VUDA_E_NO_SHIM = -2,  /* libvuda_preload.so is not in this process: run it under `vudactl run` */
    VUDA_E_DISABLED = -3, /* VUDA_DISABLE=1 is in the environment */
    VUDA_E_NO_MEMORY = -4,
    VUDA_E_INTERNAL = -5 /* a bug in VUDA; please report the text */
};

enum vuda_sharing_state {
    VUDA_STATE_NONE = 0,       /* nothing asked of vudad yet: no GPU context so far, or nothing to share */
    VUDA_STATE_IDLE = 1,       /* connected to vudad, shares nothing */
    VUDA_STATE_REGISTERED = 2, /* vudad knows this process's TSG by `name` */
    VUDA_STATE_WAITING = 3,    /* a registration or an attach is on its way */
    VUDA_STATE_SHARING = 4,    /* `channels` of this process run in the TSG called `name` */
    VUDA_STATE_UNSHARED = 5,   /* runs natively; `reason` says why */
    VUDA_STATE_FAULTED = 6     /* the TSG died with an error of the GPU */
};

/* 512 bytes. New members are added at the end only; `size` tells the library how much the caller knows. */
struct vuda_state {
    uint32_t size;     /* in: sizeof(struct vuda_state) */
    int32_t state;     /* enum vuda_sharing_state */
    uint32_t channels; /* channels of this process in another program's TSG */
    uint32_t reserved; /* 0 */
    char name[72];     /* TSG owned or attached to; empty when none */
    char reason[424];  /* last thing that went wrong and what to do about it; empty when nothing did */
};

/* Version of the library that was loaded, as VUDA_VERSION. It may be newer than this header. */
uint32_t vuda_version(void);

/*
 * Makes this process's graphics TSG available to others under `name`: 1 to VUDA_MAX_NAME bytes of [A-Za-z0-9._-], not
 * starting with '.' or '-'.
 *
 * When: before vkCreateDevice, which sets a device up for sharing; one that is older stays private, and vuda_get_state
 * says so. The TSG is registered when it exists; vudad's answer comes later and is seen with vuda_get_state and
 * `vudactl status` (the name may be taken). Calling again with another name renames.
 * The registration lasts until vuda_detach or the end of the process, and comes back by itself when vudad restarts.
 *
 * VUDA_E_INVALID, VUDA_E_NO_SHIM, VUDA_E_DISABLED, VUDA_E_NO_MEMORY.
 */
int vuda_register(const char* name);

/* Most users, and most groups, that a name can be open to. */
#define VUDA_MAX_ALLOWED 64u

/* Who may attach beside this user and root. 32 bytes. New members are added at the end only. */
struct vuda_allowed {
    uint32_t size; /* sizeof(struct vuda_allowed) */
    uint32_t uid_count;
    const uint32_t* uids; /* uid_t of each; copied. NULL where uid_count is 0 */
    const uint32_t* gids; /* gid_t: a process in one of these groups, its supplementary groups included */
    uint32_t gid_count;
    uint32_t reserved; /* 0 */
};

/*
 * Says who may attach to the name that this process registers, all of them: what was said before is replaced, and so is
 * what the environment says (`vudactl run --allow-user`, `--allow-group`). Empty lists: nobody else. NULL: whom the
 * environment names, as without this call.
 *
 * Whoever attaches shares this program's life on the GPU and can read and write its control buffers
 * (docs/security-model.md): allow only whom you would let run as this user. A shorter list counts for those that come
 * later; it puts nobody out.
 *
 * When: before vuda_register, or at any time after it. vudad checks the list against what the kernel says of the
 * process that attaches, and keeps to it after a restart. vuda_detach forgets it.
 *
 * VUDA_E_INVALID: a size smaller than the first version of the structure (32), more than VUDA_MAX_ALLOWED of a kind,
 * an id of UINT32_MAX (which is nobody's), NULL with a count; otherwise as vuda_register.
 */
int vuda_set_allowed(const struct vuda_allowed* allowed);

/*
 * Puts the channels of the next CUDA context into the TSG that another process registered as `name` (rules as above).
 *
 * When: before the CUDA context exists (before cuCtxCreate, cuDevicePrimaryCtxRetain or the first call of the CUDA
 * runtime). A later call counts for the next context. Creating the context then waits for its turn at most 2 s; where
 * sharing is impossible the context is an ordinary one and vuda_get_state says why.
 *
 * Results as vuda_register.
 */
int vuda_attach(const char* name);

/*
 * How many of CUDA's GR channels move into the shared TSG: 1 to VUDA_MAX_CHANNELS, or VUDA_ALL_CHANNELS (the default).
 * Without vuda_attach, the TSG is this process's own renderer's: a program that uses Vulkan and CUDA itself makes its
 * Vulkan device, calls vuda_reserve, and then makes its CUDA context.
 *
 * The channels of a context share all or not at all: those left behind would miss the set-up that CUDA does once for
 * all of them. So CUDA is asked to make no more than that many: unless CUDA_DEVICE_MAX_CONNECTIONS is in the
 * environment already, this call sets it (VUDA_ALL_CHANNELS takes that back), and as with setenv(3) no other thread may
 * use the environment meanwhile. Where CUDA makes more, all of them move, and vuda_get_state says so. Fewer channels
 * also make the context sooner beside a busy renderer, and let fewer streams run side by side.
 *
 * When: before cuInit, or the first call of the CUDA runtime.
 *
 * VUDA_E_INVALID for 0 and for numbers between VUDA_MAX_CHANNELS and VUDA_ALL_CHANNELS; otherwise as vuda_register.
 */
int vuda_reserve(uint32_t channels);

/*
 * Ends what the calls above and the environment asked for: the name is given back, so that nobody new can attach, and
 * later CUDA contexts are ordinary ones. Channels that run in a TSG already stay there until their context is
 * destroyed: the GPU cannot move them back.
 *
 * Results as vuda_register, except VUDA_E_INVALID.
 */
int vuda_detach(void);

/*
 * Fills `state`, whose `size` the caller has set. Works with and without libvuda_preload.so.
 * VUDA_E_INVALID: NULL, or a size smaller than the first version of the structure (512).
 */
int vuda_get_state(struct vuda_state* state);

/* How the GPU is split between graphics and compute. */
enum vuda_mode {
    VUDA_MODE_INTRA_SM = 1, /* co-residency: compute may use every TPC (a pair of SMs, mostly), also beside graphics */
    VUDA_MODE_INTER_SM = 2, /* separate TPCs: compute keeps off those that are left to graphics */
    VUDA_MODE_SLICED = 3    /* turns, steered at the renderer's side */
};

/* For vuda_set_quota: let the tuner find it; no limit beyond what the mode implies. */
#define VUDA_QUOTA_AUTO (UINT32_MAX - 1)
#define VUDA_QUOTA_NONE UINT32_MAX
/* Most TPCs that a GPU can have for VUDA. */
#define VUDA_MAX_TPCS 256u

enum vuda_backend {
    VUDA_BACKEND_UNKNOWN = 0,
    VUDA_BACKEND_NONE = 1,    /* nothing in this process can keep compute to a quota; `reason` says why */
    VUDA_BACKEND_SCG = 2,     /* methods of the compute class, Turing to Ada */
    VUDA_BACKEND_QMD_MASK = 3 /* a mask in each launch descriptor, Hopper and later */
};

/* 512 bytes. New members are added at the end only; `size` tells the library how much the caller knows. */
struct vuda_partition {
    uint32_t size;          /* in: sizeof(struct vuda_partition) */
    int32_t mode;           /* enum vuda_mode in force; 0: nothing was asked for */
    int32_t backend;        /* enum vuda_backend of this process */
    uint32_t applied_tpcs;  /* TPCs that compute may use now; 0: not known */
    uint32_t total_tpcs;    /* of the GPU; 0: not known */
    uint32_t graphics_tpcs; /* those that can do graphics */
    uint64_t generation;    /* changes of the split so far */
    uint64_t launches;      /* kernels of this process that went through the partitioner */
    char reason[472];       /* newest refusal or remark, else why the backend is not a better one; empty: neither */
};

/*
 * Chooses the mode, or compute's share in TPCs (1 to VUDA_MAX_TPCS, VUDA_QUOTA_AUTO, VUDA_QUOTA_NONE), for the TSG that
 * this process owns or shares. Shares are aligned to levels that take one TPC of each GPC at a time; what was applied
 * is in vuda_get_partition and `vudactl status`. The last of several writers wins.
 *
 * When: any time. The wish reaches vudad when this process owns or shares a TSG, and is in force from the next kernel
 * launch of each sharing process on; kernels that run, and CUDA graphs that were launched before, keep their TPCs.
 * A refusal (more TPCs than the GPU has, no backend) comes later, in vuda_get_partition.
 *
 * VUDA_E_INVALID for what is no mode, for 0 and for numbers between VUDA_MAX_TPCS and VUDA_QUOTA_AUTO; otherwise as
 * vuda_register.
 */
int vuda_set_mode(int mode);
int vuda_set_quota(uint32_t tpcs);

/*
 * What becomes of kernels that want more shared memory a block than may run beside graphics: one such kernel would end
 * the renderer and this program (docs/compatibility.md).
 */
enum vuda_over_limit {
    VUDA_OVER_LIMIT_REJECT = 1,  /* not run; the call that launched it returns CUDA error 701 */
    VUDA_OVER_LIMIT_UNSHARE = 2, /* likewise, and later CUDA contexts of this program stay out of that TSG for a while:
                                    outside it all its kernels run, in turns with the renderer */
    VUDA_OVER_LIMIT_NATIVE = 3   /* such a kernel runs in a TSG of CUDA's own, in its place in the stream; where that
                                    cannot be had, as VUDA_OVER_LIMIT_REJECT. The default */
};

/*
 * Chooses that for this process. The environment's word for it is VUDA_OVER_LIMIT (native, unshare, reject).
 *
 * When: before the CUDA context exists. A later call counts for the next context at the latest.
 *
 * VUDA_E_INVALID for what is no policy; otherwise as vuda_register.
 */
int vuda_set_over_limit(int policy);

/* What this process promises itself. 56 bytes. New members are added at the end only. */
struct vuda_slo {
    uint32_t size; /* sizeof(struct vuda_slo) */
    uint32_t reserved;
    double frame_ms;     /* a frame takes at most so long, 0.1 to 60,000 milliseconds; 0: no target */
    double frame_miss;   /* fraction of frames that may take longer, 0 to below 1 */
    double latency_ms;   /* likewise for a step (vuda_step_begin), 0.001 to 600,000 milliseconds; 0: no target */
    double latency_miss; /* fraction of steps that may take longer */
    double throughput;   /* steps a second, at least; 0: no target */
    double weight;       /* share of compute's TPCs against other processes that mark steps, 0.001 to 1,000; 0: 1 */
};

/*
 * States the targets of this process, all of them: frames of the TSG that it owns, steps of its own in the TSG that it
 * shares. vudad's tuner then finds the split that keeps them, unless somebody fixed the quota; `vudactl slo` and
 * `vudactl top` show what comes of it. NULL clears what was stated. The last of several writers wins, `vudactl slo`
 * included.
 *
 * When: any time, and again whenever a target changes. It reaches vudad when this process owns or shares a TSG. A
 * refusal (out of range, a target of a side that this process has not) comes later, in vuda_get_partition.
 *
 * VUDA_E_INVALID: a size smaller than the first version of the structure, a negative number, NaN, or one above its
 * range; otherwise as vuda_register.
 */
int vuda_set_slo(const struct vuda_slo* slo);

/*
 * Fills `partition`, whose `size` the caller has set. Works with and without libvuda_preload.so.
 * VUDA_E_INVALID: NULL, or a size smaller than the first version of the structure (512).
 */
int vuda_get_partition(struct vuda_partition* partition);

/*
 * Mark a step of work whose latency matters, such as one inference: the tuner and `vudactl status` go by the time from
 * begin to end. `id` ties the two together; up to 256 consecutive ids may be open at a time, and begin and end may come
 * from different threads. Costs below a microsecond each, and next to nothing when nobody listens. An end without its
 * begin is ignored.
 */
void vuda_step_begin(uint64_t id);
void vuda_step_end(uint64_t id);

/*
 * What went wrong in the last failed call of this thread, and what to do next: one line of text, "" before any failure.
 * Valid until the next failed call of this thread. Never NULL.
 */
const char* vuda_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
