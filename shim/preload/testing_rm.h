// A small resource manager for the redirector's unit tests: the few rules that a wrong rewrite would break, answered
// with RM's own status codes. Not the simulated GPU (sim/), which knows them all.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rm/abi.h"
#include "shim/preload/action.h"
#include "shim/preload/call_runner.h"

namespace vuda::shim::testing {

class TestRm : public Executor {
 public:
    struct Group {  // a TSG, whatever handles name it
        std::set<uint32_t> veids;
        unsigned channels = 0;
        bool legacy = false;
        bool scheduled_as_group = false;
        unsigned capacity = 128;
        uint64_t timeslice_us = 1024;
    };
    struct Object {
        uint32_t cls = 0;
        uint32_t parent = 0;
        FileId file = 0;
        std::shared_ptr<Group> group;  // TSG
        uint32_t veid = 0;             // ctxshare
        bool external = false;         // VA space
        uint32_t flags = 0;            // channel, as RM got them
        uint32_t error = 0;            // channel
        uint32_t ctxshare = 0;         // channel
        bool scheduled = false;        // channel
        uint32_t bound = 0;            // channel
    };
    using Key = std::pair<uint32_t, uint32_t>;  // client, handle

    std::map<Key, Object> objects;
    std::map<int, std::pair<uint32_t, Object>> exported;  // fd -> (source client, object)
    struct Range {
        uint64_t length = 0;
        uint32_t client = 0;
        uint32_t memory = 0;
        uint64_t offset = 0;
        bool mapped = false;
    };
    std::map<std::pair<FileId, uint64_t>, Range> ranges;
    std::map<uint32_t, uint64_t> uvm_windows;                              // channel -> base
    std::vector<std::string> log;                                          // what reached RM, in order
    std::function<std::optional<uint32_t>(const std::string& what)> fail;  // what = the log line about to be made
    uint32_t next_client = 0xc1d00001;
    uint32_t virtualization_mode = 1;  // a whole GPU, passed through
    bool confidential = false;

    Object* find(uint32_t client, uint32_t handle) {
        const auto found = objects.find({client, handle});
        return found == objects.end() ? nullptr : &found->second;
    }

    // ---- the kernel's side of an ioctl ----
    uint32_t alloc(FileId file, rm::AllocArgs* args, std::vector<uint8_t>* params) {
        const std::string what = "alloc " + hex(args->hClass) + " under " + hex(args->hObjectParent);
        if (const auto injected = note(what)) return *injected;
        if (args->hClass == rm::cls::kRootClient) {
            args->hObjectNew = next_client++;
            objects[{args->hObjectNew, args->hObjectNew}] = {args->hClass, 0, file, {}, 0, false, 0, 0, 0, false, 0};
            return 0;
        }
        Object* root = find(args->hRoot, args->hRoot);
        Object* parent = find(args->hRoot, args->hObjectParent);
        if (root == nullptr || root->file != file) return rm::nv::kInvalidClient;
        if (parent == nullptr) return rm::nv::kInvalidObjectParent;
        if (find(args->hRoot, args->hObjectNew) != nullptr) return rm::nv::kInsertDuplicateName;
        Object made;
        made.cls = args->hClass;
        made.parent = args->hObjectParent;
        if (args->hClass == rm::cls::kChannelGroup) {
            made.group = std::make_shared<Group>();
        } else if (args->hClass == rm::cls::kVaSpace) {
            made.external = (word(*params, 4) & rm::kVaSpaceExternallyOwned) != 0;
        } else if (args->hClass == rm::cls::kContextShare) {
            if (parent->group == nullptr) return rm::nv::kInvalidObjectParent;
            if (parent->group->legacy) return rm::nv::kInvalidState;
            uint32_t veid = 63;
            const uint32_t flags = word(*params, 4);
            if (flags == rm::kCtxShareSync) veid = 0;
            if (flags == rm::kCtxShareSpecified) veid = word(*params, 8);
            if (flags == rm::kCtxShareAsync) {
                while (veid > 0 && parent->group->veids.contains(veid)) --veid;
            }
            if (!parent->group->veids.insert(veid).second) return rm::nv::kInUse;
            made.veid = veid;
            set_word(params, 8, veid);
        } else if (rm::cls::is_gpfifo(args->hClass) && parent->group != nullptr) {
            const uint32_t flags = word(*params, 20);
            const uint32_t ctxshare = word(*params, 24);
            if (word(*params, 28) != 0) return rm::nv::kInvalidArgument;
            if (parent->group->channels >= parent->group->capacity) return rm::nv::kInvalidState;
            if (ctxshare == 0) {
                parent->group->legacy = true;
            } else {
                Object* share = find(args->hRoot, ctxshare);
                if (share == nullptr || share->parent != args->hObjectParent) return rm::nv::kInvalidObjectParent;
            }
            ++parent->group->channels;
            made.flags = flags;
            made.ctxshare = ctxshare;
            made.error = word(*params, 0);
            set_word(params, 20, flags | 0x20u);  // RM marks a root client's channel as privileged
            set_word(params, 132, 0x13);          // cid
        }
        objects[{args->hRoot, args->hObjectNew}] = made;
        return 0;
    }

