#include "shim/partition/native_modules.h"

#include <string.h>

#include "shim/partition/call_arguments.h"
#include "shim/partition/driver_calls.h"
#include "shim/partition/native_scope.h"

namespace vuda::partition {
namespace {

constexpr unsigned kMaxJitOptions = 64;
constexpr size_t kMaxName = 4096;

enum class Option { kCarriesOver, kOnlyTells, kChangesCode };

// CUjit_option. Those that only tell the program something would write into its memory a second time.
Option kind_of(int option) {
    switch (option) {
        case 0:   // CU_JIT_MAX_REGISTERS
        case 7:   // CU_JIT_OPTIMIZATION_LEVEL
        case 9:   // CU_JIT_TARGET
        case 10:  // CU_JIT_FALLBACK_STRATEGY
        case 11:  // CU_JIT_GENERATE_DEBUG_INFO
        case 13:  // CU_JIT_GENERATE_LINE_INFO
        case 14:  // CU_JIT_CACHE_MODE
        case 30:  // CU_JIT_POSITION_INDEPENDENT_CODE
        case 31:  // CU_JIT_MIN_CTA_PER_SM
        case 32:  // CU_JIT_MAX_THREADS_PER_BLOCK
        case 33:  // CU_JIT_OVERRIDE_DIRECTIVE_VALUES
            return Option::kCarriesOver;
        case 2:   // CU_JIT_WALL_TIME
        case 3:   // CU_JIT_INFO_LOG_BUFFER
        case 4:   // CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES
        case 5:   // CU_JIT_ERROR_LOG_BUFFER
        case 6:   // CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
        case 8:   // CU_JIT_TARGET_FROM_CUCONTEXT: what a library does of itself
        case 12:  // CU_JIT_LOG_VERBOSE
            return Option::kOnlyTells;
        default: return Option::kChangesCode;
    }
}

// As the caller gave it; empty: it cannot be read or is longer than any name.
std::string read_name(const char* at) {
    std::string name;
    char piece[64];
    while (name.size() < kMaxName) {
        // The end of a page may be the end of what can be read.
        const size_t bytes = sizeof piece - reinterpret_cast<uintptr_t>(at) % sizeof piece;
        if (!read_safely(at, piece, bytes)) return {};
        const size_t length = ::strnlen(piece, bytes);
        name.append(piece, length);
        if (length != bytes) return name;
        at += bytes;
    }
    return {};
}

// Code that CUDA can load: ELF, a fat binary with or without what nvcc wraps it in, or PTX. Before CUDA's callbacks are
// proved this shows that what they name is the image.
bool is_image(const void* at) {
    uint32_t magic = 0;
    if (!read_safely(at, &magic, sizeof magic)) return false;
    if (magic == 0x464c457f || magic == 0xba55ed50 || magic == 0x466243b1) return true;
    for (int shift = 0; shift < 32; shift += 8) {
        const auto c = static_cast<unsigned char>(magic >> shift);
        if (c != '\t' && c != '\n' && c != '\r' && (c < ' ' || c > '~')) return false;
    }
    return true;
}

Error unknown(const char* what) { return Error{Code::kUnimplemented, what, ""}; }

}  // namespace

void NativeModules::add(CuModule module, CuLibrary library, bool owned) {
    CuLibrary before = nullptr;
    {
        const std::lock_guard lock(mutex_);
        Code& code = modules_[module];
        if (code.owned) before = code.from;
        code = {library, owned};
        if (before != nullptr) drop(before);
    }
    if (before != nullptr) cuda_.unload_library(before);
}

void NativeModules::remove(CuModule module) {
    CuLibrary library = nullptr;
    {
        const std::lock_guard lock(mutex_);
        const auto found = modules_.find(module);
        if (found == modules_.end()) return;
        if (found->second.owned) library = found->second.from;
        modules_.erase(found);
        if (library != nullptr) drop(library);
    }
    if (library != nullptr) cuda_.unload_library(library);
}

void NativeModules::add_kernel(CuKernel kernel, CuLibrary library, std::string name) {
    const std::lock_guard lock(mutex_);
    if (libraries_.emplace(kernel, library).second) names_.emplace(std::move(name), Known{kernel, library});
}

void NativeModules::forget(CuLibrary library) {
    const std::lock_guard lock(mutex_);
    drop(library);
}

// Called with the lock.
void NativeModules::drop(CuLibrary library) {
    // nullptr: it may be of this one.
    std::erase_if(functions_,
                  [&](const auto& entry) { return entry.second.from == library || entry.second.from == nullptr; });
    std::erase_if(libraries_, [&](const auto& entry) { return entry.second == library; });
    std::erase_if(names_, [&](const auto& entry) { return entry.second.from == library; });
    std::erase_if(modules_, [&](const auto& entry) { return entry.second.from == library; });
}

bool NativeModules::on_entered(int function, const void* arguments) {
    if (function != kModuleUnload && function != kLibraryUnload) return false;
    const auto said = read_arguments<1>(arguments);
    if (!said) return false;
    const std::lock_guard lock(mutex_);
    if (function == kLibraryUnload) {
        drop(pointer_in<void>((*said)[0]));
        return true;
    }
    const auto found = modules_.find(pointer_in<void>((*said)[0]));
    if (found == modules_.end()) return true;
    const Code code = found->second;
    modules_.erase(found);
    // Its kernels may run yet: the call waits for them, and what is ours goes after it.
    if (code.owned) {
        drop(code.from);
        leaving_.push_back(code.from);
    }
    return true;
}

void NativeModules::on_left(int function, const void* arguments) {
    switch (function) {
        case kModuleLoad:
        case kModuleLoadData:
        case kModuleLoadDataEx:
        case kModuleLoadFatBinary:
            if (keeps_.load(std::memory_order_relaxed)) load(function, arguments);
            return;
        case kModuleUnload: {
            std::vector<CuLibrary> gone;
            {
                const std::lock_guard lock(mutex_);
                gone.swap(leaving_);
            }
            for (const CuLibrary library : gone) cuda_.unload_library(library);
            return;
        }
        case kLibraryGetModule:
            if (const auto said = read_arguments<2>(arguments)) {
                if (const auto module = value_at<CuModule>((*said)[0]); module != nullptr)
                    add(module, pointer_in<void>((*said)[1]), false);
            }
            return;
        case kKernelGetFunction:
            if (const auto said = read_arguments<2>(arguments)) {
                const auto of_kernel = value_at<CuFunction>((*said)[0]);
                const auto kernel = pointer_in<void>((*said)[1]);
                const std::lock_guard lock(mutex_);
                const auto library = libraries_.find(kernel);
                if (of_kernel != nullptr)
                    functions_[of_kernel] = {kernel, library == libraries_.end() ? nullptr : library->second};
            }
            return;
        case kLibraryGetKernel:
            if (const auto said = read_arguments<3>(arguments)) {
                const auto kernel = value_at<CuKernel>((*said)[0]);
                std::string name = read_name(pointer_in<const char>((*said)[2]));
                if (kernel != nullptr && !name.empty())
                    add_kernel(kernel, pointer_in<void>((*said)[1]), std::move(name));
            }
            return;
        default: return;
    }
}

void NativeModules::load(int function, const void* arguments) {
    const auto said = read_arguments<2>(arguments);
    if (!said || !cuda_.has_native_side() || !cuda_.has_modules()) return;
    std::vector<int> options;
    std::vector<void*> values;
    if (function == kModuleLoadDataEx) {
        const auto more = read_arguments<5>(arguments);
        if (!more) return;
        const auto count = static_cast<unsigned>((*more)[2]);
        if (count > kMaxJitOptions) return;
        std::vector<int> given(count);
        std::vector<void*> given_values(count);
        if (count != 0 &&
            (!read_safely(pointer_in<const void>((*more)[3]), given.data(), count * sizeof(int)) ||
             !read_safely(pointer_in<const void>((*more)[4]), given_values.data(), count * sizeof(void*))))
            return;
        for (unsigned i = 0; i < count; ++i) {
            const Option kind = kind_of(given[i]);
            if (kind == Option::kChangesCode) return;
            if (kind == Option::kOnlyTells) continue;
            options.push_back(given[i]);
            values.push_back(given_values[i]);
        }
    }
    const auto module = value_at<CuModule>((*said)[0]);
    const std::string path = function == kModuleLoad ? read_name(pointer_in<const char>((*said)[1])) : std::string();
    if (module == nullptr || (function == kModuleLoad ? path.empty() : !is_image(pointer_in<const void>((*said)[1]))))
        return;
    NativeErrand quiet;
    const OnErrand errand(quiet);
    const RelaxedCapture relaxed(cuda_);
    CuLibrary library = nullptr;
    const auto count = static_cast<unsigned>(options.size());
    const CuResult loaded =
        function == kModuleLoad
            ? cuda_.load_library_file(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0)
            : cuda_.load_library(&library, pointer_in<const void>((*said)[1]), options.data(), values.data(), count,
                                 nullptr, nullptr, 0);
    if (loaded == 0) add(module, library, true);
}

Result<CuKernel> NativeModules::kernel_of(CuFunction function, CuContext context) {
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = functions_.find(function); found != functions_.end()) return found->second.kernel;
    }
    const CurrentContext current(cuda_, context);
    if (current.result() != 0) return unknown("the kernel's context is lost");
    CuFunction of_library = nullptr;
    if (cuda_.kernel_get_function(&of_library, function) == 0) {
        const std::lock_guard lock(mutex_);
        const auto library = libraries_.find(function);
        functions_[function] = {function, library == libraries_.end() ? nullptr : library->second};
        return function;
    }
    if (!cuda_.has_modules()) return unknown("this CUDA does not tell of which module a kernel is");
    const Result<Known> known = look_up(function);
    if (!known) return known.error();
    const std::lock_guard lock(mutex_);
    functions_[function] = *known;
    return known->kernel;
}

