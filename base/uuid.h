// GPU identity. Everything that names a GPU in VUDA uses the UUID, never an index: indices differ between CUDA, Vulkan
// and NVML on the same host.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace vuda {

struct Uuid {
    std::array<uint8_t, 16> bytes{};

    auto operator<=>(const Uuid&) const = default;
    bool is_nil() const { return *this == Uuid{}; }

    // NVIDIA's notation, e.g. "GPU-2c8e0ad8-0710-ab4e-90dd-54719fe5f74b".
    std::string to_string() const;
};

// Accepts the notation above, with or without "GPU-", in either case.
Result<Uuid> parse_uuid(std::string_view text);

}  // namespace vuda
