// The rules that the simulated resource manager and GPU enforce, one name each.
//
// Every rule can be switched off (vuda-simd --break NAME, or Rules::set), and rules_test.cc holds a check of the same
// name that then fails: this is how the tests are known to test something.
#pragma once

#include <bitset>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace vuda::sim {

// X(enumerator, "name", "what holds", "source")
//
// Sources: "measured" = seen on an H200 with driver 580.159.04; "source" = read in NVIDIA's published kernel modules;
// "nvgpu" = read in NVIDIA's Tegra driver for the same hardware family; "assumed" = neither, a choice made here.
#define VUDA_SIM_RULES(X)                                                                                              \
    X(kClientBoundToFile, "client.bound-to-file",                                                                      \
      "a client is usable only through the open file that made it, else INVALID_CLIENT", "measured, source")           \
    X(kClientDiesWithFile, "client.dies-with-file",                                                                    \
      "the last close of that file frees the client and everything below it", "measured, source")                      \
    X(kAllocKnownClass, "alloc.known-class", "an unknown class is INVALID_CLASS", "source")                            \
    X(kAllocParentExists, "alloc.parent-exists", "a parent that does not exist is OBJECT_NOT_FOUND", "source")         \
    X(kAllocParentClass, "alloc.parent-class", "each class has allowed parents, else INVALID_OBJECT_PARENT", "source") \
    X(kAllocHandleUnique, "alloc.handle-unique", "a handle in use is INSERT_DUPLICATE_NAME", "source")                 \
    X(kFreeRecursive, "free.recursive", "freeing an object frees its children first", "source")                        \
    X(kFreeUnknownIsOk, "free.unknown-is-ok", "freeing a handle that does not exist is OK", "measured, source")        \
    X(kDupSameProcess, "dup.same-process",                                                                             \
      "DUP_OBJECT reaches clients of the same process only, else INVALID_OBJECT_HANDLE, for root too", "measured")     \
    X(kDupShareNoHelp, "dup.share-no-help", "RM_SHARE of any type leaves that so", "measured")                         \
    X(kDupCopyable, "dup.copyable", "channels, devices and engine objects cannot be duplicated: INVALID_ARGUMENT",     \
      "source")                                                                                                        \
    X(kExportFreshFile, "export.fresh-file", "a file carries one export, a second is STATE_IN_USE", "source")          \
    X(kExportControlFile, "export.control-file", "exports go to nvidiactl files only, else INVALID_PARAMETER",         \
      "source")                                                                                                        \
    X(kExportKeepsAlive, "export.keeps-alive", "an exported object lives until the file's last reference closes",      \
      "measured, source")                                                                                              \
    X(kImportNeedsExport, "import.needs-export", "importing from a file without export is INVALID_PARAMETER",          \
      "source")                                                                                                        \
    X(kDmaExternalVas, "dma.external-vas", "MAP_MEMORY_DMA into an externally owned VA space is NOT_SUPPORTED",        \
      "source")                                                                                                        \
    X(kDmaAboveBase, "dma.above-base", "addresses are given out from the VA space's base up", "measured")              \
    X(kDmaNoOverlap, "dma.no-overlap", "a fixed address that is taken is refused", "source")                           \
    X(kDmaUnmapKnown, "dma.unmap-known", "unmapping what is not mapped is OBJECT_NOT_FOUND", "source")                 \
    X(kShareSyncIsZero, "ctxshare.sync-is-zero", "SYNC gives VEID 0", "measured, source")                              \
    X(kShareAsyncFromTop, "ctxshare.async-from-top", "ASYNC gives the highest free VEID, 63 first",                    \
      "measured, source")                                                                                              \
    X(kShareSpecified, "ctxshare.specified", "SPECIFIED gives the VEID asked for", "measured, source")                 \
    X(kShareVeidUnique, "ctxshare.veid-unique", "a VEID in use is refused with NO_MEMORY", "source")                   \
    X(kSharePreferLower, "ctxshare.prefer-lower", "ASYNC_PREFER_LOWER gives the lowest free VEID from 1", "source")    \
    X(kShareVeidReturned, "ctxshare.veid-returned", "a VEID is free again after the last reference", "source")         \
    X(kShareLegacyFull, "ctxshare.legacy-full", "a TSG in legacy mode takes no further subcontext", "source")          \
    X(kShareExternalNeedsUvm, "ctxshare.external-needs-uvm",                                                           \
      "an externally owned VA space must be registered with UVM first, else INVALID_STATE", "source")                  \
    X(kShareTsgUnderDevice, "ctxshare.tsg-under-device", "the TSG's parent must be a device, else INVALID_ARGUMENT",   \
      "source")                                                                                                        \
    X(kTsgEngineRequired, "tsg.engine-required", "a TSG names its engine, else INVALID_ARGUMENT", "source")            \
    X(kTsgOutlivesOwner, "tsg.outlives-owner", "a TSG lives while any duplicate, import or export of it does",         \
      "measured, source")                                                                                              \
    X(kChannelShareXorVas, "channel.share-xor-vas", "context share and VA space together are INVALID_ARGUMENT",        \
      "source")                                                                                                        \
    X(kChannelTsgNoVas, "channel.tsg-no-vas", "a channel in a TSG takes no VA space of its own: INVALID_ARGUMENT",     \
      "source")                                                                                                        \
    X(kChannelBareNoShare, "channel.bare-no-share", "a channel outside a TSG takes no context share", "source")        \
    X(kChannelShareSameClient, "channel.share-same-client", "the context share must be the channel's client's",        \
      "source")                                                                                                        \
    X(kChannelShareSameParent, "channel.share-same-parent",                                                            \
      "and hang off the very handle that is the channel's parent, else INVALID_OBJECT_PARENT", "source")               \
    X(kChannelNoMixing, "channel.no-mixing", "channels with and without context share do not mix in a TSG", "source")  \
    X(kChannelLegacyNeedsEmpty, "channel.legacy-needs-empty", "legacy mode is refused once a context share exists",    \
      "source")                                                                                                        \
    X(kChannelEngineMatches, "channel.engine-matches", "a channel's engine is its TSG's", "source")                    \
    X(kChannelMax128, "channel.max-128", "a TSG has at most 128 channels, then INSUFFICIENT_RESOURCES", "source")      \
    X(kChannelThreadRunqueue, "channel.thread-runqueue", "THREAD 1 on runqueue 0 is INVALID_ARGUMENT", "source")       \
    X(kChannelUserdRequired, "channel.userd-required", "from branch 595 on the client must bring USERD memory",        \
      "source")                                                                                                        \
    X(kChannelNotifierExists, "channel.notifier-exists", "an error notifier that does not exist is INVALID_STATE",     \
      "source")                                                                                                        \
    X(kChannelAdminFlag, "channel.admin-flag", "root's channels come back with the PRIVILEGED_CHANNEL flag set",       \
      "measured")                                                                                                      \
    X(kGspComputeRunqueue, "gsp.compute-runqueue",                                                                     \
      "beside graphics a compute object on VEID>0 needs runqueue 1, else INVALID_OBJECT", "measured")                  \
    X(kGspGraphicsVeid0, "gsp.graphics-veid0", "a 3D object needs VEID 0 and runqueue 0, else INVALID_OBJECT",         \
      "nvgpu")                                                                                                         \
    X(kGspNoCilp, "gsp.no-cilp", "CILP preemption on a TSG with graphics is refused", "measured; status assumed")      \
    X(kGspNoGfxp, "gsp.no-gfxp", "GfxP preemption is NO_MEMORY", "measured")                                           \
    X(kZcullNoGlobal, "zcull.no-global", "zcull mode 0 (GLOBAL) is refused", "measured; status assumed")               \
    X(kZcullSameClient, "zcull.same-client", "the bind names the calling client", "source")                            \
    X(kZcullSeparateFaults, "zcull.separate-faults",                                                                   \
      "after mode 2 the first work of a foreign VA space faults: Xid 31 at 0x0", "measured")                           \
    X(kScheduleWholeTsg, "schedule.whole-tsg",                                                                         \
      "a TSG-level schedule looks at every channel: one in an externally owned VA space that UVM has not bound is "    \
      "INVALID_STATE",                                                                                                 \
      "measured, source")                                                                                              \
    X(kScheduleOneChannel, "schedule.one-channel", "a channel-level schedule looks at that channel only",              \
      "measured, source")                                                                                              \
    X(kScheduleBoundChannel, "schedule.bound-channel", "and applies the same check to it", "source")                   \
    X(kScheduleInherited, "schedule.inherited",                                                                        \
      "a channel made in a scheduled TSG runs at once, unless DELAY_CHANNEL_SCHEDULING", "source")                     \
    X(kScheduleBeforeWork, "schedule.before-work", "an unscheduled channel runs no work", "source")                    \
    X(kUvmInitFirst, "uvm.init-first", "before UVM_INITIALIZE every other call is ILLEGAL_ACTION", "source")           \
    X(kUvmGpuFirst, "uvm.gpu-first", "a GPU VA space needs its GPU registered, else INVALID_DEVICE", "source")         \
    X(kUvmVasExternal, "uvm.vas-external", "only an externally owned VA space can be registered, else INVALID_FLAGS",  \
      "source")                                                                                                        \
    X(kUvmRangeAligned, "uvm.range-aligned", "external ranges are 4 KiB aligned, else INVALID_ADDRESS", "source")      \
    X(kUvmRangeNoOverlap, "uvm.range-no-overlap", "and do not overlap, else UVM_ADDRESS_IN_USE", "source")             \
    X(kUvmMapAligned, "uvm.map-aligned", "mappings are 4 KiB aligned, else INVALID_ADDRESS", "source")                 \
    X(kUvmMapContained, "uvm.map-contained", "one external range holds a mapping, else INVALID_ADDRESS", "source")     \
    X(kUvmMapNeedsVas, "uvm.map-needs-vas", "the GPU's VA space must be registered, else INVALID_DEVICE", "source")    \
    X(kUvmMapSameProcess, "uvm.map-same-process",                                                                      \
      "memory must belong to a client of the calling process, else INSUFFICIENT_PERMISSIONS", "source")                \
    X(kUvmMapInMemory, "uvm.map-in-memory", "offset and length stay inside the memory, else INVALID_OFFSET", "source") \
    X(kUvmMapKeepsMemory, "uvm.map-keeps-memory", "a mapping keeps its memory after every handle to it is gone",       \
      "source")                                                                                                        \
    X(kUvmChannelVas, "uvm.channel-vas", "a channel's VA space must be the registered one, else INVALID_CHANNEL",      \
      "source")                                                                                                        \
    X(kUvmChannelWindow, "uvm.channel-window", "a VA window is shared by channels of one TSG only", "measured")        \
    X(kUvmChannelHolds, "uvm.channel-holds", "a registration keeps the channel's VEID taken until it is undone",       \
      "source")                                                                                                        \
    X(kFaultKillsTsg, "fault.kills-tsg", "a fault ends every channel of the TSG, whoever owns it", "measured, source") \
    X(kFaultNotifiesAll, "fault.notifies-all", "and writes the error into the notifier of each", "source")             \
    X(kFaultControlBuffers, "fault.control-buffers",                                                                   \
      "a kernel beside graphics faults (Xid 31) where graphics state points at addresses its VA space lacks",          \
      "measured")                                                                                                      \
    X(kFaultStaleVeid, "fault.stale-veid",                                                                             \
      "a subcontext's first kernel faults (Xid 31) while the VEID of one that computed before has no address space",   \
      "measured")                                                                                                      \
    X(kFaultSharedMemory, "fault.shared-memory",                                                                       \
      "beside graphics a block over 49,152 bytes of shared memory is Xid 13", "measured")                              \
    X(kSharedMemoryWaits, "smem.limit-waits", "a block of exactly 49,152 bytes runs, but waits for each frame",        \
      "measured")                                                                                                      \
    X(kFaultIllegalMethod, "fault.illegal-method", "a method the class lacks is Xid 11 and ends the TSG", "measured")  \
    X(kFaultWedges, "fault.wedges",                                                                                    \
      "after that a TSG with graphics accepts no further context share (BUSY_RETRY) until reset", "measured")          \
    X(kFaultLocalMemory, "fault.local-memory",                                                                         \
      "a subcontext that never ran the compute set-up methods faults on its first kernel: Xid 13", "measured")         \
    X(kDeadTsgStaysDead, "fault.dead-stays-dead", "a dead TSG runs no more work", "source")                            \
    X(kVersionMatches, "version.matches", "a user-mode driver of another version is turned away", "source")            \
    X(kIoctlExactSize, "ioctl.exact-size", "an argument of another size is EINVAL", "source")

enum class Rule : size_t {
#define VUDA_SIM_RULE(enumerator, name, what, source) enumerator,
    VUDA_SIM_RULES(VUDA_SIM_RULE)
#undef VUDA_SIM_RULE
        kCount
};

inline constexpr size_t kRuleCount = static_cast<size_t>(Rule::kCount);

struct RuleInfo {
    Rule rule;
    std::string_view name;    // "area.rule", stable
    std::string_view what;    // what holds, with the status that a violation answers
    std::string_view source;  // how it is known
};

std::span<const RuleInfo> all_rules();
const RuleInfo& rule_info(Rule rule);
std::optional<Rule> find_rule(std::string_view name);

// Which rules are in force; all of them at first.
class Rules {
 public:
    bool on(Rule rule) const { return !off_.test(static_cast<size_t>(rule)); }
    void set(Rule rule, bool on) { off_.set(static_cast<size_t>(rule), !on); }

 private:
    std::bitset<kRuleCount> off_;
};

}  // namespace vuda::sim
