// Control buffers in the Vulkan driver's own client, made as the driver makes them. No GPU work ever uses them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/mirror/ioctl_spy.h"

namespace vuda::bench {

class ControlBuffers {
 public:
    // Milliseconds of the calls of each kind; they follow one another buffer by buffer.
    struct Times {
        uint32_t count = 0;
        double memory_ms = 0;
        double address_ms = 0;
        double map_ms = 0;  // what VUDA prolongs
        double map_max_ms = 0;
        double free_ms = 0;
    };
    // Exporting, and importing again, by one descriptor each and by one for all; < 0: the driver refused.
    struct Exports {
        uint32_t count = 0;
        double single_ms = -1, single_import_ms = -1;
        double plural_ms = -1, plural_import_ms = -1;
        uint32_t plural_status = 0;
    };

    ControlBuffers(const MappingRecipe& recipe, uint64_t bytes) : recipe_(recipe), bytes_(bytes) {}

    // Makes `count` of them and frees them again.
    Result<Times> make_and_free(uint32_t count);
    Result<Exports> export_and_import(uint32_t count);

 private:
    struct Buffer {
        uint32_t memory = 0;
        uint32_t address = 0;
        uint64_t va = 0;
    };
    Status make(Buffer& buffer, uint32_t number, Times& times);
    Status free(const Buffer& buffer);
    Status free_object(uint32_t object);
    uint32_t control(uint32_t command, void* params, uint32_t size);

    MappingRecipe recipe_;
    uint64_t bytes_;
};

}  // namespace vuda::bench
