#include "cli/status_view.h"

#include <gtest/gtest.h>

namespace vuda::cli {
namespace {

v1::StatusReply example() {
    v1::StatusReply status;
    v1::DaemonInfo& daemon = *status.mutable_daemon();
    daemon.set_version("0.1.0");
    daemon.set_pid(4711);
    daemon.set_uptime_ms(200000);
    daemon.set_socket("/run/vuda/vudad.sock");
    daemon.set_handle_socket("/run/vuda/handles.sock");
    daemon.set_driver_version("580.159.04");
    daemon.set_driver_verdict(v1::DRIVER_VERDICT_SUPPORTED);

    v1::TsgInfo& tsg = *status.add_tsgs();
    tsg.set_name("game");
    tsg.set_gpu_uuid(std::string("\x2c\x8e\x0a\xd8\x07\x10\xab\x4e\x90\xdd\x54\x71\x9f\xe5\xf7\x4b", 16));
    tsg.set_owner_session(1);
    tsg.mutable_owner()->set_pid(100);
    tsg.mutable_owner()->set_program("renderer");
    tsg.set_exported(true);
    tsg.set_control_buffers(84);
    tsg.set_channels(10);
    tsg.add_attached_sessions(2);
    tsg.set_since_ms(61000);
    tsg.add_allow_uids(1000);

    v1::SessionInfo& sharing = *status.add_sessions();
    sharing.set_session_id(2);
    sharing.mutable_peer()->set_pid(200);
    sharing.mutable_peer()->set_uid(1000);
    sharing.mutable_peer()->set_program("python3");
    sharing.set_role(v1::ROLE_COMPUTE);
    sharing.set_state(v1::SHARING_STATE_SHARING);
    sharing.set_name("game");
    sharing.set_channels_moved(8);
    sharing.set_veid(63);
    sharing.set_attach_us(12345);
    sharing.set_transport("frames");
    sharing.set_since_ms(900);
    sharing.set_backend(v1::BACKEND_QMD_MASK);

    v1::SessionInfo& refused = *status.add_sessions();
    refused.set_session_id(3);
    refused.mutable_peer()->set_pid(300);
    refused.mutable_peer()->set_program("bad\x1b]0;\n");
    refused.set_role(v1::ROLE_COMPUTE);
    refused.set_state(v1::SHARING_STATE_UNSHARED);
    refused.set_name("gmae");
    refused.mutable_reason()->set_code(5);
    refused.mutable_reason()->set_text("no TSG named 'gmae'");
    refused.mutable_reason()->set_hint("start the renderer first");
    return status;
}

TEST(StatusText, TablesForPeople) {
    EXPECT_EQ(
        status_text(example()),
        "vudad 0.1.0, pid 4711, up 3 min 20 s, /run/vuda/vudad.sock\n"
        "driver 580.159.04: supported\n"
        "\n"
        "TSG   OWNER                      GPU                                       CHANNELS  BUFFERS  EXPORTED  "
        "ATTACHED  FOR\n"
        "game  renderer (pid 100, uid 0)  GPU-2c8e0ad8-0710-ab4e-90dd-54719fe5f74b    10/128       84  yes       "
        "       1  1 min 1 s\n"
        "game is open to user 1000 too\n"
        "\n"
        "SESSION  PROGRAM                      ROLE     STATE     TSG   CHANNELS  ATTACH   SPLIT BY  FOR     WHY NOT\n"
        "      2  python3 (pid 200, uid 1000)  compute  sharing   game         8  12.3 ms  qmd-mask  900 ms\n"
        "      3  bad?]0;? (pid 300, uid 0)    compute  unshared  gmae         0                     0 ms    no TSG "
        "named "
        "'gmae'; start the "
        "renderer first\n");
}

TEST(StatusText, NothingThereAndNoGoodDriver) {
    v1::StatusReply status;
    status.mutable_daemon()->set_version("0.1.0");
    status.mutable_daemon()->set_simulated(true);
    status.mutable_daemon()->set_sim_socket("/run/vuda/sim.sock");
    status.mutable_daemon()->set_driver_version("999.1");
    status.mutable_daemon()->set_driver_verdict(v1::DRIVER_VERDICT_UNKNOWN);
    status.mutable_daemon()->set_driver_note("not in the table");
    const std::string text = status_text(status);
    EXPECT_NE(text.find("GPU simulated, at /run/vuda/sim.sock\n"), text.npos);
    EXPECT_NE(text.find("driver 999.1: unknown, programs run as without VUDA (not in the table)\n"), text.npos);
    EXPECT_NE(text.find("no TSG is registered"), text.npos);
    EXPECT_NE(text.find("no program is connected"), text.npos);
}

TEST(StatusJson, SchemaAsDocumented) {
    const Json json = status_json(example());
    EXPECT_EQ(json["schema"], 1);
    EXPECT_EQ(json["daemon"]["pid"], 4711);
    EXPECT_EQ(json["daemon"]["simulated"], false);
    EXPECT_EQ(json["daemon"]["driver"]["verdict"], "supported");
    ASSERT_EQ(json["tsgs"].size(), 1u);
    EXPECT_EQ(json["tsgs"][0]["gpu"], "GPU-2c8e0ad8-0710-ab4e-90dd-54719fe5f74b");
    EXPECT_EQ(json["tsgs"][0]["owner"]["program"], "renderer");
    EXPECT_EQ(json["tsgs"][0]["attached_sessions"], Json::array({2}));
    EXPECT_EQ(json["tsgs"][0]["allow_uids"], Json::array({1000}));
    ASSERT_EQ(json["sessions"].size(), 2u);
    EXPECT_EQ(json["sessions"][0]["state"], "sharing");
    EXPECT_EQ(json["sessions"][0]["reason"], nullptr);
    EXPECT_EQ(json["sessions"][0]["veid"], 63);
    EXPECT_EQ(json["sessions"][1]["reason"]["code"], "NOT_FOUND");
    EXPECT_EQ(json["sessions"][1]["reason"]["hint"], "start the renderer first");

    // The set of keys is the contract: a change here is a change of docs/vudactl.md.
    const auto keys = [](const Json& object) {
        std::string all;
        for (const auto& [key, value] : object.items()) all += key + " ";
        return all;
    };
    EXPECT_EQ(keys(json), "schema daemon tsgs sessions faults unfit ");
    EXPECT_EQ(keys(json["daemon"]), "version pid uptime_ms socket handle_socket simulated sim_socket driver access ");
    EXPECT_EQ(keys(json["daemon"]["access"]), "attach_uids attach_gids ");
    EXPECT_EQ(keys(json["daemon"]["driver"]), "version verdict note ");
    EXPECT_EQ(keys(json["tsgs"][0]),
              "name gpu owner_session owner exported control_buffers channels attached_sessions since_ms allow_uids "
              "allow_gids partition slo fault ");
    EXPECT_EQ(keys(json["sessions"][0]),
              "id peer role state name channels_moved veid control_buffers attach_us reason stuck client_version "
              "driver_version transport "
              "since_ms backend backend_reason applied_generation launches shared_memory_limit launches_refused "
              "over_limit launches_native native_reason "
              "samples samples_lost ");
    EXPECT_EQ(keys(json["sessions"][0]["peer"]), "pid uid gid program ");
    EXPECT_EQ(keys(json["sessions"][1]["reason"]), "code text hint ");
}

TEST(StatusText, SaysWhoIsStuck) {
    v1::StatusReply status = example();
    EXPECT_EQ(status_json(status)["sessions"][0]["stuck"], nullptr);
    v1::Stuck& stuck = *status.mutable_sessions(0)->mutable_stuck();
    stuck.set_since_ms(12'345);
    stuck.set_text("45000 a second\x1b");
    EXPECT_NE(status_text(status).find("stuck for 12 s: the GPU repeats page faults, 45000 a second? (docs/faults.md)"),
              std::string::npos)
        << status_text(status);
    EXPECT_EQ(status_json(status)["sessions"][0]["stuck"]["since_ms"], 12'345);
    EXPECT_EQ(status_json(status)["sessions"][0]["state"], "sharing");
    EXPECT_EQ(status_json(status)["sessions"][1]["stuck"], nullptr);
}

TEST(StatusText, SaysWhoElseMayAttach) {
    v1::StatusReply status = example();
    status.mutable_tsgs(0)->add_allow_uids(1001);
    status.mutable_tsgs(0)->add_allow_gids(44);
    status.mutable_daemon()->add_attach_gids(109);
    EXPECT_NE(status_text(status).find("\ngame is open to users 1000, 1001 and group 44 too\n"
                                       "every TSG is open to group 109 too (vudad.toml)\n"),
              std::string::npos)
        << status_text(status);
    EXPECT_EQ(status_json(status)["daemon"]["access"]["attach_gids"], Json::array({109}));
}

TEST(StatusText, SaysWhyASplitDoesNotReachAProgram) {
    v1::StatusReply status = example();
    v1::SessionInfo& session = *status.mutable_sessions(0);
    session.set_backend(v1::BACKEND_NONE);
    session.mutable_backend_reason()->set_code(9);
    session.mutable_backend_reason()->set_text("CUDA 99 is not known");
    EXPECT_NE(status_text(status).find("no split: CUDA 99 is not known\n"), std::string::npos);
    EXPECT_EQ(status_json(status)["sessions"][0]["backend"], "none");
    EXPECT_EQ(status_json(status)["sessions"][0]["backend_reason"]["text"], "CUDA 99 is not known");
}

TEST(StatusJson, BadBytesBecomeValidJson) {
    v1::StatusReply status = example();
    status.mutable_tsgs(0)->set_gpu_uuid("short");
    const std::string text = to_pretty(status_json(status));
    EXPECT_EQ(Json::parse(text)["tsgs"][0]["gpu"], "?");
    EXPECT_EQ(to_line(Json{{"a", "\xff"}}), "{\"a\":\"\xef\xbf\xbd\"}\n");
}

TEST(StatusJson, Errors) {
    EXPECT_EQ(
        to_line(error_json({Code::kUnavailable, "no such socket", "start it"})),
        "{\"schema\":1,\"error\":{\"code\":\"UNAVAILABLE\",\"text\":\"no such socket\",\"hint\":\"start it\"}}\n");
}

TEST(Events, TextAndJson) {
    v1::Event event;
    event.set_monotonic_us(12000042);
    event.set_kind("attach-failed");
    event.set_name("game");
    event.set_session_id(3);
    event.mutable_peer()->set_pid(200);
    event.mutable_peer()->set_program("python3");
    event.mutable_reason()->set_code(8);
    event.mutable_reason()->set_text("TSG full");
    EXPECT_EQ(event_text(event), "12.000042 attach-failed game: session 3, python3 (pid 200, uid 0): TSG full\n");
    EXPECT_EQ(event_json(event)["reason"]["code"], "RESOURCE_EXHAUSTED");
    EXPECT_EQ(event_json(event)["session"], 3);
}

TEST(Names, VerdictsAndDurations) {
    EXPECT_EQ(verdict_name(v1::DRIVER_VERDICT_LAYOUT_EQUAL), "layout-equal");
    EXPECT_EQ(verdict_name(static_cast<v1::DriverVerdict>(99)), "unknown");
    EXPECT_TRUE(verdict_allows_sharing(v1::DRIVER_VERDICT_SUPPORTED));
    EXPECT_TRUE(verdict_allows_sharing(v1::DRIVER_VERDICT_LAYOUT_EQUAL));
    EXPECT_FALSE(verdict_allows_sharing(v1::DRIVER_VERDICT_KNOWN_BAD));
    EXPECT_FALSE(verdict_allows_sharing(v1::DRIVER_VERDICT_UNKNOWN));
    EXPECT_FALSE(verdict_allows_sharing(v1::DRIVER_VERDICT_ABSENT));
    EXPECT_EQ(duration_text(0), "0 ms");
    EXPECT_EQ(duration_text(59999), "59 s");
    EXPECT_EQ(duration_text(60000), "1 min");
    EXPECT_EQ(duration_text(3660000), "1 h 1 min");
    EXPECT_EQ(duration_text(90000000), "1 d 1 h");
}

}  // namespace
}  // namespace vuda::cli
