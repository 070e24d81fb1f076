#include "bench/render/expected.h"

#include <cmath>
#include <cstdlib>

namespace vuda::bench {
namespace {

uint8_t to_unorm8(float value) {
    return static_cast<uint8_t>(std::lround(std::fmin(std::fmax(value, 0.0f), 1.0f) * 255.0f));
}

}  // namespace

PushConstants push_constants(const RenderOptions& options) {
    return {options.iterations,
            /*seed=*/0,
            options.width,
            options.height,
            (options.width + kCellPixels - 1) / kCellPixels,
            (options.height + kCellPixels - 1) / kCellPixels};
}

Pixel expected_pixel(const PushConstants& push, RenderLoad load, uint32_t x, uint32_t y) {
    uint32_t columns = push.width;
    uint32_t rows = push.height;
    if (load == RenderLoad::kVertex) {
        x /= kCellPixels;
        y /= kCellPixels;
        columns = push.cells_x;
        rows = push.cells_y;
    }
    float a = (static_cast<float>(x) + 0.5f) / static_cast<float>(columns);
    float b = (static_cast<float>(y) + 0.5f) / static_cast<float>(rows);
    for (uint32_t i = 0; i < push.iterations; ++i) {
        a = std::fma(a, 0.999f, b * 0.001f);
        b = std::fma(b, 0.998f, a * 0.002f);
    }
    return {to_unorm8(a), to_unorm8(b), static_cast<uint8_t>(7 * x + 13 * y + push.seed), 255};
}

bool same_pixel(const Pixel& a, const Pixel& b) {
    return std::abs(a[0] - b[0]) <= 1 && std::abs(a[1] - b[1]) <= 1 && a[2] == b[2] && a[3] == b[3];
}

}  // namespace vuda::bench
