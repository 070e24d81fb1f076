// Every rule of rules.h has one check here. Each runs twice: with all rules on it must hold, with its own rule switched
// off it must not, which shows that the check looks at that rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>

#include "sim/rm/test_rigs.h"

namespace vuda::sim {
namespace {

using rm::Handle;

// "" when the rule was obeyed, else what was seen instead.
using Check = std::function<std::string(ResourceManager&)>;

std::string expect(uint32_t got, uint32_t wanted, const char* what = "status") {
    if (got == wanted) return "";
    char text[128];
    std::snprintf(text, sizeof text, "%s is 0x%x instead of 0x%x", what, got, wanted);
    return text;
}

std::string expect_true(bool value, const char* what) { return value ? "" : std::string("not so: ") + what; }

bool last_line_has(ResourceManager& rm, const char* text) {
    return !rm.log().lines().empty() && rm.log().lines().back().find(text) != std::string::npos;
}

constexpr Handle kDevice = TestClient::kDevice;
constexpr Handle kSubdevice = TestClient::kSubdevice;

// The first part that went wrong.
std::string all(std::initializer_list<std::string> parts) {
    for (const std::string& part : parts) {
        if (!part.empty()) return part;
    }
    return "";
}

const std::map<Rule, Check>& checks() {
    static const std::map<Rule, Check> table = {
        {Rule::kClientBoundToFile,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             const FileId other = process.open(FileKind::kControl);
             rm::FreeArgs args{a.client, 0, kSubdevice, 0};
             (void)process.escape(other, rm::escape::kFree, args);
             return expect(args.status, rm::nv::kInvalidClient);
         }},
        {Rule::kClientDiesWithFile,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             process.close(a.control_file);
             return expect(static_cast<uint32_t>(rm.counts().clients), 0, "clients after close");
         }},
        {Rule::kAllocKnownClass,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             return expect(a.alloc(kDevice, 1, 0x1234), rm::nv::kInvalidClass);
         }},
        {Rule::kAllocParentExists,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             return expect(a.alloc(0x999, 1, rm::cls::kEvent), rm::nv::kObjectNotFound);
         }},
        {Rule::kAllocParentClass,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             return expect(a.alloc(kSubdevice, 1, 0x83de), rm::nv::kInvalidObjectParent);
         }},
        {Rule::kAllocHandleUnique,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.memory(1, 4096);
             return expect(a.memory(1, 4096), rm::nv::kInsertDuplicateName);
         }},
        {Rule::kFreeRecursive,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.memory(1, 4096);
             (void)a.free(kDevice);
             return expect(static_cast<uint32_t>(rm.counts().objects), 0, "objects after freeing the device");
         }},
        {Rule::kFreeUnknownIsOk,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             return expect(a.free(0x777), rm::nv::kOk);
         }},
        {Rule::kDupSameProcess,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10, 0);
             TestProcess two(rm, 11, 0);
             TestClient a(one);
             TestClient b(two);
             TestClient c(one);
             (void)a.vaspace(1);
             return all({expect(c.dup(kDevice, 2, a.client, 1), rm::nv::kOk, "dup in one process"),
                         expect(b.dup(kDevice, 2, a.client, 1), rm::nv::kInvalidObjectHandle,
                                "dup across processes, as root")});
         }},
        {Rule::kDupShareNoHelp,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10);
             TestProcess two(rm, 11);
             TestClient a(one);
             TestClient b(two);
             (void)a.vaspace(1);
             return all({expect(a.share(1, 1), rm::nv::kOk, "share type 1"),
                         expect(a.share(1, 2), rm::nv::kOk, "share type 2"),
                         expect(b.dup(kDevice, 2, a.client, 1), rm::nv::kInvalidObjectHandle, "dup after share")});
         }},
        {Rule::kDupCopyable,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             (void)a.channel(0x20, 0x22, 0x21);
             return expect(a.dup(kDevice, 0x99, a.client, 0x22), rm::nv::kInvalidArgument, "dup of a channel");
         }},
        {Rule::kExportFreshFile,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(1);
             const FileId file = process.open(FileKind::kControl);
             return all({expect(a.export_to(1, file), rm::nv::kOk, "first export"),
                         expect(a.export_to(1, file), rm::nv::kStateInUse, "second export")});
         }},
        {Rule::kExportControlFile,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(1);
             return expect(a.export_to(1, process.open(FileKind::kGpu)), rm::nv::kInvalidParameter);
         }},
        {Rule::kExportKeepsAlive,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10);
             TestProcess two(rm, 11);
             auto a = std::make_unique<TestClient>(one);
             TestClient b(two);
             (void)a->memory(1, 4096);
             const FileId file = two.open(FileKind::kControl);  // stands for one that was passed over a socket
             const uint32_t exported = a->export_to(1, file);
             one.close(a->control_file);  // the owner is gone
             const uint32_t imported = b.import_from(file, kDevice, 2);
             (void)b.free(2);
             two.close(file);
             return all({expect(exported, rm::nv::kOk, "export"),
                         expect(imported, rm::nv::kOk, "import after the owner's death"),
                         expect(static_cast<uint32_t>(rm.counts().memories), 0, "memories after the last close")});
         }},
        {Rule::kImportNeedsExport,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             return expect(a.import_from(process.open(FileKind::kControl), kDevice, 2), rm::nv::kInvalidParameter);
         }},
        {Rule::kDmaExternalVas,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10, true);
             (void)a.virtual_memory(0x11, 0x10);
             (void)a.memory(0x12, 4096);
             uint64_t address = 0;
             return expect(a.map_dma(0x11, 0x12, 4096, address), rm::nv::kNotSupported);
         }},
        {Rule::kDmaAboveBase,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10, false, 0x40000000);
             (void)a.virtual_memory(0x11, 0x10);
             (void)a.memory(0x12, 4096);
             uint64_t address = 0;
             const uint32_t status = a.map_dma(0x11, 0x12, 4096, address);
             return all(
                 {expect(status, rm::nv::kOk), expect_true(address >= 0x40000000, "the address is above the base")});
         }},
        {Rule::kDmaNoOverlap,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.virtual_memory(0x11, 0x10);
             (void)a.memory(0x12, 4096);
             uint64_t address = 0x500000;
             const uint32_t first = a.map_dma(0x11, 0x12, 4096, address, rm::kMapDmaOffsetFixed);
             const uint32_t second = a.map_dma(0x11, 0x12, 4096, address, rm::kMapDmaOffsetFixed);
             return all({expect(first, rm::nv::kOk), expect(second, rm::nv::kInUse, "second mapping")});
         }},
        {Rule::kDmaUnmapKnown,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.virtual_memory(0x11, 0x10);
             return expect(a.unmap_dma(0x11, 0x123000), rm::nv::kObjectNotFound);
         }},
        {Rule::kShareSyncIsZero,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             uint32_t veid = 77;
             const uint32_t status = a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync, &veid);
             return all({expect(status, rm::nv::kOk), expect(veid, 0, "VEID")});
         }},
        {Rule::kShareAsyncFromTop,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             uint32_t first = 0;
             uint32_t second = 0;
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareAsync, &first);
             (void)a.ctxshare(0x20, 0x22, 0x10, rm::kCtxShareAsync, &second);
             return all({expect(first, 63, "first VEID"), expect(second, 62, "second VEID")});
         }},
        {Rule::kShareSpecified,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             uint32_t veid = 5;
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSpecified, &veid);
             return expect(veid, 5, "VEID");
         }},
        {Rule::kShareVeidUnique,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             return expect(a.ctxshare(0x20, 0x22, 0x10, rm::kCtxShareSync), rm::nv::kNoMemory);
         }},
        {Rule::kSharePreferLower,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             uint32_t veid = 0;
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareAsyncPreferLower, &veid);
             return expect(veid & 0xff, 1, "VEID");
         }},
        {Rule::kShareVeidReturned,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             (void)a.free(0x21);
             return expect(a.ctxshare(0x20, 0x22, 0x10, rm::kCtxShareSync), rm::nv::kOk, "the VEID once more");
         }},
        {Rule::kShareLegacyFull,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             const uint32_t legacy = a.channel(0x20, 0x22, 0);
             return all({expect(legacy, rm::nv::kOk, "legacy channel"),
                         expect(a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareAsync), rm::nv::kNoMemory)});
         }},
        {Rule::kShareExternalNeedsUvm,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10, true);
             (void)a.tsg(0x20, 0);
             return expect(a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareAsync), rm::nv::kInvalidState);
         }},
        {Rule::kShareTsgUnderDevice,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.dup(kSubdevice, 0x30, a.client, 0x20);  // DUP checks no parent class
             return expect(a.ctxshare(0x30, 0x21, 0x10, rm::kCtxShareAsync), rm::nv::kInvalidArgument);
         }},
        {Rule::kTsgEngineRequired,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             return expect(a.tsg(0x20, 0x10, 0), rm::nv::kInvalidArgument);
         }},
        {Rule::kTsgOutlivesOwner,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10);
             TestProcess two(rm, 11);
             auto renderer = std::make_unique<RendererRig>(one);
             ComputeRig compute(two);
             const uint32_t status = compute.start_shared(*renderer);
             one.close(renderer->client.control_file);
             compute.queue.kernel().submit();
             run_gpu(rm);
             return all({expect(status, rm::nv::kOk, "join"),
                         expect_true(compute.queue.done(), "compute runs on after the renderer's death")});
         }},
        {Rule::kChannelShareXorVas,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             rm.rules().set(Rule::kChannelTsgNoVas, false);
             const uint32_t status = a.channel(0x20, 0x22, 0x21, 0, 0x10);
             return expect(status, rm::nv::kInvalidArgument);
         }},
        {Rule::kChannelTsgNoVas,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             return expect(a.channel(0x20, 0x22, 0, 0, 0x10), rm::nv::kInvalidArgument);
         }},
        {Rule::kChannelBareNoShare,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             rm.rules().set(Rule::kChannelShareSameParent, false);
             return expect(a.channel(kDevice, 0x22, 0x21, 0, 0, rm::kEngineGr0), rm::nv::kInvalidArgument);
         }},
        {Rule::kChannelShareSameClient,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             TestClient b(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             (void)b.dup(kDevice, 0x20, a.client, 0x20);
             return expect(b.channel(0x20, 0x22, 0x21), rm::nv::kObjectNotFound);
         }},
        {Rule::kChannelShareSameParent,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             (void)a.dup(kDevice, 0x30, a.client, 0x20);
             return expect(a.channel(0x30, 0x22, 0x21), rm::nv::kInvalidObjectParent);
         }},
        {Rule::kChannelNoMixing,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             (void)a.channel(0x20, 0x22, 0x21);
             rm.rules().set(Rule::kChannelLegacyNeedsEmpty, false);
             return expect(a.channel(0x20, 0x23, 0), rm::nv::kInvalidArgument);
         }},
        {Rule::kChannelLegacyNeedsEmpty,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             return expect(a.channel(0x20, 0x23, 0), rm::nv::kInvalidState);
         }},
        {Rule::kChannelEngineMatches,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             return expect(a.channel(0x20, 0x22, 0x21, 0, 0, 0xb), rm::nv::kInvalidArgument);
         }},
        {Rule::kChannelMax128,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             for (Handle i = 0; i < 128; i++) {
                 if (a.channel(0x20, 0x100 + i, 0x21) != rm::nv::kOk)
                     return std::string("one of the first 128 was refused");
             }
             return expect(a.channel(0x20, 0x200, 0x21), rm::nv::kInsufficientResources, "the 129th");
         }},
        {Rule::kChannelThreadRunqueue,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareAsync);
             const uint32_t thread_one = 1u << rm::kChannelThreadShift;
             return all({expect(a.channel(0x20, 0x22, 0x21, thread_one | rm::kChannelRunqueueOne), rm::nv::kOk,
                                "on runqueue 1"),
                         expect(a.channel(0x20, 0x23, 0x21, thread_one), rm::nv::kInvalidArgument, "on runqueue 0")});
         }},
        {Rule::kChannelUserdRequired,
         [](ResourceManager& rm) {
             const auto newer = make_rm("595.45.04");
             for (const RuleInfo& info : all_rules()) newer->rules().set(info.rule, rm.rules().on(info.rule));
             TestProcess process(*newer, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             return expect(a.channel(0x20, 0x22, 0x21), rm::nv::kInvalidArgument);
         }},
        {Rule::kChannelNotifierExists,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
             return expect(a.channel(0x20, 0x22, 0x21, 0, 0, 0, 0xbad), rm::nv::kInvalidState);
         }},
        {Rule::kChannelAdminFlag,
         [](ResourceManager& rm) {
             TestProcess user(rm, 10, 1000);
             TestProcess root(rm, 11, 0);
             std::string wrong;
             for (TestProcess* process : {&user, &root}) {
                 TestClient a(*process);
                 (void)a.vaspace(0x10);
                 (void)a.tsg(0x20, 0x10);
                 (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
                 (void)a.channel(0x20, 0x22, 0x21);
                 const uint32_t flag = a.channel_params().flags & 0x20;
                 if (wrong.empty()) wrong = expect(flag, process == &root ? 0x20 : 0, "PRIVILEGED_CHANNEL");
             }
             return wrong;
         }},
        {Rule::kGspComputeRunqueue,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             RendererRig renderer(process);
             TestClient& a = renderer.client;
             uint32_t veid = 0;
             (void)a.ctxshare(RendererRig::kTsg, 0x51, RendererRig::kVas, rm::kCtxShareAsync, &veid);
             (void)a.channel(RendererRig::kTsg, 0x52, 0x51);
             (void)a.channel(RendererRig::kTsg, 0x53, 0x51, rm::kChannelRunqueueOne);
             return all(
                 {expect(a.alloc(0x52, 0x62, rm::cls::kComputeHopper), rm::nv::kInvalidObject, "compute on runqueue 0"),
                  expect(a.alloc(0x53, 0x63, rm::cls::kComputeHopper), rm::nv::kOk, "compute on runqueue 1")});
         }},
        {Rule::kGspGraphicsVeid0,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10);
             (void)a.tsg(0x20, 0x10);
             (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareAsync);
             (void)a.channel(0x20, 0x22, 0x21, rm::kChannelRunqueueOne);
             return expect(a.alloc(0x22, 0x23, rm::cls::kThreeDHopper), rm::nv::kInvalidObject);
         }},
        {Rule::kGspNoCilp,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             RendererRig renderer(process);
             rm::PreemptionModeParams mode{};
             mode.flags = rm::kPreemptionModeSetCilp;
             mode.hChannel = RendererRig::kTsg;
             mode.cilpPreemptMode = rm::kCilpCta;
             const uint32_t cta = renderer.client.control(kSubdevice, rm::ctrl::kGrSetCtxswPreemptionMode, mode);
             mode.cilpPreemptMode = rm::kCilpCilp;
             const uint32_t cilp = renderer.client.control(kSubdevice, rm::ctrl::kGrSetCtxswPreemptionMode, mode);
             return all({expect(cta, rm::nv::kOk, "CTA"), expect(cilp, rm::nv::kInsufficientPermissions, "CILP")});
         }},
        {Rule::kGspNoGfxp,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             RendererRig renderer(process);
             rm::PreemptionModeParams mode{};
             mode.flags = rm::kPreemptionModeSetGfxp;
             mode.hChannel = RendererRig::kTsg;
             mode.gfxpPreemptMode = rm::kGfxpGfxp;
             return expect(renderer.client.control(kSubdevice, rm::ctrl::kGrSetCtxswPreemptionMode, mode),
                           rm::nv::kNoMemory);
         }},
        {Rule::kZcullNoGlobal,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             RendererRig renderer(process);
             rm::ZcullBindParams bind{renderer.client.client, RendererRig::kChannel, renderer.control_address,
                                      rm::kZcullModeGlobal, 0};
             return expect(renderer.client.control(kSubdevice, rm::ctrl::kGrCtxswZcullBind, bind),
                           rm::nv::kNotSupported);
         }},
        {Rule::kZcullSameClient,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             RendererRig renderer(process);
             TestClient other(process);
             rm::ZcullBindParams bind{renderer.client.client, RendererRig::kChannel, renderer.control_address,
                                      rm::kZcullModeNoCtxsw, 0};
             return expect(other.control(kSubdevice, rm::ctrl::kGrCtxswZcullBind, bind), rm::nv::kInvalidClient);
         }},
        {Rule::kZcullSeparateFaults,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10);
             TestProcess two(rm, 11);
             RendererRig renderer(one, rm::kZcullModeSeparateBuffer);
             ComputeRig compute(two);
             const uint32_t joined = compute.start_shared(renderer);
             compute.queue.kernel().submit();  // an empty loop is enough
             run_gpu(rm);
             uint32_t code = 0;
             return all({expect(joined, rm::nv::kOk, "join"),
                         expect_true(notified(compute.notifier, &code), "the kernel faults"), expect(code, 31, "Xid"),
                         expect_true(last_line_has(rm, "GPCCLIENT_RAST"), "the log names the rasteriser")});
         }},
        {Rule::kScheduleWholeTsg,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             (void)compute.client.tsg(ComputeRig::kTsg, 0);
             (void)compute.client.ctxshare(ComputeRig::kTsg, ComputeRig::kShare, ComputeRig::kVas, rm::kCtxShareAsync);
             (void)compute.make_channel(ComputeRig::kTsg, ComputeRig::kShare, 0x22, 0);
             (void)compute.make_channel(ComputeRig::kTsg, ComputeRig::kShare, 0x24, 0);
             const uint32_t registered = compute.register_channel(0x22);
             const uint32_t early = compute.client.schedule(ComputeRig::kTsg, true);  // 0x24 is not bound yet
             const bool logged = last_line_has(rm, "Cannot schedule externally-owned");
             (void)compute.register_channel(0x24);
             return all({expect(registered, rm::nv::kOk, "register"),
                         expect(early, rm::nv::kInvalidState, "schedule too early"),
                         expect_true(logged, "the log has the driver's message"),
                         expect(compute.client.schedule(ComputeRig::kTsg, true), rm::nv::kOk,
                                "schedule once both are bound")});
         }},
        {Rule::kScheduleOneChannel,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             (void)compute.client.tsg(ComputeRig::kTsg, 0);
             (void)compute.client.ctxshare(ComputeRig::kTsg, ComputeRig::kShare, ComputeRig::kVas, rm::kCtxShareAsync);
             (void)compute.make_channel(ComputeRig::kTsg, ComputeRig::kShare, 0x22, 0);
             (void)compute.make_channel(ComputeRig::kTsg, ComputeRig::kShare, 0x24, 0);
             (void)compute.register_channel(0x22);
             return expect(compute.client.schedule(0x22, false), rm::nv::kOk, "schedule beside an unbound channel");
         }},
        {Rule::kScheduleBoundChannel,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             (void)compute.client.tsg(ComputeRig::kTsg, 0);
             (void)compute.client.ctxshare(ComputeRig::kTsg, ComputeRig::kShare, ComputeRig::kVas, rm::kCtxShareAsync);
             (void)compute.make_channel(ComputeRig::kTsg, ComputeRig::kShare, 0x22, 0);
             return expect(compute.client.schedule(0x22, false), rm::nv::kInvalidState);
         }},
        {Rule::kScheduleInherited,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             (void)compute.client.tsg(ComputeRig::kTsg, 0);
             (void)compute.client.ctxshare(ComputeRig::kTsg, ComputeRig::kShare, ComputeRig::kVas, rm::kCtxShareAsync);
             (void)compute.client.schedule(ComputeRig::kTsg, true);  // still empty
             std::string wrong;
             for (const uint32_t flags : {0u, rm::kChannelDelayScheduling}) {
                 (void)compute.make_channel(ComputeRig::kTsg, ComputeRig::kShare, ComputeRig::kChannel, flags);
                 (void)compute.client.alloc(ComputeRig::kChannel, ComputeRig::kCompute, rm::cls::kComputeHopper);
                 TestQueue queue(compute.client.map_cpu(ComputeRig::kQueueMemory, TestQueue::kBytes),
                                 ComputeRig::kAddress, &rm, token_of(compute.client, ComputeRig::kChannel));
                 const uint32_t before = queue.released();
                 queue.value = before;
                 queue.object(1, rm::cls::kComputeHopper).kernel().submit();
                 run_gpu(rm);
                 const bool ran = queue.released() != before;
                 if (wrong.empty())
                     wrong =
                         expect_true(ran == (flags == 0), flags == 0 ? "it runs at once" : "with the flag it does not");
                 (void)compute.client.free(ComputeRig::kChannel);
             }
             return wrong;
         }},
        {Rule::kScheduleBeforeWork,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             RendererRig renderer(process);
             (void)renderer.client.schedule(RendererRig::kChannel, false, false);
             renderer.queue.frame(1000).submit();
             run_gpu(rm);
             const bool early = renderer.queue.done();
             (void)renderer.client.schedule(RendererRig::kChannel, false, true);
             run_gpu(rm);
             return all({expect_true(!early, "nothing runs unscheduled"),
                         expect_true(renderer.queue.done(), "it runs once scheduled")});
         }},
        {Rule::kUvmInitFirst,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             const FileId uvm = process.open(FileKind::kUvm);
             rm::UvmCreateExternalRangeArgs args{0x1000, 0x1000, 0, 0};
             return expect(process.uvm(uvm, rm::uvm::kCreateExternalRange, args), rm::nv::kIllegalAction);
         }},
        {Rule::kUvmGpuFirst,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10, true);
             const FileId uvm = process.open(FileKind::kUvm);
             rm::UvmInitializeArgs initialize{};
             (void)process.uvm(uvm, rm::uvm::kInitialize, initialize);
             rm::UvmRegisterVaSpaceArgs args{};
             std::memcpy(args.gpuUuid, rm.gpu(0).identity().uuid.bytes.data(), 16);
             args.hClient = a.client;
             args.hVaSpace = 0x10;
             return expect(process.uvm(uvm, rm::uvm::kRegisterGpuVaSpace, args), rm::nv::kInvalidDevice);
         }},
        {Rule::kUvmVasExternal,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             (void)a.vaspace(0x10, false);
             const FileId uvm = process.open(FileKind::kUvm);
             rm::UvmInitializeArgs initialize{};
             (void)process.uvm(uvm, rm::uvm::kInitialize, initialize);
             rm::UvmRegisterGpuArgs gpu{};
             std::memcpy(gpu.gpuUuid, rm.gpu(0).identity().uuid.bytes.data(), 16);
             (void)process.uvm(uvm, rm::uvm::kRegisterGpu, gpu);
             rm::UvmRegisterVaSpaceArgs args{};
             std::memcpy(args.gpuUuid, gpu.gpuUuid, 16);
             args.hClient = a.client;
             args.hVaSpace = 0x10;
             return expect(process.uvm(uvm, rm::uvm::kRegisterGpuVaSpace, args), rm::nv::kInvalidFlags);
         }},
        {Rule::kUvmRangeAligned,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             return all({expect(compute.range(0x4000800, 0x1000), rm::nv::kInvalidAddress, "unaligned base"),
                         expect(compute.range(0x4000000, 0x1800), rm::nv::kInvalidAddress, "unaligned length")});
         }},
        {Rule::kUvmRangeNoOverlap,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             return all({expect(compute.range(0x4000000, 0x4000), rm::nv::kOk),
                         expect(compute.range(0x4003000, 0x2000), rm::nv::kUvmAddressInUse)});
         }},
        {Rule::kUvmMapAligned,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             (void)compute.client.memory(0x50, 0x10000);
             (void)compute.range(0x4000000, 0x10000);
             return all({expect(compute.map(0x50, 0x4000000, 0x2000), rm::nv::kOk, "aligned"),
                         expect(compute.map(0x50, 0x4002800, 0x1000), rm::nv::kInvalidAddress, "unaligned")});
         }},
        {Rule::kUvmMapContained,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             (void)compute.client.memory(0x50, 0x10000);
             (void)compute.range(0x4000000, 0x2000);
             return expect(compute.map(0x50, 0x4001000, 0x2000), rm::nv::kInvalidAddress, "mapping past the range");
         }},
        {Rule::kUvmMapNeedsVas,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             (void)compute.client.memory(0x50, 0x10000);
             (void)compute.range(0x4000000, 0x2000);
             rm::UvmUnregisterGpuArgs args{};
             compute.copy_uuid(args.gpuUuid);
             (void)process.uvm(compute.uvm, rm::uvm::kUnregisterGpuVaSpace, args);
             return expect(compute.map(0x50, 0x4000000, 0x2000), rm::nv::kInvalidDevice);
         }},
        {Rule::kUvmMapSameProcess,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10);
             TestProcess two(rm, 11);
             TestClient other(one);
             ComputeRig compute(two);
             (void)other.memory(0x50, 0x10000);
             (void)compute.range(0x4000000, 0x2000);
             return expect(compute.map(0x50, 0x4000000, 0x2000, 0, other.client), rm::nv::kInsufficientPermissions);
         }},
        {Rule::kUvmMapInMemory,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             (void)compute.client.memory(0x50, 0x2000);
             (void)compute.range(0x4000000, 0x4000);
             return expect(compute.map(0x50, 0x4000000, 0x2000, 0x1000), rm::nv::kInvalidOffset);
         }},
        {Rule::kUvmMapKeepsMemory,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             const uint32_t started = compute.start_own();
             // A mirror-like mapping: the handle goes, the mapping stays.
             (void)compute.client.memory(0x50, 0x1000);
             (void)compute.external(0x50, 0x4000000, 0x1000);
             (void)compute.client.free(0x50);
             compute.queue.method(0, work::kSemAddressLow, 0x4000000)
                 .method(0, work::kSemAddressHigh, 0)
                 .method(0, work::kSemPayloadLow, 1)
                 .method(0, work::kSemExecute, work::kSemExecuteRelease)
                 .submit();
             run_gpu(rm);
             return all({expect(started, rm::nv::kOk),
                         expect_true(compute.queue.done() && !notified(compute.notifier), "the GPU still reaches it")});
         }},
        {Rule::kUvmChannelVas,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             (void)compute.client.vaspace(0x60);
             (void)compute.client.tsg(0x61, 0x60);
             (void)compute.client.ctxshare(0x61, 0x62, 0x60, rm::kCtxShareSync);
             (void)compute.client.channel(0x61, 0x63, 0x62);
             return expect(compute.register_channel(0x63), rm::nv::kInvalidChannel);
         }},
        {Rule::kUvmChannelWindow,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             const uint32_t started = compute.start_own();
             (void)compute.make_channel(ComputeRig::kTsg, ComputeRig::kShare, 0x24, 0);
             const uint32_t same = compute.register_channel(0x24);
             (void)compute.client.tsg(0x61, 0);
             (void)compute.client.ctxshare(0x61, 0x62, ComputeRig::kVas, rm::kCtxShareAsync);
             (void)compute.make_channel(0x61, 0x62, 0x63, 0);
             return all(
                 {expect(started, rm::nv::kOk), expect(same, rm::nv::kOk, "same TSG, same window"),
                  expect(compute.register_channel(0x63), rm::nv::kUvmAddressInUse, "another TSG, same window"),
                  expect(compute.register_channel(0x63, 0x3'8000'0000), rm::nv::kOk, "another TSG, another window")});
         }},
        {Rule::kUvmChannelHolds,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             (void)compute.start_own();
             (void)compute.client.free(ComputeRig::kChannel);
             (void)compute.client.free(ComputeRig::kShare);
             uint32_t veid = 63;
             const uint32_t held =
                 compute.client.ctxshare(ComputeRig::kTsg, 0x70, ComputeRig::kVas, rm::kCtxShareSpecified, &veid);
             (void)compute.unregister_channel();
             veid = 63;
             const uint32_t freed =
                 compute.client.ctxshare(ComputeRig::kTsg, 0x71, ComputeRig::kVas, rm::kCtxShareSpecified, &veid);
             return all({expect(held, rm::nv::kNoMemory, "VEID 63 while UVM holds it"),
                         expect(freed, rm::nv::kOk, "VEID 63 afterwards")});
         }},
        {Rule::kFaultKillsTsg,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10);
             TestProcess two(rm, 11);
             RendererRig renderer(one);
             ComputeRig compute(two);
             (void)compute.start_shared(renderer);
             compute.queue.method(1, 0x3ffc, 1).submit();
             run_gpu(rm);
             renderer.queue.frame(1000).submit();
             run_gpu(rm);
             return expect_true(!renderer.queue.done(), "the renderer is dead too");
         }},
        {Rule::kFaultNotifiesAll,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10);
             TestProcess two(rm, 11);
             RendererRig renderer(one);
             ComputeRig compute(two);
             (void)compute.start_shared(renderer);
             compute.queue.method(1, 0x3ffc, 1).submit();
             run_gpu(rm);
             return all({expect_true(notified(compute.notifier), "the culprit is told"),
                         expect_true(notified(renderer.notifier), "the renderer is told")});
         }},
        {Rule::kFaultControlBuffers,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10);
             TestProcess two(rm, 11);
             RendererRig renderer(one);
             renderer.queue.control_buffer(renderer.control_address, RendererRig::kControlBytes).frame(1000).submit();
             run_gpu(rm);
             ComputeRig compute(two);
             (void)compute.start_shared(renderer, false);
             compute.queue.kernel().submit();  // an empty loop needs none
             run_gpu(rm);
             const bool spin_ran = compute.queue.done();
             compute.queue.kernel(work::kLaunchControlState).submit();
             run_gpu(rm);
             uint32_t code = 0;
             const bool hit = notified(compute.notifier, &code);
             return all({expect_true(spin_ran, "an empty kernel runs"), expect_true(hit, "a real kernel faults"),
                         expect(code, 31, "Xid"),
                         expect_true(last_line_has(rm, "HUBCLIENT_FE faulted"), "the log names the front end")});
         }},
        {Rule::kFaultStaleVeid,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10);
             RendererRig renderer(one);
             renderer.queue.control_buffer(renderer.control_address, RendererRig::kControlBytes).frame(1000).submit();
             run_gpu(rm);
             const auto computes = [&](ComputeRig& compute) {
                 (void)compute.start_shared(renderer);
                 compute.queue.kernel(work::kLaunchControlState).submit();
                 run_gpu(rm);
                 return compute.queue.done();
             };
             {
                 TestProcess two(rm, 11);
                 TestProcess three(rm, 12);
                 ComputeRig first(two);
                 ComputeRig second(three);
                 if (!computes(first) || !computes(second)) return std::string("two share");
             }
             // VEID 63 is its own, 62 it takes; then 62 is nobody's again.
             std::string trouble;
             {
                 TestProcess four(rm, 13);
                 ComputeRig careful(four);
                 uint32_t veid = 62;
                 const FileId file = one.open(FileKind::kControl);
                 (void)renderer.client.export_to(RendererRig::kTsg, file);
                 (void)careful.client.import_from(file, TestClient::kDevice, 0x70);
                 (void)careful.client.ctxshare(0x70, 0x71, ComputeRig::kVas, rm::kCtxShareSpecified, &veid);
                 trouble = expect_true(computes(careful), "all that computed have an address space");
             }
             TestProcess five(rm, 14);
             ComputeRig careless(five);
             (void)computes(careless);
             uint32_t code = 0;
             const bool hit = notified(careless.notifier, &code);
             return all({trouble, expect_true(hit, "VEID 62 is nobody's"), expect(code, 31, "Xid"),
                         expect_true(last_line_has(rm, "HUBCLIENT_FE faulted"), "the log names the front end")});
         }},
        {Rule::kFaultSharedMemory,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10);
             TestProcess two(rm, 11);
             RendererRig renderer(one);
             ComputeRig compute(two);
             (void)compute.start_shared(renderer);
             compute.queue.kernel(0, 48'128).submit();
             compute.queue.kernel(0, 49'152).submit();
             run_gpu(rm);
             const bool fits = compute.queue.done();
             compute.queue.kernel(0, 50'176).submit();
             run_gpu(rm);
             uint32_t code = 0;
             return all({expect_true(fits, "49,152 bytes run"),
                         expect_true(notified(compute.notifier, &code), "50,176 bytes fault"),
                         expect(code, 13, "Xid")});
         }},
        {Rule::kSharedMemoryWaits,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10);
             TestProcess two(rm, 11);
             RendererRig renderer(one);
             ComputeRig compute(two);
             (void)compute.start_shared(renderer);
             renderer.queue.frame(10'000'000).submit();
             run_gpu(rm, 1'000'000);  // the frame has begun
             compute.queue.kernel(0, 48'128).submit();
             run_gpu(rm, 1'000'000);
             const bool beside = compute.queue.done();
             compute.queue.kernel(0, 49'152).submit();
             run_gpu(rm, 3'000'000);
             const bool early = compute.queue.done();
             run_gpu(rm);
             return all({expect_true(beside, "48,128 bytes run beside the frame"),
                         expect_true(!early, "49,152 bytes wait"),
                         expect_true(compute.queue.done() && renderer.queue.done(), "and run after it")});
         }},
        {Rule::kFaultIllegalMethod,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             (void)compute.start_own();
             compute.queue.method(1, work::kSetScgControl, 0x40).submit();  // absent on Hopper
             run_gpu(rm);
             uint32_t code = 0;
             return all({expect_true(notified(compute.notifier, &code), "SET_SCG_CONTROL faults on this chip"),
                         expect(code, 11, "Xid")});
         }},
        {Rule::kFaultWedges,
         [](ResourceManager& rm) {
             TestProcess one(rm, 10);
             TestProcess two(rm, 11);
             TestProcess three(rm, 12);
             ComputeRig culprit(one);
             (void)culprit.start_own();
             culprit.queue.method(1, 0x3ffc, 1).submit();
             run_gpu(rm);
             RendererRig renderer(two);
             ComputeRig compute(three);
             const uint32_t shared = compute.start_shared(renderer);
             const bool logged = last_line_has(rm, ": 109,");
             ComputeRig alone(three);
             const uint32_t own = alone.start_own();
             rm.gpu(0).reset();
             ComputeRig again(three);
             return all({expect(shared, rm::nv::kBusyRetry, "joining a wedged GPU"),
                         expect_true(logged, "Xid 109 is logged"), expect(own, rm::nv::kOk, "plain compute"),
                         expect(again.start_shared(renderer), rm::nv::kOk, "joining after a reset")});
         }},
        {Rule::kFaultLocalMemory,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             ComputeRig compute(process);
             (void)compute.start_own();
             compute.queue.method(1, work::kSetShaderLocalMemoryA, 1).kernel(work::kLaunchLocalMemory).submit();
             run_gpu(rm);
             const bool prepared = compute.queue.done();
             // Another subcontext of the same TSG never saw those methods.
             (void)compute.client.ctxshare(ComputeRig::kTsg, 0x71, ComputeRig::kVas, rm::kCtxShareAsync);
             (void)compute.client.free(ComputeRig::kChannel);
             (void)compute.unregister_channel();
             // The new channel starts with an empty ring, as its owner sees to.
             const uint32_t empty = 0;
             compute.client.map_cpu(ComputeRig::kQueueMemory, TestQueue::kBytes)
                 ->write(TestQueue::kUserd + work::kGpPut, &empty, 4);
             (void)compute.make_channel(ComputeRig::kTsg, 0x71, 0x72, 0);
             (void)compute.client.alloc(0x72, 0x73, rm::cls::kComputeHopper);
             (void)compute.register_channel(0x72);
             (void)compute.client.schedule(0x72, false);
             TestQueue queue(compute.client.map_cpu(ComputeRig::kQueueMemory, TestQueue::kBytes), ComputeRig::kAddress,
                             &rm, token_of(compute.client, 0x72));
             queue.object(1, rm::cls::kComputeHopper).kernel(work::kLaunchLocalMemory).submit();
             run_gpu(rm);
             uint32_t code = 0;
             return all({expect_true(prepared, "a prepared subcontext runs it"),
                         expect_true(notified(compute.notifier, &code), "the other faults"), expect(code, 13, "Xid")});
         }},
        {Rule::kDeadTsgStaysDead,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             RendererRig renderer(process);
             rm::SetErrorNotifierParams hook{1};
             (void)renderer.client.control(RendererRig::kChannel, rm::ctrl::kChannelSetErrorNotifier, hook);
             // A semaphore without engine work is the least a channel can do.
             renderer.queue.submit();
             run_gpu(rm);
             const bool ran = renderer.queue.done();
             uint64_t get = 0;
             renderer.client.map_cpu(RendererRig::kQueueMemory, TestQueue::kBytes)
                 ->read(TestQueue::kUserd + work::kGpGet, &get, 4);
             return all(
                 {expect_true(!ran, "no semaphore is released"), expect(static_cast<uint32_t>(get), 0, "GP_GET")});
         }},
        {Rule::kVersionMatches,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             const FileId file = process.open(FileKind::kControl);
             rm::CheckVersionArgs right{};
             std::strcpy(right.versionString, "580.159.04");
             rm::CheckVersionArgs wrong{};
             std::strcpy(wrong.versionString, "575.64");
             const int good = process.escape(file, rm::escape::kCheckVersionStr, right);
             const int bad = process.escape(file, rm::escape::kCheckVersionStr, wrong);
             return all({expect_true(good == 0 && right.reply == 1, "the right version is taken"),
                         expect_true(bad == EINVAL && wrong.reply == 0, "another is not")});
         }},
        {Rule::kIoctlExactSize,
         [](ResourceManager& rm) {
             TestProcess process(rm, 10);
             TestClient a(process);
             rm::MapDmaArgs575 old{};
             return expect(static_cast<uint32_t>(process.escape(a.control_file, rm::escape::kMapMemoryDma, old)),
                           EINVAL, "errno");
         }},
    };
    return table;
}

