// Input: a little program. Each step is an ioctl of a process with a few clients, files and handles, so that steps
// meet; the kernel's and the actions' answers come from the input too, right or wrong. Checked: rewrites stay inside
// the caller's blocks, nothing of ours shows in them afterwards, every call ends, and once all files are closed nothing
// is remembered.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <vector>

#include "rm/abi.h"
#include "rm/driver_table.h"
#include "shim/preload/call_runner.h"
#include "shim/preload/decode.h"

namespace {

using namespace vuda::shim;
namespace rm = vuda::rm;

void require(bool condition) {
    if (!condition) std::abort();
}

class Input {
 public:
    Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
    bool empty() const { return at_ >= size_; }
    uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
    // Mostly success, so that programs get somewhere.
    uint32_t status() {
        const uint8_t b = byte();
        return b < 0xe0 ? 0 : b;
    }

 private:
    const uint8_t* data_;
    size_t size_;
    size_t at_ = 0;
};

constexpr uint32_t kClasses[] = {rm::cls::kRootClient,   rm::cls::kDevice,       rm::cls::kSubdevice,
                                 rm::cls::kVaSpace,      rm::cls::kChannelGroup, rm::cls::kContextShare,
                                 rm::cls::kGpfifoHopper, rm::cls::kThreeDHopper, rm::cls::kComputeHopper};
constexpr uint32_t kCommands[] = {
    rm::ctrl::kGrCtxswZcullBind,     rm::ctrl::kGrSetCtxswPreemptionMode, rm::ctrl::kGrCtxswPreemptionBind,
    rm::ctrl::kGrCtxswSetupBind,     rm::ctrl::kTsgGpfifoSchedule,        rm::ctrl::kTsgBind,
    rm::ctrl::kTsgGetInfo,           rm::ctrl::kTsgSetTimeslice,          rm::ctrl::kTsgPreempt,
    rm::ctrl::kChannelGpfifoSchedule};

class World : public RedirectorAccess, public Executor, public Attacher, public Forwarder {
 public:
    World(Input& input, const rm::DriverAbi& abi, const Options& options)
        : input_(input), abi_(abi), redirector_(abi, options) {}

    void step() {
        const uint8_t kind = input_.byte();
        if (kind >= 0xf4) return keep_out();
        switch (kind % 12) {
            case 0:
            case 1:
            case 2:
            case 3: return alloc();
            case 4:
            case 5: return control();
            case 6: return free_object();
            case 7: return other_rm();
            case 8: return uvm();
            case 9: {
                Wishes wishes;
                const uint8_t bits = input_.byte();
                wishes.share_renderer = bits & 1;
                wishes.share_in_process = bits & 2;
                wishes.attach = bits & 4;
                wishes.require = (bits & 0x18) == 0x18;
                wishes.reserve = bits & 0x20 ? bits >> 6 : UINT32_MAX;
                return redirector_.set_wishes(wishes);
            }
            case 10:
                for (const Action& action : redirector_.file_closed(file())) check(action);
                return;
            default:
                if (input_.byte() % 2 == 0) return redirector_.device_created();
                return input_.byte() % 2 == 0 ? renderer() : cuda();
        }
    }

    // What random steps would take long to find: a renderer with a 3D object; CUDA up to the call that decides.
    void renderer() {
        make(rm::cls::kRootClient, 0, 0, {}, 1);
        make(rm::cls::kDevice, kVkClient, 1, {0}, 1);
        make(rm::cls::kChannelGroup, kVkClient, 2, {0, 0, 0, 1}, 1, 1);
        make(rm::cls::kContextShare, kVkClient, 3, {0, 0, 0}, 1, 2);
        make(rm::cls::kGpfifoHopper, kVkClient, 4, {0, 0, 0, 0, 0, 0, kHandles + 3, 0}, 1, 2);
        make(rm::cls::kThreeDHopper, kVkClient, 5, {}, 1, 4);
    }
    void cuda() {
        make(rm::cls::kRootClient, 0, 0, {}, 2);
        make(rm::cls::kDevice, kCuClient, 1, {0}, 2);
        make(rm::cls::kVaSpace, kCuClient, 6, {0, 0x48}, 2, 1);
        rm::UvmRegisterVaSpaceArgs args{};
        args.hClient = kCuClient;
        args.hVaSpace = kHandles + 6;
        params_.clear();
        set_arg(args, sizeof args);
        forced_ = true;
        call(FileRole::kUvm, rm::uvm::kRegisterGpuVaSpace, 3);
        forced_ = false;
        make(rm::cls::kChannelGroup, kCuClient, 7, {0, 0, kHandles + 6, 1}, 2, 1);
        if (input_.byte() % 4 == 0) return;
        params_.assign(sizeof(rm::ContextShareParams), 0);
        const uint32_t words[2] = {kHandles + 6, 1};
        std::memcpy(params_.data(), words, sizeof words);
        rm::AllocArgs share{};
        share.hClass = rm::cls::kContextShare;
        share.hRoot = kCuClient;
        share.hObjectParent = kHandles + 7;
        share.hObjectNew = kHandles + 8;
        share.pAllocParms = 0x1000;
        set_arg(share, abi_.alloc_size);
        call(FileRole::kControl, static_cast<uint32_t>(rm::rm_request(rm::escape::kAlloc, abi_.alloc_size)), 2);
    }

