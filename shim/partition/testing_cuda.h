// A CUDA driver for tests: launches make a descriptor, call back as CUDA does, and "run" on the SMs that the descriptor
// then allows.
#pragma once

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "base/monotonic.h"
#include "base/uuid.h"
#include "shim/partition/cuda_driver.h"
#include "shim/partition/launch_hook.h"
#include "shim/partition/testing_cards.h"

namespace vuda::partition::testing {

inline GpuLayout card_layout() {
    GpuLayout layout;
    for (uint32_t t = 0; t < 66; ++t) {
        const bool graphics = t == kCardSeenGraphics[0] || t == kCardSeenGraphics[1];
        layout.topology.tpcs.push_back({kCard[t].gpc, graphics, {2 * t, 2 * t + 1}});
        layout.virtual_gpcs.push_back(kCard[t].virtual_gpc);
    }
    return layout;
}

class FakeCuda {
 public:
    using Callback = void (*)(void*, int, int, const void*);

    // What differs from an H200 with CUDA 13.0.
    struct Quirks {
        int version = 13000;
        bool no_export_table = false;
        int subscribe_result = 0;
        int enable_result = 0;
        bool never_calls_back = false;
        uint32_t parameter_bytes = 0x58;
        bool wrong_context_slot = false;
        bool descriptor_is_nowhere = false;
        uint8_t descriptor_version = 0x40;
        uint8_t descriptor_offset = 0;  // 4: like the second of a graph
        bool other_grid = false;
        bool ignores_mask = false;
        bool numbers_plainly = false;  // mask bit t is TPC t
        bool one_sm_never_runs = false;
        int module_load_result = 0;
        int wait_enable_result = 0;
        uint32_t wait_parameter_bytes = 0x68;
        bool waits_have_no_end = false;
        bool results_are_elsewhere = false;  // the call's block names another variable
        bool empty_grids_run = false;
    };

    static FakeCuda*& current() {
        static FakeCuda* fake = nullptr;
        return fake;
    }

    FakeCuda() {
        current() = this;
        table_[0] = 12 * 8;
        table_[3] = reinterpret_cast<uint64_t>(&subscribe);
        table_[6] = reinterpret_cast<uint64_t>(&enable);
        gpu.bytes.fill(0x42);
    }
    ~FakeCuda() { current() = nullptr; }

    CudaDriver driver() {
        CudaDriver cuda{};
        cuda.driver_get_version = [](int* version) { return *version = current()->quirks.version, 0; };
        cuda.get_export_table = [](const void** table, const CuUuid*) {
            *table = current()->table_;
            return current()->quirks.no_export_table ? 1 : 0;
        };
        cuda.device_get_count = [](int* count) { return *count = 1, 0; };
        cuda.device_get = [](int* device, int ordinal) { return *device = ordinal, 0; };
        cuda.device_get_attribute = [](int* value, int attribute, int) {
            *value = attribute == 75 ? 9 : 0;
            return 0;
        };
        cuda.device_get_uuid = [](CuUuid* uuid, int) {
            return std::memcpy(uuid->bytes, current()->gpu.bytes.data(), 16), 0;
        };
        cuda.primary_get_state = [](int, unsigned* flags, int* active) {
            *flags = 0;
            *active = current()->primary != nullptr;
            return 0;
        };
        cuda.primary_retain = [](CuContext* context, int) { return *context = current()->primary, 0; };
        cuda.primary_release = [](int) { return 0; };
        cuda.ctx_get_current = [](CuContext* context) {
            return *context = stack().empty() ? nullptr : stack().back(), 0;
        };
        cuda.ctx_push = [](CuContext context) { return stack().push_back(context), 0; };
        cuda.ctx_pop = [](CuContext* context) { return *context = stack().back(), stack().pop_back(), 0; };
        cuda.ctx_get_device = [](int* device) { return *device = 0, 0; };
        cuda.exchange_capture_mode = [](int* mode) {
            thread_local int own = 0;
            std::swap(own, *mode);
            return 0;
        };
        cuda.module_load = [](CuModule* module, const void*) {
            return *module = current(), current()->quirks.module_load_result;
        };
        cuda.module_unload = [](CuModule) { return 0; };
        cuda.module_get_function = [](CuFunction* function, CuModule, const char*) { return *function = current(), 0; };
        cuda.mem_alloc = [](CuDevicePtr* memory, size_t bytes) {
            *memory = reinterpret_cast<CuDevicePtr>(new uint32_t[bytes / 4]);
            return 0;
        };
        cuda.mem_free = [](CuDevicePtr memory) { return delete[] reinterpret_cast<uint32_t*>(memory), 0; };
        cuda.memset_async = [](CuDevicePtr memory, unsigned value, size_t words, CuStream) {
            std::fill_n(reinterpret_cast<uint32_t*>(memory), words, value);
            return 0;
        };
        cuda.copy_to_host = [](void* to, CuDevicePtr from, size_t bytes, CuStream) {
            std::memcpy(to, reinterpret_cast<void*>(from), bytes);
            return 0;
        };
        cuda.stream_create = [](CuStream* stream, unsigned) { return *stream = current(), 0; };
        cuda.stream_destroy = [](CuStream) { return 0; };
        cuda.stream_synchronize = [](CuStream) {
            current()->wait(kStreamSynchronize, stack().back());
            return 0;
        };
        cuda.launch = [](CuFunction, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                         unsigned, CuStream, void** parameters, void**) {
            const auto memory = *static_cast<CuDevicePtr*>(parameters[0]);
            return current()->call(kLaunchKernel, stack().back(), [&] {
                current()->launch({{gx, gy, gz}, {bx, by, bz}}, QmdKind::kGrid, stack().back(),
                                  reinterpret_cast<uint32_t*>(memory));
            });
        };
        return cuda;
    }

