#include "shim/partition/module_watch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/unique_fd.h"
#include "shim/partition/call_arguments.h"
#include "shim/partition/driver_calls.h"

namespace vuda::partition {
namespace {

// cupti_driver_cbid.h; those that have to do with code are in driver_calls.h.
enum : int {
    kLaunch = 115,
    kLaunchGrid = 116,
    kLaunchGridAsync = 117,
    kLaunchKernel = 307,
    kLaunchKernelPtsz = 442,
    kLaunchCooperative = 477,
    kLaunchCooperativePtsz = 478,
    kFuncSetAttribute = 481,
    kLaunchKernelEx = 652,
    kLaunchKernelExPtsz = 653,
    kLibraryGetManaged = 685,
    kKernelSetAttribute = 687,
    kModuleEnumerateFunctions = 738,
    kLibraryEnumerateKernels = 740,
};

constexpr int kMaxDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

// A program that gets more handles than this is known only so far.
constexpr size_t kMostFunctions = 1 << 18;
constexpr size_t kMostEnumerated = 1 << 16;
constexpr size_t kMostPath = 4096;

struct FuncSetArguments {
    const void* function;
    int attribute;
    int value;
};
struct KernelSetArguments {
    int attribute;
    int value;
    const void* kernel;
    int device;
};

ModuleTraits inspect_file(uint64_t path_argument) {
    std::array<char, kMostPath> path{};
    const auto* at = pointer_in<const char>(path_argument);
    // By the byte at the end of a page: what lies behind the path may not be there.
    size_t length = 0;
    do {
        const size_t bytes =
            std::min<size_t>(64 - (reinterpret_cast<uintptr_t>(at) + length) % 64, path.size() - length);
        if (bytes == 0 || !read_safely(at + length, path.data() + length, bytes)) return {};
        length += bytes;
    } while (std::memchr(path.data(), '\0', length) == nullptr);
    const UniqueFd file(::open(path.data(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= 0) return {};
    const auto bytes = static_cast<size_t>(info.st_size);
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapped == MAP_FAILED) return {};
    const ModuleTraits traits = inspect_image(mapped, bytes);
    ::munmap(mapped, bytes);
    return traits;
}

// Of the code that a call loads, by its second argument; other calls load none.
ModuleTraits inspect_load(int function, uint64_t argument) {
    switch (function) {
        case kModuleLoad:
        case kLibraryLoadFromFile: return inspect_file(argument);
        case kModuleLoadData:
        case kModuleLoadDataEx:
        case kModuleLoadFatBinary:
        case kLibraryLoadData: return inspect_image(pointer_in<const void>(argument));
        default: return {};
    }
}

// What this thread's call, under way, was seen to load.
struct Loading {
    int function = 0;
    uint64_t image = 0;
    ModuleTraits traits;
};
constinit thread_local Loading t_loading;

}  // namespace

bool ModuleWatch::is_watched(int function) {
    switch (function) {
        case kModuleLoad:
        case kModuleLoadData:
        case kModuleLoadDataEx:
        case kModuleLoadFatBinary:
        case kModuleUnload:
        case kModuleGetFunction:
        case kFuncSetAttribute:
        case kLibraryLoadData:
        case kLibraryLoadFromFile:
        case kLibraryUnload:
        case kLibraryGetKernel:
        case kLibraryGetModule:
        case kKernelGetFunction:
        case kLibraryGetManaged:
        case kKernelSetAttribute:
        case kModuleEnumerateFunctions:
        case kLibraryEnumerateKernels: return true;
        default: return false;
    }
}

const void* ModuleWatch::launched(int function, const void* arguments) {
    switch (function) {
        case kLaunch:
        case kLaunchGrid:
        case kLaunchGridAsync:
        case kLaunchKernel:
        case kLaunchKernelPtsz:
        case kLaunchCooperative:
        case kLaunchCooperativePtsz:
            if (const auto said = read_arguments<1>(arguments)) return pointer_in<const void>((*said)[0]);
            return nullptr;
        case kLaunchKernelEx:
        case kLaunchKernelExPtsz:
            if (const auto said = read_arguments<2>(arguments)) return pointer_in<const void>((*said)[1]);
            return nullptr;
        default: return nullptr;
    }
}

bool ModuleWatch::is_library(int function) { return function == kLibraryLoadData || function == kLibraryLoadFromFile; }

bool ModuleWatch::loads_managed(int function, const void* arguments) const {
    t_loading = {};
    const auto said = read_arguments<2>(arguments);
    if (!said) return false;
    t_loading = {function, (*said)[1], inspect_load(function, (*said)[1])};
    return t_loading.traits.managed;
}

void ModuleWatch::on_entered(int function, const void* arguments) {
    if (function != kModuleUnload && function != kLibraryUnload) return;
    if (const auto said = read_arguments<1>(arguments)) forget(pointer_in<const void>((*said)[0]));
}

void ModuleWatch::on_left(int function, const void* arguments) {
    if (function == kFuncSetAttribute || function == kKernelSetAttribute) {
        FuncSetArguments of_function;
        KernelSetArguments of_kernel;
        if (function == kFuncSetAttribute && read_safely(arguments, &of_function, sizeof of_function))
            raised(of_function.function, of_function.attribute, of_function.value);
        if (function == kKernelSetAttribute && read_safely(arguments, &of_kernel, sizeof of_kernel))
            raised(of_kernel.kernel, of_kernel.attribute, of_kernel.value);
        return;
    }
    const auto said = read_arguments<2>(arguments);
    if (!said) return;
    // What these calls give comes first, and what they take next.
    const auto given = [&] { return value_at<const void*>((*said)[0]); };
    const auto* const second = pointer_in<const void>((*said)[1]);
    switch (function) {
        case kModuleLoad:
        case kLibraryLoadFromFile:
        case kModuleLoadData:
        case kModuleLoadDataEx:
        case kModuleLoadFatBinary:
        case kLibraryLoadData: {
            const bool seen = t_loading.function == function && t_loading.image == (*said)[1];
            return loaded(given(), seen ? t_loading.traits : inspect_load(function, (*said)[1]));
        }
        case kModuleGetFunction:
        case kLibraryGetKernel: return got(given(), second);
        case kKernelGetFunction: {
            const std::lock_guard lock(mutex_);
            const auto kernel = functions_.find(second);
            const void* const made = given();
            if (kernel != functions_.end() && made != nullptr && functions_.size() < kMostFunctions)
                functions_[made] = kernel->second;
            return;
        }
        case kLibraryGetModule: {
            const void* const module = given();
            const std::lock_guard lock(mutex_);
            if (module != nullptr && second != nullptr) libraries_[module] = second;
            return;
        }
        case kLibraryGetManaged: {
            const auto more = read_arguments<3>(arguments);
            if (!more || (*more)[2] == 0) return;
            const std::lock_guard lock(mutex_);
            codes_[pointer_in<const void>((*more)[2])].traits.managed = true;
            return recount();
        }
        case kModuleEnumerateFunctions:
        case kLibraryEnumerateKernels: {
            const auto more = read_arguments<3>(arguments);
            if (!more) return;
            const size_t count = std::min<size_t>(static_cast<uint32_t>((*more)[1]), kMostEnumerated);
            for (size_t i = 0; i < count; ++i)
                got(value_at<const void*>((*more)[0] + i * sizeof(void*)), pointer_in<const void>((*more)[2]));
            return;
        }
        default: return;
    }
}

void ModuleWatch::loaded(const void* code, const ModuleTraits& traits) {
    if (code == nullptr) return;
    forget(code);  // what was unloaded unseen
    if (!traits.managed && !traits.launches) return;
    const std::lock_guard lock(mutex_);
    codes_[code].traits = traits;
    recount();
}

void ModuleWatch::got(const void* function, const void* code) {
    if (function == nullptr || code == nullptr) return;
    const std::lock_guard lock(mutex_);
    // Of all code: a library may turn out to have managed variables later.
    if (functions_.size() < kMostFunctions || functions_.contains(function)) functions_[function] = code;
}

void ModuleWatch::raised(const void* function, int attribute, int value) {
    if (attribute != kMaxDynamicShared || value <= 0) return;
    const std::lock_guard lock(mutex_);
    const auto found = functions_.find(function);
    const auto code = found == functions_.end() ? codes_.end() : codes_.find(library_of(found->second));
    if (code != codes_.end()) code->second.raised = std::max(code->second.raised, static_cast<uint32_t>(value));
}

void ModuleWatch::forget(const void* code) {
    const std::lock_guard lock(mutex_);
    std::erase_if(functions_,
                  [&](const auto& entry) { return entry.second == code || library_of(entry.second) == code; });
    std::erase_if(libraries_, [&](const auto& entry) { return entry.first == code || entry.second == code; });
    codes_.erase(code);
    recount();
}

// Called with the lock.
void ModuleWatch::recount() { any_.store(!codes_.empty(), std::memory_order_release); }

const void* ModuleWatch::library_of(const void* code) const {
    const auto found = libraries_.find(code);
    return found == libraries_.end() ? code : found->second;
}

const ModuleWatch::Code* ModuleWatch::code_of(const void* function) const {
    const auto found = functions_.find(function);
    if (found == functions_.end()) return nullptr;
    const auto code = codes_.find(library_of(found->second));
    return code == codes_.end() ? nullptr : &code->second;
}

ModuleWatch::Care ModuleWatch::care_of(const void* function, uint32_t limit, uint32_t* bytes) const {
    const std::lock_guard lock(mutex_);
    const Code* const code = code_of(function);
    if (code == nullptr) return Care::kNone;
    // A kernel of both kinds could run in no TSG.
    if (children_may_exceed(code->traits, code->raised, limit)) {
        if (bytes != nullptr) *bytes = largest_child(code->traits, code->raised);
        return Care::kChildren;
    }
    return code->traits.managed ? Care::kFaults : Care::kNone;
}

}  // namespace vuda::partition
