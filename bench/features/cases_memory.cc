// Kinds of memory that the GPU reaches without faulting.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "bench/features/cases.h"

namespace vuda::bench::features {
namespace {

constexpr uint32_t kMemoryWords = 1 << 18;
constexpr uint32_t kMemorySteps = 5;

Status steps_on_host(Rig& rig, CuFunction step, uint32_t* words, const std::string& what) {
    std::fill(words, words + kMemoryWords, 5);
    CuPointer at = 0;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.host_pointer(&at, words, 0), "ask where " + what + " is on the GPU"));
    VUDA_BENCH_TRY(run_steps(rig.cuda, step, at, kMemoryWords, kMemorySteps, nullptr));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(nullptr), "wait for the kernels"));
    rig.sum({words, kMemoryWords});
    return expect_equal({words, words + kMemoryWords}, std::vector<uint32_t>(kMemoryWords, stepped(5, kMemorySteps)),
                        what);
}

Status steps_at(Rig& rig, CuPointer at, size_t count, CuStream stream) {
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.set_words_async(at, 5, count, stream), "fill GPU memory"));
    VUDA_BENCH_TRY(run_steps(rig.cuda, *step, at, static_cast<uint32_t>(count), kMemorySteps, stream));
    std::vector<uint32_t> found(count);
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.to_host_async(found.data(), at, 4 * count, stream), "read GPU memory"));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(stream), "wait for a stream"));
    rig.sum(found);
    return expect_equal(found, std::vector<uint32_t>(count, stepped(5, kMemorySteps)), "steps");
}

std::string to_hex(const IpcHandle& handle) {
    std::string text;
    for (const char byte : handle.bytes) {
        constexpr char kDigits[] = "0123456789abcdef";
        text += kDigits[static_cast<unsigned char>(byte) >> 4];
        text += kDigits[static_cast<unsigned char>(byte) & 15];
    }
    return text;
}

}  // namespace

Status constant_memory(Rig& rig) {
    const Result<CuFunction> function = rig.kernel("feature_constant");
    VUDA_BENCH_TRY(function);
    CuPointer table = 0;
    size_t bytes = 0;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.module_global(&table, &bytes, rig.base_kernels()->module(), "feature_table"),
                                  "find the constant memory"));
    std::vector<uint32_t> values(16384);
    for (uint32_t i = 0; i < values.size(); ++i) values[i] = i * 2246822519u;
    VUDA_BENCH_TRY(expect(bytes == 4 * values.size(), "constant memory has " + std::to_string(bytes) + " bytes"));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.to_device(table, values.data(), bytes), "fill constant memory"));
    const Result<Words> out = Words::make(rig.cuda, 1024);
    VUDA_BENCH_TRY(out);
    VUDA_BENCH_TRY(launch(rig.cuda, *function, 4, 256, 0, nullptr, out->pointer()));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(nullptr), "wait for a kernel"));
    const auto found = out->read();
    VUDA_BENCH_TRY(found);
    std::vector<uint32_t> wanted(out->size());
    for (uint32_t thread = 0; thread < wanted.size(); ++thread)
        for (uint32_t i = 0; i < values.size(); ++i) wanted[thread] += values[(i + thread) & 16383u] * (i | 1u);
    rig.sum(*found);
    return expect_equal(*found, wanted, "sums of constants");
}