    // A function of the driver that launches, as the program would call it: its result.
    template <typename Body>
    CuResult call(int function, CuContext context, Body body) {
        if (calls.count(function) == 0) return body(), 0;
        uint32_t result = 999, other = 999;
        call_back_call(function, context, 0, quirks.results_are_elsewhere ? &other : &result);
        body();
        result = 0;
        call_back_call(function, context, 1, quirks.results_are_elsewhere ? &other : &result);
        return static_cast<CuResult>(result);
    }
    static constexpr int kLaunchKernel = 307;
    static constexpr int kGraphLaunch = 514;

    // A graph launches a descriptor again that was uploaded before.
    void launch_again(std::array<uint8_t, kQmdLookBytes>& qmd, CuContext context) {
        if (!tells_again) return;
        uint64_t parameters[21] = {};
        parameters[0] = 0x7ffc00000000 | 0xa8;
        parameters[1] = reinterpret_cast<uint64_t>(context);
        parameters[4] = reinterpret_cast<uint64_t>(qmd.data());
        callback_(user_, 0xb, 3, parameters);
    }

    // One launch as the program would make it; returns the descriptor as the GPU gets it.
    std::array<uint8_t, kQmdLookBytes> launch(const LaunchShape& shape, QmdKind kind, CuContext context,
                                              uint32_t* counts = nullptr, const QmdMask& before = {},
                                              uint32_t cluster = 1, uint32_t shared = 1024) {
        alignas(8) std::array<uint8_t, kQmdLookBytes + 8> room{};
        uint8_t* const qmd = room.data() + quirks.descriptor_offset;
        const auto as_it_is = [&] {
            std::array<uint8_t, kQmdLookBytes> copy;
            std::memcpy(copy.data(), qmd, copy.size());
            return copy;
        };
        const auto put = [&](size_t at, auto value) { std::memcpy(qmd + at, &value, sizeof value); };
        if (is_old()) {
            // QMDV02_03 to QMDV03_00: no kind, no valid bit, and the mask's upper bits among other flags.
            put(12, uint32_t{0x5a000000});
            put(44, uint32_t{0x44000000});  // API_VISIBLE_CALL_LIMIT, SAMPLER_INDEX
            qmd[72] = quirks.descriptor_version;
            put(48, shape.grid[0] + (quirks.other_grid ? 1 : 0));
            put(52, static_cast<uint16_t>(shape.grid[1]));
            put(56, static_cast<uint16_t>(shape.grid[2]));
            put(74, static_cast<uint16_t>(shape.block[0]));
            put(76, static_cast<uint16_t>(shape.block[1]));
            put(78, static_cast<uint16_t>(shape.block[2]));
            put(84, before.words[0]);
            put(68, shared);
            qmd[72] = quirks.descriptor_version;
            call_back(qmd, context);
            if (counts != nullptr) run(qmd, counts);
            return as_it_is();
        }
        const bool masked = !(before == QmdMask{});
        put(0, uint32_t{0x103f0000 | static_cast<uint32_t>(kind) << 23 | (masked ? 0x80000000u : 0u)});
        store_bits(qmd, 584, 18, shared);
        qmd[72] = quirks.descriptor_version;
        put(128, shape.grid[0] + (quirks.other_grid ? 1 : 0));
        put(132, static_cast<uint16_t>(shape.grid[1]));
        put(136, static_cast<uint16_t>(shape.grid[2]));
        put(144, static_cast<uint16_t>(shape.block[0]));
        put(146, static_cast<uint16_t>(shape.block[1]));
        put(148, static_cast<uint16_t>(shape.block[2]));
        qmd[268] = static_cast<uint8_t>(cluster);
        qmd[269] = qmd[270] = 1;
        put(304, before);
        call_back(qmd, context);
        if (counts != nullptr) run(qmd, counts);
        return as_it_is();
    }

