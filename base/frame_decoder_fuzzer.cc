// The frame decoder on arbitrary bytes in arbitrary pieces: the frames must not depend on how the stream was cut.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/frame_io.h"

namespace {

struct Outcome {
    std::vector<std::string> frames;
    bool broken = false;
    size_t rest = 0;

    bool operator==(const Outcome&) const = default;
};

void drain(vuda::FrameDecoder& decoder, Outcome& outcome) {
    while (!outcome.broken) {
        auto frame = decoder.next();
        if (!frame) {
            outcome.broken = true;
        } else if (frame->has_value()) {
            if ((*frame)->empty() || (*frame)->size() > vuda::kFrameLimit) std::abort();
            outcome.frames.push_back(std::move(**frame));
        } else {
            return;
        }
    }
}

}  // namespace

// First byte: size of the pieces, less one. The rest: the stream.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const size_t step = size_t{data[0]} + 1;
    const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);

    Outcome whole;
    vuda::FrameDecoder at_once;
    at_once.feed(stream);
    drain(at_once, whole);
    whole.rest = at_once.buffered();

    Outcome cut;
    vuda::FrameDecoder piecewise;
    for (size_t at = 0; at < stream.size(); at += step) {
        piecewise.feed(stream.substr(at, step));
        drain(piecewise, cut);
    }
    cut.rest = piecewise.buffered();
    if (!(whole == cut)) std::abort();

    // What was decoded encodes back to the bytes it came from.
    std::string again;
    for (const std::string& frame : whole.frames) {
        if (!vuda::append_frame(again, frame)) std::abort();
    }
    if (stream.substr(0, again.size()) != again) std::abort();
    return 0;
}
