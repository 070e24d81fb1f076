// For property tests: processes that make ioctls at random, sensible and senseless.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "sim/rm/test_rigs.h"

namespace vuda::sim {

class Dice {
 public:
    explicit Dice(uint32_t seed) : engine_(seed) {}
    uint32_t below(uint32_t limit) { return std::uniform_int_distribution<uint32_t>(0, limit - 1)(engine_); }
    bool chance(uint32_t percent) { return below(100) < percent; }
    template <typename T>
    const T& pick(const std::vector<T>& values) {
        return values[below(static_cast<uint32_t>(values.size()))];
    }
    uint64_t any() { return engine_(); }

 private:
    std::mt19937_64 engine_;
};

// A process that does things at random. Handles come from a small range, so that they meet.
class Monkey {
 public:
    Monkey(ResourceManager& rm, std::unique_ptr<TestProcess> process, Dice& dice)
        : rm_(rm), owned_(std::move(process)), process_(*owned_), dice_(dice) {}

    void act(const std::vector<std::unique_ptr<Monkey>>& all) {
        switch (dice_.below(22)) {
            case 0:
            case 1: add_client(); break;
            case 2: raw_bytes(); break;
            case 3: close_file(); break;
            case 4:
                files_.push_back(
                    process_.open(static_cast<FileKind>(dice_.below(3)), static_cast<int>(dice_.below(3))));
                break;
            case 5: rig(); break;
            default:
                if (clients_.empty()) {
                    add_client();
                } else {
                    use(*clients_[dice_.below(static_cast<uint32_t>(clients_.size()))], all);
                }
        }
        (void)rm_.gpu(0).run_until(rm_.gpu(0).now() + dice_.below(1'000'000));
    }

 private:
    static constexpr uint32_t kHandles = 12;
    rm::Handle handle() {
        return dice_.chance(3) ? static_cast<rm::Handle>(dice_.any()) : 0x10 + dice_.below(kHandles);
    }
    rm::Handle parent(TestClient& client) {
        const uint32_t roll = dice_.below(10);
        return roll < 4 ? TestClient::kDevice : roll < 5 ? TestClient::kSubdevice : roll < 6 ? client.client : handle();
    }

