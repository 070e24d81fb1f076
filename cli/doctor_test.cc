#include "cli/doctor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/unique_fd.h"
#include "cli/test_dir.h"

namespace vuda::cli {
namespace {

constexpr const char* kVersion =
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder)\n"
    "GCC version:  gcc version 12.2.0\n";

// A machine on which everything is as it should be.
class DoctorTest : public testing::Test {
 protected:
    DoctorTest() {
        dir.write("proc/driver/nvidia/version", kVersion);
        dir.write("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t X\nDevice Minor: \t 3\nGPU UUID: y\n");
        for (const char* node : {"dev/nvidiactl", "dev/nvidia3", "dev/nvidia-uvm"}) dir.write(node, "");
        dir.write("usr/lib/x86_64-linux-gnu/libcuda.so.1", "");
        dir.write("usr/lib/x86_64-linux-gnu/libGLX_nvidia.so.0", "");
        dir.write("usr/share/vulkan/icd.d/lvp_icd.json", R"({"ICD":{"library_path":"libvulkan_lvp.so"}})");
        dir.write("usr/share/vulkan/icd.d/nvidia_icd.json", R"({"ICD":{"library_path":"libGLX_nvidia.so.0"}})");
        input.root = dir.root();
        input.socket = "/run/vuda/vudad.sock";
        listen_at(dir.path("run/vuda/vudad.sock"));
        input.ask_daemon = [](const std::string&) -> Result<v1::HandshakeReply> {
            v1::HandshakeReply reply;
            reply.set_daemon_version("0.1.0");
            return reply;
        };
        input.libraries.preload = "/usr/lib/vuda/libvuda_preload.so";
        input.libraries.layer_manifest = dir.write("usr/share/vulkan/implicit_layer.d/VkLayer_vuda.json",
                                                   R"({"layer":{"library_path":"/usr/lib/vuda/libVkLayer_vuda.so"}})");
        dir.write("usr/lib/vuda/libVkLayer_vuda.so", "");
    }

    void listen_at(const std::string& path) {
        std::filesystem::create_directories(std::filesystem::path(path).parent_path());
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
        listener.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    }

    Check find(const std::string& name) {
        const std::vector<Check> checks = examine(input);
        for (const Check& check : checks) {
            if (check.outcome == Outcome::kFail) {
                EXPECT_NE(check.remedy, "") << check.name;
            }
        }
        for (const Check& check : checks) {
            if (check.name == name) return check;
        }
        ADD_FAILURE() << "no check named " << name;
        return {};
    }
    void remove(const std::string& name) { std::filesystem::remove_all(dir.path(name)); }