    // One call of a driver's function that waits, as the program would make it.
    void wait(int function, CuContext context, uint64_t nanoseconds = 0) {
        if (calls.count(function) == 0) return;
        uint32_t result = 999;
        call_back_call(function, context, 0, &result);
        for (const uint64_t until = monotonic_ns() + nanoseconds; monotonic_ns() < until;) {
        }
        result = 0;
        if (!quirks.waits_have_no_end) call_back_call(function, context, 1, &result);
        last_wait_result = result;
    }
    static constexpr int kStreamSynchronize = 126;

    // A mask of QMDV02_03 to QMDV03_00, with the flags beside its upper bits as they were.
    static QmdMask old_mask_of(const std::array<uint8_t, kQmdLookBytes>& qmd) {
        QmdMask mask;
        std::memcpy(&mask.words[0], qmd.data() + 84, 8);
        const uint32_t word = load32(qmd.data() + 44);
        mask.words[1] = (word >> 20 & 0x3f) | (word >> 27 & 3) << 6;
        return (word & ~0x1bf00000u) == 0x44000000 ? mask : QmdMask{{~uint64_t{0}, ~uint64_t{0}}};
    }

    static bool has_mask(const std::array<uint8_t, kQmdLookBytes>& qmd) { return (qmd[3] & 0x80) != 0; }
    static QmdMask mask_of(const std::array<uint8_t, kQmdLookBytes>& qmd) {
        QmdMask mask;
        std::memcpy(&mask, qmd.data() + 304, sizeof mask);
        return mask;
    }

    Quirks quirks;
    CuContext primary = nullptr;
    Uuid gpu;
    bool enabled = false;
    std::set<int> calls;  // functions of the driver that it was asked to tell of
    bool tells_again = false;
    uint32_t last_wait_result = 0;

 private:
    static std::vector<CuContext>& stack() {
        thread_local std::vector<CuContext> contexts;
        return contexts;
    }

    static int subscribe(uint32_t* handle, Callback callback, void* user) {
        FakeCuda& fake = *current();
        *handle = 1;
        fake.callback_ = callback;
        fake.user_ = user;
        return fake.quirks.subscribe_result;
    }
    static int enable(uint32_t on, uint32_t, int domain, int callback) {
        if (domain == 6 && current() != nullptr) {
            if (current()->quirks.wait_enable_result != 0) return current()->quirks.wait_enable_result;
            if (on != 0) current()->calls.insert(callback);
            if (on == 0) current()->calls.erase(callback);
            return 0;
        }
        if (domain == 0xb && callback == 3) {
            if (current() != nullptr) current()->tells_again = on != 0;
            return 0;
        }
        if (domain != 0xb || callback != 1) return 1;
        if (current() != nullptr) current()->enabled = on != 0;
        return current() == nullptr ? 0 : current()->quirks.enable_result;
    }

    bool is_old() const { return quirks.descriptor_version < 0x40; }

    void call_back(uint8_t* qmd, CuContext context) {
        if (!enabled || callback_ == nullptr || quirks.never_calls_back) return;
        uint64_t parameters[11] = {};
        // The upper half of the first word is not CUDA's to fill, and is not filled.
        parameters[0] = 0x7ffc00000000 | quirks.parameter_bytes;
        parameters[quirks.wrong_context_slot ? 2 : 1] = reinterpret_cast<uint64_t>(context);
        parameters[4] = quirks.descriptor_is_nowhere ? 0x10 : reinterpret_cast<uint64_t>(qmd);
        callback_(user_, 0xb, 1, parameters);
    }

    void call_back_call(int function, CuContext context, uint64_t side, uint32_t* result) {
        uint64_t parameters[13] = {};
        parameters[0] = 0x55cc00000000 | quirks.wait_parameter_bytes;
        parameters[5] = reinterpret_cast<uint64_t>(result);
        parameters[8] = reinterpret_cast<uint64_t>(context);
        parameters[10] = side << 32 | static_cast<uint64_t>(function);
        callback_(user_, 6, function, parameters);
    }

    void run(const uint8_t* qmd, uint32_t* counts) const {
        if (!is_old() && (load32(qmd) >> 23 & 7) == 1 && !quirks.empty_grids_run) return;
        QmdMask mask;
        if (is_old()) {
            if (!quirks.ignores_mask) {
                std::array<uint8_t, kQmdLookBytes> copy;
                std::memcpy(copy.data(), qmd, copy.size());
                mask = old_mask_of(copy);
            }
        } else if ((qmd[3] & 0x80) != 0 && !quirks.ignores_mask) {
            std::memcpy(&mask, qmd + 304, sizeof mask);
        }
        for (uint32_t t = 0; t < 66; ++t) {
            const uint32_t bit = is_old() || quirks.numbers_plainly ? t : kCardMaskBits[t];
            if ((mask.words[bit / 64] >> (bit % 64) & 1) != 0) continue;
            if (quirks.one_sm_never_runs && t == 5) continue;
            counts[2 * t] += 16;
            counts[2 * t + 1] += 16;
        }
    }

    uint64_t table_[13] = {};
    Callback callback_ = nullptr;
    void* user_ = nullptr;
};

}  // namespace vuda::partition::testing
