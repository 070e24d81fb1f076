#include "trace/describe.h"

#include <cstdio>
#include <cstring>

#include "rm/driver_table.h"
#include "rm/status.h"

namespace vuda::trace {
namespace {

std::string hex(uint64_t value) {
    char buffer[24];
    std::snprintf(buffer, sizeof buffer, "0x%llx", static_cast<unsigned long long>(value));
    return buffer;
}

std::string name_or_hex(std::string_view name, uint64_t value) { return name.empty() ? hex(value) : std::string(name); }

rm::Surface surface_of(const Record& record) { return record.is_uvm() ? rm::Surface::kUvm : rm::Surface::kRm; }

// " = OK" or " = ERR_..." or what errno says.
std::string outcome(const Record& record, const rm::IoctlView& after) {
    if (record.error != 0) return std::string(" = ") + std::strerror(record.error);
    std::string text;
    std::visit(
        [&text](const auto& view) {
            if constexpr (requires { view.status; }) {
                const std::string_view name = rm::status_name(view.status);
                text = " = " + (name.empty() ? "status " + hex(view.status) : std::string(name));
            }
        },
        after);
    return text;
}

bool succeeded(const Record& record, const rm::IoctlView& after) {
    if (record.error != 0) return false;
    return std::visit(
        [](const auto& view) {
            if constexpr (requires { view.status; }) {
                return view.status == rm::nv::kOk;
            } else {
                return true;
            }
        },
        after);
}

// The captured part followed by zeros, as long as the caller's block: what a reader of the layout expects.
std::vector<uint8_t> full(const std::vector<uint8_t>& captured, uint32_t size) {
    std::vector<uint8_t> out(captured);
    out.resize(size);
    return out;
}

// CUDA maps managed ranges at their CPU address, which address space randomisation moves; GPU-only ranges lie lower.
constexpr uint64_t kLowestCpuAddress = 1ull << 40;

struct Fields {
    std::string text;
    bool raw = true;
    void add_address(const char* name, uint64_t value) {
        if (raw || value < kLowestCpuAddress) {
            add(name, value);
        } else {
            add(name, std::string("cpu-address"));
        }
    }
    void add(const char* name, const std::string& value) {
        text += text.empty() ? "" : " ";
        text += name;
        text += '=';
        text += value;
    }
    void add(const char* name, uint64_t value) { add(name, hex(value)); }
    // "name=before" or "name=before->after" where RM wrote the answer.
    void add(const char* name, uint64_t before, uint64_t after) {
        add(name, before == after ? hex(before) : hex(before) + "->" + hex(after));
    }
};

}  // namespace

std::string Describer::client(rm::Handle handle) const {
    if (handle == 0) return "none";
    if (handles_ == Handles::kRaw) return hex(handle);
    const auto it = clients_.find(handle);
    return it == clients_.end() ? "client?" : it->second;
}

std::string Describer::object(rm::Handle client_handle, rm::Handle handle) const {
    if (handle == 0) return "none";
    if (handles_ == Handles::kRaw) return hex(handle);
    if (handle == client_handle) return client(handle);
    const auto it = objects_.find({client_handle, handle});
    return it == objects_.end() ? "object?" : it->second;
}

std::string Describer::ordinal(const std::string& kind) { return kind + '#' + std::to_string(++counts_[kind]); }

void Describer::learn(const Record& record, const rm::IoctlView& before, const rm::IoctlView& after) {
    if (!succeeded(record, after)) return;
    if (const auto* alloc = std::get_if<rm::Alloc>(&after)) {
        const std::string cls = name_or_hex(rm::class_name(alloc->cls), alloc->cls);
        if (alloc->cls == rm::cls::kRootClient || alloc->cls == rm::cls::kRoot) {
            clients_[alloc->object] = ordinal("client");
        } else {
            objects_[{alloc->root, alloc->object}] = ordinal(cls);
        }
    } else if (const auto* memory = std::get_if<rm::AllocMemory>(&after)) {
        objects_[{memory->root, memory->object}] = ordinal("memory");
    } else if (const auto* heap = std::get_if<rm::VidHeapAlloc>(&after)) {
        objects_[{heap->root, heap->object}] = ordinal("heap");
    } else if (const auto* dup = std::get_if<rm::Dup>(&after)) {
        objects_[{dup->client, dup->object}] = "dup(" + object(dup->source_client, dup->source_object) + ")";
    } else if (const auto* control = std::get_if<rm::Control>(&after)) {
        if (control->cmd == rm::ctrl::kImportObjectFromFd) {
            const auto import = rm::load<rm::ImportObjectParams>(record.params.after);
            objects_[{control->client, import.hObject}] = ordinal("imported");
        }
    } else if (const auto* free = std::get_if<rm::Free>(&before)) {
        forget(free->root, free->object);
    } else if (const auto* heap_free = std::get_if<rm::VidHeapFree>(&before)) {
        forget(heap_free->root, heap_free->object);
    }
}

void Describer::forget(rm::Handle client_handle, rm::Handle handle) {
    if (handle == client_handle) {
        clients_.erase(handle);
        objects_.erase(objects_.lower_bound({client_handle, 0}), objects_.upper_bound({client_handle, ~rm::Handle{0}}));
    } else {
        objects_.erase({client_handle, handle});
    }
}

std::string Describer::params(const Record& record, const rm::IoctlView& view, const rm::IoctlView&) const {
    if (record.params.empty()) return {};
    const std::vector<uint8_t> in = full(record.params.before, record.params.size);
    const std::vector<uint8_t> out = full(record.params.after, record.params.size);
    Fields f;
    if (const auto* alloc = std::get_if<rm::Alloc>(&view)) {
        const rm::Handle c = alloc->root;
        if (rm::cls::is_gpfifo(alloc->cls)) {
            const auto p = rm::load<rm::ChannelParams>(in);
            const auto q = rm::load<rm::ChannelParams>(out);
            f.add("notifier", object(c, p.hObjectError));
            f.add("gpfifo", p.gpFifoOffset);
            f.add("entries", p.gpFifoEntries);
            f.add("flags", p.flags, q.flags);
            f.add("ctxshare", object(c, p.hContextShare));
            f.add("vaspace", object(c, p.hVASpace));
            f.add("engine", p.engineType);
            return f.text;
        }
        switch (alloc->cls) {
            case rm::cls::kChannelGroup: {
                const auto p = rm::load<rm::ChannelGroupParams>(in);
                f.add("notifier", object(c, p.hObjectError));
                f.add("vaspace", object(c, p.hVASpace));
                f.add("engine", p.engineType);
                return f.text;
            }
            case rm::cls::kContextShare: {
                const auto p = rm::load<rm::ContextShareParams>(in);
                const auto q = rm::load<rm::ContextShareParams>(out);
                f.add("vaspace", object(c, p.hVASpace));
                f.add("flags", p.flags, q.flags);
                f.add("veid", p.subctxId, q.subctxId);
                return f.text;
            }
            case rm::cls::kVaSpace: {
                const auto p = rm::load<rm::VaSpaceParams>(in);
                f.add("flags", p.flags);
                f.add("base", p.vaBase);
                return f.text;
            }
            case rm::cls::kDevice: {
                const auto p = rm::load<rm::DeviceParams>(in);
                f.add("instance", p.deviceId);
                f.add("vamode", p.vaMode);
                return f.text;
            }
            case rm::cls::kMemorySystem:
            case rm::cls::kMemoryLocalUser: {
                const auto p = rm::load<rm::MemoryParams>(in);
                f.add("size", p.size);
                f.add("flags", p.flags);
                return f.text;
            }
            default: return {};
        }
    }
    const auto* control = std::get_if<rm::Control>(&view);
    if (!control) return {};
    const rm::Handle c = control->client;
    switch (control->cmd) {
        case rm::ctrl::kTsgGpfifoSchedule:
        case rm::ctrl::kChannelGpfifoSchedule:
            f.add("enable", rm::load<rm::GpfifoScheduleParams>(in).bEnable);
            return f.text;
        case rm::ctrl::kTsgSetTimeslice: f.add("us", rm::load<rm::TsgTimesliceParams>(in).timesliceUs); return f.text;
        case rm::ctrl::kChannelBind:
        case rm::ctrl::kTsgBind: f.add("engine", rm::load<rm::ChannelBindParams>(in).engineType); return f.text;
        case rm::ctrl::kGrCtxswZcullBind: {
            const auto p = rm::load<rm::ZcullBindParams>(in);
            f.add("channel", object(p.hClient, p.hChannel));
            f.add("va", p.vMemPtr);
            f.add("mode", p.zcullMode);
            return f.text;
        }
        case rm::ctrl::kGrSetCtxswPreemptionMode: {
            const auto p = rm::load<rm::PreemptionModeParams>(in);
            f.add("flags", p.flags);
            f.add("channel", object(c, p.hChannel));
            f.add("gfxp", p.gfxpPreemptMode);
            f.add("cilp", p.cilpPreemptMode);
            return f.text;
        }
        case rm::ctrl::kGrCtxswPreemptionBind: {
            const auto p = rm::load_preemption_bind(in, abi_);
            f.add("channel", object(p.hClient, p.hChannel));
            f.add("gfxp", p.gfxpPreemptMode);
            f.add("cilp", p.cilpPreemptMode);
            return f.text;
        }
        case rm::ctrl::kExportObjectToFd: {
            const auto p = rm::load<rm::ExportObjectParams>(in);
            f.add("object", object(c, p.hObject));
            return f.text;
        }
        case rm::ctrl::kImportObjectFromFd: {
            const auto p = rm::load<rm::ImportObjectParams>(in);
            f.add("parent", object(c, p.hParent));
            return f.text;
        }
        case rm::ctrl::kChannelGetWorkSubmitToken:
            // The number itself says which channel id RM gave out: another one in every run.
            if (handles_ == Handles::kRaw) f.add("token", rm::load<rm::WorkSubmitTokenParams>(out).workSubmitToken);
            return f.text;
        default: return {};
    }
}

std::string Describer::describe(const Record& record) {
    const bool raw = handles_ == Handles::kRaw;
    const std::string file = raw ? record.device + ":" + std::to_string(record.fd) : record.device;
    switch (record.kind) {
        case Kind::kOpen:
            return "open " + file + (record.error ? std::string(" = ") + std::strerror(record.error) : "");
        case Kind::kClose: return "close " + file;
        case Kind::kDup: return "dup " + file + (raw ? " = " + std::to_string(record.new_fd) : "");
        case Kind::kMmap: {
            std::string text = "mmap " + file + " length=" + hex(record.length) + " prot=" + hex(record.prot);
            if (raw) text += " offset=" + hex(record.offset) + " at " + hex(record.address);
            if (record.error) text += std::string(" = ") + std::strerror(record.error);
            return text;
        }
        case Kind::kIoctl: break;
    }

    const rm::Surface surface = surface_of(record);
    const std::vector<uint8_t> in = full(record.arg.before, record.arg.size);
    const std::vector<uint8_t> out = full(record.arg.after, record.arg.size);
    const rm::IoctlView before = rm::decode(surface, record.request, in, abi_);
    const rm::IoctlView after = rm::decode(surface, record.request, out, abi_);
    // A freed object's name is still wanted in the line that frees it; a new one's already in the line that makes it.
    const bool frees = std::holds_alternative<rm::Free>(before) || std::holds_alternative<rm::VidHeapFree>(before);
    if (!frees) learn(record, before, after);

    std::string text(name_or_hex(rm::request_name(surface, record.request), record.request));
    Fields f;
    f.raw = raw;
    if (const auto* v = std::get_if<rm::Alloc>(&before)) {
        const auto& made = std::get<rm::Alloc>(after);
        text += ' ' + name_or_hex(rm::class_name(v->cls), v->cls);
        const bool is_client = v->cls == rm::cls::kRootClient || v->cls == rm::cls::kRoot;
        text += ' ' + (is_client ? client(made.object) : object(v->root, made.object));
        f.add("client", client(v->root));
        f.add("parent", object(v->root, v->parent));
    } else if (const auto* v = std::get_if<rm::AllocMemory>(&before)) {
        text += ' ' + name_or_hex(rm::class_name(v->cls), v->cls) + ' ' +
                object(v->root, std::get<rm::AllocMemory>(after).object);
        f.add("client", client(v->root));
        f.add("parent", object(v->root, v->parent));
    } else if (const auto* v = std::get_if<rm::VidHeapAlloc>(&before)) {
        const auto* made = std::get_if<rm::VidHeapAlloc>(&after);
        text += " alloc " + object(v->root, made ? made->object : v->object);
        f.add("client", client(v->root));
        f.add("size", v->size);
    } else if (const auto* v = std::get_if<rm::VidHeapFree>(&before)) {
        text += " free " + object(v->root, v->object);
        f.add("client", client(v->root));
    } else if (const auto* v = std::get_if<rm::Free>(&before)) {
        text += ' ' + object(v->root, v->object);
        f.add("client", client(v->root));
    } else if (const auto* v = std::get_if<rm::Control>(&before)) {
        text += ' ' + name_or_hex(rm::control_name(v->cmd), v->cmd) + " on " + object(v->client, v->object);
        f.add("client", client(v->client));
    } else if (const auto* v = std::get_if<rm::Dup>(&before)) {
        text += ' ' + object(v->client, std::get<rm::Dup>(after).object);
        f.add("client", client(v->client));
        f.add("parent", object(v->client, v->parent));
        f.add("of", object(v->source_client, v->source_object));
        f.add("in", client(v->source_client));
    } else if (const auto* v = std::get_if<rm::Share>(&before)) {
        text += ' ' + object(v->client, v->object);
        f.add("client", client(v->client));
        f.add("type", v->type);
    } else if (const auto* v = std::get_if<rm::MapMemory>(&before)) {
        text += ' ' + object(v->client, v->memory);
        f.add("client", client(v->client));
        f.add("length", v->length);
    } else if (const auto* v = std::get_if<rm::UnmapMemory>(&before)) {
        text += ' ' + object(v->client, v->memory);
        f.add("client", client(v->client));
    } else if (const auto* v = std::get_if<rm::MapDma>(&before)) {
        text += ' ' + object(v->client, v->memory);
        f.add("client", client(v->client));
        f.add("length", v->length);
        f.add("va", v->va, std::get<rm::MapDma>(after).va);
    } else if (const auto* v = std::get_if<rm::UnmapDma>(&before)) {
        text += ' ' + object(v->client, v->memory);
        f.add("client", client(v->client));
        f.add("va", v->va);
    } else if (const auto* v = std::get_if<rm::CheckVersion>(&before)) {
        text += ' ' + std::string(v->version);
    } else if (const auto* v = std::get_if<rm::UvmRegisterVaSpace>(&before)) {
        text += ' ' + object(v->client, v->va_space);
        f.add("client", client(v->client));
    } else if (const auto* v = std::get_if<rm::UvmRegisterChannel>(&before)) {
        text += ' ' + object(v->client, v->channel);
        f.add("client", client(v->client));
        f.add_address("window", v->base);
        f.add("length", v->length);
    } else if (const auto* v = std::get_if<rm::UvmUnregisterChannel>(&before)) {
        text += ' ' + object(v->client, v->channel);
        f.add("client", client(v->client));
    } else if (const auto* v = std::get_if<rm::UvmCreateExternalRange>(&before)) {
        f.add_address("base", v->base);
        f.add("length", v->length);
    } else if (const auto* v = std::get_if<rm::UvmMapExternal>(&before)) {
        f.add_address("base", v->base);
        f.add("length", v->length);
    } else if (const auto* v = std::get_if<rm::UvmUnmapExternal>(&before)) {
        f.add_address("base", v->base);
        f.add("length", v->length);
    } else if (const auto* v = std::get_if<rm::UvmFree>(&before)) {
        f.add_address("base", v->base);
    } else {
        f.add("size", std::to_string(record.arg.size));
    }
    if (raw) text = file + ' ' + text;
    if (!f.text.empty()) text += ' ' + f.text;
    const std::string more = params(record, before, after);
    if (!more.empty()) text += " {" + more + "}";
    text += outcome(record, after);
    if (frees) learn(record, before, after);
    return text;
}

const rm::DriverAbi& abi_of(const Header& header) {
    const auto version = rm::parse_driver_version(header.driver);
    if (version) {
        const rm::DriverSupport support = rm::find_driver(*version);
        if (support.abi) return *support.abi;
    }
    return rm::abi_580();
}

}  // namespace vuda::trace
