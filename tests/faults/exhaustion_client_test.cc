// Programs under the shim when descriptors, threads or memory have run out: what they do and print is as without VUDA,
// with one line that says why they do not share, or share without a split. By orders to libvuda_faulty_os.so that are
// for calls of our libraries only.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "tests/faults/orders.h"
#include "tests/faults/world.h"

namespace vuda::faults {
namespace {

using e2e::Json;

class ClientRunsOut : public testing::Test {
 protected:
    ClientRunsOut() : os(world.vuda().folder() + "/ready") {}
    void SetUp() override { ASSERT_TRUE(world.ready()); }
    void TearDown() override {
        os.heal();
        world.expect_recovered("afterwards", e2e::Clock::now());
        world.expect_undisturbed();
    }

    // In front of the simulated driver, behind the shim.
    e2e::Command with_orders(e2e::Command command) const {
        const std::string& preload = command.env["LD_PRELOAD"];
        const size_t colon = preload.find(':');
        command.env["LD_PRELOAD"] = preload.substr(0, colon) + ":" + FaultyOs::library() + preload.substr(colon);
        command.env[kOrdersVariable] = os.env()[kOrdersVariable];
        command.env["VUDA_LOG"] = "error";
        return command;
    }

    struct Trouble {
        Call call;
        int error;
        const char* object;  // whose calls
        const char* line;    // what stderr has; empty: nothing
    };
    void expect_as_native(const char* wish, const char* name, const std::vector<std::string>& argv,
                          const Trouble& trouble) {
        SCOPED_TRACE(std::string(wish) + ", call " + std::to_string(static_cast<int>(trouble.call)) + ", errno " +
                     std::to_string(trouble.error));
        os.only_from(trouble.object);
        os.fail(trouble.call, trouble.error);
        const e2e::Finished finished = e2e::run(with_orders(world.program(wish, name, argv)));
        EXPECT_GE(os.done(trouble.call), 1u);
        os.heal();
        const e2e::Finished native = e2e::run(world.vuda().native(argv));
        EXPECT_EQ(finished.status, native.status) << finished.err;
        const Json one = Json::parse(finished.out, nullptr, false), other = Json::parse(native.out, nullptr, false);
        ASSERT_TRUE(one.is_object()) << finished.out;
        EXPECT_EQ(one["verified"], true) << finished.out;
        EXPECT_EQ(one["checksum"], other["checksum"]);
        EXPECT_EQ(e2e::lines(finished.err).size(), *trouble.line == '\0' ? 0u : 1u) << finished.err;
        EXPECT_NE(finished.err.find(trouble.line), std::string::npos) << finished.err;
    }