    uint32_t control(FileId file, const rm::ControlArgs& args, std::vector<uint8_t>* params) {
        const std::string what = "control " + hex(args.cmd) + " on " + hex(args.hObject);
        if (const auto injected = note(what)) return *injected;
        Object* root = find(args.hClient, args.hClient);
        if (root == nullptr || root->file != file) return rm::nv::kInvalidClient;
        Object* target = find(args.hClient, args.hObject);
        if (target == nullptr) return rm::nv::kInvalidObjectHandle;
        if (args.cmd == rm::ctrl::kChannelGpfifoSchedule) target->scheduled = (*params)[0] != 0;
        if (args.cmd == rm::ctrl::kChannelBind) target->bound = word(*params, 0);
        if (args.cmd == rm::ctrl::kTsgGpfifoSchedule && target->group != nullptr)
            target->group->scheduled_as_group = true;
        if (args.cmd == rm::ctrl::kTsgGetInfo) set_word(params, 0, 0x77);
        if (args.cmd == rm::ctrl::kTsgGetTimeslice && target->group != nullptr)
            std::memcpy(params->data(), &target->group->timeslice_us, 8);
        if (args.cmd == rm::ctrl::kTsgSetTimeslice && target->group != nullptr)
            std::memcpy(&target->group->timeslice_us, params->data(), 8);
        if (args.cmd == rm::ctrl::kGpuGetVirtualizationMode) set_word(params, 0, virtualization_mode);
        if (args.cmd == rm::ctrl::kConfComputeGetCapabilities) set_word(params, 0, confidential ? 0x02020200 : 0x200);
        return 0;
    }

    uint32_t free_object(FileId file, uint32_t client, uint32_t object) {
        const std::string what = "free " + hex(object);
        if (const auto injected = note(what)) return *injected;
        Object* root = find(client, client);
        if (root == nullptr || root->file != file) return rm::nv::kInvalidClient;
        if (find(client, object) == nullptr) return rm::nv::kInvalidObjectHandle;
        remove(client, object);
        return 0;
    }

    void remove(uint32_t client, uint32_t object) {
        std::vector<uint32_t> children;
        for (const auto& [key, value] : objects) {
            if (key.first == client && value.parent == object && key.second != object) children.push_back(key.second);
        }
        for (const uint32_t child : children) remove(client, child);
        const auto found = objects.find({client, object});
        if (found == objects.end()) return;
        const auto parent = objects.find({client, found->second.parent});
        if (parent != objects.end() && parent->second.group != nullptr) {
            if (rm::cls::is_gpfifo(found->second.cls)) --parent->second.group->channels;
            if (found->second.cls == rm::cls::kContextShare) parent->second.group->veids.erase(found->second.veid);
        }
        objects.erase(found);
    }

    uint32_t duplicate(FileId file, uint32_t client, uint32_t parent, uint32_t object, uint32_t source,
                       uint32_t source_object) {
        Object* root = find(client, client);
        if (root == nullptr || root->file != file) return rm::nv::kInvalidClient;
        Object* from = find(source, source_object);
        if (from == nullptr) return rm::nv::kInvalidObjectHandle;
        if (find(client, object) != nullptr) return rm::nv::kInsertDuplicateName;
        Object made = *from;
        made.parent = parent;
        objects[{client, object}] = made;
        return 0;
    }