Result<NativeModules::Known> NativeModules::look_up(CuFunction function) {
    CuModule module = nullptr;
    const char* name = nullptr;
    if (cuda_.function_get_name(&name, function) != 0 || name == nullptr)
        return unknown("CUDA does not tell a kernel's name");
    if (cuda_.function_get_module(&module, function) != 0) module = nullptr;
    CuLibrary library = nullptr;
    std::vector<Known> alike;
    {
        const std::lock_guard lock(mutex_);
        if (const auto code = modules_.find(module); code != modules_.end()) library = code->second.from;
        const auto [first, last] = names_.equal_range(name);
        for (auto entry = first; entry != last; ++entry) alike.push_back(entry->second);
    }
    if (library != nullptr) {
        CuKernel kernel = nullptr;
        if (cuda_.kernel_of_library(&kernel, library, name) == 0) return Known{kernel, library};
        return unknown("a kernel of a module is not found in a library of the same code");
    }
    for (const Known& known : alike) {
        CuFunction of_kernel = nullptr;
        if (cuda_.kernel_get_function(&of_kernel, known.kernel) == 0 && of_kernel == function) return known;
    }
    return unknown("a kernel's module was loaded when VUDA did not look, or in a way that it cannot repeat");
}

}  // namespace vuda::partition