    void add_client() {
        if (clients_.size() < 4)
            clients_.push_back(std::make_unique<TestClient>(process_, dice_.below(3), dice_.below(2)));
    }
    void rig() {
        if (dice_.chance(50)) {
            renderer_ = dice_.chance(80) ? std::make_unique<RendererRig>(process_) : nullptr;
        } else {
            compute_ = std::make_unique<ComputeRig>(process_);
            if (dice_.chance(40)) {
                (void)compute_->start_as_cuda_does();
            } else {
                (void)(renderer_ != nullptr && dice_.chance(70) ? compute_->start_shared(*renderer_, dice_.chance(80))
                                                                : compute_->start_own());
            }
        }
        if (renderer_ != nullptr && renderer_->notifier != nullptr)
            renderer_->queue.frame(1 + dice_.below(100'000)).submit();
        if (compute_ != nullptr && compute_->queue.value < 8 && compute_->veid != 0 && dice_.chance(50))
            compute_->queue.kernel(dice_.below(8), 1024 * dice_.below(60)).submit();
    }
    void close_file() {
        if (files_.empty()) return;
        process_.close(dice_.pick(files_));
    }
    void raw_bytes() {
        std::vector<uint8_t> bytes(16384);
        // Mostly zeros and small numbers: pure noise is refused too early to be interesting. No pointers: they would be
        // read.
        for (size_t i = 0; i < 512; i += 4) {
            const uint32_t word = dice_.chance(60)   ? 0
                                  : dice_.chance(70) ? dice_.below(256)
                                                     : static_cast<uint32_t>(dice_.any());
            std::memcpy(bytes.data() + i, &word, 4);
        }
        const std::vector<unsigned> escapes = {0x27, 0x29, 0x34, 0x35, 0x41, 0x4a, 0x4e, 0x4f, 0x54,
                                               0x57, 0x58, 0x5e, 0xc8, 0xc9, 0xce, 0xd2, 0xd6};
        const std::vector<uint32_t> sizes = {4, 8, 16, 24, 28, 32, 40, 48, 56, 64, 72, 184, 2304};
        if (!clients_.empty() && dice_.chance(70)) std::memcpy(bytes.data(), &clients_[0]->client, 4);
        const FileId file = files_.empty() || dice_.chance(40) ? (clients_.empty() ? 0 : clients_[0]->control_file)
                                                               : dice_.pick(files_);
        (void)process_.ioctl(file, rm::rm_request(dice_.pick(escapes), dice_.pick(sizes)), bytes.data());
        const std::vector<unsigned long> uvm = {rm::uvm::kInitialize,
                                                rm::uvm::kRegisterGpu,
                                                rm::uvm::kRegisterGpuVaSpace,
                                                rm::uvm::kCreateExternalRange,
                                                rm::uvm::kMapExternalAllocation,
                                                rm::uvm::kRegisterChannel,
                                                rm::uvm::kFree,
                                                rm::uvm::kUnmapExternal,
                                                rm::uvm::kUnregisterGpuVaSpace,
                                                rm::uvm::kUnregisterChannel,
                                                99};
        if (!files_.empty()) (void)process_.ioctl(dice_.pick(files_), dice_.pick(uvm), bytes.data());
    }

    void use(TestClient& client, const std::vector<std::unique_ptr<Monkey>>& all) {
        uint64_t address = dice_.below(64) * 0x10000ull;
        switch (dice_.below(20)) {
            case 0: (void)client.vaspace(handle(), dice_.chance(30)); break;
            case 1: (void)client.memory(handle(), dice_.chance(5) ? dice_.any() : 1 + dice_.below(0x20000)); break;
            case 2:
                (void)client.tsg(handle(), dice_.chance(50) ? handle() : 0, dice_.chance(80) ? 1 : dice_.below(80),
                                 parent(client));
                break;
            case 3: {
                uint32_t veid = dice_.below(70);
                (void)client.ctxshare(handle(), handle(), dice_.chance(80) ? handle() : 0, dice_.below(5), &veid);
                break;
            }
            case 4:
            case 5:
                (void)client.channel(dice_.chance(70) ? handle() : parent(client), handle(),
                                     dice_.chance(60) ? handle() : 0,
                                     dice_.chance(50) ? rm::kChannelRunqueueOne : static_cast<uint32_t>(dice_.any()),
                                     dice_.chance(20) ? handle() : 0, dice_.below(3), dice_.chance(20) ? handle() : 0);
                break;
            case 6: {
                const std::vector<uint32_t> classes = {0xcb97, 0xcbc0, 0xc8b5, 0xa140, 0x902d, 0x79,
                                                       0xc661, 0x2081, 0xde,   0x1234, 0x40};
                (void)client.alloc(parent(client), handle(), dice_.pick(classes));
                break;
            }
            case 7: (void)client.schedule(handle(), dice_.chance(50), dice_.chance(80)); break;
            case 8: (void)client.free(dice_.chance(90) ? handle() : parent(client)); break;
            case 9: {
                const Monkey& other = *dice_.pick(all);
                if (!other.clients_.empty())
                    (void)client.dup(parent(client), handle(),
                                     other.clients_[dice_.below(static_cast<uint32_t>(other.clients_.size()))]->client,
                                     handle());
                break;
            }
            case 10:
                files_.push_back(process_.open(FileKind::kControl));
                (void)client.export_to(handle(), files_.back());
                break;
            case 11: {
                const Monkey& other = *dice_.pick(all);
                if (!other.files_.empty()) (void)client.import_from(dice_.pick(other.files_), parent(client), handle());
                break;
            }
            case 12: (void)client.virtual_memory(handle(), handle()); break;
            case 13:
            case 14:
                (void)client.map_dma(handle(), handle(), 1 + dice_.below(0x8000), address,
                                     dice_.chance(30) ? rm::kMapDmaOffsetFixed : 0);
                break;
            case 15: (void)client.unmap_dma(handle(), address); break;
            case 16: (void)client.map_cpu(handle(), 1 + dice_.below(0x4000)); break;
            case 17: (void)client.share(handle(), static_cast<uint16_t>(dice_.below(10))); break;
            case 18: {
                rm::ZcullBindParams zcull{client.client, handle(), address, dice_.below(4), 0};
                (void)client.control(TestClient::kSubdevice, rm::ctrl::kGrCtxswZcullBind, zcull);
                rm::PreemptionModeParams mode{dice_.below(4), handle(), dice_.below(3), dice_.below(3), {}};
                (void)client.control(TestClient::kSubdevice, rm::ctrl::kGrSetCtxswPreemptionMode, mode);
                break;
            }
            default: {
                uint8_t bytes[512] = {};
                const std::vector<uint32_t> commands = {
                    0x201,      0x202,      0x214,      0x215,      0x275,      0x3d05,     0x3d06,
                    0xd01,      0x2080014a, 0x20800110, 0x800292,   0xa06c0101, 0xa06c0103, 0xa06c0105,
                    0xa06c0106, 0xa06f0103, 0xa06f0108, 0xc36f0108, 0x906f0101, 0x20801239, 0x2080122b};
                (void)client.control(handle(), dice_.pick(commands), bytes, dice_.below(sizeof bytes));
            }
        }
    }

    ResourceManager& rm_;
    std::unique_ptr<TestProcess> owned_;
    TestProcess& process_;
    Dice& dice_;
    std::vector<std::unique_ptr<TestClient>> clients_;
    std::vector<FileId> files_;
    std::unique_ptr<RendererRig> renderer_;
    std::unique_ptr<ComputeRig> compute_;
};

}  // namespace vuda::sim
