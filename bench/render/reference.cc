#include "bench/render/reference.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace vuda::bench {
namespace {

// Pixels compared with the CPU's: a lattice of this many columns and rows, edges included.
constexpr uint32_t kLattice = 17;

std::string text(const Pixel& pixel) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "(%d, %d, %d, %d)", pixel[0], pixel[1], pixel[2], pixel[3]);
    return buffer;
}

}  // namespace

Result<Reference> Reference::from_frame(const PushConstants& push, RenderLoad load, std::span<const uint8_t> image) {
    Reference reference;
    reference.width_ = push.width;
    reference.height_ = push.height;
    if (image.size() != size_t{4} * push.width * push.height)
        return Error{Code::kInternal, "the reference frame is not a whole image", ""};
    for (uint32_t j = 0; j < kLattice; ++j) {
        for (uint32_t i = 0; i < kLattice; ++i) {
            const uint32_t x = (push.width - 1) * i / (kLattice - 1);
            const uint32_t y = (push.height - 1) * j / (kLattice - 1);
            Pixel got;
            std::memcpy(got.data(), image.data() + 4 * (size_t{y} * push.width + x), got.size());
            const Pixel want = expected_pixel(push, load, x, y);
            if (!same_pixel(got, want))
                return Error{Code::kInternal,
                             "the GPU drew " + text(got) + " at " + std::to_string(x) + "," + std::to_string(y) +
                                 " where the CPU computes " + text(want),
                             ""};
        }
    }
    reference.image_.assign(image.begin(), image.end());
    return reference;
}

bool Reference::matches(RowSet rows, std::span<const uint8_t> pixels) const {
    const size_t row_bytes = size_t{4} * width_;
    if (pixels.size() != row_bytes * rows.count(height_)) return false;
    const uint8_t* got = pixels.data();
    for (uint32_t row = rows.first; row < height_; row += rows.stride, got += row_bytes)
        if (std::memcmp(got, image_.data() + row_bytes * row, row_bytes) != 0) return false;
    return true;
}

std::string Reference::checksum() const {
    if (image_.empty()) return {};
    // http://www.isthe.com/chongo/tech/comp/fnv/ (64 bit)
    uint64_t hash = 0xcbf29ce484222325;
    for (const uint8_t byte : image_) hash = (hash ^ byte) * 0x100000001b3;
    char buffer[17];
    std::snprintf(buffer, sizeof buffer, "%016llx", static_cast<unsigned long long>(hash));
    return buffer;
}

}  // namespace vuda::bench
