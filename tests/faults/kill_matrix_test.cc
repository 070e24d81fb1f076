// kill -9 at every fault point of vudad, libvuda.so and libvuda_preload.so (base/fault_point.h). The binaries are those
// of this build tree; only the nops of one point are overwritten, in a copy or in the running process.
//
// Each time: who dies is gone, everybody else works on, nothing of it stays behind, vudad and every program agree on
// who shares, and the next program shares at once. docs/fault-injection.md
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <set>

#include "tests/faults/rows.h"
#include "tests/faults/world.h"

namespace vuda::faults {
namespace {

using e2e::Clock;
using e2e::eventually;
using e2e::Json;
using e2e::Process;

// What makes somebody get to the point.
enum class Scene {
    kComputeLives,       // a compute program attaches, works and ends
    kRendererRegisters,  // a renderer registers a second name
    kOwnerIsAsked,       // a program attaches to that name
    kOwnerGoes,          // the owner of that name ends while others share with it
    kOwnerMaps,          // a renderer maps control buffers while somebody shares with it
    kSharerFollows,      // a program shares with such a renderer
    kClientReconnects,   // vudad is killed and comes back
    kDaemonStarts,       //
    kDaemonResumes,      // a daemon starts that programs come back to
    kDaemonAttaches,     // a compute program attaches
    kDaemonDetaches,     // a compute program ends
    kDaemonRegisters,    // a renderer registers a second name
    kDaemonUnregisters,  // its renderer ends
    kDaemonMirrors,      // a renderer that others share with maps control buffers
    kDaemonSplits,       // vudactl quota
    kDaemonKeeps,        // vudactl slo: targets go to the disk
    kDaemonMeasures,     // the metrics textfile is written
    kDaemonReloads,      // SIGHUP
    kDaemonStops,        // SIGTERM
};

// With sanitizers everything takes several times as long, and what is looked for is another thing: use after free and
// the like on the way out of each kind of accident. For that a case of each scene is enough.
#ifdef VUDA_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
enum class When { kPlain, kSanitizedToo };
constexpr When kSanitizedToo = When::kSanitizedToo;

struct Case {
    const char* point;
    Binary binary;
    Scene scene;
    When when = When::kPlain;
};

constexpr Case kMatrix[] = {
    {"shim_session_loaded", Binary::kShim, Scene::kComputeLives},
    {"shim_session_started", Binary::kShim, Scene::kComputeLives},
    {"client_connected", Binary::kClient, Scene::kComputeLives},
    {"client_hello_sent", Binary::kClient, Scene::kComputeLives},
    {"client_page_taken", Binary::kClient, Scene::kComputeLives},
    {"client_greeted", Binary::kClient, Scene::kComputeLives},
    {"client_request_sent", Binary::kClient, Scene::kComputeLives},
    {"client_attach_answered", Binary::kClient, Scene::kComputeLives},
    {"client_pull_asked", Binary::kClient, Scene::kComputeLives},
    {"client_fds_received", Binary::kClient, Scene::kComputeLives, kSanitizedToo},
    {"shim_offer_taken", Binary::kShim, Scene::kComputeLives},
    {"shim_object_imported", Binary::kShim, Scene::kComputeLives},
    {"shim_range_created", Binary::kShim, Scene::kComputeLives},
    {"shim_buffer_mapped", Binary::kShim, Scene::kComputeLives, kSanitizedToo},
    {"shim_call_rewritten", Binary::kShim, Scene::kComputeLives},
    {"shim_channel_scheduled", Binary::kShim, Scene::kComputeLives},
    {"shim_attach_done", Binary::kShim, Scene::kComputeLives},
    {"shim_object_freed", Binary::kShim, Scene::kComputeLives},
    {"shim_detached", Binary::kShim, Scene::kComputeLives, kSanitizedToo},
    {"shim_detach_told", Binary::kShim, Scene::kComputeLives},
    {"shim_host_found", Binary::kShim, Scene::kRendererRegisters},
    {"client_registered", Binary::kClient, Scene::kRendererRegisters},
    {"client_export_asked", Binary::kClient, Scene::kRendererRegisters},
    {"shim_tsg_exported", Binary::kShim, Scene::kRendererRegisters},
    {"shim_buffer_exported", Binary::kShim, Scene::kRendererRegisters, kSanitizedToo},
    {"client_exported", Binary::kClient, Scene::kRendererRegisters},
    {"client_push_connected", Binary::kClient, Scene::kRendererRegisters},
    {"client_push_part_sent", Binary::kClient, Scene::kRendererRegisters, kSanitizedToo},
    {"client_pushed", Binary::kClient, Scene::kRendererRegisters},
    {"client_export_asked", Binary::kClient, Scene::kOwnerIsAsked},
    {"client_exported", Binary::kClient, Scene::kOwnerIsAsked, kSanitizedToo},
    {"client_told_to_detach", Binary::kClient, Scene::kOwnerGoes, kSanitizedToo},
    {"shim_mirror_exported", Binary::kShim, Scene::kOwnerMaps},
    {"client_mirror_made", Binary::kClient, Scene::kOwnerMaps, kSanitizedToo},
    {"client_mirror_sent", Binary::kClient, Scene::kOwnerMaps},
    {"client_mirror_received", Binary::kClient, Scene::kSharerFollows},
    {"client_mirrored", Binary::kClient, Scene::kSharerFollows, kSanitizedToo},
    {"client_link_lost", Binary::kClient, Scene::kClientReconnects},
    {"client_page_replaced", Binary::kClient, Scene::kClientReconnects},
    {"client_resume_queued", Binary::kClient, Scene::kClientReconnects, kSanitizedToo},
    {"daemon_lock_taken", Binary::kDaemon, Scene::kDaemonStarts},
    {"daemon_socket_bound", Binary::kDaemon, Scene::kDaemonStarts},
    {"daemon_socket_listening", Binary::kDaemon, Scene::kDaemonStarts},
    {"daemon_state_read", Binary::kDaemon, Scene::kDaemonStarts, kSanitizedToo},
    {"daemon_serving_before_ready", Binary::kDaemon, Scene::kDaemonStarts},
    {"daemon_ready_said", Binary::kDaemon, Scene::kDaemonStarts},
    {"daemon_session_stored", Binary::kDaemon, Scene::kDaemonResumes},
    {"daemon_name_stored", Binary::kDaemon, Scene::kDaemonResumes},
    {"daemon_claim_settled", Binary::kDaemon, Scene::kDaemonResumes, kSanitizedToo},
    {"daemon_connection_accepted", Binary::kDaemon, Scene::kDaemonAttaches},
    {"daemon_page_made", Binary::kDaemon, Scene::kDaemonAttaches},
    {"daemon_session_stored", Binary::kDaemon, Scene::kDaemonAttaches},
    {"daemon_fds_sent", Binary::kDaemon, Scene::kDaemonAttaches},
    {"daemon_attach_queued", Binary::kDaemon, Scene::kDaemonAttaches},
    {"daemon_push_token_issued", Binary::kDaemon, Scene::kDaemonAttaches},
    {"daemon_pull_token_issued", Binary::kDaemon, Scene::kDaemonAttaches},
    {"daemon_attach_answered", Binary::kDaemon, Scene::kDaemonAttaches},
    {"daemon_pull_token_redeemed", Binary::kDaemon, Scene::kDaemonAttaches},
    {"daemon_grant_reported", Binary::kDaemon, Scene::kDaemonAttaches},
    {"daemon_grant_counted", Binary::kDaemon, Scene::kDaemonAttaches, kSanitizedToo},
    {"daemon_share_left", Binary::kDaemon, Scene::kDaemonDetaches},
    {"daemon_session_ending", Binary::kDaemon, Scene::kDaemonDetaches, kSanitizedToo},
    {"daemon_name_stored", Binary::kDaemon, Scene::kDaemonRegisters},
    {"daemon_name_answered", Binary::kDaemon, Scene::kDaemonRegisters},
    {"daemon_push_token_redeemed", Binary::kDaemon, Scene::kDaemonRegisters},
    {"daemon_fds_received", Binary::kDaemon, Scene::kDaemonRegisters},
    {"daemon_handles_stored", Binary::kDaemon, Scene::kDaemonRegisters, kSanitizedToo},
    {"daemon_name_removed", Binary::kDaemon, Scene::kDaemonUnregisters},
    {"daemon_fd_reaped", Binary::kDaemon, Scene::kDaemonUnregisters, kSanitizedToo},
    {"daemon_mirror_stored", Binary::kDaemon, Scene::kDaemonMirrors, kSanitizedToo},
    {"daemon_mirror_forwarded", Binary::kDaemon, Scene::kDaemonMirrors},
    {"daemon_split_chosen", Binary::kDaemon, Scene::kDaemonSplits, kSanitizedToo},
    {"daemon_split_published", Binary::kDaemon, Scene::kDaemonSplits},
    {"daemon_targets_changed", Binary::kDaemon, Scene::kDaemonKeeps},
    {"daemon_file_opened", Binary::kDaemon, Scene::kDaemonKeeps},
    {"daemon_file_written", Binary::kDaemon, Scene::kDaemonKeeps, kSanitizedToo},
    {"daemon_file_renamed", Binary::kDaemon, Scene::kDaemonKeeps},
    {"daemon_file_opened", Binary::kDaemon, Scene::kDaemonMeasures, kSanitizedToo},
    {"daemon_file_written", Binary::kDaemon, Scene::kDaemonMeasures},
    {"daemon_file_renamed", Binary::kDaemon, Scene::kDaemonMeasures},
    {"daemon_reload_half", Binary::kDaemon, Scene::kDaemonReloads, kSanitizedToo},
    {"daemon_stopping", Binary::kDaemon, Scene::kDaemonStops},
    {"daemon_socket_removed", Binary::kDaemon, Scene::kDaemonStops, kSanitizedToo},
};

std::vector<const char*> points_of_scene(Scene scene) {
    std::vector<const char*> points;
    for (const Case& one : kMatrix) {
        if (one.scene == scene && (!kSanitized || one.when == kSanitizedToo)) points.push_back(one.point);
    }
    return points;
}

// Of a list of points, those for this build: with sanitizers the first that is marked.
std::vector<const char*> chosen(const std::vector<const char*>& points) {
    if (!kSanitized) return points;
    for (const char* point : points) {
        for (const Case& one : kMatrix) {
            if (one.when == kSanitizedToo && std::string_view(one.point) == point) return {point};
        }
    }
    return points;
}

Binary binary_of(std::string_view point) {
    return std::find_if(std::begin(kMatrix), std::end(kMatrix), [&](const Case& one) { return one.point == point; })
        ->binary;
}

// The process got to the point and no further.
void expect_killed(const char* point, Process& process) {
    EXPECT_EQ(process.wait(), 128 + SIGKILL) << point << " was not reached\n" << process.out() << process.err();
    ++tally().kills;
}

std::unique_ptr<World> make_world() {
    auto world = std::make_unique<World>();
    return world->ready() ? std::move(world) : nullptr;
}

// One world for all the points of a client: what one death leaves, the next check sees.
void each_client_point(Scene scene, const std::function<void(World&, const char*)>& act) {
    const auto world = make_world();
    ASSERT_TRUE(world);
    for (const char* point : points_of_scene(scene)) {
        SCOPED_TRACE(point);
        act(*world, point);
        if (testing::Test::HasFatalFailure()) return;
    }
    world->expect_undisturbed();
}

// A world for each: after many deaths of vudad in a row programs wait seconds before they try again, as they should.
void each_daemon_point(Scene scene, const std::function<void(World&, const char*)>& act) {
    for (const char* point : points_of_scene(scene)) {
        SCOPED_TRACE(point);
        const auto world = make_world();
        ASSERT_TRUE(world);
        act(*world, point);
        if (testing::Test::HasFatalFailure()) return;
        world->expect_recovered(point, Clock::time_point());
        world->expect_undisturbed();
    }
}

bool wait_exported(World& world, const std::string& name) {
    return world.vuda().wait_status([&](const Json& now) {
        return std::any_of(now["tsgs"].begin(), now["tsgs"].end(),
                           [&](const Json& tsg) { return tsg["name"] == name && tsg["exported"] == true; });
    });
}

TEST(KillMatrix, EveryPointIsInIt) {
    std::set<std::string> in_matrix, in_binaries;
    for (const Case& one : kMatrix) in_matrix.insert(one.point);
    for (const Binary binary : {Binary::kDaemon, Binary::kClient, Binary::kShim}) {
        const Result<std::vector<Point>> points = points_of(path_of(binary));
        ASSERT_TRUE(points) << points.error().to_string();
        const Status harmless = only_nops(path_of(binary));
        EXPECT_TRUE(harmless.ok()) << harmless.error().to_string();
        for (const Point& point : *points) {
            in_binaries.insert(point.name);
            EXPECT_EQ(binary_of(point.name), binary) << point.name;
        }
    }
    EXPECT_EQ(in_matrix, in_binaries);
    EXPECT_GE(in_matrix.size(), 20u);
}

TEST(KillMatrix, ComputeDies) {
    each_client_point(Scene::kComputeLives, [](World& world, const char* point) {
        Process victim(world.victim("VUDA_ATTACH", "game", short_compute(), binary_of(point), point));
        expect_killed(point, victim);
        world.expect_recovered(point, Clock::now());
    });
}

TEST(KillMatrix, RendererDies) {
    each_client_point(Scene::kRendererRegisters, [](World& world, const char* point) {
        Process victim(world.victim("VUDA_REGISTER", "second", held_renderer(), binary_of(point), point));
        expect_killed(point, victim);
        const auto died = Clock::now();
        // The name is free for the next.
        const auto heir = world.start_held(world.program("VUDA_REGISTER", "second", held_renderer()));
        EXPECT_TRUE(world.vuda().wait_registered("second")) << heir->err();
        world.expect_ends_well(*heir);
        world.expect_recovered(point, died);
    });
}

TEST(KillMatrix, OwnerDiesWhileSomebodyAttaches) {
    each_client_point(Scene::kOwnerIsAsked, [](World& world, const char* point) {
        const auto owner = world.start_held(world.program("VUDA_REGISTER", "second", held_renderer()));
        ASSERT_TRUE(wait_exported(world, "second")) << owner->err();
        const Status armed = patch_process(owner->pid(), path_of(binary_of(point)), point, Deed::kKill);
        ASSERT_TRUE(armed.ok()) << armed.error().to_string();
        Process attacher(world.program("VUDA_ATTACH", "second", short_compute()));
        expect_killed(point, *owner);
        const auto died = Clock::now();
        // It runs alone, as without VUDA, and says why.
        EXPECT_EQ(attacher.wait(), 0) << attacher.err();
        EXPECT_EQ(Json::parse(attacher.out(), nullptr, false)["verified"], true) << attacher.out();
        EXPECT_NE(attacher.err().find("not sharing: "), std::string::npos) << attacher.err();
        world.expect_recovered(point, died);
    });
}

TEST(KillMatrix, SharerDiesOfTheNewsThatItsOwnerIsGone) {
    each_client_point(Scene::kOwnerGoes, [](World& world, const char* point) {
        const auto owner = world.start_held(world.program("VUDA_REGISTER", "second", held_renderer()));
        EXPECT_TRUE(world.vuda().wait_registered("second")) << owner->err();
        const auto sharer =
            world.start_held(world.victim("VUDA_ATTACH", "second", held_compute(), binary_of(point), point));
        EXPECT_TRUE(world.vuda().wait_state("sharing", 2)) << sharer->err();
        world.expect_ends_well(*owner);
        expect_killed(point, *sharer);
        world.expect_recovered(point, Clock::now());
    });
}

TEST(KillMatrix, OwnerDiesWhileItsBuffersAreFollowed) {
    each_client_point(Scene::kOwnerMaps, [](World& world, const char* point) {
        const auto owner =
            world.start_held(world.victim("VUDA_REGISTER", "second", mapping_renderer(), binary_of(point), point));
        ASSERT_TRUE(wait_exported(world, "second")) << owner->err();
        Process attacher(world.program("VUDA_ATTACH", "second", short_compute()));
        expect_killed(point, *owner);
        const auto died = Clock::now();
        // In the TSG or not, it works on.
        EXPECT_EQ(attacher.wait(), 0) << attacher.err();
        EXPECT_EQ(Json::parse(attacher.out(), nullptr, false)["verified"], true) << attacher.out();
        world.expect_recovered(point, died);
    });
}

TEST(KillMatrix, SharerDiesWhileItFollows) {
    each_client_point(Scene::kSharerFollows, [](World& world, const char* point) {
        const auto owner = world.start_held(world.program("VUDA_REGISTER", "second", mapping_renderer()));
        ASSERT_TRUE(wait_exported(world, "second")) << owner->err();
        Process sharer(world.victim("VUDA_ATTACH", "second", held_compute(), binary_of(point), point));
        expect_killed(point, sharer);
        // Its renderer does not wait for the dead.
        const e2e::Finished next = e2e::run(world.program("VUDA_ATTACH", "second", short_compute()));
        EXPECT_EQ(next.status, 0) << next.err;
        world.expect_ends_well(*owner);
        world.expect_recovered(point, Clock::time_point());
    });
}

TEST(KillMatrix, ClientDiesWhileItComesBackToTheNextDaemon) {
    each_daemon_point(Scene::kClientReconnects, [](World& world, const char* point) {
        const auto victim =
            world.start_held(world.victim("VUDA_ATTACH", "game", held_compute(), binary_of(point), point));
        EXPECT_TRUE(world.vuda().wait_state("sharing", 2)) << victim->err();
        world.vuda().daemon().signal(SIGKILL);
        world.daemon_died(point);
        expect_killed(point, *victim);
    });
}

TEST(KillMatrix, DaemonDiesWhileItStarts) {
    each_daemon_point(Scene::kDaemonStarts, [](World& world, const char* point) {
        if (std::string_view(point) == "daemon_state_read") {
            // Only a state that there is can be read.
            world.keep_targets("16");
        }
        world.start_daemon_that_dies(point);
        world.daemon_died(point);
    });
}

TEST(KillMatrix, DaemonDiesWhileProgramsComeBack) {
    each_daemon_point(Scene::kDaemonResumes, [](World& world, const char* point) {
        world.start_daemon_that_dies(point);
        world.daemon_died(point);
    });
}

TEST(KillMatrix, DaemonDiesWhileSomebodyAttaches) {
    each_daemon_point(Scene::kDaemonAttaches, [](World& world, const char* point) {
        world.arm_daemon(point);
        const auto attacher = world.start_held(world.program("VUDA_ATTACH", "game", held_compute()));
        world.daemon_died(point);
        world.expect_agreement(point, *attacher);
        world.expect_ends_well(*attacher);
    });
}

TEST(KillMatrix, DaemonDiesWhileASharerLeaves) {
    each_daemon_point(Scene::kDaemonDetaches, [](World& world, const char* point) {
        // A program that ends at once may not have sent its notice: held behind it, it has.
        const bool by_notice = std::string_view(point) == "daemon_share_left";
        const auto sharer = world.start_held(by_notice ? world.victim("VUDA_ATTACH", "game", held_compute(),
                                                                      Binary::kShim, "shim_detach_told", Deed::kHold)
                                                       : world.program("VUDA_ATTACH", "game", held_compute()));
        EXPECT_TRUE(world.vuda().wait_state("sharing", 2)) << sharer->err();
        world.arm_daemon(point);
        sharer->signal(SIGTERM);
        world.daemon_died(point);
        if (by_notice) world.let_go(*sharer, Binary::kShim, "shim_detach_told");
        world.expect_ends_well(*sharer);
    });
}

TEST(KillMatrix, DaemonDiesWhileARendererRegisters) {
    each_daemon_point(Scene::kDaemonRegisters, [](World& world, const char* point) {
        world.arm_daemon(point);
        const auto second = world.start_held(world.program("VUDA_REGISTER", "second", held_renderer()));
        world.daemon_died(point);
        // It asked, so it has the name, from whichever daemon.
        EXPECT_TRUE(world.vuda().wait_registered("second")) << second->err();
        world.expect_ends_well(*second);
    });
}

TEST(KillMatrix, DaemonDiesWhileARendererLeaves) {
    each_daemon_point(Scene::kDaemonUnregisters, [](World& world, const char* point) {
        const auto second = world.start_held(world.program("VUDA_REGISTER", "second", held_renderer()));
        EXPECT_TRUE(wait_exported(world, "second")) << second->err();
        world.arm_daemon(point);
        world.expect_ends_well(*second);
        world.daemon_died(point);
    });
}

TEST(KillMatrix, DaemonDiesWhileBuffersAreFollowed) {
    each_daemon_point(Scene::kDaemonMirrors, [](World& world, const char* point) {
        const auto second = world.start_held(world.program("VUDA_REGISTER", "second", mapping_renderer()));
        ASSERT_TRUE(wait_exported(world, "second")) << second->err();
        // It has no more work for the GPU: what is mapped while there is no daemon does not follow.
        const auto sharer = world.start_held(world.program("VUDA_ATTACH", "second", held_compute()));
        world.arm_daemon(point);
        world.daemon_died(point);
        EXPECT_TRUE(world.vuda().wait_registered("second")) << second->err();
        world.expect_ends_well(*sharer);
        world.expect_ends_well(*second);
    });
}

TEST(KillMatrix, DaemonDiesWhileASplitChanges) {
    each_daemon_point(Scene::kDaemonSplits, [](World& world, const char* point) {
        world.arm_daemon(point);
        EXPECT_NE(e2e::run(world.vuda().vudactl({"quota", "game", "8"})).status, 0);
        world.daemon_died(point);
        // The next daemon takes the same order.
        EXPECT_TRUE(world.vuda().wait_registered("game"));
        EXPECT_EQ(e2e::run(world.vuda().vudactl({"quota", "game", "none"})).status, 0);
    });
}

TEST(KillMatrix, DaemonDiesWhileItKeepsTargets) {
    each_daemon_point(Scene::kDaemonKeeps, [](World& world, const char* point) {
        world.keep_targets("16");
        const std::string before = text_of(world.state_file());
        world.arm_daemon(point);
        // It may have been answered before vudad died.
        e2e::run(world.vuda().vudactl({"slo", "game", "--frame-ms", "33"}));
        world.daemon_died(point);
        // The old ones or the new ones, never a part of them.
        const std::string now = text_of(world.state_file());
        EXPECT_EQ(now == before, std::string_view(point) != "daemon_file_renamed") << now;
        EXPECT_NE(now.find(now == before ? "frames 16" : "frames 33"), std::string::npos) << now;
        EXPECT_EQ(world.vuda().daemon().err().find("left out"), std::string::npos) << world.vuda().daemon().err();
    });
}

void want_metrics(World& world) {
    std::ofstream(world.vuda().folder() + "/vudad.toml")
        << "[limits]\nprograms_per_tsg = 64\nsame_addresses = true\n[metrics]\ntextfile = \"" << world.metrics_file()
        << "\"\n";
}

TEST(KillMatrix, DaemonDiesWhileItWritesMetrics) {
    each_daemon_point(Scene::kDaemonMeasures, [](World& world, const char* point) {
        world.arm_daemon(point);
        want_metrics(world);
        world.vuda().daemon().signal(SIGHUP);
        world.daemon_died(point);
        EXPECT_TRUE(eventually([&] { return text_of(world.metrics_file()).find("vuda_tsgs") != std::string::npos; }));
    });
}

TEST(KillMatrix, DaemonDiesWhileItReloads) {
    each_daemon_point(Scene::kDaemonReloads, [](World& world, const char* point) {
        world.arm_daemon(point);
        world.vuda().daemon().signal(SIGHUP);
        world.daemon_died(point);
    });
}

TEST(KillMatrix, DaemonDiesWhileItStops) {
    each_daemon_point(Scene::kDaemonStops, [](World& world, const char* point) {
        world.arm_daemon(point);
        world.vuda().daemon().signal(SIGTERM);
        world.daemon_died(point);
    });
}

// Windows that no kill hits by itself: vudad dies while a program has its token, the descriptors or the TSG in hand,
// and the next vudad is greeted before the program goes on.

// Whatever comes of the attach, both sides think the same of it, and what is in the TSG counts.
void daemon_dies_while_an_attach_is_held_at(const char* point) {
    SCOPED_TRACE(point);
    const auto world = make_world();
    ASSERT_TRUE(world);
    const Binary binary = binary_of(point);
    const auto attacher =
        world->start(world->victim("VUDA_ATTACH", "game", held_compute(), binary, point, Deed::kHold));
    ASSERT_TRUE(eventually([&] { return held(attacher->pid()); })) << attacher->err();
    world->vuda().daemon().signal(SIGKILL);
    world->daemon_died(point);
    ASSERT_TRUE(eventually([&] { return world->vuda().session_of(attacher->pid()).is_object(); }));
    ASSERT_TRUE(world->vuda().wait_registered("game"));
    world->let_go(*attacher, binary, point);
    ASSERT_TRUE(attacher->wait_err("sharing: ")) << attacher->err();  // or "not sharing: "
    world->wait_worked(*attacher);
    world->expect_agreement(point, *attacher);
    world->expect_ends_well(*attacher);
    world->expect_recovered(point, Clock::time_point());
    world->expect_undisturbed();
}

TEST(KillMatrix, AttachHeldBeforeItHasDescriptors) {
    for (const char* point :
         chosen({"client_attach_answered", "client_pull_asked", "client_fds_received", "shim_offer_taken"}))
        daemon_dies_while_an_attach_is_held_at(point);
}

TEST(KillMatrix, AttachHeldWhileItMovesIn) {
    for (const char* point : chosen({"shim_object_imported", "shim_range_created", "shim_buffer_mapped",
                                     "shim_call_rewritten", "shim_channel_scheduled", "shim_attach_done"}))
        daemon_dies_while_an_attach_is_held_at(point);
}

// The thread that exports is the one that keeps the session: it comes back when it can, with a complete set.
TEST(KillMatrix, ExportHeldWhileTheDaemonDies) {
    for (const char* point : chosen({"client_export_asked", "shim_buffer_exported", "client_push_connected",
                                     "client_push_part_sent", "client_pushed"})) {
        SCOPED_TRACE(point);
        const auto world = make_world();
        ASSERT_TRUE(world);
        const Binary binary = binary_of(point);
        const auto owner =
            world->start(world->victim("VUDA_REGISTER", "second", held_renderer(), binary, point, Deed::kHold));
        ASSERT_TRUE(eventually([&] { return held(owner->pid()); })) << owner->err();
        world->vuda().daemon().signal(SIGKILL);
        world->daemon_died(point);
        world->let_go(*owner, binary, point);
        EXPECT_TRUE(wait_exported(*world, "second")) << owner->err();
        const e2e::Finished next = e2e::run(world->program("VUDA_ATTACH", "second", short_compute()));
        EXPECT_NE(next.err.find("vuda: sharing: "), std::string::npos) << next.err;
        world->wait_worked(*owner);
        world->expect_ends_well(*owner);
        world->expect_recovered(point, Clock::time_point());
        world->expect_undisturbed();
    }
}

// Figures of the whole run, for docs/robustness.md.
class Report : public testing::Environment {
    void TearDown() override {
        const Tally& all = tally();
        if (all.kills == 0) return;
        std::set<std::string> points;
        for (const Case& one : kMatrix) points.insert(one.point);
        const auto count = [](const char* name, size_t value, const char* unit, std::optional<double> limit) {
            add_row(name, static_cast<double>(value), unit, limit);
        };
        count("fault-points", points.size(), "points", std::nullopt);
        count("fault-kills", all.kills, "processes", std::nullopt);
        count("fault-lost-grants", all.lost_grants, "grants", 0);
        count("fault-stale-names", all.stale_names, "names", 0);
        count("fault-stale-descriptors", all.stale_descriptors, "cases", 0);
        count("fault-stale-files", all.stale_files, "cases", 0);
        count("fault-disturbed", all.disturbed, "programs", 0);
        add_row("fault-recovery-max", all.slowest_ms, "ms", 2000);
        std::fprintf(stderr, "slowest to recover: %s, %.0f ms\n", all.slowest.c_str(), all.slowest_ms);
    }
};
[[maybe_unused]] testing::Environment* const report = testing::AddGlobalTestEnvironment(new Report);

}  // namespace
}  // namespace vuda::faults