    TestDir dir;
    UniqueFd listener;
    DoctorInput input;
};

TEST_F(DoctorTest, AllIsWell) {
    const std::vector<Check> checks = examine(input);
    EXPECT_EQ(failures(checks), 0) << doctor_text(checks);
    std::string names;
    for (const Check& check : checks) {
        EXPECT_EQ(check.outcome, Outcome::kPass) << check.name << ": " << check.detail;
        names += check.name + " ";
    }
    EXPECT_EQ(names, "driver device device uvm libcuda icd socket daemon preload layer ");
    EXPECT_NE(doctor_text(checks).find("PASS  device: /dev/nvidia3\n"), std::string::npos);
    EXPECT_NE(doctor_text(checks).find("nothing failed\n"), std::string::npos);
    EXPECT_EQ(doctor_json(checks)["failed"], 0);
    EXPECT_EQ(doctor_json(checks)["checks"][0]["outcome"], "pass");
}

TEST_F(DoctorTest, WithoutAGpuOneLineSaysWhatThatMeans) {
    for (const char* name : {"proc", "dev", "usr/lib/x86_64-linux-gnu"}) remove(name);
    const std::vector<Check> checks = examine(input);
    EXPECT_EQ(failures(checks), 0) << doctor_text(checks);
    ASSERT_FALSE(checks.empty());
    EXPECT_EQ(checks[0].name, "gpu");
    EXPECT_EQ(checks[0].outcome, Outcome::kSkip);
    EXPECT_NE(checks[0].remedy.find("vudad --sim"), std::string::npos);
    EXPECT_EQ(checks[1].name, "socket");
}

TEST_F(DoctorTest, DriverUnknownOrUnreadable) {
    dir.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  999.11  date\n");
    EXPECT_EQ(find("driver").outcome, Outcome::kFail);
    EXPECT_NE(find("driver").detail.find("999.11: unknown"), std::string::npos);
    dir.write("proc/driver/nvidia/version", "garbage");
    EXPECT_EQ(find("driver").outcome, Outcome::kFail);
    remove("proc");
    EXPECT_EQ(find("driver").outcome, Outcome::kFail);
    EXPECT_NE(find("driver").remedy.find("modprobe"), std::string::npos);
}

TEST_F(DoctorTest, DeviceNodesMissing) {
    remove("dev/nvidia3");
    remove("dev/nvidia-uvm");
    EXPECT_EQ(find("uvm").outcome, Outcome::kFail);
    const std::vector<Check> checks = examine(input);
    EXPECT_EQ(failures(checks), 2) << doctor_text(checks);
    EXPECT_NE(doctor_text(checks).find("FAIL  device: /dev/nvidia3 is missing\n"), std::string::npos);
    EXPECT_NE(doctor_text(checks).find("2 checks failed\n"), std::string::npos);
}

TEST_F(DoctorTest, DeviceWithoutPermission) {
    if (geteuid() == 0) GTEST_SKIP() << "root may open everything: needs an ordinary user";
    chmod(dir.path("dev/nvidiactl").c_str(), 0);
    EXPECT_EQ(find("device").outcome, Outcome::kFail);
}

TEST_F(DoctorTest, LibcudaThroughTheLoadersConfiguration) {
    remove("usr/lib/x86_64-linux-gnu/libcuda.so.1");
    EXPECT_EQ(find("libcuda").outcome, Outcome::kFail);
    dir.write("opt/nvidia/libcuda.so.1", "");
    dir.write("etc/ld.so.conf.d/nvidia.conf", "# comment\n/opt/nvidia\n");
    EXPECT_EQ(find("libcuda").detail, "/opt/nvidia/libcuda.so.1");
    remove("etc");
    input.env = {"LD_LIBRARY_PATH=/x:/opt/nvidia"};
    EXPECT_EQ(find("libcuda").outcome, Outcome::kPass);
}

TEST_F(DoctorTest, VulkanDriverManifests) {
    remove("usr/lib/x86_64-linux-gnu/libGLX_nvidia.so.0");
    EXPECT_NE(find("icd").detail.find("libGLX_nvidia.so.0, which is not there"), std::string::npos);
    remove("usr/share/vulkan/icd.d/nvidia_icd.json");
    EXPECT_NE(find("icd").detail.find("no Vulkan driver manifest"), std::string::npos);
    input.env = {"VK_DRIVER_FILES=/usr/share/vulkan/icd.d/lvp_icd.json"};
    EXPECT_EQ(find("icd").outcome, Outcome::kFail);
    EXPECT_NE(find("icd").remedy.find("unset VK_DRIVER_FILES"), std::string::npos);

    dir.write("opt/nv/icd.json", R"({"ICD":{"library_path":"./libGLX_nvidia.so.0"}})");
    dir.write("opt/nv/libGLX_nvidia.so.0", "");
    input.env = {"VK_ICD_FILENAMES=/nowhere.json:/opt/nv/icd.json"};
    EXPECT_EQ(find("icd").outcome, Outcome::kPass);
    input.env.push_back("VK_DRIVER_FILES=/nowhere.json");
    EXPECT_EQ(find("icd").outcome, Outcome::kFail);
    dir.write("opt/nv/icd.json", "[1, 2");
    input.env = {"VK_ICD_FILENAMES=/opt/nv/icd.json"};
    EXPECT_EQ(find("icd").outcome, Outcome::kFail);
}

TEST_F(DoctorTest, SocketMissingOrNoSocket) {
    remove("run/vuda/vudad.sock");
    EXPECT_EQ(find("socket").outcome, Outcome::kFail);
    EXPECT_EQ(find("daemon").outcome, Outcome::kSkip);
    dir.write("run/vuda/vudad.sock", "");
    EXPECT_NE(find("socket").detail.find("is not a socket"), std::string::npos);
}

TEST_F(DoctorTest, DaemonAnswers) {
    input.ask_daemon = [](const std::string&) -> Result<v1::HandshakeReply> {
        return Error{Code::kUnavailable, "nobody listens there", "restart it"};
    };
    EXPECT_EQ(find("daemon").outcome, Outcome::kFail);
    EXPECT_EQ(find("daemon").remedy, "restart it");
    input.ask_daemon = nullptr;
    EXPECT_EQ(find("daemon").outcome, Outcome::kSkip);
}

TEST_F(DoctorTest, LibrariesAndLayer) {
    remove("usr/lib/vuda/libVkLayer_vuda.so");
    EXPECT_EQ(find("layer").outcome, Outcome::kFail);
    dir.write("usr/share/vulkan/implicit_layer.d/VkLayer_vuda.json", "{}");
    EXPECT_NE(find("layer").detail.find("is not a layer manifest"), std::string::npos);
    input.libraries.layer_manifest.clear();
    EXPECT_EQ(find("layer").outcome, Outcome::kFail);
    input.libraries.preload = "/my build/libvuda_preload.so";
    EXPECT_EQ(find("preload").outcome, Outcome::kFail);
    input.libraries.preload.clear();
    input.libraries.searched = {"/a", "/b"};
    EXPECT_EQ(find("preload").detail, "libvuda_preload.so is not in /a, /b");
    EXPECT_EQ(find("layer").outcome, Outcome::kSkip);
}

}  // namespace
}  // namespace vuda::cli
