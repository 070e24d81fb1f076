#include "trace/replay.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <tuple>

#include "rm/abi.h"
#include "shim/preload/call_runner.h"
#include "shim/preload/decode.h"
#include "trace/describe.h"

namespace vuda::trace {
namespace {

using shim::Edit;

constexpr uint32_t kAnsweredVeid = 63;
constexpr uint64_t kParamsAddress = 0x1000;  // where synthesised arguments say that their parameters are

shim::FileRole role_of(const Record& record) {
    if (record.is_control()) return shim::FileRole::kControl;
    if (record.is_uvm()) return shim::FileRole::kUvm;
    return record.is_gpu() ? shim::FileRole::kGpu : shim::FileRole::kOther;
}

std::string hex(uint64_t value) {
    char buffer[24];
    std::snprintf(buffer, sizeof buffer, "0x%llx", static_cast<unsigned long long>(value));
    return buffer;
}

template <typename T>
Block block_of(const T& value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    Block block;
    block.size = sizeof value;
    block.before.assign(bytes, bytes + sizeof value);
    block.after = block.before;
    return block;
}

// The file numbers that the redirector knows, and the records' fds that stand behind them.
class Files {
 public:
    shim::FileId of(const Record& record) {
        const auto [it, fresh] = open_.try_emplace(record.fd, next_);
        if (fresh || (devices_[it->second].second != record.device)) {
            it->second = next_;
            devices_[next_++] = {record.fd, record.device};
        }
        return it->second;
    }
    // 0 when the fd was never used.
    shim::FileId closed(const Record& record) {
        const auto it = open_.find(record.fd);
        if (it == open_.end()) return 0;
        const shim::FileId id = it->second;
        open_.erase(it);
        // A duplicate keeps the file open.
        for (const auto& [fd, other] : open_) {
            if (other == id) return 0;
        }
        return id;
    }
    std::vector<shim::FileId> all() const {
        std::vector<shim::FileId> out;
        for (const auto& [id, device] : devices_) out.push_back(id);
        return out;
    }
    void duplicated(const Record& record) { open_[record.new_fd] = of(record); }
    std::pair<int32_t, std::string> device(shim::FileId id) const {
        const auto it = devices_.find(id);
        return it == devices_.end() ? std::pair<int32_t, std::string>{-1, "nvidiactl"} : it->second;
    }

 private:
    shim::FileId next_ = 1;
    std::map<int32_t, shim::FileId> open_;
    std::map<shim::FileId, std::pair<int32_t, std::string>> devices_;
};

class Player : shim::RedirectorAccess, shim::Executor, shim::Attacher, shim::Forwarder {
 public:
    Player(const Trace& trace, const ReplayOptions& options)
        : trace_(trace),
          options_(options),
          abi_(abi_of(trace.header)),
          redirector_(abi_, options.redirector),
          describer_(abi_, Handles::kRaw) {
        redirector_.set_wishes(options.wishes);
        out_.kernel.header = trace.header;
    }

    Replay run() {
        for (at_ = 0; at_ < trace_.records.size(); ++at_) {
            const Record& record = trace_.records[at_];
            switch (record.kind) {
                case Kind::kIoctl: ioctl(record); break;
                case Kind::kDup:
                    files_.duplicated(record);
                    keep(record);
                    break;
                case Kind::kClose: {
                    keep(record);
                    const shim::FileId id = files_.closed(record);
                    if (id == 0) break;
                    for (const shim::Action& action : redirector_.file_closed(id)) perform_action(action);
                    break;
                }
                case Kind::kOpen:
                case Kind::kMmap: keep(record); break;
            }
            take_notices();
        }
        // The end of a process closes everything.
        for (const shim::FileId id : files_.all()) (void)redirector_.file_closed(id);
        out_.objects_left = redirector_.tracked();
        return std::move(out_);
    }

 private:
    void keep(const Record& record) { out_.kernel.records.push_back(record); }

