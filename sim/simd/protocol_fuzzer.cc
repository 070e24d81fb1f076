// Bytes into the server's request decoder and everything behind it: raw packets, and calls that the decoder accepts
// with arguments from the input. Whatever comes, the simulator stays consistent and is empty once every file is closed.
//
// Input: steps, each a byte that says what and its operands (below); answers to the server's questions are taken from
// the input as well.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "sim/simd/session.h"

namespace {

using namespace vuda::sim;

class Input {
 public:
    Input(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}
    bool empty() const { return at_ == end_; }
    uint8_t byte() { return empty() ? 0 : *at_++; }
    uint16_t half() { return static_cast<uint16_t>(byte() | (byte() << 8)); }
    // Exactly `length` bytes, zeros behind the end of the input.
    std::vector<uint8_t> bytes(size_t length) {
        std::vector<uint8_t> out(length);
        const size_t there = std::min(length, static_cast<size_t>(end_ - at_));
        if (there != 0) std::memcpy(out.data(), at_, there);
        at_ += there;
        return out;
    }

 private:
    const uint8_t* at_;
    const uint8_t* end_;
};

class Host : public SessionHost {
 public:
    std::vector<FileId> files;
    vuda::UniqueFd publish(FileId file, FileKind, int) override {
        files.push_back(file);
        return vuda::UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC));
    }
    void doorbell_mapped() override {}
    std::optional<std::string> status() override { return "status"; }
};

template <typename T>
std::vector<uint8_t> packet(const T& head, const std::vector<uint8_t>& tail = {}) {
    std::vector<uint8_t> out(sizeof head);
    std::memcpy(out.data(), &head, sizeof head);
    out.insert(out.end(), tail.begin(), tail.end());
    return out;
}

// Sends a packet and answers what the server asks. False when the server would hang up.
bool exchange(Session& session, Input& input, const Host& host, const std::vector<uint8_t>& first) {
    using namespace protocol;
    auto answer = session.handle(first);
    while (answer) {
        Header head{};
        std::memcpy(&head, answer->bytes.data(), std::min(sizeof head, answer->bytes.size()));
        if (head.type == Type::kNeedRead) {
            NeedRead need;
            std::memcpy(&need, answer->bytes.data(), sizeof need);
            answer = session.handle(packet(SupplyRead{{kMagic, Type::kSupplyRead}, 0, 0}, input.bytes(need.length)));
        } else if (head.type == Type::kNeedFile) {
            const size_t index = input.byte();
            const FileId file = host.files.empty() ? 0 : host.files[index % host.files.size()];
            answer = session.handle(packet(SupplyFile{{kMagic, Type::kSupplyFile}, index == 255 ? 0 : file}));
        } else {
            return true;
        }
    }
    return false;
}

void check(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    ResourceManager::Config config;
    auto made = ResourceManager::make(config);
    if (!made) return 0;
    ResourceManager& rm = **made;
    Host host;
    Input input(data, size);
    Session session(rm, host, Caller{100, 1000, "fuzz"});
    constexpr size_t kMostFiles = 64;
    constexpr int kMostSteps = 400;
    bool connected = true;
    for (int step = 0; step < kMostSteps && connected && !input.empty(); step++) {
        using namespace protocol;
        const auto file = [&]() -> FileId {
            const uint8_t index = input.byte();
            return host.files.empty() ? index : host.files[index % host.files.size()];
        };
        switch (input.byte() % 8) {
            case 0: connected = exchange(session, input, host, input.bytes(input.half() % 4096)); break;
            case 1:
                if (host.files.size() < kMostFiles) {
                    const uint32_t kind = input.byte() % 3;
                    connected =
                        exchange(session, input, host, packet(Open{{kMagic, Type::kOpen}, kind, input.byte() % 2}));
                }
                break;
            case 2: {
                const FileId target = file();
                const unsigned escape = input.byte();
                const size_t length = input.half() % 2400;
                connected =
                    exchange(session, input, host,
                             packet(Ioctl{{kMagic, Type::kIoctl}, target, vuda::rm::rm_request(escape, length), 0x1000},
                                    input.bytes(length)));
                break;
            }
            case 3: {
                const FileId target = file();
                const uint8_t number = input.byte();
                connected = exchange(
                    session, input, host,
                    packet(Ioctl{
                        {kMagic, Type::kIoctl}, target, number == 0 ? vuda::rm::uvm::kInitialize : number, 0x1000}));
                break;
            }
            case 4: {
                const FileId target = file();
                connected = exchange(session, input, host,
                                     packet(Map{{kMagic, Type::kMap}, target, uint64_t{input.byte()} * 4096}));
                break;
            }
            case 5: rm.close(file()); break;
            case 6: rm.doorbell(0, input.half()); break;
            default: (void)rm.gpu(0).run_until(rm.gpu(0).now() + TimeNs{input.half()} * 1000); break;
        }
        const std::string wrong = rm.audit();
        check(wrong.empty(), wrong.c_str());
    }
    for (const FileId file : host.files) rm.close(file);
    check(rm.counts() == ResourceManager::Counts{}, "something outlived its files");
    return 0;
}