Status textures(Rig& rig) {
    const Result<CuFunction> function = rig.kernel("feature_texture");
    VUDA_BENCH_TRY(function);
    constexpr int kWidth = 512;
    constexpr int kHeight = 256;
    const ArrayDescriptor shape{kWidth, kHeight, 0, kFormatUnsigned32, 1, kArraySurface};
    CuArray arrays[2] = {};
    Finally free_arrays[2];
    for (int i = 0; i < 2; ++i) {
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.array_create(&arrays[i], &shape), "make an array"));
        free_arrays[i] = Finally([&rig, array = arrays[i]] { rig.cuda.array_destroy(array); });
    }
    std::vector<uint32_t> texels(size_t{kWidth} * kHeight);
    for (uint32_t i = 0; i < texels.size(); ++i) texels[i] = i * 2654435761u;
    Copy2D copy{};
    copy.source_type = kMemoryHost;
    copy.source_host = texels.data();
    copy.source_pitch = 4 * kWidth;
    copy.target_type = kMemoryArray;
    copy.target_array = arrays[0];
    copy.width_bytes = 4 * kWidth;
    copy.height = kHeight;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.copy_2d(&copy), "fill an array"));

    ResourceDescriptor resource{};
    resource.resource.array = arrays[0];
    TextureDescriptor sampling{};
    for (int& mode : sampling.address_mode) mode = 1;  // clamp
    sampling.flags = kReadAsInteger;
    CuObject texture = 0;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.texture_create(&texture, &resource, &sampling, nullptr), "make a texture"));
    const Finally free_texture([&] { rig.cuda.texture_destroy(texture); });
    resource.resource.array = arrays[1];
    CuObject surface = 0;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.surface_create(&surface, &resource), "make a surface"));
    const Finally free_surface([&] { rig.cuda.surface_destroy(surface); });

    VUDA_BENCH_TRY(
        launch(rig.cuda, *function, kWidth * kHeight / 256, 256, 0, nullptr, texture, surface, kWidth, kHeight));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(nullptr), "wait for a kernel"));
    std::vector<uint32_t> found(texels.size());
    Copy2D back{};
    back.source_type = kMemoryArray;
    back.source_array = arrays[1];
    back.target_type = kMemoryHost;
    back.target_host = found.data();
    back.target_pitch = 4 * kWidth;
    back.width_bytes = 4 * kWidth;
    back.height = kHeight;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.copy_2d(&back), "read an array"));
    for (uint32_t& texel : texels) texel = texel * 5 + 7;
    rig.sum(found);
    return expect_equal(found, texels, "texels");
}

Status host_memory(Rig& rig) {
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    void* pinned = nullptr;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.host_allocate(&pinned, 4 * kMemoryWords, kHostPortable | kHostDeviceMap),
                                  "allocate pinned memory"));
    const Finally free_pinned([&] { rig.cuda.host_free(pinned); });
    VUDA_BENCH_TRY(steps_on_host(rig, *step, static_cast<uint32_t*>(pinned), "pinned memory"));

    constexpr size_t kPage = 4096;
    const std::unique_ptr<void, decltype(&std::free)> own(std::aligned_alloc(kPage, 4 * kMemoryWords), &std::free);
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.host_register(own.get(), 4 * kMemoryWords, kHostPortable | kHostDeviceMap),
                                  "register host memory"));
    const Finally unregister([&] { rig.cuda.host_unregister(own.get()); });
    return steps_on_host(rig, *step, static_cast<uint32_t*>(own.get()), "registered memory");
}

Status memory_pool(Rig& rig) {
    VUDA_BENCH_TRY(rig.require(kMemoryPools, "memory pools"));
    const auto stream = make_stream(rig.cuda);
    VUDA_BENCH_TRY(stream);
    for (const size_t count : {size_t{1} << 14, size_t{1} << 20, size_t{1} << 22}) {
        CuPointer at = 0;
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.pool_allocate(&at, 4 * count, stream->first), "allocate in a stream"));
        const Status steps = steps_at(rig, at, count, stream->first);
        const Status freed = rig.cuda.check(rig.cuda.pool_free(at, stream->first), "free in a stream");
        VUDA_BENCH_TRY(steps);
        VUDA_BENCH_TRY(freed);
    }
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(stream->first), "wait for a stream"));
    CuPool pool = nullptr;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.default_pool(&pool, rig.device), "find the memory pool"));
    return rig.cuda.check(rig.cuda.pool_trim(pool, 0), "empty the memory pool");
}

