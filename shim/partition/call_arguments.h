// The block of a driver call's arguments, as CUDA's callback names it: not trusted.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "shim/partition/safe_read.h"

namespace vuda::partition {

// Eight bytes an argument, which is how CUDA's blocks are laid out wherever a pointer or a size comes after.
template <size_t kCount>
std::optional<std::array<uint64_t, kCount>> read_arguments(const void* block) {
    std::array<uint64_t, kCount> values;
    if (!read_safely(block, values.data(), sizeof values)) return std::nullopt;
    return values;
}

template <typename T>
T* pointer_in(uint64_t argument) {
    return reinterpret_cast<T*>(static_cast<uintptr_t>(argument));
}

// What the program's variable holds whose address is the argument; all zero where it cannot be read.
template <typename T>
T value_at(uint64_t argument) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (!read_safely(pointer_in<const void>(argument), &value, sizeof value)) value = T{};
    return value;
}

}  // namespace vuda::partition
