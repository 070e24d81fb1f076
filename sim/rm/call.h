// One ioctl in progress: the resource manager's rules, grouped by what they are about. Private to sim/rm.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "sim/rm/resource_manager.h"

namespace vuda::sim {

inline constexpr uint64_t kPage = 4096;  // what addresses and lengths of mappings are multiples of

class RmCall {
 public:
    RmCall(ResourceManager& rm, const Caller& caller, Request& request, File& file)
        : rm_(rm), caller_(caller), request_(request), file_(file) {}

    Outcome run();

    // Teardown, shared with ResourceManager::close.
    static void free_client(ResourceManager& rm, Handle client);
    static void free_tree(ResourceManager& rm, Client& client, Handle handle);

 private:
    using Bytes = std::span<uint8_t>;
    bool on(Rule rule) const { return rm_.rules_.on(rule); }

    // escapes.cc: the escapes of nvidiactl and nvidiaN
    Outcome run_rm(unsigned escape, Bytes argument);
    uint32_t free_object(const rm::FreeArgs& args);
    uint32_t dup(rm::DupArgs& args);
    uint32_t share(const rm::ShareArgs& args);
    void card_info(Bytes argument);
    uint32_t check_version(rm::CheckVersionArgs& args);
    Outcome context_dma(Bytes argument);

    // alloc.cc: RM_ALLOC
    uint32_t alloc(Handle root, Handle parent, Handle& handle, uint32_t cls, Bytes params);
    uint32_t alloc_client(Handle& handle);
    uint32_t check_parent(const Client& client, Handle parent, uint32_t cls);
    uint32_t construct(Client& client, const Object& parent, uint32_t cls, Bytes params, Handle handle,
                       Payload& payload);
    uint32_t new_handle(Client& client, Handle& handle);

    // tsg.cc: channel groups, context shares, channels, engine objects
    uint32_t make_tsg(Client& client, const Object& parent, Bytes params, Payload& payload);
    uint32_t make_share(Client& client, const Object& parent, Bytes params, Payload& payload);
    uint32_t make_channel(Client& client, const Object& parent, uint32_t cls, Bytes params, Handle handle,
                          Payload& payload);
    uint32_t make_engine_object(const Object& parent, uint32_t cls, Payload& payload);
    uint32_t take_veid(Tsg& tsg, uint32_t flags, uint32_t& veid);
    uint32_t enter_legacy(Tsg& tsg, const std::shared_ptr<Tsg>& owner, const std::shared_ptr<VaSpace>& vas);
    uint32_t channel_notifier(Client& client, Handle handle, std::optional<ErrorNotifier>& notifier);

    // memory.cc: memory objects, mappings
    uint32_t make_memory(Client& client, const Object& parent, uint32_t cls, Bytes params, Payload& payload);
    uint32_t make_virtual(Client& client, const Object& parent, Bytes params, Payload& payload);
    uint32_t make_vaspace(const Object& parent, Bytes params, Payload& payload);
    uint32_t alloc_memory(rm::AllocMemoryArgs& args);
    uint32_t vid_heap(rm::VidHeapArgs& args);
    uint32_t map_memory(rm::MapMemoryArgs& args);
    uint32_t unmap_memory(const rm::UnmapMemoryArgs& args);
    uint32_t map_dma(Handle client, Handle dma, Handle memory, uint64_t offset, uint64_t length, uint32_t flags,
                     uint64_t& address);
    uint32_t unmap_dma(Handle client, Handle dma, uint64_t address);
    std::shared_ptr<Memory> new_memory(uint64_t bytes, bool vidmem, int gpu);
    std::shared_ptr<VaSpace> vas_or_default(Client& client, Handle device, Handle vas);

    // control.cc: RM_CONTROL
    uint32_t control(const rm::ControlArgs& args, Bytes params);
    uint32_t control_client(Client& client, uint32_t cmd, Bytes params);
    uint32_t control_gpu(Client& client, const Object& object, uint32_t cmd, Bytes params);
    uint32_t control_tsg(const std::shared_ptr<Tsg>& tsg, uint32_t cmd, Bytes params);
    uint32_t control_channel(Client& client, Channel& channel, uint32_t cmd, Bytes params);
    uint32_t export_object(Client& client, const rm::ExportObjectParams& params);
    uint32_t import_object(Client& client, rm::ImportObjectParams& params);
    uint32_t preemption_mode(Client& client, const rm::PreemptionModeParams& params);
    uint32_t zcull_bind(Client& client, const rm::ZcullBindParams& params);
    uint32_t schedule_tsg(Tsg& tsg, bool enable);
    bool schedulable(const Channel& channel) const;
    uint32_t place_copy(Client& client, Handle parent, Handle& handle, uint32_t cls, const Payload& payload);
    void note_unschedulable(const Channel& channel);
    void fill_classes(Gpu& gpu, Bytes params, bool v2);

    // shape.cc
    uint32_t global_sm_order(const Gpu& gpu, Bytes params);
    uint32_t gr_fs_info(const Gpu& gpu, Bytes params);

    // uvm.cc
    Outcome run_uvm(Bytes argument);
    uint32_t uvm(unsigned long number, Bytes argument);
    uint32_t uvm_register_vas(const rm::UvmRegisterVaSpaceArgs& args);
    uint32_t uvm_register_channel(const rm::UvmRegisterChannelArgs& args);
    uint32_t uvm_map(Bytes argument);
    int gpu_by_uuid(const uint8_t* uuid) const;

    // uvm_tools.cc
    Outcome run_uvm_tools(Bytes argument);
    uint32_t init_event_tracker(const rm::UvmToolsInitEventTrackerArgs& args);

 public:
    static void uvm_close(ResourceManager& rm, UvmSpace& space);
    static void uvm_forget_channel(ResourceManager& rm, UvmChannel& registration);
    static void uvm_drop_range(ResourceManager& rm, UvmSpace& space, uint64_t base);

 private:
    // The client behind `handle`, if this call may use it; else `status` says why not.
    Client* client(Handle handle, uint32_t& status);
    Client* any_client(Handle handle) const;
    static Object* find(Client& client, Handle handle);
    template <typename T>
    static T* payload(Object* object) {
        return object == nullptr ? nullptr : std::get_if<T>(&object->payload);
    }
    // GPU of the object or of an ancestor, -1 without one.
    static int gpu_of(Client& client, const Object& object);
    void insert(Client& client, Handle parent, Handle handle, uint32_t cls, Payload payload);

    ResourceManager& rm_;
    const Caller& caller_;
    Request& request_;
    File& file_;
};

}  // namespace vuda::sim
