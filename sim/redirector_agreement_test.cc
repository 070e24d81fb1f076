// Random programs, right and wrong, through the production redirector into the simulated resource manager.  Whatever
// they do: nothing crashes, every call ends, the redirector and RM know the same objects under the same handles after
// each call, and nothing is left once the files are closed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <utility>

#include "sim/testing_books.h"
#include "sim/testing_random_program.h"

namespace vuda::sim {
namespace {

// Both sides' books of one program.
class Comparison {
 public:
    Comparison(ResourceManager& manager, RandomProgram& random)
        : rm_(manager), random_(random), books_(books_of(random.program().redirector())) {}

    void run() {
        random_.forget_copies_not_in(clients_of(rm_));
        for (const auto& [handle, client] : clients_of(rm_)) {
            if (client->pid != random_.program().pid()) continue;
            const auto known = books_.clients.find(handle);
            if (known == books_.clients.end()) {
                ADD_FAILURE() << "RM has client " << std::hex << handle << ", the redirector does not";
                continue;
            }
            EXPECT_EQ(known->second.file, client->file);
            objects_known(*client, known->second);
            objects_exist(*client, known->second);
        }
        for (const auto& [handle, known] : books_.clients) {
            EXPECT_TRUE(clients_of(rm_).contains(handle))
                << "the redirector has client " << std::hex << handle << ", RM does not";
        }
        mirrors_exist();
    }

 private:
    // What RM has, the redirector knows.
    void objects_known(const Client& client, const shim::Client& known) {
        for (const auto& [handle, object] : client.objects) {
            if (handle == client.handle) continue;
            const std::string name = describe(client, handle, object.cls);
            if (of_shim(handle)) {
                EXPECT_TRUE(shim_uses(known, handle)) << name << " was made by the shim and forgotten";
                continue;
            }
            if (object.cls == rm::cls::kDevice) {
                EXPECT_TRUE(known.devices.contains(handle)) << name;
            } else if (object.cls == rm::cls::kSubdevice) {
                EXPECT_TRUE(known.subdevices.contains(handle)) << name;
            } else if (object.cls == rm::cls::kVaSpace) {
                const auto space = known.va_spaces.find(handle);
                if (random_.is_copy(client.handle, handle) && space == known.va_spaces.end())
                    continue;  // of another program, imported
                ASSERT_NE(space, known.va_spaces.end()) << name;
                EXPECT_EQ(space->second->external, std::get<std::shared_ptr<VaSpace>>(object.payload)->external)
                    << name;
            } else if (random_.is_copy(client.handle, handle) || below_copy(client, object)) {
                continue;
            } else if (object.cls == rm::cls::kChannelGroup) {
                EXPECT_TRUE(known.tsgs.contains(handle)) << name;
            } else if (object.cls == rm::cls::kContextShare) {
                EXPECT_TRUE(known.ctxshares.contains(handle)) << name;
            } else if (rm::cls::is_gpfifo(object.cls)) {
                const bool bare = client.objects.at(object.parent).cls == rm::cls::kDevice;
                EXPECT_TRUE(bare || known.channels.contains(handle)) << name;
            }
        }
    }

    // What the redirector knows, RM has: same class, same place.
    void objects_exist(const Client& client, const shim::Client& known) {
        const auto find = [&](rm::Handle handle, uint32_t cls) -> const Object* {
            const auto found = client.objects.find(handle);
            if (found == client.objects.end()) {
                ADD_FAILURE() << describe(client, handle, cls) << " is gone from RM, and the redirector still knows it";
                return nullptr;
            }
            const bool fits =
                found->second.cls == cls || (cls == rm::cls::kGpfifoHopper && rm::cls::is_gpfifo(found->second.cls));
            EXPECT_TRUE(fits) << describe(client, handle, cls) << " is a " << std::hex << found->second.cls << " in RM";
            return fits ? &found->second : nullptr;
        };
        for (const auto& [handle, instance] : known.devices) (void)find(handle, rm::cls::kDevice);
        for (const auto& [handle, device] : known.subdevices) (void)find(handle, rm::cls::kSubdevice);
        for (const auto& [handle, space] : known.va_spaces) (void)find(handle, rm::cls::kVaSpace);
        for (const auto& [handle, tsg] : known.tsgs) {
            const Object* object = find(handle, rm::cls::kChannelGroup);
            if (object == nullptr) continue;
            EXPECT_EQ(tsg.graphics_engine, std::get<std::shared_ptr<Tsg>>(object->payload)->engine == rm::kEngineGr0);
            if (tsg.merge == nullptr) continue;
            if (const Object* shared = find(tsg.merge->shared, rm::cls::kChannelGroup)) {
                EXPECT_NE(std::get<std::shared_ptr<Tsg>>(shared->payload),
                          std::get<std::shared_ptr<Tsg>>(object->payload));
            }
        }
        const auto place = [&](const Object& object, rm::Handle tsg, bool moved, const std::string& name) {
            const auto group = known.tsgs.find(tsg);
            if (group == known.tsgs.end()) {
                ADD_FAILURE() << name << " is in a TSG that is not known";
                return;
            }
            if (moved) {
                ASSERT_NE(group->second.merge, nullptr) << name;
                EXPECT_EQ(object.parent, group->second.merge->shared) << name;
            } else {
                EXPECT_EQ(object.parent, tsg) << name;
            }
        };
        for (const auto& [handle, share] : known.ctxshares) {
            const Object* object = find(handle, rm::cls::kContextShare);
            if (object == nullptr) continue;
            const std::string name = describe(client, handle, rm::cls::kContextShare);
            place(*object, share.tsg, share.moved, name);
            EXPECT_EQ(std::get<std::shared_ptr<ContextShare>>(object->payload)->veid, share.veid) << name;
        }
        for (const auto& [handle, channel] : known.channels) {
            const Object* object = find(handle, rm::cls::kGpfifoHopper);
            if (object != nullptr)
                place(*object, channel.tsg, channel.moved, describe(client, handle, rm::cls::kGpfifoHopper));
        }
        for (const auto& [address, mapping] : known.mappings) {
            const auto dma = client.objects.find(mapping.dma);
            ASSERT_NE(dma, client.objects.end())
                << "mapping at " << std::hex << address << " through a handle that is gone";
            const auto* space = std::get_if<std::shared_ptr<VaSpace>>(&dma->second.payload);
            const auto* area = std::get_if<std::shared_ptr<VirtualMemory>>(&dma->second.payload);
            ASSERT_TRUE(space != nullptr || area != nullptr);
            const auto& mappings = (space != nullptr ? **space : *(*area)->vas).mappings;
            EXPECT_TRUE(mappings.contains(address)) << "mapping at " << std::hex << address << " is gone from RM";
        }
    }

