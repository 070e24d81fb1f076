#include "sim/rm/resource_manager.h"

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "sim/rm/call.h"

namespace vuda::sim {

Result<std::unique_ptr<ResourceManager>> ResourceManager::make(Config config) {
    std::unique_ptr<ResourceManager> made(new ResourceManager(std::move(config)));
    for (const std::string& preset : made->config_.presets) {
        auto gpu = Gpu::make(static_cast<int>(made->gpus_.size()), preset, made->rules_, made->log_);
        if (!gpu) return gpu.error();
        made->gpus_.push_back(std::move(*gpu));
    }
    return made;
}

ResourceManager::~ResourceManager() {
    while (!files_.empty()) close(files_.begin()->first);
}

FileId ResourceManager::open(FileKind kind, int minor, const Caller& caller) {
    if (kind == FileKind::kGpu && (minor < 0 || static_cast<size_t>(minor) >= gpus_.size())) return 0;
    const FileId id = next_file_++;
    File& file = files_[id];
    file.id = id;
    file.kind = kind;
    file.minor = kind == FileKind::kGpu ? minor : 255;
    file.opener = caller.pid;
    return id;
}

void ResourceManager::close(FileId id) {
    const auto it = files_.find(id);
    if (it == files_.end()) return;
    end_stuck(it->second);
    if (rules_.on(Rule::kClientDiesWithFile)) {
        while (!it->second.clients.empty()) RmCall::free_client(*this, it->second.clients.back());
    }
    RmCall::uvm_close(*this, it->second.uvm);
    files_.erase(it);
}

const File* ResourceManager::file(FileId id) const {
    const auto it = files_.find(id);
    return it == files_.end() ? nullptr : &it->second;
}

Outcome ResourceManager::ioctl(const Caller& caller, Request& request) {
    const auto it = files_.find(request.file);
    if (it == files_.end()) return {EBADF};
    return RmCall(*this, caller, request, it->second).run();
}

MapOutcome ResourceManager::map(FileId id, uint64_t length) {
    const auto it = files_.find(id);
    if (it == files_.end()) return {EBADF, nullptr, 0};
    if (length == 0) return {EINVAL, nullptr, 0};
    File& file = it->second;
    if (file.kind == FileKind::kUvm) {
        // Managed memory and semaphore pools: memory that only the program looks at here.
        constexpr uint64_t kMost = uint64_t{1} << 30;
        if (!file.uvm.initialized || length > kMost) return {EINVAL, nullptr, 0};
        return {0, std::make_shared<SharedMemory>((length + 4095) / 4096 * 4096), 0};
    }
    if (file.kind == FileKind::kUvmTools) {
        // Not of the real driver, which pins the program's own page: how that page comes to be this memory.
        if (file.events.control == nullptr || length > kPage) return {EINVAL, nullptr, 0};
        return {0, file.events.control, 0};
    }
    const auto& mapping = file.mapping;
    if (mapping.memory == nullptr) return {EINVAL, nullptr, 0};
    // The kernel checks whole pages.
    if (length > (mapping.length + 4095) / 4096 * 4096) return {EINVAL, nullptr, 0};
    return {0, mapping.memory->store, mapping.offset};
}

void ResourceManager::doorbell(size_t gpu, uint32_t token) {
    if (gpu >= gpus_.size()) return;
    if (Channel* channel = gpus_[gpu]->channel_by_token(token)) gpus_[gpu]->fetch(*channel);
}

void ResourceManager::poll_channels() {
    for (const auto& gpu : gpus_) {
        if (gpu->take_doorbell()) gpu->fetch_all();
    }
}

bool ResourceManager::inject(std::string_view text) {
    if (text == "clear") {
        injections_.clear();
        return true;
    }
    Injection made;
    const auto number = [](std::string_view& rest, int base, uint32_t& out) {
        if (base == 16 && rest.substr(0, 2) == "0x") rest.remove_prefix(2);
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), out, base);
        if (error != std::errc()) return false;
        rest.remove_prefix(static_cast<size_t>(end - rest.data()));
        return true;
    };
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) return false;
    const std::string_view kind = text.substr(0, colon);
    if (kind != "alloc" && kind != "ctl" && kind != "esc") return false;
    made.kind = kind[0];
    std::string_view rest = text.substr(colon + 1);
    if (!number(rest, 16, made.number) || rest.empty() || rest[0] != '=') return false;
    rest.remove_prefix(1);
    if (!number(rest, 16, made.status)) return false;
    if (!rest.empty()) {
        if (rest[0] != '@') return false;
        rest.remove_prefix(1);
        if (!number(rest, 10, made.nth) || !rest.empty()) return false;
    }
    injections_.push_back(made);
    return true;
}