    void finish() {
        for (FileId file = 1; file <= 4; ++file) redirector_.file_closed(file);
        require(redirector_.tracked() == 0);
        require(redirector_.host().client == 0);
        for (const Notice& notice : redirector_.take_notices()) describe(notice.refusal);
    }

    // RedirectorAccess
    Plan before(const Call& call) override { return check(redirector_.before(call), call); }
    Plan attached(const Plan& plan, const Call& call, const Offer& offer) override {
        return check(redirector_.attached(plan, call, offer), call);
    }
    Plan refused(const Plan& plan, const Call& call, size_t failed, std::span<const ActionResult> results) override {
        return check(redirector_.refused(plan, call, failed, results), call);
    }
    Plan after(const Plan& plan, const Call& call, const Outcome& outcome,
               std::span<const ActionResult> results) override {
        return check(redirector_.after(plan, call, outcome, results), call);
    }
    void abandoned(const Plan&) override { std::abort(); }  // a plan whose edits do not fit
    Plan wait(const Plan& plan, const Call& call) override { return attached(plan, call, Offer{}); }

    ActionResult run(const Action& action) override {
        check(action);
        return {input_.status(), input_.byte() % 64u};
    }
    Offer attach(const AttachWish& wish) override {
        require(wish.channels >= 1 && wish.channels <= 128);
        Offer offer;
        const uint8_t bits = input_.byte();
        offer.ok = bits & 1;
        offer.tsg_fd = 100;
        offer.channels_in_use = bits & 2 ? 127 : 2;
        for (int i = 0; i < (bits >> 2) % 4; ++i) {
            offer.buffers.push_back({101 + i, input_.byte() * uint64_t{0x800}, input_.byte() * uint64_t{0x800}, 0});
        }
        return offer;
    }
    void release(Offer*) override {}

    int forward() override {
        kernel(arg_, params_);
        return result_;
    }
    int forward_copy(std::span<uint8_t> arg, std::span<uint8_t> params) override {
        kernel(arg, params);
        return result_;
    }
    bool read(Edit::Where where, std::span<uint8_t> out) override {
        const auto& from = where == Edit::Where::kArg ? arg_ : params_;
        require(out.size() <= from.size());
        std::memcpy(out.data(), from.data(), out.size());
        return true;
    }
    bool write(Edit::Where where, size_t offset, std::span<const uint8_t> bytes) override {
        auto& to = where == Edit::Where::kArg ? arg_ : params_;
        require(offset + bytes.size() <= to.size());
        std::memcpy(to.data() + offset, bytes.data(), bytes.size());
        return true;
    }
    size_t pointer_offset() const override { return 16; }

 private:
    static constexpr uint32_t kHandles = 0x5c000000;
    static constexpr uint32_t kVkClient = 0xc1d00001;
    static constexpr uint32_t kCuClient = 0xc1d00002;

    // An allocation that RM grants.
    void make(uint32_t hclass, uint32_t root, uint32_t object, std::initializer_list<uint32_t> words, FileId file,
              uint32_t parent = 0) {
        rm::AllocArgs args{};
        args.hClass = hclass;
        args.hRoot = root;
        args.hObjectParent = parent == 0 ? root : kHandles + parent;
        args.hObjectNew = kHandles + object;
        const size_t size = rm::alloc_params_size(hclass, abi_);
        args.pAllocParms = size == 0 ? 0 : 0x1000;
        params_.assign(size, 0);
        if (size != 0) std::memcpy(params_.data(), std::data(words), std::min(size, words.size() * 4));
        set_arg(args, abi_.alloc_size);
        forced_ = true;
        forced_client_ = file == 1 ? kVkClient : kCuClient;
        call(FileRole::kControl, static_cast<uint32_t>(rm::rm_request(rm::escape::kAlloc, abi_.alloc_size)), file);
        forced_ = false;
    }

    FileId file() { return 1 + input_.byte() % 4u; }
    uint32_t client() { return kVkClient + input_.byte() % 3u; }
    uint32_t handle() { return kHandles + input_.byte() % 12u; }

