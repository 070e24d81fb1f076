#include "sim/gpu/gpu.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "rm/xid.h"
namespace vuda::sim {

namespace {

struct Chip {
    std::string_view preset;
    const char* name;
    const char* short_name;
    uint16_t pci_device;
    uint32_t gpfifo, compute, copy, three_d, usermode;
};

// Classes by chip: rm-semantics table of NVIDIA's g_gpu_class_list.c. The first row serves presets that are not listed.
constexpr Chip kChips[] = {
    {"h200", "NVIDIA H200 (simulated)", "GH100-A", 0x2335, 0xc86f, 0xcbc0, 0xc8b5, 0xcb97, 0xc661},
    {"rtx4090", "NVIDIA GeForce RTX 4090 (simulated)", "AD102-A", 0x2684, 0xc56f, 0xc9c0, 0xc7b5, 0xc997, 0xc561},
    {"a800", "NVIDIA A800-SXM4-80GB (simulated)", "GA100-A", 0x20f3, 0xc56f, 0xc6c0, 0xc6b5, 0xc697, 0xc561},
    {"orin", "Orin (simulated)", "GA10B-A", 0x2290, 0xc56f, 0xc7c0, 0xc7b5, 0xc797, 0xc561},
};

// Older classes that newer chips keep (the H200's own class list holds them).
constexpr uint32_t kOldClasses[] = {0xc36f, 0xc46f, 0xc56f, 0xc361, 0xc461, 0xc561};

constexpr uint32_t kGraphicsRunlist = 0;

uint32_t runlist_of(uint32_t engine) { return engine == rm::kEngineGr0 ? kGraphicsRunlist : engine; }

bool is_semaphore_aligned(uint64_t address) { return (address & 0xf) == 0; }

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::make(int index, std::string_view preset, const Rules& rules, KernelLog& log) {
    auto engine = Engine::make(preset);
    if (!engine) return engine.error();
    const Chip* chip = &kChips[0];
    for (const Chip& candidate : kChips) {
        if (candidate.preset == preset) chip = &candidate;
    }
    Identity identity;
    identity.name = chip->name;
    identity.short_name = chip->short_name;
    identity.bus = 6 + static_cast<uint32_t>(index);
    identity.gpu_id = identity.bus << 8;
    identity.pci_device = chip->pci_device;
    identity.gpfifo = chip->gpfifo;
    identity.compute = chip->compute;
    identity.copy = chip->copy;
    identity.three_d = chip->three_d;
    identity.usermode = chip->usermode;
    const Topology& topology = engine->topology();
    identity.gfx_tpcs = static_cast<uint32_t>(topology.graphics_tpcs().count());
    for (int tpc = 0; tpc < topology.tpc_count(); tpc++) {
        if (topology.graphics_tpcs().test(static_cast<size_t>(tpc)))
            identity.gfx_gpc_mask |= 1u << topology.gpc_of(tpc);
    }
    // Recognisable, and different for each GPU: "GPU-51500000-...-0000000000NN".
    identity.uuid.bytes = {0x51, 0x50, 0x00, 0x00, 0x75, 0x64, 0x76, 0x75, 0x61, 0x73, 0x69, 0x6d, 0, 0, 0, 0};
    identity.uuid.bytes[15] = static_cast<uint8_t>(index);
    return std::unique_ptr<Gpu>(new Gpu(index, std::move(identity), std::move(*engine), rules, log));
}

Gpu::Gpu(int index, Identity identity, Engine engine, const Rules& rules, KernelLog& log)
    : identity_(std::move(identity)), engine_(std::move(engine)), rules_(rules), log_(log) {
    usermode_ = std::make_shared<Memory>();
    usermode_->bytes = work::kUsermodeBytes;
    usermode_->doorbell = true;
    usermode_->gpu = index;
    usermode_->store = std::make_shared<SharedMemory>(work::kUsermodeBytes);
}

bool Gpu::has_class(uint32_t cls) const {
    if (cls == identity_.gpfifo || cls == identity_.compute || cls == identity_.copy || cls == identity_.three_d ||
        cls == identity_.usermode)
        return true;
    return std::find(std::begin(kOldClasses), std::end(kOldClasses), cls) != std::end(kOldClasses);
}

void Gpu::add(Tsg& tsg) {
    tsg.executor = this;
    if (tsg.engine == rm::kEngineGr0) tsg.engine_tsg = engine_.create_tsg();
}

void Gpu::remove(Tsg& tsg) {
    if (tsg.engine_tsg) (void)engine_.destroy_tsg(*tsg.engine_tsg);
    tsg.engine_tsg.reset();
    collect();
}

uint32_t Gpu::add(Channel& channel) {
    uint32_t id = 0;
    while (channels_.count(id) != 0) id++;
    channels_[id] = &channel;
    channel.id = id;
    channel.runlist = runlist_of(channel.tsg->engine);
    return id;
}

void Gpu::remove(Channel& channel) {
    for (auto it = pending_.begin(); it != pending_.end();)
        it = it->second.channel == &channel ? pending_.erase(it) : std::next(it);
    if (channel.engine_channel) (void)engine_.destroy_channel(*channel.engine_channel);
    channel.engine_channel.reset();
    channels_.erase(channel.id);
    collect();
}

void Gpu::add_object(Channel& channel, uint32_t cls) {
    const bool graphics = rm::cls::is_3d(cls);
    if (graphics) {
        channel.has_3d = true;
        channel.tsg->has_graphics = true;
    }
    if (rm::cls::is_compute(cls)) channel.has_compute = true;
    if (!channel.tsg->engine_tsg || channel.tsg->dead) return;
    if (channel.engine_channel) {
        if (!graphics || channel.engine_kind == ChannelKind::kGraphics) return;
        (void)engine_.destroy_channel(*channel.engine_channel);  // a 3D object came later: nothing ran yet
        channel.engine_channel.reset();
    }
    ChannelOptions options;
    options.kind = graphics ? ChannelKind::kGraphics : ChannelKind::kCompute;
    options.veid = static_cast<uint8_t>(channel.share->veid);
    options.runqueue = channel.runqueue1 ? 1 : 0;
    options.enabled = channel.scheduled || !rules_.on(Rule::kScheduleBeforeWork);
    auto made = engine_.create_channel(*channel.tsg->engine_tsg, options);
    if (!made) return;
    channel.engine_channel = *made;
    channel.engine_kind = options.kind;
}

void Gpu::set_scheduled(Channel& channel, bool scheduled) {
    channel.scheduled = scheduled;
    if (channel.engine_channel)
        (void)engine_.set_channel_enabled(*channel.engine_channel, scheduled || !rules_.on(Rule::kScheduleBeforeWork));
    if (scheduled) fetch(channel);
}

void Gpu::set_timeslice(Tsg& tsg, uint64_t microseconds) {
    tsg.timeslice_us = microseconds;
    if (tsg.engine_tsg)
        (void)engine_.set_timeslice(*tsg.engine_tsg,
                                    static_cast<TimeNs>(std::min<uint64_t>(microseconds, 10'000'000)) * 1000);
}

Channel* Gpu::channel_by_token(uint32_t token) {
    const auto it = channels_.find(token & 0xfff);
    return it != channels_.end() && it->second->token() == token ? it->second : nullptr;
}

void Gpu::kill(Tsg& tsg, const Channel* culprit, uint32_t xid, const std::string& text) {
    if (tsg.dead) return;
    const Channel* named = culprit != nullptr ? culprit : tsg.channels.empty() ? nullptr : tsg.channels.front();
    log_.xid(identity_.bus, xid, named != nullptr ? named->owner_pid : 0,
             named != nullptr ? named->owner_name : "unknown", text);
    // fault.kills-tsg: without it only the culprit ends.
    const bool whole = rules_.on(Rule::kFaultKillsTsg) || culprit == nullptr;
    if (whole) {
        tsg.dead = true;
        if (tsg.engine_tsg) (void)engine_.fault_tsg(*tsg.engine_tsg);
    }
    for (Channel* channel : tsg.channels) {
        const bool hit = whole || channel == culprit;
        if (hit) channel->dead = true;
        if (hit && !whole && channel->engine_channel)
            (void)engine_.destroy_channel(*channel->engine_channel), channel->engine_channel.reset();
        // fault.notifies-all: without it only the culprit is told.
        if (!hit || (!rules_.on(Rule::kFaultNotifiesAll) && channel != culprit) || !channel->notifier) continue;
        notify(*channel, xid);
    }
}

void Gpu::notify(const Channel& channel, uint32_t xid) {
    const TimeNs time = engine_.now();
    rm::Notification notification{};
    notification.timestampNs[0] = static_cast<uint32_t>(time);
    notification.timestampNs[1] = static_cast<uint32_t>(static_cast<uint64_t>(time) >> 32);
    notification.info32 = xid;
    notification.status = rm::kNotificationError;
    const ErrorNotifier& notifier = *channel.notifier;
    // The status word goes last: whoever polls it sees the rest.
    notifier.memory->store->write(notifier.offset, &notification, sizeof notification);
    if (wake_ && notifier.memory->store->data() != nullptr && notifier.offset % 4 == 0 &&
        notifier.offset + sizeof notification <= notifier.memory->bytes)
        wake_(notifier.memory->store->data() + notifier.offset + 12);
}

void Gpu::stopped(Channel& channel) {
    set_scheduled(channel, false);
    channel.stopped = true;
    if (channel.dead || !channel.notifier) return;
    notify(channel, rm::kXidStopped);
}

std::vector<Channel*> Gpu::graphics_channels(pid_t pid) const {
    std::vector<Channel*> its;
    for (const auto& [id, channel] : channels_) {
        if (channel->owner_pid == pid && channel->tsg != nullptr && channel->tsg->engine == rm::kEngineGr0)
            its.push_back(channel);
    }
    return its;
}

bool Gpu::has_graphics_channel(pid_t pid) const { return !graphics_channels(pid).empty(); }

bool Gpu::fault_of(pid_t pid, uint32_t xid) {
    const std::vector<Channel*> its = graphics_channels(pid);
    for (Channel* channel : its) kill(*channel->tsg, channel, xid, "planted");
    return !its.empty();
}

void Gpu::fetch_all() {
    std::vector<Channel*> all;
    for (const auto& [id, channel] : channels_) all.push_back(channel);
    for (Channel* channel : all) fetch(*channel);
}

bool Gpu::take_doorbell() {
    uint8_t* page = usermode_->store->data();
    if (page == nullptr) return false;
    // 0 is a valid token (runlist 0, channel 0), so "nothing" needs a value that is none.
    constexpr uint32_t kNone = 0xffffffff;
    return __atomic_exchange_n(reinterpret_cast<uint32_t*>(page + work::kDoorbell), kNone, __ATOMIC_ACQ_REL) != kNone;
}

void Gpu::fetch(Channel& channel) {
    if (channel.dead && rules_.on(Rule::kDeadTsgStaysDead)) return;
    if (!channel.scheduled && rules_.on(Rule::kScheduleBeforeWork)) return;
    if (channel.userd == nullptr || channel.gpfifo_entries == 0 || channel.vas == nullptr) return;
    uint32_t put = 0;
    if (!channel.userd->store->read(channel.userd_offset + work::kGpPut, &put, sizeof put)) return;
    put %= channel.gpfifo_entries;
    // Work that becomes due while decoding may kill the channel: stop then.
    while (channel.gp_get != put && !(channel.dead && rules_.on(Rule::kDeadTsgStaysDead))) {
        uint64_t entry = 0;
        uint64_t offset = 0;
        const VaMapping* ring = channel.vas->lookup(channel.gpfifo + uint64_t{channel.gp_get} * 8, 8, &offset);
        if (ring == nullptr || !ring->held()->store->read(offset, &entry, sizeof entry)) {
            mmu_fault(channel, "HUBCLIENT_HOST", channel.gpfifo + uint64_t{channel.gp_get} * 8, "VIRT_READ");
            return;
        }
        channel.gp_get = (channel.gp_get + 1) % channel.gpfifo_entries;
        const uint32_t words = work::entry_words(entry);
        if (words != 0) {
            std::vector<uint32_t> buffer(words);
            const uint64_t address = work::entry_address(entry);
            const VaMapping* pushed = channel.vas->lookup(address, uint64_t{words} * 4, &offset);
            if (pushed == nullptr || !pushed->held()->store->read(offset, buffer.data(), buffer.size() * 4)) {
                mmu_fault(channel, "HUBCLIENT_HOST", address, "VIRT_READ");
                return;
            }
            decode(channel, buffer);
        }
        channel.userd->store->write(channel.userd_offset + work::kGpGet, &channel.gp_get, sizeof channel.gp_get);
    }
}

void Gpu::decode(Channel& channel, const std::vector<uint32_t>& words) {
    size_t at = 0;
    while (at < words.size()) {
        const uint32_t head = words[at++];
        const uint32_t operation = head >> 29;
        const uint32_t count = (head >> 16) & 0x1fff;
        const uint32_t subchannel = (head >> 13) & 7;
        uint32_t method = (head & 0xfff) << 2;
        if (operation == work::kOpImmediate) {
            if (method < 0x100) {
                host_method(channel, method, count);
            } else {
                class_method(channel, subchannel, method, &count, 1);
            }
            continue;
        }
        const bool known =
            operation == work::kOpIncrement || operation == work::kOpNonIncrement || operation == work::kOpOneIncrement;
        if (!known || count > words.size() - at) {
            char text[96];
            std::snprintf(text, sizeof text, "Ch %08x, PBDMA error: bad method header %08x (simulated)", channel.id,
                          head);
            kill(*channel.tsg, &channel, 32, text);
            return;
        }
        const uint32_t* data = words.data() + at;
        at += count;
        if (operation == work::kOpNonIncrement && method >= 0x100) {
            class_method(channel, subchannel, method, data, count);
            continue;
        }
        for (uint32_t i = 0; i < count; i++) {
            if (method == work::kSetObject) {
                channel.subchannel_class[subchannel] = data[i] & 0xffff;
            } else if (method < 0x100) {
                host_method(channel, method, data[i]);
            } else {
                class_method(channel, subchannel, method, &data[i], 1);
            }
            if (operation == work::kOpIncrement || (operation == work::kOpOneIncrement && i == 0)) method += 4;
        }
    }
}

void Gpu::host_method(Channel& channel, uint32_t method, uint32_t data) {
    auto& semaphore = channel.semaphore;
    switch (method) {
        case work::kSemAddressLow: semaphore.address = (semaphore.address & ~0xffffffffull) | data; break;
        case work::kSemAddressHigh:
            semaphore.address = (semaphore.address & 0xffffffffull) | (uint64_t{data & 0x1ffffff} << 32);
            break;
        case work::kSemPayloadLow: semaphore.payload = (semaphore.payload & ~0xffffffffull) | data; break;
        case work::kSemPayloadHigh:
            semaphore.payload = (semaphore.payload & 0xffffffffull) | (uint64_t{data} << 32);
            break;
        case work::kSemExecute:
            if ((data & 7) == work::kSemExecuteRelease)
                mark(channel, Release{semaphore.address, semaphore.payload, (data & work::kSemExecuteTimestamp) != 0});
            break;
        default: break;  // WFI, cache and notification methods: nothing to see in the model
    }
}

void Gpu::class_method(Channel& channel, uint32_t subchannel, uint32_t method, const uint32_t* data, uint32_t count) {
    const uint32_t cls = channel.subchannel_class[subchannel];
    if (method == work::kSimLaunch && rm::cls::is_compute(cls) && count * 4 == sizeof(work::Launch)) {
        work::Launch what;
        std::memcpy(&what, data, sizeof what);
        launch(channel, what);
    } else if (method == work::kSimFrame && rm::cls::is_3d(cls)) {
        frame(channel, data, count);
    } else if (method == work::kSimControlBuffer && rm::cls::is_3d(cls) && count * 4 == sizeof(work::ControlBuffer)) {
        Point point;
        std::memcpy(&point.buffer, data, sizeof point.buffer);
        mark(channel, point);
    } else {
        for (uint32_t i = 0; i < count; i++) mark(channel, Method{cls, method, data[i]});
    }
}

void Gpu::launch(Channel& channel, const work::Launch& launch) {
    // The check runs when the kernel's turn comes, not when it is fetched: mirrors may be made in between.
    mark(channel, Check{launch});
    Kernel kernel;
    kernel.blocks = std::max(launch.blocks, 1u);
    kernel.block_ns = launch.block_ns;
    kernel.blocks_per_sm = std::clamp(launch.blocks_per_sm, 1u, 64u);
    kernel.shared_memory = launch.shared_memory;
    kernel.sm_bound = std::min(launch.sm_bound_permille, 1000u) / 1000.0;
    kernel.bandwidth = std::min(launch.bandwidth_permille, 1000u) / 1000.0;
    const Params& params = engine_.params();
    if (kernel.shared_memory > params.scg_serial_max && !rules_.on(Rule::kFaultSharedMemory))
        kernel.shared_memory = params.scg_concurrent_max;
    if (kernel.shared_memory > params.scg_concurrent_max && kernel.shared_memory <= params.scg_serial_max &&
        !rules_.on(Rule::kSharedMemoryWaits))
        kernel.shared_memory = params.scg_concurrent_max;
    if ((launch.flags & work::kLaunchMaskValid) != 0) {
        TpcSet mask;
        for (size_t i = 0; i < mask.size(); i++) mask.set(i, ((launch.disabled_tpcs[i / 32] >> (i % 32)) & 1) != 0);
        kernel.disabled_tpcs = mask;
    }
    const uint64_t address = (uint64_t{launch.report_high} << 32) | launch.report_low;
    submit(channel, kernel, address == 0 ? Effect{Nothing{}} : Effect{Report{address}});
}

void Gpu::frame(Channel& channel, const uint32_t* data, uint32_t count) {
    constexpr uint32_t kDrawWords = sizeof(work::Draw) / 4;
    if (count == 0 || data[0] == 0 || data[0] > (count - 1) / kDrawWords) return;
    Frame frame;
    for (uint32_t i = 0; i < data[0]; i++) {
        work::Draw from;
        std::memcpy(&from, data + 1 + i * kDrawWords, sizeof from);
        Draw draw;
        draw.vertex_ns = from.vertex_ns;
        draw.fragment_ns = from.fragment_ns;
        if (from.fragment_need_permille != 0)
            draw.fragment_sm_need = std::min(from.fragment_need_permille, 1000u) / 1000.0;
        draw.vertex_bandwidth = std::min(from.vertex_bandwidth_permille, 1000u) / 1000.0;
        draw.fragment_bandwidth = std::min(from.fragment_bandwidth_permille, 1000u) / 1000.0;
        draw.yield_after = (from.flags & work::kDrawYield) != 0;
        frame.draws.push_back(draw);
    }
    submit(channel, std::move(frame), Nothing{});
}

void Gpu::submit(Channel& channel, Work work, Effect effect) {
    if (!channel.engine_channel) {
        // Copy engines and channels without a GR object: outside the timing model, so done at once.
        carry_out(channel, effect);
        return;
    }
    const uint64_t cookie = next_cookie_++;
    if (Status submitted = engine_.submit(*channel.engine_channel, std::move(work), cookie); !submitted) {
        char text[160];
        std::snprintf(text, sizeof text, "Graphics Exception: channel 0x%08x, %s (simulated)", channel.id,
                      submitted.error().text.c_str());
        kill(*channel.tsg, &channel, 13, text);
        return;
    }
    pending_[cookie] = {&channel, std::move(effect)};
}

size_t Gpu::run_until(TimeNs time) {
    released_ = 0;
    for (;;) {
        const TimeNs next = engine_.next_event_time();
        if (next == kNever || next > time) break;
        engine_.advance_to(next);
        collect();
    }
    if (time > engine_.now()) engine_.advance_to(time);
    collect();
    write_time();
    return released_;
}

void Gpu::collect() {
    for (;;) {
        const auto faults = engine_.take_faults();
        for (const Fault& fault : faults) {
            if (fault.kind == FaultKind::kInjected) continue;  // ours, already reported
            Channel* culprit = nullptr;
            for (const auto& [id, channel] : channels_) {
                if (channel->engine_channel == fault.channel) culprit = channel;
            }
            if (culprit == nullptr) continue;
            char text[160];
            if (fault.kind == FaultKind::kSharedMemory) {
                std::snprintf(text, sizeof text,
                              "Graphics Exception: channel 0x%08x, Class %08x, Offset 00000510, Data 0017e2ac",
                              culprit->id, identity_.three_d);
            } else {
                std::snprintf(text, sizeof text,
                              "Graphics SM Exception: channel 0x%08x, no TPC left for the kernel (simulated)",
                              culprit->id);
            }
            kill(*culprit->tsg, culprit, 13, text);
        }
        engine_.take_completions(completions_);
        if (completions_.empty() && faults.empty()) return;
        const std::vector<Completion> batch = std::move(completions_);
        completions_.clear();
        for (const Completion& done : batch) {
            const auto it = pending_.find(done.cookie);
            if (it == pending_.end()) continue;
            const Pending pending = std::move(it->second);
            pending_.erase(it);
            if (done.status != WorkStatus::kDone) continue;
            if (pending.channel->dead && rules_.on(Rule::kDeadTsgStaysDead)) continue;
            // What it ran was taken off the GPU before the memory behind it went.
            if (pending.channel->stopped) continue;
            if (const auto* asked = std::get_if<Report>(&pending.effect)) {
                report(*pending.channel, asked->address, done.sms);
            } else {
                carry_out(*pending.channel, pending.effect);
            }
        }
    }
}

void Gpu::report(Channel& channel, uint64_t address, const SmSet& sms) {
    uint64_t offset = 0;
    const VaMapping* mapping = channel.vas->lookup(address, sizeof(work::Whereabouts), &offset);
    if (mapping == nullptr || (address & 3) != 0)
        return mmu_fault(channel, "GPC0 GPCCLIENT_T1_0", address, "VIRT_WRITE");
    work::Whereabouts found{};
    const TpcSet tpcs = engine_.topology().tpcs_of(sms);
    for (size_t i = 0; i < sms.size(); i++) found.sms[i / 32] |= static_cast<uint32_t>(sms.test(i)) << (i % 32);
    for (size_t i = 0; i < tpcs.size(); i++) found.tpcs[i / 32] |= static_cast<uint32_t>(tpcs.test(i)) << (i % 32);
    mapping->held()->store->write(offset, &found, sizeof found);
}

void Gpu::carry_out(Channel& channel, const Effect& effect) {
    if (const auto* semaphore = std::get_if<Release>(&effect)) {
        release(channel, *semaphore);
    } else if (const auto* kernel = std::get_if<Check>(&effect)) {
        check(channel, kernel->launch);
    } else if (const auto* method = std::get_if<Method>(&effect)) {
        run_method(channel, *method);
    } else if (const auto* point = std::get_if<Point>(&effect)) {
        const ControlBuffer buffer{(uint64_t{point->buffer.address_high} << 32) | point->buffer.address_low,
                                   point->buffer.length};
        uint64_t offset = 0;
        if (buffer.length == 0) {
            std::erase_if(channel.tsg->control_buffers,
                          [&](const ControlBuffer& other) { return other.address == buffer.address; });
            return;
        }
        if (channel.vas->lookup(buffer.address, buffer.length, &offset) == nullptr) {
            mmu_fault(channel, "HUBCLIENT_FE", buffer.address, "VIRT_READ");
            return;
        }
        auto& buffers = channel.tsg->control_buffers;
        const auto same = [&](const ControlBuffer& other) { return other.address == buffer.address; };
        if (const auto it = std::find_if(buffers.begin(), buffers.end(), same); it != buffers.end()) {
            *it = buffer;
        } else {
            buffers.push_back(buffer);
        }
    }
}

void Gpu::release(Channel& channel, const Release& what) {
    uint64_t offset = 0;
    const VaMapping* mapping = channel.vas->lookup(what.address, what.timestamp ? 16 : 4, &offset);
    if (mapping == nullptr || (what.timestamp && !is_semaphore_aligned(what.address)) || (what.address & 3) != 0) {
        mmu_fault(channel, "HUBCLIENT_HOST", what.address, "VIRT_WRITE");
        return;
    }
    const std::shared_ptr<Memory> memory = mapping->held();
    SharedMemory& store = *memory->store;
    if (what.timestamp) {
        const auto time = static_cast<uint64_t>(engine_.now());
        store.write(offset + 8, &time, sizeof time);
        const auto high = static_cast<uint32_t>(what.payload >> 32);
        store.write(offset + 4, &high, sizeof high);
    }
    const auto low = static_cast<uint32_t>(what.payload);
    store.write(offset, &low, sizeof low);  // last: waiters look at this word
    ++released_;
    if (wake_ && store.data() != nullptr) wake_(store.data() + offset);
}

void Gpu::check(Channel& channel, const work::Launch& launch) {
    Tsg& tsg = *channel.tsg;
    const uint32_t veid = channel.share->veid;
    if ((launch.flags & work::kLaunchLocalMemory) != 0 && !tsg.compute_ready.test(veid) &&
        rules_.on(Rule::kFaultLocalMemory)) {
        char text[160];
        std::snprintf(text, sizeof text,
                      "Graphics Exception: channel 0x%08x, SKEDCHECK05_LOCAL_MEMORY_TOTAL_SIZE failed", channel.id);
        kill(tsg, &channel, 13, text);
        return;
    }
    if (!tsg.has_graphics) return;
    const Channel* graphics = nullptr;
    for (const Channel* other : tsg.channels) {
        if (other->has_3d) graphics = other;
    }
    // The renderer's own subcontexts see its memory by nature. After its death its state is gone with its channels.
    if (graphics == nullptr || graphics->vas == channel.vas) return;
    if (tsg.zcull == ZcullMode::kSeparateBuffer && rules_.on(Rule::kZcullSeparateFaults)) {
        mmu_fault(channel, "GPC0 GPCCLIENT_RAST", 0, "VIRT_READ");
        return;
    }
    if ((launch.flags & work::kLaunchControlState) != 0 && touches_stale_veid(channel)) return;
    if ((launch.flags & work::kLaunchControlState) == 0 || !rules_.on(Rule::kFaultControlBuffers)) return;
    for (const ControlBuffer& buffer : tsg.control_buffers) {
        uint64_t here = 0;
        uint64_t there = 0;
        const VaMapping* mirror = channel.vas->lookup(buffer.address, buffer.length, &here);
        if (mirror == nullptr) {
            // As seen on hardware the front end reads the third page of the buffer first.
            mmu_fault(channel, "HUBCLIENT_FE",
                      buffer.address + std::min<uint64_t>(0x2000, buffer.length - 1) / 4096 * 4096, "VIRT_READ");
            wedged_ = wedged_ || rules_.on(Rule::kFaultWedges);
            return;
        }
        const VaMapping* original = graphics->vas->lookup(buffer.address, buffer.length, &there);
        if (original != nullptr && (original->held() != mirror->held() || here != there)) {
            char text[160];
            std::snprintf(text, sizeof text,
                          "Graphics Exception: channel 0x%08x, wrong memory behind 0x%" PRIx64 " (simulated)",
                          channel.id, buffer.address);
            kill(tsg, &channel, 13, text);
            return;
        }
    }
}

// A subcontext begins to compute: the front end writes to a control buffer in the address space of each that ever did.
bool Gpu::touches_stale_veid(Channel& channel) {
    Tsg& tsg = *channel.tsg;
    auto& own = tsg.computed[channel.share->veid];
    if (std::exchange(own, {channel.vas, true}).ran) return false;
    for (const auto& [veid, computed] : tsg.computed) {
        if (!computed.vas.expired() || tsg.control_buffers.empty() || !rules_.on(Rule::kFaultStaleVeid)) continue;
        mmu_fault(channel, "HUBCLIENT_FE", tsg.control_buffers.front().address + 0x2000, "VIRT_WRITE");
        return true;
    }
    return false;
}

void Gpu::run_method(Channel& channel, const Method& method) {
    const bool scg = method.method == work::kSetScgControl || method.method == work::kScgHysteresisControl;
    const bool has_scg = method.cls >= 0xb1c0 && method.cls <= 0xc9c0 && rm::cls::is_compute(method.cls);
    const bool illegal = method.method >= work::kSimLaunch || (scg && !has_scg && rm::cls::is_compute(method.cls));
    if (illegal) {
        if (!rules_.on(Rule::kFaultIllegalMethod)) return;
        char text[160];
        std::snprintf(text, sizeof text, "Ch %08x, Class %08x, Offset %08x, Data %08x: illegal method", channel.id,
                      method.cls, method.method, method.data);
        kill(*channel.tsg, &channel, 11, text);
        if (rules_.on(Rule::kFaultWedges)) wedged_ = true;
        return;
    }
    if (method.method == work::kSetShaderLocalMemoryA && rm::cls::is_compute(method.cls)) {
        channel.tsg->compute_ready.set(channel.share->veid);
    } else if (method.method == work::kSetScgControl && has_scg && channel.tsg->engine_tsg) {
        // COMPUTE1_MAX_SM_COUNT 8:0, DISABLE_COMPUTE1_LIMIT_IN_ALL_COMPUTE 24:24 (clc9c0.h). A maximum that covers
        // every SM is no partition at all.
        const auto max_sms = static_cast<int>(method.data & 0x1ff);
        const Topology& topology = engine_.topology();
        if (max_sms == 0 || max_sms >= topology.sm_count()) {
            (void)engine_.set_mode(*channel.tsg->engine_tsg, ScgMode::kIntraSm);
            (void)engine_.set_quota(*channel.tsg->engine_tsg, std::nullopt);
        } else {
            (void)engine_.set_mode(*channel.tsg->engine_tsg, ScgMode::kInterSm);
            (void)engine_.set_quota(*channel.tsg->engine_tsg, std::max(1, max_sms / topology.sms_per_tpc()));
        }
    }
}

void Gpu::mmu_fault(Channel& channel, const char* unit, uint64_t address, const char* access) {
    char text[256];
    std::snprintf(
        text, sizeof text,
        "channel 0x%08x, intr 00000000. MMU Fault: ENGINE GRAPHICS %s faulted @ 0x%x_%08x. Fault is of type FAULT_PDE "
        "ACCESS_TYPE_%s",
        channel.id, unit, static_cast<unsigned>(address >> 32), static_cast<unsigned>(address), access);
    kill(*channel.tsg, &channel, 31, text);
}

void Gpu::write_time() {
    const auto time = static_cast<uint64_t>(engine_.now());
    const auto low = static_cast<uint32_t>(time);
    const auto high = static_cast<uint32_t>(time >> 32);
    usermode_->store->write(work::kTimeHigh, &high, sizeof high);
    usermode_->store->write(work::kTimeLow, &low, sizeof low);
}

}  // namespace vuda::sim
