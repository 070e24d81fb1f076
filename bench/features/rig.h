// What a case of vuda-bench-features works with: the driver, the device, its primary context, and owners for what it
// makes.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bench/common/try.h"
#include "bench/features/driver.h"

namespace vuda::bench::features {

// The GPU computed something else than it should have.
inline constexpr Code kWrongResult = Code::kOutOfRange;

// Does something when it goes, once.
class Finally {
 public:
    Finally() = default;
    explicit Finally(std::function<void()> action) : action_(std::move(action)) {}
    Finally(Finally&& other) noexcept : action_(std::exchange(other.action_, nullptr)) {}
    Finally& operator=(Finally&& other) noexcept {
        now();
        action_ = std::exchange(other.action_, nullptr);
        return *this;
    }
    ~Finally() { now(); }
    void drop() { action_ = nullptr; }
    void now() {
        if (const auto action = std::exchange(action_, nullptr)) action();
    }

 private:
    std::function<void()> action_;
};

// A module, in the context that was current when it was loaded.
class Kernels {
 public:
    static Result<Kernels> load(const Driver& cuda, const void* image);
    Result<CuFunction> get(const char* name) const;
    CuModule module() const { return module_; }
    // Its context has gone, and the module with it.
    void forget() { unload_.drop(); }

 private:
    const Driver* cuda_ = nullptr;
    CuModule module_ = nullptr;
    Finally unload_;
};

// Words of device memory.
class Words {
 public:
    static Result<Words> make(const Driver& cuda, size_t count, uint32_t value = 0);
    CuPointer pointer() const { return pointer_; }
    size_t size() const { return count_; }
    Result<std::vector<uint32_t>> read() const;

 private:
    const Driver* cuda_ = nullptr;
    CuPointer pointer_ = 0;
    size_t count_ = 0;
    Finally free_;
};

struct RigOptions {
    std::string libcuda = "libcuda.so.1";
    std::string nested_image;  // path; empty: there is none
    std::string self;          // this program's path
};

class Rig {
 public:
    Rig(const Driver& driver, CuDevice number, RigOptions given)
        : cuda(driver), device(number), options(std::move(given)) {}
    Rig(const Rig&) = delete;
    Rig& operator=(const Rig&) = delete;
    ~Rig() { release_primary(); }

    // Has the primary context current on the calling thread, made if need be.
    Status use_primary();
    // Gives it up, with all that is in it.
    void release_primary();
    // It was reset: it and all that was in it is gone already.
    void primary_was_reset();

    // The kernels of kernels.cu and of kernels_sm90.cu in the primary context, loaded once.
    Result<CuFunction> kernel(const char* name);
    Result<CuFunction> kernel_sm90(const char* name);
    const Kernels* base_kernels() const { return kernels_ ? &*kernels_ : nullptr; }

    Result<int> attribute(int which) const;
    // UNIMPLEMENTED with `what` when the attribute is 0.
    Status require(int which, const char* what) const;

    // Takes results into the case's checksum.
    void sum(std::span<const uint32_t> words);

    const Driver& cuda;
    const CuDevice device;
    const RigOptions options;
    nlohmann::ordered_json figures;  // of the case, beside its time
    uint64_t checksum = 0;

 private:
    Result<CuFunction> kernel_of(std::optional<Kernels>& kernels, const char* image, const char* name);
    bool retained_ = false;
    std::optional<Kernels> kernels_;
    std::optional<Kernels> kernels_sm90_;
};

Error wrong(std::string text);

// `right`, or kWrongResult with words.
Status expect(bool right, const std::string& what);
Status expect_equal(const std::vector<uint32_t>& found, const std::vector<uint32_t>& wanted, const std::string& what);

template <typename... Arguments>
Status launch(const Driver& cuda, CuFunction function, unsigned blocks, unsigned threads, unsigned shared_bytes,
              CuStream stream, Arguments... arguments) {
    void* pointers[] = {&arguments...};
    return cuda.check(cuda.launch(function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, pointers, nullptr),
                      "launch a kernel");
}

// What feature_step makes of `value` in `rounds` launches that add 1, 2, ...
uint32_t stepped(uint32_t value, uint32_t rounds);
// `rounds` launches of feature_step on `pointer` in `stream`, not waited for.
Status run_steps(const Driver& cuda, CuFunction step, CuPointer pointer, uint32_t count, uint32_t rounds,
                 CuStream stream);
// Fresh memory and all of that, waited for, compared and taken into `rig`'s checksum.
Status steps_come_out(Rig& rig, CuFunction step, uint32_t count, uint32_t rounds, CuStream stream);

Result<std::pair<CuStream, Finally>> make_stream(const Driver& cuda);
Result<std::pair<CuEvent, Finally>> make_event(const Driver& cuda);

}  // namespace vuda::bench::features