    void check(const Action& action) {
        if (const auto* range = std::get_if<UvmCreateRange>(&action)) {
            require(range->va % 4096 == 0 && range->length % 4096 == 0 && range->length > 0);
        }
        if (const auto* map = std::get_if<UvmMapRange>(&action)) require(map->offset % 4096 == 0 && map->memory != 0);
        if (const auto* one = std::get_if<ChannelControl>(&action)) require(one->params_size <= one->params.size());
    }
    Plan check(Plan plan, const Call& call) {
        require(plan.before.size() < 4096);
        for (const Edit& edit : plan.edits) {
            require(edit.size == 4 || edit.size == 8);
            const size_t size = edit.where == Edit::Where::kArg ? call.arg.size() : call.params.size();
            require(size_t{edit.offset} + edit.size <= size);
        }
        if (plan.disposition == Plan::Disposition::kAnswer) {
            require(plan.status_offset != 0 && plan.status_offset + 4u <= call.arg.size());
        }
        return plan;
    }

    // Writes a status, now and then an object handle, and flips a bit somewhere in the parameters.
    void kernel(std::span<uint8_t> arg, std::span<uint8_t> params) {
        const uint8_t how = forced_ ? 0 : input_.byte();
        result_ = how >= 0xf8 ? -1 : 0;
        const uint32_t status = how < 0xc0 ? 0 : how;
        const size_t at = status_offset(role_, request_, abi_);
        if (at != 0) std::memcpy(arg.data() + at, &status, 4);
        if (role_ != FileRole::kUvm && rm::ioctl_number(request_) == rm::escape::kAlloc &&
            load<uint32_t>(arg, 12) == rm::cls::kRootClient) {
            const uint32_t made = forced_ ? forced_client_ : client();
            std::memcpy(arg.data() + 8, &made, 4);
        }
        if (!forced_ && !params.empty()) params[how % params.size()] ^= 1;
    }

    void call(FileRole role, uint32_t request, FileId file) {
        role_ = role;
        request_ = request;
        now_ += 1'000'000;
        const std::vector<uint8_t> arg = arg_;
        const std::vector<uint8_t> params = params_;
        run_call(*this, *this, *this, *this, {file, role, request, now_, arg, params});
        // Handles that the shim made are never seen by the program.
        if (role != FileRole::kUvm && arg_.size() >= 8) require((load<uint32_t>(arg_, 4) >> 16) != 0x5ada);
    }

    template <typename Args>
    void set_arg(const Args& args, size_t size) {
        arg_.assign(size, 0);
        std::memcpy(arg_.data(), &args, std::min(size, sizeof args));
    }
    void rm_call(unsigned escape, size_t size) {
        call(FileRole::kControl, static_cast<uint32_t>(rm::rm_request(escape, size)), file());
    }

    void alloc() {
        rm::AllocArgs args{};
        args.hClass = kClasses[input_.byte() % std::size(kClasses)];
        args.hRoot = client();
        args.hObjectParent = input_.byte() % 4 == 0 ? args.hRoot : handle();
        args.hObjectNew = handle();
        const size_t size = rm::alloc_params_size(args.hClass, abi_);
        args.pAllocParms = size == 0 || input_.byte() == 0 ? 0 : 0x1000;
        params_.assign(args.pAllocParms == 0 ? 0 : size, 0);
        if (!params_.empty()) {
            uint32_t words[4] = {handle(), input_.byte() % 2 ? 0x48u : 1u, 0, 1};
            if (args.hClass == rm::cls::kDevice) words[0] = input_.byte() % 2;
            if (args.hClass == rm::cls::kChannelGroup) words[2] = handle();
            std::memcpy(params_.data(), words, std::min(sizeof words, params_.size()));
            if (rm::cls::is_gpfifo(args.hClass)) {
                const uint32_t fields[3] = {static_cast<uint32_t>(input_.byte()) << 24,
                                            input_.byte() % 2 ? handle() : 0, 0};
                std::memcpy(params_.data() + 20, fields, sizeof fields);
            }
        }
        set_arg(args, abi_.alloc_size);
        rm_call(rm::escape::kAlloc, abi_.alloc_size);
    }