    // ---- the redirector's own wishes ----
    ActionResult run(const Action& action) override {
        ActionResult result;
        if (const auto* a = std::get_if<DupObject>(&action)) {
            const auto injected = note("dup " + hex(a->source_object));
            result.status =
                injected ? *injected
                         : duplicate(a->file, a->client, a->parent, a->object, a->source_client, a->source_object);
        } else if (const auto* b = std::get_if<ImportObject>(&action)) {
            const auto injected = note("import fd " + std::to_string(b->fd));
            const auto found = exported.find(b->fd);
            if (injected) {
                result.status = *injected;
            } else if (found == exported.end()) {
                result.status = rm::nv::kInvalidParameter;
            } else if (find(b->client, b->object) != nullptr) {
                result.status = rm::nv::kInsertDuplicateName;
            } else {
                Object made = found->second.second;
                made.parent = b->device;
                objects[{b->client, b->object}] = made;
            }
        } else if (const auto* c = std::get_if<TransferObject>(&action)) {
            const auto injected = note("transfer " + hex(c->source_object));
            result.status =
                injected ? *injected
                         : duplicate(c->file, c->client, c->device, c->object, c->source_client, c->source_object);
        } else if (const auto* d = std::get_if<AllocCtxshare>(&action)) {
            rm::AllocArgs args{};
            args.hRoot = d->client;
            args.hObjectParent = d->tsg;
            args.hObjectNew = d->object;
            args.hClass = rm::cls::kContextShare;
            std::vector<uint8_t> params(12);
            set_word(&params, 0, d->va_space);
            set_word(&params, 4, d->flags);
            set_word(&params, 8, d->veid);
            result.status = alloc(d->file, &args, &params);
            result.veid = word(params, 8);
            if (d->optional && result.status == rm::nv::kInUse) result = {};
        } else if (const auto* e = std::get_if<UvmCreateRange>(&action)) {
            const auto injected = note("range " + hex(e->va));
            result.status = injected ? *injected : create_range(*e);
        } else if (const auto* f = std::get_if<UvmMapRange>(&action)) {
            const auto injected = note("map " + hex(f->va));
            const auto found = ranges.find({f->uvm, f->va});
            if (injected) {
                result.status = *injected;
            } else if (found == ranges.end() || found->second.length != f->length) {
                result.status = rm::nv::kInvalidAddress;
            } else if (find(f->client, f->memory) == nullptr) {
                result.status = rm::nv::kInvalidObjectHandle;
            } else {
                found->second = {f->length, f->client, f->memory, f->offset, true};
            }
        } else if (const auto* g = std::get_if<UvmFreeRange>(&action)) {
            const auto injected = note("unrange " + hex(g->va));
            result.status = injected ? *injected : ranges.erase({g->uvm, g->va}) == 0 ? rm::nv::kInvalidAddress : 0;
        } else if (const auto* h = std::get_if<FreeObject>(&action)) {
            result.status = free_object(h->file, h->client, h->object);
        } else if (const auto* i = std::get_if<ChannelControl>(&action)) {
            rm::ControlArgs args{};
            args.hClient = i->client;
            args.hObject = i->channel;
            args.cmd = i->command;
            std::vector<uint8_t> params(i->params.begin(), i->params.begin() + i->params_size);
            result.status = control(i->file, args, &params);
        } else if (std::holds_alternative<BootstrapSubcontext>(action)) {
            if (const auto injected = note("bootstrap")) result.status = *injected;
        }
        return result;
    }

    uint32_t create_range(const UvmCreateRange& range) {
        if (range.va % 4096 != 0 || range.length % 4096 != 0 || range.length == 0) return rm::nv::kInvalidAddress;
        for (const auto& [key, value] : ranges) {
            if (key.first == range.uvm && key.second < range.va + range.length &&
                range.va < key.second + value.length) {
                return rm::nv::kUvmAddressInUse;
            }
        }
        ranges[{range.uvm, range.va}].length = range.length;
        return 0;
    }

    static uint32_t word(const std::vector<uint8_t>& bytes, size_t offset) {
        uint32_t value = 0;
        if (offset + 4 <= bytes.size()) std::memcpy(&value, bytes.data() + offset, 4);
        return value;
    }
    static void set_word(std::vector<uint8_t>* bytes, size_t offset, uint32_t value) {
        if (offset + 4 <= bytes->size()) std::memcpy(bytes->data() + offset, &value, 4);
    }
    static std::string hex(uint64_t value) {
        char text[20];
        std::snprintf(text, sizeof text, "%llx", static_cast<unsigned long long>(value));
        return text;
    }

 private:
    std::optional<uint32_t> note(const std::string& what) {
        log.push_back(what);
        return fail ? fail(what) : std::nullopt;
    }
};

}  // namespace vuda::shim::testing
