// Bytes of hostile processes into the handle socket's protocol and the registry behind it, without a network.
//
// Input: steps. A byte chooses: connection (bits 0-1), action (bits 2-4), and the next byte a length or amount. Tokens
// are predictable here, so that the fuzzer can get past them: the first is 16 bytes of 01.
#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "daemon/handle_protocol.h"

namespace {

using namespace vuda;
using namespace vuda::daemon;

struct World {
    TimePoint now{std::chrono::seconds(1)};
    uint8_t tokens = 0;
    FdReaper& reaper;
    Registry registry;
    RateLimiter limiter{[this] { return now; }};
    uint64_t errors = 0;
    ProtocolContext context{registry, reaper, limiter, [this] { return now; }, {}, errors};

    explicit World(FdReaper& closer)
        : reaper(closer),
          registry(
              Identity{"fuzz", "/h",
                       v1::FEATURE_SHARE | v1::FEATURE_SHARED_PAGE | v1::FEATURE_QUOTA | v1::FEATURE_HEARTBEAT, true},
              Settings{}, [this] { return now; },
              [this] {
                  Token token;
                  token.fill(++tokens);
                  return token;
              },
              Registry::Hooks{}) {}
};

// Takes what comes out, as a peer that reads would, and checks it.
void drain(HandleProtocol& protocol) {
    protocol.settle();
    while (HandleProtocol::Output* out = protocol.output()) {
        FrameDecoder decoder;
        decoder.feed(out->bytes);
        const auto frame = decoder.next();
        v1::Frame parsed;
        if (!frame || !frame->has_value() || !parsed.ParseFromString(**frame)) __builtin_trap();
        for (const int fd : out->fds()) {
            if (fd < 0) __builtin_trap();
        }
        protocol.output_sent();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const bool quiet = [] {
        spdlog::set_level(spdlog::level::off);
        return true;
    }();
    (void)quiet;
    static FdReaper reaper;
    World world(reaper);
    std::array<std::unique_ptr<HandleProtocol>, 4> connections;
    size_t at = 0;
    while (at + 1 < size) {
        const uint8_t step = data[at++];
        const uint8_t amount = data[at++];
        auto& connection = connections[step & 3];
        if (!connection) {
            Peer peer;
            // Connections 0 and 1 are one process: its session and its transfers. So are 2 and 3.
            const pid_t pid = 10 + (step & 2);
            peer.process = {pid, 1};
            peer.uid = 1000;
            connection = std::make_unique<HandleProtocol>(world.context, peer, [] {});
        }
        switch (step >> 2 & 7) {
            case 0:
            case 1:
            case 2: {
                const size_t length = std::min<size_t>(amount, size - at);
                std::vector<UniqueFd> fds;
                if (connection->wants_fds()) {
                    for (int i = 0; i < (step >> 5); ++i) fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
                }
                if (connection->wants_input()) {
                    connection->input({reinterpret_cast<const char*>(data) + at, length}, std::move(fds));
                    while (connection->has_more()) connection->go_on();
                }
                at += length;
                break;
            }
            case 3: connection->end_of_input(); break;
            case 4: connection->disconnected({Code::kUnavailable, "gone", ""}); break;
            case 5:
                world.now += Milliseconds(amount * 50);
                connection->expire();
                world.registry.expire();
                break;
            case 6: connection->input_error({Code::kResourceExhausted, "too many", ""}); break;
            case 7: connection.reset(); break;
        }
        for (auto& each : connections) {
            if (!each) continue;
            drain(*each);
            if (each->finished()) each.reset();
        }
    }
    for (auto& each : connections) each.reset();
    if (world.registry.session_count() != 0 || world.registry.name_count() != 0 || world.registry.handle_count() != 0)
        __builtin_trap();
    if (!reaper.drain(std::chrono::seconds(10))) __builtin_trap();
    return 0;
}
