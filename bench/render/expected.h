// The shaders' arithmetic on the CPU: what a pixel must be.
#pragma once

#include <array>
#include <cstdint>

#include "bench/render/options.h"

namespace vuda::bench {

// Edge of a cell of the vertex load's grid, in pixels.
inline constexpr uint32_t kCellPixels = 8;

// The shaders' push constants; layout as in shaders/push.glsl.
struct PushConstants {
    uint32_t iterations;
    uint32_t seed;
    uint32_t width;   // pixels
    uint32_t height;  // pixels
    uint32_t cells_x;
    uint32_t cells_y;
};

PushConstants push_constants(const RenderOptions& options);

using Pixel = std::array<uint8_t, 4>;  // R, G, B, A

// Red and green come out of a floating-point loop, whose roundings a compiler may arrange otherwise: compare with
// same_pixel.
Pixel expected_pixel(const PushConstants& push, RenderLoad load, uint32_t x, uint32_t y);

// Red and green may differ by one step, blue and alpha not at all.
bool same_pixel(const Pixel& a, const Pixel& b);

}  // namespace vuda::bench
