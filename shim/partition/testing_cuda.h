// A CUDA driver for tests: launches make a descriptor, call back as CUDA does, and "run" on the SMs that the descriptor
// then allows.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
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
        bool no_native_side = false;
        int context_create_result = 0;
        bool contexts_share_variables = false;  // the second context's module is the first one's
        bool banks_are_ignored = false;         // a kernel uses its own context's variables all the same
        bool banks_differ_in_size = false;      // from context to context
        bool arguments_are_elsewhere = false;   // the block of a call names no arguments
        bool kernel_is_of_a_module = false;     // and not of a library: it runs in its own context only
        int event_record_result = 0;
        bool skips_are_ignored = false;
        uint64_t skip_slot_holds = 0;           // at the beginning of a call
        bool skipped_calls_have_an_end = true;  // CUDA calls at the end of one as well
        int wait_event_result_after = 0;        // of the wait that keeps the program's next work behind the kernel
    };

    // What streams of the program and of the native side did, in their order.
    struct Step {
        std::string what;  // "launch", "record", "wait", "set"
        CuContext context = nullptr;
        CuStream stream = nullptr;
        CuEvent event = nullptr;
        bool operator==(const Step&) const = default;
    };
    std::vector<Step> steps;
    static constexpr uint64_t kBankOfFirst = 0x00800000'0f2f8000, kBankOfSecond = 0x00800000'0e8f8000;
    struct Variables {
        uint32_t words[2] = {1, 2};
    };
    std::map<CuContext, Variables> variables;
    std::map<CuContext, size_t> stack_limits;
    bool native_work_is_done = true;
    bool shared_was_asked_for = true;  // in our context, by kernel_set_attribute

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
            ++current()->synchronized;
            current()->wait(kStreamSynchronize, stack().back());
            return 0;
        };
        cuda.launch = [](CuFunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                         unsigned bz, unsigned shared, CuStream stream, void** parameters, void**) {
            const CuLaunchConfig config{{gx, gy, gz}, {bx, by, bz}, shared, stream, nullptr, 0};
            if (function == native_kernel()) return current()->launch_native(config, function, parameters);
            return current()->launch_plain(config, function, parameters);
        };
        if (quirks.no_native_side) return cuda;
        cuda.ctx_create = [](CuContext* context, unsigned, int) {
            FakeCuda& fake = *current();
            if (fake.quirks.context_create_result != 0) return fake.quirks.context_create_result;
            fake.made_contexts.push_back(std::make_unique<int>());
            *context = fake.made_contexts.back().get();
            fake.made_unshared.push_back(fake.unshared);
            stack().push_back(*context);
            return 0;
        };
        cuda.ctx_get_limit = [](size_t* value, int) { return *value = current()->stack_limits[stack().back()], 0; };
        cuda.ctx_set_limit = [](int, size_t value) { return current()->stack_limits[stack().back()] = value, 0; };
        cuda.load_library = [](CuLibrary* library, const void*, int*, void**, unsigned, int*, void**, unsigned) {
            return *library = native_kernel(), 0;
        };
        cuda.unload_library = [](CuLibrary) { return 0; };
        cuda.kernel_of_library = [](CuKernel* kernel, CuLibrary, const char*) { return *kernel = native_kernel(), 0; };
        cuda.global_of_library = [](CuDevicePtr* memory, size_t* bytes, CuLibrary, const char* name) {
            *memory = reinterpret_cast<CuDevicePtr>(
                &current()->variables_of(stack().back()).words[std::string(name) == "vuda_constant_word" ? 1 : 0]);
            return *bytes = 4, 0;
        };
        cuda.kernel_get_function = [](CuFunction* function, CuKernel kernel) {
            return *function = kernel, current()->quirks.kernel_is_of_a_module && kernel != native_kernel() ? 400 : 0;
        };
        cuda.event_query = [](CuEvent) { return current()->native_work_is_done ? 0 : 600; };
        cuda.kernel_set_attribute = [](int, int, CuKernel, int) { return current()->shared_was_asked_for = true, 0; };
        cuda.event_create = [](CuEvent* event, unsigned) {
            FakeCuda& fake = *current();
            fake.events.push_back(std::make_unique<CuContext>(stack().back()));
            return *event = fake.events.back().get(), 0;
        };
        cuda.event_record = [](CuEvent event, CuStream stream) {
            FakeCuda& fake = *current();
            if (*static_cast<CuContext*>(event) != stack().back()) return 400;
            if (fake.quirks.event_record_result != 0) return fake.quirks.event_record_result;
            return fake.steps.push_back({"record", stack().back(), stream, event}), 0;
        };
        cuda.stream_wait_event = [](CuStream stream, CuEvent event, unsigned) {
            FakeCuda& fake = *current();
            if (*static_cast<CuContext*>(event) != stack().back() && fake.is_made(*static_cast<CuContext*>(event)) &&
                fake.quirks.wait_event_result_after != 0)
                return fake.quirks.wait_event_result_after;
            return fake.steps.push_back({"wait", stack().back(), stream, event}), 0;
        };
        cuda.launch_config = [](const CuLaunchConfig* config, CuFunction function, void** parameters, void**) {
            return current()->launch_native(*config, function, parameters);
        };
        return cuda;
    }

    // The self-check's kernel.
    CuResult launch_plain(const CuLaunchConfig& config, CuFunction function, void** parameters) {
        struct {
            CuFunction function;
            unsigned shape[7];
            CuStream stream;
            void** parameters;
            void** extra;
        } said{function,
               {config.grid[0], config.grid[1], config.grid[2], config.block[0], config.block[1], config.block[2],
                config.shared_bytes},
               config.stream,
               parameters,
               nullptr};
        const CuContext context = stack().back();
        return call(
            kLaunchKernel, context,
            [&] {
                launch({{config.grid[0], config.grid[1], config.grid[2]},
                        {config.block[0], config.block[1], config.block[2]}},
                       QmdKind::kGrid, context, reinterpret_cast<uint32_t*>(*static_cast<CuDevicePtr*>(parameters[0])));
            },
            &said);
    }

    // A launch of one kernel of a library, on `config.stream` of the current context, which it may be asked to run
    // natively. Its variables are copied to where its first parameter points.
    CuResult launch_native(const CuLaunchConfig& config, CuFunction function, void** parameters) {
        const CuContext context = stack().back();
        if (quirks.kernel_is_of_a_module && function != native_kernel() && is_made(context)) return 400;
        if (config.shared_bytes > 48 * 1024 && is_made(context) && !shared_was_asked_for) return 1;
        struct {
            const CuLaunchConfig* config;
            CuFunction function;
            void** parameters;
            void** extra;
        } said{&config, function, parameters, nullptr};
        return call(
            kLaunchKernelEx, context,
            [&] {
                banks_ = true;
                const auto qmd =
                    launch({{config.grid[0], config.grid[1], config.grid[2]},
                            {config.block[0], config.block[1], config.block[2]}},
                           QmdKind::kGrid, context, nullptr, {}, 1, (config.shared_bytes + 127) / 128 * 128 + 1024);
                banks_ = false;
                if ((load32(qmd.data()) >> 23 & 7) == 1) return;
                steps.push_back({"launch", context, config.stream, nullptr});
                uint64_t place = 0;
                std::memcpy(&place, qmd.data() + 192 + 8 * 3, 8);
                const bool own = is_made(context) && (place == kBankOfSecond || quirks.banks_are_ignored);
                const Variables& seen = variables_of(own ? context : nullptr);
                auto* out = reinterpret_cast<uint32_t*>(*static_cast<CuDevicePtr*>(parameters[0]));
                out[0] = seen.words[0];
                out[1] = seen.words[1];
                out[2] = config.block[0];
            },
            &said);
    }
    bool is_made(CuContext context) const {
        for (const auto& made : made_contexts) {
            if (made.get() == context) return true;
        }
        return false;
    }
    // All contexts that the native side did not make have those of "nullptr".
    Variables& variables_of(CuContext context) {
        return variables[is_made(context) && !quirks.contexts_share_variables ? context : nullptr];
    }
    static void* native_kernel() {
        static int kernel = 0;
        return &kernel;
    }
    static constexpr int kLaunchKernelEx = 652;
    std::vector<std::unique_ptr<int>> made_contexts;
    std::vector<bool> made_unshared;
    std::vector<std::unique_ptr<CuContext>> events;
    bool unshared = false;  // as NativeSide::Host was told

    // A function of the driver that launches, as the program would call it: its result.
    template <typename Body>
    CuResult call(int function, CuContext context, Body body, void* arguments = nullptr) {
        if (calls.count(function) == 0) {
            if constexpr (std::is_void_v<decltype(body())>) {
                return body(), 0;
            } else {
                return body();
            }
        }
        uint32_t result = 999, other = 999;
        if (quirks.arguments_are_elsewhere) arguments = nullptr;
        const bool skipped =
            call_back_call(function, context, 0, quirks.results_are_elsewhere ? &other : &result, arguments) &&
            !quirks.skips_are_ignored;
        if (skipped && !quirks.skipped_calls_have_an_end) return static_cast<CuResult>(result);
        if (!skipped) {
            if constexpr (std::is_void_v<decltype(body())>) {
                body();
                result = 0;
            } else {
                result = static_cast<uint32_t>(body());
            }
        }
        call_back_call(function, context, 1, quirks.results_are_elsewhere ? &other : &result, arguments);
        return static_cast<CuResult>(result);
    }
    static constexpr int kLaunchKernel = 307;
    static constexpr int kGraphLaunch = 514;
    static constexpr int kMemAllocManaged = 371;

    // cuMemAllocManaged, as the program calls it.
    CuResult allocate_managed(CuContext context, CuDevicePtr* memory) {
        struct {
            CuDevicePtr* memory;
            size_t bytes;
            unsigned flags;
        } said{memory, 64, 1};
        return call(
            kMemAllocManaged, context, [&] { *memory = reinterpret_cast<CuDevicePtr>(new uint32_t[16]); }, &said);
    }

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
        if (banks_) {
            put(52, uint32_t{0x00011000});  // banks 3 and 4 are there
            const uint64_t more = quirks.banks_differ_in_size && is_made(context) ? uint64_t{1} << 60 : 0;
            put(192 + 8 * 3, (is_made(context) ? kBankOfSecond : kBankOfFirst) + more);
            put(192 + 8 * 4, uint64_t{0x00800000'0f4b1d08});
        }
        if (before_upload) before_upload(qmd);
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

    // Adds to a descriptor that is about to go out.
    std::function<void(uint8_t* qmd)> before_upload;
    Quirks quirks;
    CuContext primary = nullptr;
    Uuid gpu;
    bool enabled = false;
    // Functions of the driver that it was asked to tell of. The partitioner asks while the program launches.
    struct Calls {
        std::array<std::atomic<bool>, 1024> told{};
        void insert(int function) { told.at(static_cast<size_t>(function)) = true; }
        void erase(int function) { told.at(static_cast<size_t>(function)) = false; }
        size_t count(int function) const { return told.at(static_cast<size_t>(function)) ? 1 : 0; }
    } calls;
    bool tells_again = false;
    uint32_t last_wait_result = 0;
    int synchronized = 0;

 protected:
    static std::vector<CuContext>& stack() {
        thread_local std::vector<CuContext> contexts;
        return contexts;
    }

 private:
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

    // Whether it is to be skipped.
    bool call_back_call(int function, CuContext context, uint64_t side, uint32_t* result, void* arguments = nullptr) {
        uint64_t parameters[13] = {};
        parameters[7] = reinterpret_cast<uint64_t>(arguments);
        parameters[0] = 0x55cc00000000 | quirks.wait_parameter_bytes;
        parameters[5] = reinterpret_cast<uint64_t>(result);
        parameters[8] = reinterpret_cast<uint64_t>(context);
        parameters[10] = side << 32 | static_cast<uint64_t>(function);
        uint32_t skipped = 0;
        parameters[11] = quirks.skip_slot_holds != 0 ? quirks.skip_slot_holds : reinterpret_cast<uint64_t>(&skipped);
        callback_(user_, 6, function, parameters);
        return side == 0 && skipped == 1;
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

    bool banks_ = false;
    uint64_t table_[13] = {};
    Callback callback_ = nullptr;
    void* user_ = nullptr;
};

}  // namespace vuda::partition::testing