class SimRule : public testing::TestWithParam<Rule> {};

// VUDA_SIM_BREAK=NAME switches one rule off for all of these: then exactly the tests that depend on it fail.
TEST_P(SimRule, Holds) {
    const auto rm = make_rm();
    ASSERT_NE(rm, nullptr);
    if (const char* broken = std::getenv("VUDA_SIM_BREAK")) {
        const auto rule = find_rule(broken);
        ASSERT_TRUE(rule.has_value()) << "there is no rule " << broken;
        rm->rules().set(*rule, false);
    }
    EXPECT_EQ(checks().at(GetParam())(*rm), "") << rule_info(GetParam()).what;
    EXPECT_EQ(rm->counts(), ResourceManager::Counts{}) << "something outlived its files";
}

TEST_P(SimRule, IsWhatTheCheckLooksAt) {
    const auto rm = make_rm();
    ASSERT_NE(rm, nullptr);
    rm->rules().set(GetParam(), false);
    EXPECT_NE(checks().at(GetParam())(*rm), "") << "switching " << rule_info(GetParam()).name << " off changes nothing";
}

std::string test_name(const testing::TestParamInfo<Rule>& info) {
    std::string name(rule_info(info.param).name);
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
    return name;
}

std::vector<Rule> every_rule() {
    std::vector<Rule> rules;
    for (const RuleInfo& info : all_rules()) rules.push_back(info.rule);
    return rules;
}

INSTANTIATE_TEST_SUITE_P(Rules, SimRule, testing::ValuesIn(every_rule()), test_name);

TEST(SimRules, EachHasACheckAndAnUnambiguousName) {
    for (const RuleInfo& info : all_rules()) {
        EXPECT_EQ(checks().count(info.rule), 1u) << info.name;
        EXPECT_EQ(find_rule(info.name), info.rule) << info.name;
        EXPECT_FALSE(info.what.empty());
        EXPECT_FALSE(info.source.empty());
    }
    EXPECT_EQ(find_rule("no.such-rule"), std::nullopt);
}

}  // namespace
}  // namespace vuda::sim
