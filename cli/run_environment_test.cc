#include "cli/run_environment.h"

#include <gtest/gtest.h>

namespace vuda::cli {
namespace {

RunFacts hardware() {
    RunFacts facts;
    facts.libraries.preload = "/b/lib/libvuda_preload.so";
    facts.libraries.sim = "/b/lib/libvuda_sim.so";
    facts.socket = "/run/vuda/vudad.sock";
    facts.daemon = RunFacts::Daemon{"/run/vuda/handles.sock", false, ""};
    return facts;
}

RunFacts simulated() {
    RunFacts facts = hardware();
    facts.daemon = RunFacts::Daemon{"/run/vuda/handles.sock", true, "/run/vuda/sim.sock"};
    return facts;
}

TEST(RunEnvironment, SetReplacesAndRemovesDuplicates) {
    Environment env = {"A=1", "AB=2", "A=3"};
    set_env(env, "A", "x");
    EXPECT_EQ(env, (Environment{"A=x", "AB=2"}));
    set_env(env, "B", "");
    EXPECT_EQ(get_env(env, "B"), "");
    EXPECT_EQ(get_env(env, "C"), std::nullopt);
}

TEST(RunEnvironment, AttachOnHardware) {
    RunOptions options;
    options.attach_name = "game";
    options.reserve = "all";
    const Environment env = run_environment({"HOME=/h", "LD_PRELOAD=/a.so"}, options, hardware());
    EXPECT_EQ(env,
              (Environment{"HOME=/h", "LD_PRELOAD=/a.so:/b/lib/libvuda_preload.so", "VUDA_SOCKET=/run/vuda/vudad.sock",
                           "VUDA_HANDLE_SOCKET=/run/vuda/handles.sock", "VUDA_ATTACH=game", "VUDA_RESERVE=all"}));
}

TEST(RunEnvironment, FitKernelsPreloadsTheLibraryThatTells) {
    RunOptions options;
    options.fit_kernels = true;
    EXPECT_EQ(check_run_options(options).error().code, Code::kInvalidArgument);
    options.attach_name = "game";
    EXPECT_TRUE(check_run_options(options).ok());
    RunFacts facts = hardware();
    EXPECT_EQ(get_env(run_environment({}, options, facts), "LD_PRELOAD"), "/b/lib/libvuda_preload.so")
        << "an installation without it";
    facts.libraries.fit = "/b/lib/libvuda_fit.so";
    const Environment env = run_environment({}, options, facts);
    EXPECT_EQ(get_env(env, "LD_PRELOAD"), "/b/lib/libvuda_preload.so:/b/lib/libvuda_fit.so");
    EXPECT_EQ(get_env(run_environment(env, options, facts), "LD_PRELOAD"),
              "/b/lib/libvuda_preload.so:/b/lib/libvuda_fit.so");
    EXPECT_EQ(get_env(env, "VUDA_FIT_KERNELS"), "1");
    for (const char* policy : {"reject", "unshare"}) {
        options.over_limit = policy;
        EXPECT_TRUE(check_run_options(options).ok()) << policy;
    }
    options.over_limit = "native";
    EXPECT_EQ(check_run_options(options).error().code, Code::kInvalidArgument) << "they would compute wrongly there";
    options.over_limit.clear();
    options.fit_kernels = false;
    EXPECT_EQ(get_env(run_environment({}, options, facts), "LD_PRELOAD"), "/b/lib/libvuda_preload.so");
    EXPECT_EQ(get_env(run_environment({}, options, facts), "VUDA_FIT_KERNELS"), std::nullopt);
}

TEST(RunEnvironment, WhatBecomesOfKernelsThatAreTooLarge) {
    RunOptions options;
    options.over_limit = "unshare";
    EXPECT_EQ(check_run_options(options).error().code, Code::kInvalidArgument) << "of a program that does not share";
    options.attach_name = "game";
    EXPECT_EQ(get_env(run_environment({}, {}, hardware()), "VUDA_OVER_LIMIT"), std::nullopt);
    for (const char* policy : {"native", "unshare", "reject"}) {
        options.over_limit = policy;
        EXPECT_TRUE(check_run_options(options).ok()) << policy;
        EXPECT_EQ(get_env(run_environment({}, options, hardware()), "VUDA_OVER_LIMIT"), policy);
    }
    for (const char* policy : {"Native", "kill", "1"}) {
        options.over_limit = policy;
        const Status status = check_run_options(options);
        ASSERT_FALSE(status.ok()) << policy;
        EXPECT_EQ(status.error().code, Code::kInvalidArgument);
        EXPECT_NE(status.error().text.find("native, unshare and reject"), std::string::npos) << status.error().text;
    }
}

TEST(RunEnvironment, ReservationTellsCudaHowManyChannelsToMake) {
    RunOptions options;
    options.attach_name = "game";
    const auto told = [&](Environment env) {
        return get_env(run_environment(std::move(env), options, hardware()), "CUDA_DEVICE_MAX_CONNECTIONS");
    };
    EXPECT_EQ(told({}), std::nullopt);
    options.reserve = "all";
    EXPECT_EQ(told({}), std::nullopt);
    options.reserve = "4";
    EXPECT_EQ(told({}), "4");
    EXPECT_EQ(told({"CUDA_DEVICE_MAX_CONNECTIONS=6"}), "6") << "the user's word stands";
    options.reserve = "100";
    EXPECT_EQ(told({}), "32");
}

TEST(RunEnvironment, SimulatedDaemonBringsTheSimLibrary) {
    RunOptions options;
    options.register_name = "game";
    options.require = true;
    const Environment env = run_environment({}, options, simulated());
    EXPECT_EQ(get_env(env, "LD_PRELOAD"), "/b/lib/libvuda_preload.so:/b/lib/libvuda_sim.so");
    EXPECT_EQ(get_env(env, "VUDA_SIM_SOCKET"), "/run/vuda/sim.sock");
    EXPECT_EQ(get_env(env, "VUDA_REGISTER"), "game");
    EXPECT_EQ(get_env(env, "VUDA_REQUIRE"), "1");
    EXPECT_EQ(get_env(env, "VUDA_ATTACH"), std::nullopt);
    EXPECT_EQ(get_env(env, "VUDA_SHARE"), std::nullopt);
}

TEST(RunEnvironment, WrappingTwiceIsWrappingOnce) {
    RunOptions options;
    options.share = true;
    for (RunFacts facts : {hardware(), simulated()}) {
        facts.libraries.layer_manifest = "/b/lib/layer/VkLayer_vuda.json";
        facts.libraries.explicit_layer = "/b/lib/layer";
        const Environment once = run_environment({"LD_PRELOAD=/a.so /c.so"}, options, facts);
        EXPECT_EQ(run_environment(once, options, facts), once);
    }
}

TEST(RunEnvironment, NestedWrappersAddUp) {
    RunOptions outer, inner;
    outer.attach_name = "game";
    inner.register_name = "second";
    const Environment env = run_environment(run_environment({}, outer, hardware()), inner, hardware());
    EXPECT_EQ(get_env(env, "VUDA_ATTACH"), "game");
    EXPECT_EQ(get_env(env, "VUDA_REGISTER"), "second");
}

TEST(RunEnvironment, AnAllowListBelongsToItsName) {
    RunOptions options;
    options.register_name = "game";
    EXPECT_EQ(get_env(run_environment({}, options, hardware()), "VUDA_ALLOW_UIDS"), std::nullopt);
    RunFacts facts = hardware();
    facts.allow_uids = "1000,1001";
    const Environment outer = run_environment({"VUDA_ALLOW_GIDS=44"}, options, facts);
    EXPECT_EQ(get_env(outer, "VUDA_ALLOW_UIDS"), "1000,1001");
    EXPECT_EQ(get_env(outer, "VUDA_ALLOW_GIDS"), "") << "what somebody else allowed for another name";

    RunOptions inner;
    inner.share = true;
    EXPECT_EQ(get_env(run_environment(outer, inner, hardware()), "VUDA_ALLOW_UIDS"), "1000,1001");
    inner = {};
    inner.register_name = "second";
    EXPECT_EQ(get_env(run_environment(outer, inner, hardware()), "VUDA_ALLOW_UIDS"), "");
}

TEST(RunEnvironment, WithoutDaemonTheSocketsAreGuessedAndASimIsKept) {
    RunOptions options;
    options.attach_name = "game";
    RunFacts facts = hardware();
    facts.daemon.reset();
    facts.socket = "/tmp/x/vudad.sock";
    const Environment env =
        run_environment({"LD_PRELOAD=/s/libvuda_sim.so", "VUDA_SIM_SOCKET=/s/sock"}, options, facts);
    EXPECT_EQ(get_env(env, "LD_PRELOAD"), "/b/lib/libvuda_preload.so:/s/libvuda_sim.so");
    EXPECT_EQ(get_env(env, "VUDA_SIM_SOCKET"), "/s/sock");
    EXPECT_EQ(get_env(env, "VUDA_HANDLE_SOCKET"), "/tmp/x/handles.sock");
    const Environment kept = run_environment({"VUDA_HANDLE_SOCKET=/y"}, options, facts);
    EXPECT_EQ(get_env(kept, "VUDA_HANDLE_SOCKET"), "/y");
}

TEST(RunEnvironment, ProgramsOutOfReachKeepTheirPreload) {
    RunFacts facts = simulated();
    facts.preload = false;
    facts.libraries.layer_manifest = "/m.json";
    const Environment env = run_environment({"LD_PRELOAD=/a.so"}, {}, facts);
    EXPECT_EQ(get_env(env, "LD_PRELOAD"), "/a.so");
    EXPECT_EQ(get_env(env, "VUDA_ENABLE_LAYER"), std::nullopt);

    facts = hardware();
    facts.libraries.preload.clear();
    EXPECT_EQ(get_env(run_environment({}, {}, facts), "LD_PRELOAD"), std::nullopt);
}

TEST(RunEnvironment, LayerFromBuildTreeInstalledOrNotAtAll) {
    RunFacts facts = hardware();
    facts.libraries.layer_manifest = "/b/lib/layer/VkLayer_vuda.json";
    facts.libraries.explicit_layer = "/b/lib/layer";
    Environment env =
        run_environment({"VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation", "VK_ADD_LAYER_PATH=/v"}, {}, facts);
    EXPECT_EQ(get_env(env, "VK_INSTANCE_LAYERS"), "VK_LAYER_KHRONOS_validation:VK_LAYER_VUDA_sharing");
    EXPECT_EQ(get_env(env, "VK_ADD_LAYER_PATH"), "/v:/b/lib/layer");
    EXPECT_EQ(get_env(env, "VUDA_ENABLE_LAYER"), std::nullopt);

    facts.libraries.explicit_layer.clear();
    env = run_environment({}, {}, facts);
    EXPECT_EQ(get_env(env, "VUDA_ENABLE_LAYER"), "1");
    EXPECT_EQ(get_env(env, "VK_INSTANCE_LAYERS"), std::nullopt);

    RunOptions no_layer;
    no_layer.layer = false;
    EXPECT_EQ(get_env(run_environment({}, no_layer, facts), "VUDA_ENABLE_LAYER"), std::nullopt);
}

TEST(RunOptions, ChecksNamesReserveAndCombinations) {
    const auto code = [](RunOptions options) {
        const Status status = check_run_options(options);
        return status.ok() ? Code::kOk : status.error().code;
    };
    RunOptions options;
    EXPECT_EQ(code(options), Code::kOk);
    for (const char* name : {"game", "a.b_c-9", "0"}) {
        options = {};
        options.attach_name = options.register_name = name;
        options.register_name += "x";
        EXPECT_EQ(code(options), Code::kOk) << name;
    }
    for (const std::string& name :
         {std::string(".hidden"), std::string("-x"), std::string("a/b"), std::string("a b"), std::string(65, 'a')}) {
        options = {};
        options.register_name = name;
        EXPECT_EQ(code(options), Code::kInvalidArgument) << name;
        options = {};
        options.attach_name = name;
        EXPECT_EQ(code(options), Code::kInvalidArgument) << name;
    }
    options = {};
    options.attach_name = "game";
    for (const char* good : {"all", "1", "8", "128"}) {
        options.reserve = good;
        EXPECT_EQ(code(options), Code::kOk) << good;
    }
    for (const char* bad : {"0", "129", "-1", "8x", "ALL", "99999999999999999999"}) {
        options.reserve = bad;
        EXPECT_EQ(code(options), Code::kInvalidArgument) << bad;
    }
    options = {};
    options.reserve = "all";
    EXPECT_EQ(code(options), Code::kInvalidArgument);
    options = {};
    options.require = true;
    EXPECT_EQ(code(options), Code::kInvalidArgument);
    options.attach_name = options.register_name = "game";
    EXPECT_EQ(code(options), Code::kInvalidArgument);
    options.register_name.clear();
    options.share = true;
    EXPECT_EQ(code(options), Code::kInvalidArgument);
}

}  // namespace
}  // namespace vuda::cli