std::optional<uint32_t> ResourceManager::injected(char kind, uint32_t number) {
    for (Injection& injection : injections_) {
        if (injection.kind != kind || injection.number != number) continue;
        ++injection.seen;
        if (injection.nth == 0 || injection.nth == injection.seen) return injection.status;
    }
    return std::nullopt;
}

ResourceManager::Counts ResourceManager::counts() const {
    Counts counts;
    counts.files = files_.size();
    counts.clients = clients_.size();
    std::vector<const void*> tsgs;
    const auto see = [&](const void* tsg) {
        if (std::find(tsgs.begin(), tsgs.end(), tsg) == tsgs.end()) tsgs.push_back(tsg);
    };
    for (const auto& [handle, client] : clients_) {
        counts.objects += client->objects.size() - 1;
        for (const auto& [object_handle, object] : client->objects) {
            if (const auto* tsg = std::get_if<std::shared_ptr<Tsg>>(&object.payload)) see(tsg->get());
            if (std::holds_alternative<std::shared_ptr<Channel>>(object.payload)) counts.channels++;
        }
    }
    for (const auto& [id, file] : files_) {
        if (file.exported) {
            if (const auto* tsg = std::get_if<std::shared_ptr<Tsg>>(&*file.exported)) see(tsg->get());
        }
        for (const UvmChannel& channel : file.uvm.channels) see(channel.tsg.get());
    }
    counts.tsgs = tsgs.size();
    counts.memories = static_cast<size_t>(live_memories_.use_count() - 1);
    return counts;
}

std::vector<std::pair<Handle, uint32_t>> ResourceManager::objects_of(Handle handle) const {
    std::vector<std::pair<Handle, uint32_t>> found;
    const auto it = clients_.find(handle);
    if (it == clients_.end()) return found;
    for (const auto& [object_handle, object] : it->second->objects) found.emplace_back(object_handle, object.cls);
    return found;
}

std::string ResourceManager::audit() const {
    for (const auto& [handle, client] : clients_) {
        const auto file = files_.find(client->file);
        if (file == files_.end()) return "a client outlived its file";
        const auto& listed = file->second.clients;
        if (std::count(listed.begin(), listed.end(), handle) != 1) return "a file does not list its client once";
        for (const auto& [object_handle, object] : client->objects) {
            if (object.handle != object_handle) return "an object has another handle than its key";
            if (object_handle != handle) {
                const auto parent = client->objects.find(object.parent);
                if (parent == client->objects.end()) return "an object's parent is gone";
                const auto& children = parent->second.children;
                if (std::count(children.begin(), children.end(), object_handle) != 1)
                    return "a parent does not list its child once";
            }
            for (const Handle child : object.children) {
                if (client->objects.count(child) == 0) return "a listed child is gone";
            }
            if (const auto* tsg = std::get_if<std::shared_ptr<Tsg>>(&object.payload)) {
                if ((*tsg)->channels.size() > Tsg::kMaxChannels) return "a TSG has too many channels";
                for (const Channel* channel : (*tsg)->channels) {
                    if (channel->tsg != *tsg) return "a TSG lists another TSG's channel";
                    if (!(*tsg)->veids.test(channel->share->veid)) return "a channel's VEID is not taken";
                }
            }
            if (const auto* channel = std::get_if<std::shared_ptr<Channel>>(&object.payload)) {
                const auto& listed_channels = (*channel)->tsg->channels;
                if (std::count(listed_channels.begin(), listed_channels.end(), channel->get()) != 1)
                    return "a TSG does not list its channel once";
                if (gpus_[static_cast<size_t>((*channel)->tsg->gpu)]->channel_by_token((*channel)->token()) !=
                    channel->get())
                    return "a token names another channel";
            }
            if (const auto* vas = std::get_if<std::shared_ptr<VaSpace>>(&object.payload)) {
                uint64_t end = 0;
                for (const auto& [address, mapping] : (*vas)->mappings) {
                    if (address < end) return "mappings overlap";
                    end = address + mapping.length;
                }
            }
        }
    }
    return "";
}

}  // namespace vuda::sim
