#include "tests/load/soak.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <thread>

#include "tests/load/daemon.h"
#include "tests/load/observer.h"
#include "tests/load/scenarios.h"

namespace vuda::load {
namespace {

constexpr unsigned kOwners = 2;
constexpr unsigned kAttachers = 2;
constexpr uint32_t kRounds = 20;
// What the allocator keeps from one round to the next, and no leak: a leak of 16 bytes an operation shows in a million.
constexpr uint32_t kGrowthKb = 8 * 1024;
// gRPC has a descriptor or two more or less as its threads come and go.
constexpr double kFdSlack = 8;

struct Level {
    double rss_mb = 0;
    double fds = 0;
};

class Soak {
 public:
    Soak(const Daemon& daemon, Figures& figures)
        : daemon_(daemon), figures_(figures), prober_(start_prober(daemon.control())) {
        for (unsigned i = 0; i < kOwners + kAttachers; ++i) players_.push_back(start_player());
        grpc_.push_back(start_grpc());
    }

    // One round, then everybody leaves. False: something was wrong.
    bool round(uint32_t operations) {
        // gRPC's calls cost several times a frame's: it does a smaller part.
        const uint32_t grpc_share = operations / 20;
        const uint32_t share = (operations - grpc_share) / (kOwners + kAttachers) + 1;
        for (unsigned i = 0; i < players_.size(); ++i) players_[i].order(part(i, share));
        grpc_.front().order(Order{Order::Kind::kSoak, grpc_share});
        bool good = true;
        for (const Member& player : players_) good = count(player) && good;
        good = count(grpc_.front()) && good;
        return good;
    }

    // Accidents: one player is killed where it stands, with all that it had, and another takes its place.
    void kill_one(uint32_t round) { players_[round % players_.size()] = start_player(); }

    std::optional<Level> rest() {
        for (const Member& player : players_) {
            if (!player.ask({Order::Kind::kDrop})) return std::nullopt;
        }
        // What they left behind is taken away as vudad's loop gets to it.
        const Clock::time_point start = Clock::now();
        std::optional<Counts> counts;
        do {
            counts = probe(prober_);
        } while (counts && !(counts->empty() && counts->reaper == 0) && seconds_since(start) < 30);
        if (!counts || !counts->empty()) {
            figures_.fail("something was left behind: " + std::to_string(counts ? counts->sessions : -1) +
                          " sessions, " + std::to_string(counts ? counts->names : -1) + " names, " +
                          std::to_string(counts ? counts->handles : -1) + " handles, " +
                          std::to_string(counts ? counts->handle_connections : -1) + " connections");
            return std::nullopt;
        }
        return Level{daemon_.rss_mb(), static_cast<double>(daemon_.fds())};
    }

    double done() const { return done_; }
    double shared() const { return shared_; }

 private:
    Member start_player() const {
        return Member::start([this](int line) { play(line, daemon_.handles(), "soak"); });
    }
    Member start_grpc() const {
        return Member::start([this](int line) { soak_grpc(line, daemon_.control()); });
    }

    static Order part(unsigned player, uint32_t operations) {
        Order order{Order::Kind::kSoak, operations};
        order.set_name(player < kOwners ? "owner-" + std::to_string(player)
                                        : "attacher-" + std::to_string(player - kOwners));
        order.period_s = kOwners;
        return order;
    }

    bool count(const Member& member) {
        const std::optional<Answer> answer = member.answer(Milliseconds(600'000));
        if (!answer) {
            figures_.fail("a player of the soak ended");
            return false;
        }
        done_ += answer->numbers[0];
        shared_ += answer->numbers[3];
        if (answer->numbers[1] > 0) {
            figures_.fail(std::to_string(static_cast<long>(answer->numbers[1])) +
                          " answers that cannot be, the last with code " +
                          std::to_string(static_cast<long>(answer->numbers[2])));
        }
        return answer->numbers[1] == 0;
    }

    const Daemon& daemon_;
    Figures& figures_;
    Member prober_;
    std::vector<Member> players_;
    std::vector<Member> grpc_;
    double done_ = 0;
    double shared_ = 0;
};

}  // namespace

void measure_soak(const Options& options, Figures& figures) {
    const uint32_t wanted = options.count == 0 ? 1'000'000 : options.count;
    // The players report faults as they report anything: nobody is held off for long, or there would be no attaches.
    Daemon daemon(options.vudad,
                  wide_limits() + "[log]\nlevel = \"error\"\n[faults]\nbackoff_ms = 1\nbackoff_max_ms = 1\n");
    if (!daemon.ready()) return figures.fail("vudad did not get ready: " + daemon.log_tail());
    Soak soak(daemon, figures);
    std::vector<Level> levels;
    std::string rests;
    const Clock::time_point start = Clock::now();
    for (uint32_t i = 0; i < kRounds; ++i) {
        if (!soak.round(wanted / kRounds + 1)) return;
        soak.kill_one(i);
        const std::optional<Level> level = soak.rest();
        if (!level) return;
        levels.push_back(*level);
        // For who looks at vudad from outside (scripts/soak_heap.py): milliseconds since it was started.
        const Milliseconds half(options.rest_ms / 2);
        std::this_thread::sleep_for(half);
        rests += std::to_string(std::llround(ms_between(daemon.started(), Clock::now()))) + "\n";
        std::this_thread::sleep_for(half);
    }
    if (!options.rests.empty()) std::ofstream(options.rests) << rests;
    const double took = seconds_since(start);
    if (!daemon.running()) return figures.fail("vudad ended: " + daemon.log_tail());
    // The first rounds fill pools and caches; growth is from there on.
    const Level& base = levels[kRounds / 4];
    const double rss_growth = levels.back().rss_mb - base.rss_mb;
    const double fd_growth = levels.back().fds - base.fds;
    const double limit_kb = options.grow_kb == 0 ? kGrowthKb : options.grow_kb;
    figures.add("soak-operations", soak.done(), "operations");
    figures.add("soak-attaches-shared", soak.shared(), "attaches");
    figures.add("soak-rate", soak.done() / took, "1/s");
    figures.add("soak-rss", levels.back().rss_mb, "MB", 200);
    figures.add("soak-rss-growth", rss_growth, "MB", limit_kb / 1024);
    figures.add("soak-fd-growth", fd_growth, "descriptors", kFdSlack);
    // On any machine, unlike memory, which a sanitizer keeps for a while.
    if (fd_growth > kFdSlack) figures.fail("descriptors stayed open");
    figures.add("soak-left-behind", 0, "sessions, names, handles and connections", 0);
    if (const int status = daemon.stop(); status != 0)
        figures.fail("vudad ended with status " + std::to_string(status));
}

}  // namespace vuda::load