    World world;
    FaultyOs os;
};

const std::vector<std::string>& short_renderer() {
    static const std::vector<std::string> argv = {e2e::built("vuda-sim-renderer"), "--frames", "5", "--frame-ms", "1"};
    return argv;
}

TEST_F(ClientRunsOut, OfDescriptorsForItsSession) {
    const Trouble troubles[] = {
        {Call::kSocket, EMFILE, "libvuda.so", "socket: Too many open files; raise the limit of open files"},
        {Call::kPipe, EMFILE, "libvuda.so", "pipe: Too many open files; raise the limit of open files"},
    };
    for (const Trouble& trouble : troubles) {
        expect_as_native("VUDA_ATTACH", "game", short_compute(), trouble);
        expect_as_native("VUDA_REGISTER", "second", short_renderer(), trouble);
    }
}

TEST_F(ClientRunsOut, OfThreads) {
    const Trouble trouble{Call::kThread, EAGAIN, "libvuda.so", "cannot start VUDA's thread"};
    expect_as_native("VUDA_ATTACH", "game", short_compute(), trouble);
    expect_as_native("VUDA_REGISTER", "second", short_renderer(), trouble);
}

// It shares all the same.
TEST_F(ClientRunsOut, OfWhatTheSessionPageNeeds) {
    expect_as_native(
        "VUDA_ATTACH", "game", short_compute(),
        {Call::kMapShared, ENOMEM, "libvuda.so", "session page: Cannot allocate memory; free some memory"});
    // Lost on receipt is the page first, and then what it attaches to.
    os.only_from("libvuda.so");
    os.fail(Call::kReceiveFds, EMFILE, 1);
    e2e::Command command = with_orders(world.program("VUDA_ATTACH", "game", short_compute()));
    command.env["VUDA_LOG"] = "info";
    const e2e::Finished finished = e2e::run(command);
    EXPECT_EQ(os.done(Call::kReceiveFds), 1u);
    EXPECT_EQ(finished.status, 0) << finished.err;
    EXPECT_NE(finished.err.find("no session page, and so no split: Too many open files"), std::string::npos)
        << finished.err;
    EXPECT_NE(finished.err.find("vuda: sharing: "), std::string::npos) << finished.err;
}

// The next vudad's page takes the place of the one before, which each launch reads.
TEST_F(ClientRunsOut, OfMemoryWhenThePageIsReplaced) {
    // Seldom enough not to launch in the very microseconds in which there is no page.
    constexpr std::chrono::milliseconds kGap(1000);
    const auto sharer = world.start_held(with_orders(world.program(
        "VUDA_ATTACH", "game",
        {e2e::built("vuda-sim-compute"), "--seconds", "600", "--kernel-ms", "0.1", "--gap-ms", "1000", "--hold"})));
    ASSERT_TRUE(world.vuda().wait_state("sharing", 2)) << sharer->err();
    os.only_from("libvuda.so");
    // One look at it, then its two halves.
    for (int spare = 0; spare < 3; ++spare) {
        SCOPED_TRACE(spare);
        os.fail(Call::kMapShared, ENOMEM, 1, spare);
        world.vuda().daemon().signal(SIGKILL);
        world.daemon_died("page");
        EXPECT_TRUE(e2e::eventually([&] { return os.done(Call::kMapShared) == 1; }));
        EXPECT_TRUE(world.vuda().wait_state("sharing", 2)) << sharer->err();
        // The launches that follow.
        EXPECT_FALSE(sharer->wait_out("\n", kGap + kGap / 2));
        EXPECT_TRUE(sharer->running());
    }
    os.heal();
    world.expect_ends_well(*sharer);
    EXPECT_LE(e2e::lines(sharer->err()).size(), 1u) << sharer->err();
}

TEST_F(ClientRunsOut, OfDescriptorsForWhatItAttachesTo) {
    // The page comes first, so that there are two lines.
    os.only_from("libvuda.so");
    os.fail(Call::kReceiveFds, EMFILE);
    const e2e::Finished finished = e2e::run(with_orders(world.program("VUDA_ATTACH", "game", short_compute())));
    EXPECT_GE(os.done(Call::kReceiveFds), 2u);
    EXPECT_EQ(finished.status, 0) << finished.err;
    EXPECT_EQ(Json::parse(finished.out, nullptr, false)["verified"], true) << finished.out;
    EXPECT_EQ(e2e::lines(finished.err).size(), 2u) << finished.err;
    EXPECT_NE(finished.err.find("not sharing: file descriptors were lost on receipt"), std::string::npos)
        << finished.err;
}

// Nobody can attach to a renderer that has no descriptor left to export with.
TEST_F(ClientRunsOut, OfDescriptorsToExport) {
    e2e::Command command = with_orders(world.program("VUDA_REGISTER", "second", held_renderer()));
    const auto renderer = world.start_held(command);
    ASSERT_TRUE(world.vuda().wait_registered("second"));
    // The shim's own opens of the control device, by the thread of the session.
    os.only_from("libvuda_preload.so");
    os.only_path("nvidiactl");
    os.fail(Call::kOpen, EMFILE);
    e2e::Command attach = world.program("VUDA_ATTACH", "second", short_compute());
    const e2e::Finished attacher = e2e::run(attach);
    os.heal();
    EXPECT_EQ(attacher.status, 0) << attacher.err;
    EXPECT_EQ(Json::parse(attacher.out, nullptr, false)["verified"], true) << attacher.out;
    if (os.done(Call::kOpen) > 0) {
        EXPECT_NE(attacher.err.find("not sharing: "), std::string::npos) << attacher.err;
    }
    // Once there is room, the same renderer shares.
    const e2e::Finished next = e2e::run(world.program("VUDA_ATTACH", "second", short_compute()));
    EXPECT_NE(next.err.find("vuda: sharing: "), std::string::npos) << next.err;
    world.expect_ends_well(*renderer);
}

// A real limit: from just enough for the program to enough for what it attaches to.
TEST_F(ClientRunsOut, OfDescriptorsForReal) {
    const std::vector<std::string>& program = short_compute();
    e2e::Command command = world.program("VUDA_ATTACH", "game", {});
    command.env["VUDA_LOG"] = "error";
    const auto limited = [&](const e2e::Command& base, int limit) {
        e2e::Command one = base;
        std::string line = "ulimit -n " + std::to_string(limit) + "; exec";
        for (const std::string& word : program) line += " " + word;
        one.argv = {"/bin/sh", "-c", line};
        return e2e::run(one);
    };
    const e2e::Command native = world.vuda().native({});
    int enough = 6;
    while (enough < 128 && limited(native, enough).status != 0) ++enough;
    ASSERT_LT(enough, 128);
    // VUDA's own descriptors count against the same limit: with as many more as they are, the program runs as ever.
    constexpr int kOwn = 8;
    size_t shared = 0;
    for (int more = kOwn; more < kOwn + 120; more += 16) {
        const e2e::Finished finished = limited(command, enough + more);
        EXPECT_EQ(finished.status, 0) << enough + more << ": " << finished.out << finished.err;
        EXPECT_LE(e2e::lines(finished.err).size(), 2u) << finished.err;
        if (finished.err.empty()) ++shared;
    }
    EXPECT_GE(shared, 1u);
}

}  // namespace
}  // namespace vuda::faults