    void ioctl(const Record& record) {
        const shim::FileRole role = role_of(record);
        const shim::FileId file = files_.of(record);
        const auto request = static_cast<uint32_t>(record.request);
        const size_t size = request == record.request ? shim::arg_size(role, request, abi_) : 0;
        if (size == 0 || size > record.arg.before.size()) {  // not shown to the redirector, or not captured
            keep(record);
            return;
        }
        arg_ = record.arg.before;
        arg_.resize(size);
        params_.clear();
        const shim::ParamsRef ref = shim::params_of(role, request, arg_, abi_);
        pointer_offset_ = ref.pointer_offset;
        if (ref.size > 0 && record.params.size == ref.size && record.params.before.size() >= ref.needed) {
            params_ = record.params.before;
            params_.resize(ref.size);
        }
        const std::vector<uint8_t> arg = arg_;
        const std::vector<uint8_t> params = params_;
        shim::Call call;
        call.file = file;
        call.role = role;
        call.request = request;
        call.now_ns = record.time_us * 1000;
        call.arg = arg;
        call.params = params;
        forwarded_ = false;
        shim::run_call(*this, *this, *this, *this, call);
        if (!forwarded_) {
            Describer words = describer_;
            add(Rewrite::Kind::kAnswered, words.describe(record) + " (answered, not forwarded)");
        }
        (void)describer_.describe(record);
        check_caller(record);
    }

    // The program must see what it saw without us. Flags that RM reports back may carry RM's own bits; both come from
    // the trace.
    void check_caller(const Record& record) {
        const std::vector<uint8_t>& want = record.arg.after;
        const bool same_arg =
            std::equal(arg_.begin(), arg_.end(), want.begin(), want.begin() + static_cast<ptrdiff_t>(arg_.size()));
        const size_t known = std::min(params_.size(), record.params.after.size());
        const bool same_params =
            std::equal(params_.begin(), params_.begin() + static_cast<ptrdiff_t>(known), record.params.after.begin());
        if (!same_arg || !same_params) ++out_.caller_mismatches;
    }

    void add(Rewrite::Kind kind, std::string text) { out_.rewrites.push_back({kind, at_, std::move(text)}); }

    void take_notices() {
        for (const shim::Notice& notice : redirector_.take_notices()) {
            std::string text;
            switch (notice.kind) {
                case shim::Notice::Kind::kHost: text = "renderer found: client " + hex(notice.client); break;
                case shim::Notice::Kind::kAttachDone:
                    text = "attached: " + std::to_string(notice.moved) + " channels, VEID " +
                           std::to_string(notice.veid) + ", " + std::to_string(notice.buffers) + " buffers";
                    break;
                case shim::Notice::Kind::kDetached: text = "detached"; break;
                case shim::Notice::Kind::kUnshared: text = "not shared"; break;
                case shim::Notice::Kind::kNote: text = "note"; break;
            }
            if (notice.refusal) text += std::string(": ") + shim::describe(notice.refusal).text;
            out_.notices.push_back("record " + std::to_string(at_) + ": " + text);
        }
    }

    // ---- RedirectorAccess
    shim::Plan before(const shim::Call& call) override { return redirector_.before(call); }
    shim::Plan attached(const shim::Plan& plan, const shim::Call& call, const shim::Offer& offer) override {
        return redirector_.attached(plan, call, offer);
    }
    shim::Plan refused(const shim::Plan& plan, const shim::Call& call, size_t failed,
                       std::span<const shim::ActionResult> results) override {
        return redirector_.refused(plan, call, failed, results);
    }
    shim::Plan after(const shim::Plan& plan, const shim::Call& call, const shim::Outcome& outcome,
                     std::span<const shim::ActionResult> results) override {
        return redirector_.after(plan, call, outcome, results);
    }
    void abandoned(const shim::Plan& plan) override { redirector_.abandoned(plan); }
    // One thread: nobody to wait for.
    shim::Plan wait(const shim::Plan& plan, const shim::Call& call) override { return attached(plan, call, {}); }