// One range of addresses, mapped anew while the context works: what PyTorch's expandable segments do.
Status virtual_memory(Rig& rig) {
    VUDA_BENCH_TRY(rig.require(kVirtualMemory, "virtual memory management"));
    AllocationProperties properties{};
    properties.type = kAllocationPinned;
    properties.location = {kLocationDevice, rig.device};
    size_t unit = 0;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.granularity(&unit, &properties, 0), "ask for the size of pages"));
    CuPointer at = 0;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.address_reserve(&at, 4 * unit, 0, 0, 0), "reserve addresses"));
    const Finally free_addresses([&] { rig.cuda.address_free(at, 4 * unit); });
    for (size_t units = 1; units <= 4; ++units) {
        CuAllocation memory = 0;
        VUDA_BENCH_TRY(
            rig.cuda.check(rig.cuda.physical_create(&memory, units * unit, &properties, 0), "allocate GPU memory"));
        const Finally release([&] { rig.cuda.physical_release(memory); });
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.map(at, units * unit, 0, memory, 0), "map GPU memory"));
        const Finally unmap([&] { rig.cuda.unmap(at, units * unit); });
        const AccessDescriptor access{{kLocationDevice, rig.device}, kAccessReadWrite};
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.set_access(at, units * unit, &access, 1), "open GPU memory"));
        VUDA_BENCH_TRY(steps_at(rig, at, units * unit / 4, nullptr));
    }
    return {};
}

// Another process of this program opens the memory and works on it; beside a renderer it is attached as well.
Status ipc_memory(Rig& rig) {
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    const Result<Words> data = Words::make(rig.cuda, kMemoryWords, 5);
    VUDA_BENCH_TRY(data);
    IpcHandle handle{};
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.ipc_export(&handle, data->pointer()), "export memory"));
    const std::string text = to_hex(handle);
    std::string words[] = {rig.options.self, "--case", "ipc", "--libcuda", rig.options.libcuda, "--ipc-handle", text};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = -1;
    if (posix_spawn(&child, rig.options.self.c_str(), nullptr, nullptr, arguments.data(), environ) != 0)
        return Error{Code::kInternal, "cannot start " + rig.options.self, ""};
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return wrong("the other process failed, wait status " + std::to_string(status));
    VUDA_BENCH_TRY(run_steps(rig.cuda, *step, data->pointer(), kMemoryWords, 2, nullptr));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(nullptr), "wait for the kernels"));
    const auto found = data->read();
    VUDA_BENCH_TRY(found);
    rig.sum(*found);
    return expect_equal(*found, std::vector<uint32_t>(kMemoryWords, stepped(stepped(5, 3), 2)),
                        "memory of two processes");
}

Status ipc_other_side(Rig& rig, const std::string& text) {
    IpcHandle handle{};
    if (text.size() != 2 * sizeof handle.bytes)
        return Error{Code::kInvalidArgument, "--ipc-handle has the wrong length", ""};
    for (size_t i = 0; i < sizeof handle.bytes; ++i)
        handle.bytes[i] = static_cast<char>(std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
    VUDA_BENCH_TRY(rig.use_primary());
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    CuPointer at = 0;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.ipc_open(&at, handle, kIpcLazyPeer), "open the other process's memory"));
    const Finally close([&] { rig.cuda.ipc_close(at); });
    std::vector<uint32_t> found(kMemoryWords);
    VUDA_BENCH_TRY(
        rig.cuda.check(rig.cuda.to_host(found.data(), at, 4 * kMemoryWords), "read the other process's memory"));
    VUDA_BENCH_TRY(expect_equal(found, std::vector<uint32_t>(kMemoryWords, 5), "the other process's memory"));
    VUDA_BENCH_TRY(run_steps(rig.cuda, *step, at, kMemoryWords, 3, nullptr));
    return rig.cuda.check(rig.cuda.stream_wait(nullptr), "wait for the kernels");
}

}  // namespace vuda::bench::features