    // Control buffers that the redirector says are mapped are ranges of that UVM file.
    void mirrors_exist() {
        for (const auto& [handle, known] : books_.clients) {
            for (const auto& [tsg_handle, tsg] : known.tsgs) {
                if (tsg.merge == nullptr || tsg.merge->uvm == 0) continue;
                const auto file = files_of(rm_).find(tsg.merge->uvm);
                ASSERT_NE(file, files_of(rm_).end());
                for (const auto& [address, mirror] : tsg.merge->va_space->mirrors.entries()) {
                    const auto range = file->second.uvm.ranges.find(address);
                    ASSERT_NE(range, file->second.uvm.ranges.end()) << "control buffer at " << std::hex << address;
                    EXPECT_EQ(range->second.length, mirror.length);
                }
            }
        }
    }

    static bool shim_uses(const shim::Client& known, rm::Handle handle) {
        return std::ranges::any_of(known.tsgs, [handle](const auto& entry) {
            const shim::Tsg& tsg = entry.second;
            if (tsg.injected == handle || tsg.injected_thread == handle) return true;
            return tsg.merge != nullptr && (tsg.merge->shared == handle || tsg.merge->ctxshare == handle);
        });
    }
    bool below_copy(const Client& client, const Object& object) const {
        const auto parent = client.objects.find(object.parent);
        if (parent == client.objects.end() || parent->first == client.handle) return false;
        return random_.is_copy(client.handle, parent->first) || below_copy(client, parent->second);
    }
    static std::string describe(const Client& client, rm::Handle handle, uint32_t cls) {
        char text[96];
        std::snprintf(text, sizeof text, "object %#x of class %#x in client %#x", handle, cls, client.handle);
        return text;
    }

    ResourceManager& rm_;
    RandomProgram& random_;
    decltype(books_of(std::declval<shim::Redirector&>())) books_;
};

struct Outline {
    uint64_t merges = 0;  // CUDA contexts that got into a renderer's TSG
};

Outline run_programs(uint64_t seed, int steps) {
    Outline outline;
    Random random(seed);
    const std::unique_ptr<ResourceManager> manager = make_rm();
    if (manager == nullptr) {
        ADD_FAILURE() << "no resource manager";
        return outline;
    }
    {
        RandomProgram renderer(*manager, 100, random), cuda(*manager, 200, random);
        cuda.program().set_renderer(&renderer.program());
        renderer.program().set_renderer(&cuda.program());
        RandomProgram* const programs[] = {&renderer, &cuda};
        for (RandomProgram* program : programs) {
            program->set_wishes();
            for (int i = 0; i < 4; ++i) program->step();
        }
        std::set<std::pair<uint32_t, uint32_t>> merged;
        for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
            const uint64_t turn = random.below(2);
            programs[turn]->step();
            for (RandomProgram* program : programs) {
                SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(i) + ", process " +
                             std::to_string(program->program().pid()) + ", call " +
                             std::to_string(programs[turn]->last_step()));
                Comparison(*manager, *program).run();
                for (const auto& [client, known] : books_of(program->program().redirector()).clients) {
                    for (const auto& [handle, tsg] : known.tsgs) {
                        if (tsg.merge != nullptr && tsg.merge->moved > 0) merged.insert({client, handle});
                    }
                }
            }
        }
        outline.merges = merged.size();
        for (RandomProgram* program : programs) {
            program->close_all();
            EXPECT_EQ(program->program().redirector().tracked(), 0u) << "seed " << seed;
        }
    }
    EXPECT_EQ(manager->counts(), ResourceManager::Counts{}) << "seed " << seed;
    return outline;
}

class RedirectorAgreement : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RedirectorAgreement, ::testing::Range<uint64_t>(0, 40));

TEST_P(RedirectorAgreement, BothSidesKnowTheSameObjects) { (void)run_programs(GetParam(), 600); }

// The property above would hold trivially if nothing was ever redirected.
TEST(RedirectorAgreement, RandomProgramsDoGetRedirected) {
    uint64_t merges = 0;
    for (uint64_t seed = 100; seed < 120; ++seed) merges += run_programs(seed, 400).merges;
    EXPECT_GT(merges, 10u);
}

}  // namespace
}  // namespace vuda::sim