    // ---- Attacher
    shim::Offer attach(const shim::AttachWish&) override { return options_.offer; }
    void release(shim::Offer*) override {}

    // ---- Executor
    shim::ActionResult run(const shim::Action& action) override {
        perform_action(action);
        return {shim::kNvOk, std::holds_alternative<shim::AllocCtxshare>(action) ? kAnsweredVeid : 0};
    }

    void perform_action(const shim::Action& action) {
        std::visit([this](const auto& a) { perform(a); }, action);
    }

    // Appends a call of our own to the kernel's view, right before the record that caused it.
    void made(shim::FileId file, uint64_t request, Block arg, Block params = {}) {
        Record record;
        record.time_us = trace_.records[at_].time_us;
        std::tie(record.fd, record.device) = files_.device(file);
        record.request = request;
        record.arg = std::move(arg);
        record.params = std::move(params);
        add(Rewrite::Kind::kAction, describer_.describe(record));
        keep(record);
    }
    void control(shim::FileId file, rm::Handle client, rm::Handle object, uint32_t cmd, Block params) {
        const rm::ControlArgs args{client, object, cmd, 0, kParamsAddress, params.size, 0};
        made(file, rm::rm_request(rm::escape::kControl, sizeof args), block_of(args), std::move(params));
    }

    void perform(const shim::DupObject& a) {
        const rm::DupArgs args{a.client, a.parent, a.object, a.source_client, a.source_object, 0, 0};
        made(a.file, rm::rm_request(rm::escape::kDupObject, sizeof args), block_of(args));
    }
    void perform(const shim::ImportObject& a) {
        const rm::ImportObjectParams params{a.fd, rm::kObjectTypeRm, a.device, a.device, a.object};
        control(a.file, a.client, a.client, rm::ctrl::kImportObjectFromFd, block_of(params));
    }
    void perform(const shim::TransferObject& a) {
        const rm::ExportObjectParams out{rm::kObjectTypeRm, a.source_device, a.source_device, a.source_object, -1, 0};
        control(a.source_file, a.source_client, a.source_client, rm::ctrl::kExportObjectToFd, block_of(out));
        const rm::ImportObjectParams in{-1, rm::kObjectTypeRm, a.device, a.device, a.object};
        control(a.file, a.client, a.client, rm::ctrl::kImportObjectFromFd, block_of(in));
    }
    void perform(const shim::AllocCtxshare& a) {
        const rm::AllocArgs args{a.client, a.tsg, a.object, rm::cls::kContextShare, kParamsAddress, 0, 0, 0, 0, 0};
        Block params = block_of(rm::ContextShareParams{a.va_space, a.flags, a.veid});
        const uint32_t veid = a.flags == rm::kCtxShareAsync ? kAnsweredVeid : a.veid;
        std::memcpy(params.after.data() + offsetof(rm::ContextShareParams, subctxId), &veid, sizeof veid);
        made(a.file, rm::rm_request(rm::escape::kAlloc, sizeof args), block_of(args), std::move(params));
    }
    void perform(const shim::UvmCreateRange& a) {
        made(a.uvm, rm::uvm::kCreateExternalRange, block_of(rm::UvmCreateExternalRangeArgs{a.va, a.length, 0, 0}));
    }
    void perform(const shim::UvmMapRange& a) {
        rm::UvmMapExternalArgs args{};
        args.base = a.va;
        args.length = a.length;
        args.offset = a.offset;
        std::copy(a.gpu.bytes.begin(), a.gpu.bytes.end(), std::begin(args.attributes[0].gpuUuid));
        args.attributes[0].gpuMappingType = 1;
        args.attributesCount = 1;
        args.hClient = a.client;
        args.hMemory = a.memory;
        made(a.uvm, rm::uvm::kMapExternalAllocation, block_of(args));
    }
    void perform(const shim::UvmFreeRange& a) {
        made(a.uvm, rm::uvm::kFree, block_of(rm::UvmFreeArgs580{a.va, a.length, 0, 0}));
    }
    void perform(const shim::FreeObject& a) {
        const rm::FreeArgs args{a.client, a.client, a.object, 0};
        made(a.file, rm::rm_request(rm::escape::kFree, sizeof args), block_of(args));
    }
    void perform(const shim::ChannelControl& a) {
        Block params;
        params.size = std::min<uint32_t>(a.params_size, static_cast<uint32_t>(a.params.size()));
        params.before.assign(a.params.begin(), a.params.begin() + params.size);
        params.after = params.before;
        control(a.file, a.client, a.channel, a.command, std::move(params));
    }
    void perform(const shim::BootstrapSubcontext& a) {
        add(Rewrite::Kind::kAction,
            "start-up methods for context share " + hex(a.ctxshare) + " through channel " + hex(a.channel));
    }

