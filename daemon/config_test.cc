#include "daemon/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "daemon/test_support.h"

namespace vuda::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string error_of(const std::string& text) {
    const Result<Config> config = parse_config(text, "vudad.toml");
    if (config.ok()) return "no error";
    EXPECT_EQ(config.error().code, Code::kInvalidArgument);
    return config.error().text;
}

TEST(Config, EmptyFileIsTheDefaults) {
    const Result<Config> config = parse_config("", "x");
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(*config, Config{});
}

TEST(Config, TheShippedFileShowsEveryKeyWithItsDefault) {
    const Result<Config> config = load_config(VUDA_SHIPPED_CONFIG);
    ASSERT_TRUE(config.ok()) << config.error().to_string();
    EXPECT_EQ(*config, Config{});
    // Every key: the lists that the parser's own messages give.
    std::ifstream in(VUDA_SHIPPED_CONFIG);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    for (const char* table :
         {"socket", "log", "access", "limits", "attach", "liveness", "partition", "metrics", "sim"}) {
        EXPECT_THAT(text, HasSubstr("\n[" + std::string(table) + "]\n"));
        std::string keys = error_of("[" + std::string(table) + "]\nzz = 1\n");
        keys = keys.substr(keys.find("here: ") + 6);
        for (size_t at = 0; at < keys.size();) {
            const size_t end = std::min(keys.find(", ", at), keys.size());
            EXPECT_THAT(text, HasSubstr("\n" + keys.substr(at, end - at) + " = "));
            at = end + 2;
        }
    }
}

TEST(Config, ReadsEverything) {
    const Result<Config> config = parse_config(R"(
[socket]
control = "/a"
handles = "/b"
control_mode = 0o660
handles_mode = 0o600
[log]
level = "debug"
[access]
attach_uids = [1, 2]
attach_gids = [3]
[limits]
connections = 10
connections_per_uid = 9
sessions_per_uid = 8
names_per_uid = 7
handles_per_uid = 6
programs_per_tsg = 5
same_addresses = true
requests_per_s = 50
message_bytes = 20000
[attach]
default_ms = 100
max_ms = 200
export_ms = 300
turn_ms = 400
mirror_ms = 45
[liveness]
heartbeat_ms = 500
release_ms = 1000
[partition]
mode = "inter-sm"
quota = 24
[sim]
enabled = true
preset = "rtx4090"
)",
                                               "x");
    ASSERT_TRUE(config.ok()) << config.error().to_string();
    EXPECT_EQ(config->control_socket, "/a");
    EXPECT_EQ(config->control_mode, 0660u);
    EXPECT_EQ(config->handle_mode, 0600u);
    EXPECT_EQ(config->log_level, "debug");
    EXPECT_THAT(config->settings.attach.uids, ElementsAre(1, 2));
    EXPECT_THAT(config->settings.attach.gids, ElementsAre(3));
    EXPECT_EQ(config->connections.per_uid, 9u);
    EXPECT_EQ(config->settings.handles_per_uid, 6u);
    EXPECT_EQ(config->settings.programs_per_tsg, 5u);
    EXPECT_EQ(Config{}.settings.programs_per_tsg, 1u) << "what the GPUs that were measured allow";
    EXPECT_TRUE(config->settings.same_addresses);
    EXPECT_FALSE(Config{}.settings.same_addresses);
    EXPECT_EQ(config->settings.turn_limit, Milliseconds(400));
    EXPECT_EQ(config->settings.mirror_limit, Milliseconds(45));
    EXPECT_EQ(config->requests_per_s, 50u);
    EXPECT_EQ(config->message_bytes, 20'000u);
    EXPECT_EQ(config->settings.heartbeat, Milliseconds(500));
    EXPECT_EQ(config->settings.release, Milliseconds(1000));
    EXPECT_EQ(config->settings.partition.mode, v1::MODE_INTER_SM);
    EXPECT_EQ(config->settings.partition.quota.amount, 24u);
    EXPECT_TRUE(config->sim);
    EXPECT_EQ(config->sim_preset, "rtx4090");
    const Result<Config> turns = parse_config("[partition]\nmode = \"sliced\"\nquota = \"40%\"\n", "x");
    EXPECT_EQ(turns->settings.partition.mode, v1::MODE_SLICED);
    EXPECT_EQ(turns->settings.partition.quota, (Quota{Quota::Kind::kPercent, 40}));
    EXPECT_EQ(parse_config("[partition]\nquota = \"auto\"\nmode = \"auto\"\n", "x")->settings.partition.quota.kind,
              Quota::Kind::kAutomatic);
}