    // What keeps a client's contexts its own: an instance of a GPU, or RM's answer to a question.
    void keep_out() {
        const uint8_t what = input_.byte() % 3;
        if (what == 0) {
            rm::AllocArgs args{};
            args.hClass = rm::cls::kSmcPartition;
            args.hRoot = client();
            args.hObjectParent = handle();
            args.hObjectNew = handle();
            params_.clear();
            set_arg(args, abi_.alloc_size);
            return rm_call(rm::escape::kAlloc, abi_.alloc_size);
        }
        rm::ControlArgs args{};
        args.cmd = what == 1 ? rm::ctrl::kGpuGetVirtualizationMode : rm::ctrl::kConfComputeGetCapabilities;
        args.hClient = client();
        args.hObject = handle();
        args.paramsSize = input_.byte() % 9;
        args.params = 0x1000;
        params_.assign(args.paramsSize, input_.byte() % 4);
        set_arg(args, sizeof args);
        rm_call(rm::escape::kControl, sizeof args);
    }

    void control() {
        rm::ControlArgs args{};
        args.cmd = kCommands[input_.byte() % std::size(kCommands)];
        args.hClient = client();
        args.hObject = handle();
        args.paramsSize = rm::control_params_size(args.cmd, abi_);
        args.params = args.paramsSize == 0 ? 0 : 0x1000;
        params_.assign(args.paramsSize, 0);
        for (size_t i = 0; i + 4 <= params_.size() && i < 20; i += 4) {
            const uint32_t word = input_.byte() % 2 ? handle() : input_.byte() % 4u;
            std::memcpy(params_.data() + i, &word, 4);
        }
        if (args.cmd == rm::ctrl::kTsgGpfifoSchedule && !params_.empty()) params_[0] = input_.byte() % 2;
        set_arg(args, sizeof args);
        rm_call(rm::escape::kControl, sizeof args);
    }

    void free_object() {
        rm::FreeArgs args{};
        args.hRoot = client();
        args.hObjectOld = input_.byte() % 8 == 0 ? args.hRoot : handle();
        params_.clear();
        set_arg(args, sizeof args);
        rm_call(rm::escape::kFree, sizeof args);
    }

    void other_rm() {
        params_.clear();
        switch (input_.byte() % 3) {
            case 0: {
                rm::DupArgs args{client(), handle(), handle(), client(), handle(), 0, 0};
                set_arg(args, sizeof args);
                return rm_call(rm::escape::kDupObject, sizeof args);
            }
            case 1: {
                rm::MapDmaArgs args{};
                args.hClient = client();
                args.hDevice = handle();
                args.hDma = handle();
                args.hMemory = handle();
                args.offset = input_.byte() * uint64_t{0x800};
                args.length = input_.byte() * uint64_t{0x800};
                const uint64_t va = input_.byte() * uint64_t{0x800};
                set_arg(args, abi_.map_dma_size);
                std::memcpy(arg_.data() + abi_.map_dma_va, &va, sizeof va);
                return rm_call(rm::escape::kMapMemoryDma, abi_.map_dma_size);
            }
            default: {
                rm::UnmapDmaArgs args{};
                args.hClient = client();
                args.hDma = handle();
                args.dmaOffset = input_.byte() * uint64_t{0x800};
                set_arg(args, abi_.unmap_dma_size);
                return rm_call(rm::escape::kUnmapMemoryDma, abi_.unmap_dma_size);
            }
        }
    }

    void uvm() {
        params_.clear();
        switch (input_.byte() % 3) {
            case 0: {
                rm::UvmRegisterVaSpaceArgs args{};
                args.hClient = client();
                args.hVaSpace = handle();
                set_arg(args, sizeof args);
                return call(FileRole::kUvm, rm::uvm::kRegisterGpuVaSpace, file());
            }
            case 1: {
                rm::UvmUnregisterGpuArgs args{};
                set_arg(args, sizeof args);
                return call(FileRole::kUvm, rm::uvm::kUnregisterGpuVaSpace, file());
            }
            default: {
                rm::UvmRegisterChannelArgs args{};
                args.hClient = client();
                args.hChannel = handle();
                args.length = input_.byte() % 2 * 0x1000u;
                set_arg(args, sizeof args);
                return call(FileRole::kUvm, rm::uvm::kRegisterChannel, file());
            }
        }
    }

    Input& input_;
    const rm::DriverAbi& abi_;
    Redirector redirector_;
    std::vector<uint8_t> arg_;
    std::vector<uint8_t> params_;
    FileRole role_ = FileRole::kControl;
    uint32_t request_ = 0;
    int result_ = 0;
    uint64_t now_ = 0;
    bool forced_ = false;
    uint32_t forced_client_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Input input(data, size);
    const auto abis = rm::all_abis();
    const rm::DriverAbi& abi = *abis[input.byte() % abis.size()];
    Options options;
    options.bootstrap = input.byte() % 2 != 0;
    World world(input, abi, options);
    for (int steps = 0; steps < 500 && !input.empty(); ++steps) world.step();
    world.finish();
    return 0;
}