    // ---- Forwarder: the trace is the kernel, arg_ and params_ are the caller's memory.
    int forward() override {
        const Record& record = trace_.records[at_];
        keep(record);
        forwarded_ = true;
        answer(record.arg, arg_);
        answer(record.params, params_);
        return result(record);
    }
    int forward_copy(std::span<uint8_t> arg, std::span<uint8_t> params) override {
        Record seen = trace_.records[at_];
        const std::string was = Describer(describer_).describe(seen);
        forwarded_ = true;
        send(seen.arg, arg);
        send(seen.params, params);
        keep(seen);
        add(Rewrite::Kind::kEdited, was + "  ==>  " + Describer(describer_).describe(seen));
        return result(trace_.records[at_]);
    }
    bool read(Edit::Where where, std::span<uint8_t> out) override {
        const std::vector<uint8_t>& from = where == Edit::Where::kArg ? arg_ : params_;
        if (out.size() > from.size()) return false;
        std::copy_n(from.begin(), out.size(), out.begin());
        return true;
    }
    bool write(Edit::Where where, size_t offset, std::span<const uint8_t> bytes) override {
        std::vector<uint8_t>& to = where == Edit::Where::kArg ? arg_ : params_;
        if (offset > to.size() || bytes.size() > to.size() - offset) return false;
        std::copy(bytes.begin(), bytes.end(), to.begin() + static_cast<ptrdiff_t>(offset));
        return true;
    }
    size_t pointer_offset() const override { return pointer_offset_; }

    // What the kernel wrote in the trace, written into `memory`.
    static void answer(const Block& block, std::span<uint8_t> memory) {
        for (size_t i = 0; i < std::min(memory.size(), block.after.size()); ++i) {
            if (block.after[i] != block.before[i]) memory[i] = block.after[i];
        }
    }
    // The block as it went to the kernel; and the kernel's answer in `memory`. Flag words come back with what was sent
    // plus RM's own bits, everything else with what the trace says.
    static void send(Block& block, std::span<uint8_t> memory) {
        const size_t known = std::min(memory.size(), block.before.size());
        for (size_t i = 0; i < known; ++i) {
            const uint8_t was_before = block.before[i];
            const uint8_t was_after = block.after[i];
            const uint8_t sent = memory[i];
            block.before[i] = sent;
            const uint8_t added = static_cast<uint8_t>(was_after & ~was_before);
            uint8_t now = sent;
            if (was_after != was_before) now = sent == was_before ? was_after : static_cast<uint8_t>(sent | added);
            block.after[i] = now;
            memory[i] = now;
        }
    }
    static int result(const Record& record) {
        if (record.error == 0) return 0;
        errno = record.error;
        return -1;
    }

    const Trace& trace_;
    const ReplayOptions& options_;
    const rm::DriverAbi& abi_;
    shim::Redirector redirector_;
    Describer describer_;
    Files files_;
    Replay out_;
    size_t at_ = 0;
    std::vector<uint8_t> arg_;
    std::vector<uint8_t> params_;
    size_t pointer_offset_ = 0;
    bool forwarded_ = false;
};

}  // namespace

Replay replay(const Trace& trace, const ReplayOptions& options) { return Player(trace, options).run(); }

}  // namespace vuda::trace
