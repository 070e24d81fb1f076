#include "bench/features/rig.h"

#include <algorithm>

#include "bench/features/kernels_ptx.h"

namespace vuda::bench::features {

Error wrong(std::string text) { return Error{kWrongResult, std::move(text), ""}; }

Status expect(bool right, const std::string& what) {
    if (!right) return wrong(what);
    return {};
}

Status expect_equal(const std::vector<uint32_t>& found, const std::vector<uint32_t>& wanted, const std::string& what) {
    if (found == wanted) return {};
    const size_t common = std::min(found.size(), wanted.size());
    size_t bad = 0;
    size_t first = common;
    for (size_t i = common; i-- > 0;) {
        if (found[i] == wanted[i]) continue;
        ++bad;
        first = i;
    }
    if (first == common)
        return wrong(what + ": " + std::to_string(found.size()) + " words instead of " + std::to_string(wanted.size()));
    return wrong(what + ": " + std::to_string(bad) + " of " + std::to_string(common) +
                 " words are wrong, the first at " + std::to_string(first) + ": " + std::to_string(found[first]) +
                 " instead of " + std::to_string(wanted[first]));
}

Result<Kernels> Kernels::load(const Driver& cuda, const void* image) {
    Kernels kernels;
    kernels.cuda_ = &cuda;
    VUDA_BENCH_TRY(cuda.check(cuda.module_load(&kernels.module_, image), "load the kernels"));
    kernels.unload_ = Finally([&cuda, module = kernels.module_] { cuda.module_unload(module); });
    return kernels;
}

Result<CuFunction> Kernels::get(const char* name) const {
    CuFunction function = nullptr;
    VUDA_BENCH_TRY(
        cuda_->check(cuda_->module_function(&function, module_, name), std::string("find the kernel ") + name));
    return function;
}

Result<Words> Words::make(const Driver& cuda, size_t count, uint32_t value) {
    Words words;
    words.cuda_ = &cuda;
    words.count_ = count;
    VUDA_BENCH_TRY(cuda.check(cuda.allocate(&words.pointer_, 4 * count), "allocate GPU memory"));
    words.free_ = Finally([&cuda, pointer = words.pointer_] { cuda.free(pointer); });
    VUDA_BENCH_TRY(cuda.check(cuda.set_words(words.pointer_, value, count), "fill GPU memory"));
    // It may return early, and streams do not wait for the default stream.
    VUDA_BENCH_TRY(cuda.check(cuda.stream_wait(nullptr), "fill GPU memory"));
    return words;
}

Result<std::vector<uint32_t>> Words::read() const {
    std::vector<uint32_t> words(count_);
    VUDA_BENCH_TRY(cuda_->check(cuda_->to_host(words.data(), pointer_, 4 * count_), "read GPU memory"));
    return words;
}

Status Rig::use_primary() {
    CuContext context = nullptr;
    VUDA_BENCH_TRY(cuda.check(cuda.primary_retain(&context, device), "make the CUDA context"));
    if (retained_) cuda.primary_release(device);  // one is enough
    retained_ = true;
    return cuda.check(cuda.context_use(context), "make the CUDA context current");
}

void Rig::release_primary() {
    kernels_.reset();
    kernels_sm90_.reset();
    if (!retained_) return;
    retained_ = false;
    cuda.context_use(nullptr);
    cuda.primary_release(device);
}

void Rig::primary_was_reset() {
    if (kernels_) kernels_->forget();
    if (kernels_sm90_) kernels_sm90_->forget();
    kernels_.reset();
    kernels_sm90_.reset();
    retained_ = false;
}

Result<CuFunction> Rig::kernel_of(std::optional<Kernels>& kernels, const char* image, const char* name) {
    if (!kernels) {
        Result<Kernels> loaded = Kernels::load(cuda, image);
        VUDA_BENCH_TRY(loaded);
        kernels.emplace(std::move(*loaded));
    }
    return kernels->get(name);
}

Result<CuFunction> Rig::kernel(const char* name) { return kernel_of(kernels_, kKernelsPtx, name); }

Result<CuFunction> Rig::kernel_sm90(const char* name) {
    const Result<int> major = attribute(kComputeMajor);
    VUDA_BENCH_TRY(major);
    if (*major < 9) return Error{Code::kUnimplemented, "needs compute capability 9.0", ""};
    return kernel_of(kernels_sm90_, kKernelsSm90Ptx, name);
}

Result<int> Rig::attribute(int which) const {
    int value = 0;
    VUDA_BENCH_TRY(cuda.check(cuda.attribute(&value, which, device), "ask for a property of the GPU"));
    return value;
}

Status Rig::require(int which, const char* what) const {
    const Result<int> value = attribute(which);
    VUDA_BENCH_TRY(value);
    if (*value == 0) return Error{Code::kUnimplemented, std::string("this GPU or system does not offer ") + what, ""};
    return {};
}

void Rig::sum(std::span<const uint32_t> words) {
    if (checksum == 0) checksum = 1469598103934665603u;  // FNV-1a, a word at a time
    for (const uint32_t word : words) checksum = (checksum ^ word) * 1099511628211u;
}

uint32_t stepped(uint32_t value, uint32_t rounds) {
    for (uint32_t round = 1; round <= rounds; ++round) value = 3 * value + round;
    return value;
}

Status run_steps(const Driver& cuda, CuFunction step, CuPointer pointer, uint32_t count, uint32_t rounds,
                 CuStream stream) {
    for (uint32_t round = 1; round <= rounds; ++round)
        VUDA_BENCH_TRY(launch(cuda, step, 64, 256, 0, stream, pointer, count, round));
    return {};
}

Status steps_come_out(Rig& rig, CuFunction step, uint32_t count, uint32_t rounds, CuStream stream) {
    const Result<Words> data = Words::make(rig.cuda, count, 5);
    VUDA_BENCH_TRY(data);
    VUDA_BENCH_TRY(run_steps(rig.cuda, step, data->pointer(), count, rounds, stream));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(stream), "wait for the kernels"));
    const Result<std::vector<uint32_t>> found = data->read();
    VUDA_BENCH_TRY(found);
    VUDA_BENCH_TRY(expect_equal(*found, std::vector<uint32_t>(count, stepped(5, rounds)), "steps"));
    rig.sum(*found);
    return {};
}

Result<std::pair<CuStream, Finally>> make_stream(const Driver& cuda) {
    CuStream stream = nullptr;
    VUDA_BENCH_TRY(cuda.check(cuda.stream_create(&stream, kNonBlocking), "make a stream"));
    return std::pair(stream, Finally([&cuda, stream] { cuda.stream_destroy(stream); }));
}

Result<std::pair<CuEvent, Finally>> make_event(const Driver& cuda) {
    CuEvent event = nullptr;
    VUDA_BENCH_TRY(cuda.check(cuda.event_create(&event, 0), "make an event"));
    return std::pair(event, Finally([&cuda, event] { cuda.event_destroy(event); }));
}

}  // namespace vuda::bench::features
