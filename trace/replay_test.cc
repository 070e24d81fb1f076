// The production redirector, fed with what an unmodified program does on an H200, against what the same program's calls
// were when its CUDA channels ran in the renderer's TSG on that machine.
#include "trace/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "rm/ioctl_view.h"
#include "trace/describe.h"
#include "trace/diff.h"
#include "trace/format.h"

namespace vuda::trace {
namespace {

Trace recorded(const char* name) {
    std::ifstream in(std::string(VUDA_TEST_DATA) + "/traces/" + name, std::ios::binary);
    auto trace = parse(std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()});
    EXPECT_TRUE(trace.ok()) << name << ": " << trace.error().text;
    return *std::move(trace);
}
Trace native() { return recorded("h200-580.159.04-vulkan-then-cuda.vtrace"); }
Trace redirected() { return recorded("h200-580.159.04-redirected.vtrace"); }

ReplayOptions in_process() {
    ReplayOptions options;
    options.wishes.share_renderer = true;
    options.wishes.share_in_process = true;
    return options;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::string replaced(std::string text, std::string_view from, std::string_view to) {
    const size_t at = text.find(from);
    return at == text.npos ? text : text.replace(at, from.size(), to);
}

template <typename T>
std::vector<std::pair<T, const Record*>> calls(const Trace& trace, unsigned escape_number) {
    std::vector<std::pair<T, const Record*>> out;
    for (const Record& r : trace.records) {
        if (r.kind != Kind::kIoctl || r.is_uvm() || rm::ioctl_number(r.request) != escape_number) continue;
        const rm::IoctlView view = rm::decode(rm::Surface::kRm, r.request, r.arg.before, rm::abi_580());
        if (const T* v = std::get_if<T>(&view)) out.push_back({*v, &r});
    }
    return out;
}

TEST(Replay, MatchesTheRunOnHardwareExceptForWhatIsIntended) {
    const Replay result = replay(native(), in_process());
    const auto lines = diff(result.kernel, redirected());
    ASSERT_TRUE(lines.ok()) << lines.error().text;

    // Each intended difference is listed here, with its number; a line that fits none fails the test.
    size_t mirrors = 0;
    size_t channel_schedules = 0;
    size_t tsg_schedules = 0;
    size_t timeslices = 0;
    size_t polls = 0;
    std::multiset<std::string> channels_ours;
    std::multiset<std::string> channels_theirs;
    for (const DiffLine& line : *lines) {
        const bool ours = line.side == DiffLine::Side::kOnlyA;
        if (ours && (line.text.starts_with("UVM_CREATE_EXTERNAL_RANGE") ||
                     line.text.starts_with("UVM_MAP_EXTERNAL_ALLOCATION"))) {
            // The renderer's control buffers at their own addresses: that run's kernel needed none (the product maps
            // them always).
            ++mirrors;
        } else if (contains(line.text, "RM_ALLOC HOPPER_CHANNEL_GPFIFO_A")) {
            (ours ? channels_ours : channels_theirs).insert(line.text);
        } else if (ours && contains(line.text, "CHANNEL_GPFIFO_SCHEDULE on HOPPER_CHANNEL_GPFIFO_A")) {
            // Channel by channel: a TSG-level schedule also looks at channels which another program has not registered
            // yet.
            ++channel_schedules;
        } else if (!ours && contains(line.text, "TSG_GPFIFO_SCHEDULE on dup(")) {
            ++tsg_schedules;
        } else if (!ours && contains(line.text, "TSG_SET_TIMESLICE on KEPLER_CHANNEL_GROUP_A")) {
            // Answered: CUDA's own TSG is empty, and the renderer's time slice is not CUDA's to set.
            ++timeslices;
        } else if (contains(line.text, "0x2080a0d1")) {
            // The renderer's driver asks for this from time to time, in no fixed place.
            ++polls;
        } else {
            ADD_FAILURE() << (ours ? "only in the replay: " : "only on hardware: ") << line.text;
        }
    }
    EXPECT_EQ(mirrors, 84u * 2);
    EXPECT_EQ(channel_schedules, 8u);
    EXPECT_EQ(tsg_schedules, 1u);
    EXPECT_EQ(timeslices, 1u);
    EXPECT_LE(polls, 4u);

    // The eight channels differ in DELAY_CHANNEL_SCHEDULING (0x40) alone: parent, runqueue, context share, notifier and
    // all else are the same. CUDA names a notifier for each channel, so that the redirector need not fill hObjectError
    // here.
    EXPECT_EQ(channels_ours.size(), 8u);
    std::multiset<std::string> expected;
    for (const std::string& text : channels_theirs)
        expected.insert(replaced(text, "flags=0x10->0x30", "flags=0x50->0x70"));
    EXPECT_EQ(channels_ours, expected);
}

TEST(Replay, TheProgramSeesNothingOfIt) {
    const Replay result = replay(native(), in_process());
    EXPECT_EQ(result.caller_mismatches, 0u);
    EXPECT_EQ(result.objects_left, 0u);
}

TEST(Replay, ContextShareAndChannelsHangOffTheRenderersTsg) {
    const Replay result = replay(native(), in_process());
    const auto dups = calls<rm::Dup>(result.kernel, rm::escape::kDupObject);
    const auto ours =
        std::find_if(dups.begin(), dups.end(), [](const auto& d) { return d.first.source_object == 0xcef80003; });
    ASSERT_NE(ours, dups.end());
    const rm::Dup dup = ours->first;

    size_t channels = 0;
    size_t shares = 0;
    for (const auto& [alloc, record] : calls<rm::Alloc>(result.kernel, rm::escape::kAlloc)) {
        if (alloc.root != dup.client || alloc.parent != dup.object) continue;
        if (alloc.cls == rm::cls::kContextShare) {
            ++shares;
            EXPECT_EQ(rm::load<rm::ContextShareParams>(record->params.before).flags, rm::kCtxShareAsync);
        } else {
            ++channels;
            ASSERT_EQ(alloc.cls, rm::cls::kGpfifoHopper);
            const auto params = rm::load<rm::ChannelParams>(record->params.before);
            EXPECT_EQ(params.flags & rm::kChannelRunqueueOne, rm::kChannelRunqueueOne);
            EXPECT_EQ(params.flags & rm::kChannelDelayScheduling, rm::kChannelDelayScheduling);
            EXPECT_NE(params.hContextShare, 0u);
            EXPECT_NE(params.hObjectError, 0u);
        }
    }
    EXPECT_EQ(shares, 1u);
    EXPECT_EQ(channels, 8u);
}

TEST(Replay, ModesThatCannotBeSharedAreAnsweredOrChanged) {
    const Replay result = replay(native(), in_process());
    size_t zcull = 0;
    for (const auto& [control, record] : calls<rm::Control>(result.kernel, rm::escape::kControl)) {
        if (control.cmd == rm::ctrl::kGrCtxswZcullBind) {
            ++zcull;
            EXPECT_EQ(rm::load<rm::ZcullBindParams>(record->params.before).zcullMode, rm::kZcullModeNoCtxsw);
        }
        if (control.cmd == rm::ctrl::kGrSetCtxswPreemptionMode) {
            EXPECT_NE(rm::load<rm::PreemptionModeParams>(record->params.before).cilpPreemptMode, rm::kCilpCilp);
        }
    }
    EXPECT_EQ(zcull, 3u);
    const auto answered = [&](std::string_view what) {
        return std::count_if(result.rewrites.begin(), result.rewrites.end(), [&](const Rewrite& r) {
            return r.kind == Rewrite::Kind::kAnswered && contains(r.text, what);
        });
    };
    EXPECT_EQ(answered("GR_SET_CTXSW_PREEMPTION_MODE"), 1);
    EXPECT_EQ(answered("TSG_GPFIFO_SCHEDULE"), 1);
    EXPECT_EQ(answered("TSG_SET_TIMESLICE"), 1);
}

TEST(Replay, WithoutAWishNothingChanges) {
    const Trace trace = native();
    const Replay result = replay(trace, {});
    EXPECT_TRUE(result.rewrites.empty()) << result.rewrites.front().text;
    EXPECT_EQ(result.kernel, trace);
    EXPECT_EQ(result.caller_mismatches, 0u);
}

TEST(Replay, AttachedFromAnotherProcess) {
    // Without the renderer's part: everything of its clients goes.
    Trace cuda = native();
    std::set<rm::Handle> renderers;
    for (const auto& [alloc, record] : calls<rm::Alloc>(cuda, rm::escape::kAlloc)) {
        if (rm::cls::is_3d(alloc.cls)) renderers.insert(alloc.root);
    }
    std::erase_if(cuda.records, [&](const Record& r) {
        return !r.is_uvm() && r.arg.before.size() >= 4 && renderers.contains(rm::load<rm::Handle>(r.arg.before));
    });

    ReplayOptions options;
    options.wishes.attach = true;
    options.offer.ok = true;
    options.offer.tsg_fd = 100;
    options.offer.channels_in_use = 2;
    options.offer.buffers = {{101, 0x4000000, 0x20000, 0}, {102, 0x51f0000, 0x3000, 0}};
    const Replay result = replay(cuda, options);
    const auto count = [&](Rewrite::Kind kind, std::string_view what) {
        return std::count_if(result.rewrites.begin(), result.rewrites.end(),
                             [&](const Rewrite& r) { return r.kind == kind && contains(r.text, what); });
    };
    EXPECT_EQ(count(Rewrite::Kind::kAction, "IMPORT_OBJECT_FROM_FD"), 3);  // the TSG and both buffers
    EXPECT_EQ(count(Rewrite::Kind::kAction, "UVM_MAP_EXTERNAL_ALLOCATION base=0x4000000"), 1);
    EXPECT_EQ(count(Rewrite::Kind::kAction, "UVM_MAP_EXTERNAL_ALLOCATION base=0x51f0000"), 1);
    EXPECT_EQ(count(Rewrite::Kind::kEdited, "HOPPER_CHANNEL_GPFIFO_A"), 8);
    EXPECT_EQ(count(Rewrite::Kind::kAction, "CHANNEL_GPFIFO_SCHEDULE"), 8);
    EXPECT_EQ(result.caller_mismatches, 0u);
    EXPECT_EQ(result.objects_left, 0u);
}

TEST(Replay, ARefusedAttachRunsNatively) {
    ReplayOptions options;
    options.wishes.attach = true;  // and the offer is not ok
    const Trace trace = native();
    const Replay result = replay(trace, options);
    EXPECT_EQ(result.kernel, trace);
    EXPECT_EQ(result.caller_mismatches, 0u);
}

TEST(Replay, TheRendererAloneChangesItsZcullModeOnly) {
    ReplayOptions options;
    options.wishes.share_renderer = true;
    const Replay result = replay(native(), options);
    ASSERT_EQ(result.rewrites.size(), 3u);
    for (const Rewrite& r : result.rewrites) EXPECT_TRUE(contains(r.text, "GR_CTXSW_ZCULL_BIND")) << r.text;
}

TEST(Replay, DamagedTracesNeverHurt) {
    // Blocks that end early, at any length: the redirector sees less, and must make do.
    Trace trace = native();
    uint32_t random = 1;
    for (Record& r : trace.records) {
        random = random * 1664525 + 1013904223;
        for (Block* block : {&r.arg, &r.params}) {
            if (block->empty() || (random >> 24) % 4 != 0) continue;
            block->before.resize(random % (block->before.size() + 1));
            block->after.resize(block->before.size());
        }
    }
    (void)replay(trace, in_process());
}

}  // namespace
}  // namespace vuda::trace