TEST(Config, HoldsAfterFaultsAndOfProgramsThatDoNotFit) {
    const Result<Config> config = parse_config(
        "[faults]\nbackoff_ms = 7\n[unshare]\nbackoff_ms = 1000\nbackoff_factor = 2\nbackoff_max_ms = 5000\n"
        "forget_ms = 60000\n",
        "x");
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->settings.faults.first, Milliseconds(7));
    EXPECT_EQ(config->settings.unshare,
              (HoldSettings{Milliseconds(1000), 2, Milliseconds(5000), Milliseconds(60'000)}));
    EXPECT_FALSE(*config == Config{});
    EXPECT_EQ(parse_config("[unshare]\nbackoff_ms = 0\n", "x")->settings.unshare.first, Milliseconds(0));
    EXPECT_EQ(error_of("[unshare]\nbackoff_ms = 2000\nbackoff_max_ms = 1000\n"),
              "vudad.toml: unshare.backoff_max_ms: must be at least unshare.backoff_ms (2000)");
    EXPECT_EQ(error_of("[unshare]\nbackoff = 1\n"),
              "vudad.toml:2: unshare.backoff: unknown key; known here: backoff_ms, backoff_factor, backoff_max_ms, "
              "forget_ms");
}

TEST(Config, ErrorsNameFileLineAndKey) {
    EXPECT_EQ(error_of("[log]\n\nlevle = \"info\"\n"), "vudad.toml:3: log.levle: unknown key; known here: level");
    EXPECT_EQ(error_of("[logs]\n"),
              "vudad.toml:1: logs: unknown; known here: socket, log, access, limits, attach, liveness, faults, "
              "unshare, partition, metrics, sim");
    EXPECT_EQ(error_of("x = 1\n"),
              "vudad.toml:1: x: unknown; known here: socket, log, access, limits, attach, liveness, faults, "
              "unshare, partition, metrics, sim");
    EXPECT_EQ(error_of("log = 3\n"), "vudad.toml:1: log: must be a table, [log]");
    EXPECT_EQ(error_of("[log]\nlevel = 3\n"), "vudad.toml:2: log.level: must be a string");
    EXPECT_EQ(error_of("[log]\nlevel = \"loud\"\n"),
              "vudad.toml:2: log.level: 'loud' is not one of trace, debug, info, warning, error, critical, off");
    EXPECT_EQ(error_of("[limits]\nnames_per_uid = 0\n"), "vudad.toml:2: limits.names_per_uid: 0 is outside 1 to 1024");
    EXPECT_EQ(error_of("[limits]\nnames_per_uid = 1.5\n"),
              "vudad.toml:2: limits.names_per_uid: must be a whole number");
    EXPECT_EQ(error_of("[attach]\nmax_ms = -1\n"), "vudad.toml:2: attach.max_ms: -1 is outside 10 to 60000");
    EXPECT_EQ(error_of("[attach]\nmax_ms = \"2s\"\n"), "vudad.toml:2: attach.max_ms: must be a whole number");
    EXPECT_EQ(error_of("[socket]\ncontrol = \"\"\n"), "vudad.toml:2: socket.control: must not be empty or hold NUL");
    EXPECT_EQ(error_of("[socket]\ncontrol_mode = 0o1777\n"),
              "vudad.toml:2: socket.control_mode: 0o1777 is outside 0o0 to 0o777");
    EXPECT_EQ(error_of("[access]\nattach_uids = 1\n"),
              "vudad.toml:2: access.attach_uids: must be a list of numeric ids");
    EXPECT_EQ(error_of("[access]\nattach_uids = [\n  1,\n  \"bob\" ]\n"),
              "vudad.toml:4: access.attach_uids: must be a whole number");
    EXPECT_EQ(error_of("[access]\nattach_gids = [4294967295]\n"),
              "vudad.toml:2: access.attach_gids: 4294967295 is outside 0 to 4294967294");
    EXPECT_EQ(error_of("[partition]\nmode = \"both\"\n"),
              "vudad.toml:2: partition.mode: 'both' is not one of auto, intra-sm, inter-sm, sliced");
    EXPECT_EQ(error_of("[partition]\nquota = 0\n"),
              "vudad.toml:2: partition.quota: 0 is not one of auto, none, a number of TPCs from 1 to 256, 1% to 99%");
    EXPECT_EQ(error_of("[partition]\nquota = nan\n"),
              "vudad.toml:2: partition.quota: is not one of auto, none, a number of TPCs from 1 to 256, 1% to 99%");
    EXPECT_EQ(
        error_of("[partition]\nquota = \"half\"\n"),
        "vudad.toml:2: partition.quota: 'half' is not one of auto, none, a number of TPCs from 1 to 256, 1% to 99%");
    EXPECT_EQ(error_of("[sim]\nenabled = 1\n"), "vudad.toml:2: sim.enabled: must be true or false");
}

TEST(Config, AnOwnerIsAskedBeforeItIsGivenUp) {
    EXPECT_EQ(error_of("[liveness]\nrelease_ms = 9999\n"),
              "vudad.toml: liveness.release_ms: must be 0 or at least twice liveness.heartbeat_ms (10000)");
    EXPECT_TRUE(parse_config("[liveness]\nrelease_ms = 10000\n", "x").ok());
    EXPECT_TRUE(parse_config("[liveness]\nrelease_ms = 0\n", "x").ok());
    EXPECT_TRUE(parse_config("[liveness]\nheartbeat_ms = 0\nrelease_ms = 1\n", "x").ok());
}

TEST(Config, LimitsOfRateAndSize) {
    EXPECT_EQ(error_of("[limits]\nrequests_per_s = -1\n"),
              "vudad.toml:2: limits.requests_per_s: -1 is outside 0 to 1000000");
    EXPECT_EQ(error_of("[limits]\nmessage_bytes = 65537\n"),
              "vudad.toml:2: limits.message_bytes: 65537 is outside 16384 to 65536");
    Config wanted;
    wanted.requests_per_s = 1;
    wanted.settings.heartbeat = Milliseconds(1);
    EXPECT_THAT(needs_restart(Config{}, wanted), IsEmpty());
    wanted.message_bytes = 20'000;
    EXPECT_THAT(needs_restart(Config{}, wanted), ElementsAre("limits.message_bytes"));
}

TEST(Config, TheFirstErrorOfTheFileIsReported) {
    EXPECT_EQ(error_of("[sim]\nenabled = 1\n[log]\nlevel = 2\n"), "vudad.toml:2: sim.enabled: must be true or false");
}

TEST(Config, SyntaxErrorsHaveALine) {
    EXPECT_THAT(error_of("[log]\nlevel = \n"), HasSubstr("vudad.toml:2: "));
    EXPECT_THAT(error_of("[log\n"), HasSubstr("vudad.toml:1: "));
    EXPECT_THAT(error_of("\n[*log]\n"), HasSubstr("vudad.toml:2: "));
    EXPECT_THAT(error_of("\n[\xef\xbb\xba]\n"), HasSubstr("vudad.toml:2: "));
    EXPECT_TRUE(parse_config("# \xe2\x9a\xa0 \xef\xbb\xbf\n[log]\n", "x").ok());
    EXPECT_THAT(error_of("a = \"\xff\"\n"), HasSubstr("vudad.toml:1: "));
}

TEST(Config, UnreadableFile) {
    const TempDir dir;
    EXPECT_EQ(load_config(dir.file("none")).error().code, Code::kNotFound);
    EXPECT_FALSE(load_config(dir.path()).ok());
    std::ofstream(dir.file("big")) << std::string((1 << 20) + 1, '#');
    EXPECT_THAT(load_config(dir.file("big")).error().text, HasSubstr("1 MiB"));
}

TEST(Config, ReloadTellsWhatItCannotChange) {
    Config wanted;
    EXPECT_THAT(needs_restart(Config{}, wanted), IsEmpty());
    wanted.log_level = "debug";
    wanted.settings.names_per_uid = 1;
    wanted.connections.total = 1;
    EXPECT_THAT(needs_restart(Config{}, wanted), IsEmpty());
    wanted.control_socket = "/x";
    wanted.handle_mode = 0;
    wanted.sim = true;
    EXPECT_THAT(needs_restart(Config{}, wanted), ElementsAre("socket.control", "socket.handles_mode", "sim.enabled"));
}

TEST(Config, MetricsTextfileIsAnAbsolutePath) {
    const Result<Config> config =
        parse_config("[metrics]\ntextfile = \"/run/vuda/m.prom\"\ninterval_ms = 60000\n", "x");
    ASSERT_TRUE(config.ok()) << config.error().to_string();
    EXPECT_EQ(config->metrics_textfile, "/run/vuda/m.prom");
    EXPECT_EQ(config->metrics_interval, Milliseconds(60'000));
    EXPECT_THAT(needs_restart(Config{}, *config), IsEmpty());
    EXPECT_TRUE(parse_config("[metrics]\ntextfile = \"\"\n", "x").ok());
    for (const char* bad : {"\"m.prom\"", "\"/run/vuda/\"", "7", "\"/a\\u0000b\""}) {
        EXPECT_THAT(error_of(std::string("[metrics]\ntextfile = ") + bad + "\n"), HasSubstr("2: metrics.textfile"))
            << bad;
    }
    EXPECT_THAT(error_of("[metrics]\ninterval_ms = 999\n"), HasSubstr("metrics.interval_ms"));
}

}  // namespace
}  // namespace vuda::daemon
