// The preload's state in this very process, over the fake kernel of testing_next.cc, where sanitizers can watch: what
// the hooks call, from several threads at once. The hooks themselves: hook_test.cc.
#include "shim/preload/process.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "shim/preload/next.h"
#include "shim/preload/testing_gpu.h"
#include "shim/preload/testing_rm.h"

namespace vuda::shim {
namespace {

using namespace vuda::shim::testing;

TestRm& kernel() { return *static_cast<TestRm*>(reinterpret_cast<void* (*)()>(dlsym(RTLD_DEFAULT, "test_rm"))()); }

class ProcessTest : public ::testing::Test {
 protected:
    ProcessTest() {
        next::resolve();
        settings_.off = false;
        set_log_level(LogLevel::kOff);
        settings_.wishes.share_in_process = 1;
        // In a whole tree libvuda.so lies beside this program and is asked for the wishes: it must say the same.
        setenv("VUDA_SHARE", "1", 1);
        settings_.wishes.reserve = UINT32_MAX;
        process_ = std::make_unique<Process>(settings_, marks_);
        gpu_ioctl = [this](int fd, unsigned long request, void* arg) { return process_->ioctl(fd, request, arg); };
        gpu_open = [this](const char* path) {
            const int fd = next::open(path, O_RDWR | O_CLOEXEC, 0);
            process_->opened(fd, role_of_path(path));
            return fd;
        };
    }
    int close_file(int fd) {
        return process_->closing(fd, [fd] { return next::close(fd); });
    }
    unsigned channels_of(uint32_t client, uint32_t tsg) { return kernel().find(client, tsg)->group->channels; }

    // As in a program, never destroyed: libvuda's thread goes on using the first one.
    struct Kept {
        Settings settings;
        FdMarks marks;
        std::unique_ptr<Process> process;
    };
    static Kept& keep() {
        static auto& all = *std::make_unique<std::vector<std::unique_ptr<Kept>>>().release();
        return *all.emplace_back(std::make_unique<Kept>());
    }

    Kept& kept_ = keep();
    Settings& settings_ = kept_.settings;
    FdMarks* const marks_ = &kept_.marks;
    std::unique_ptr<Process>& process_ = kept_.process;
};

// vuda-probe's pair may send the method; a process whose TSG others may hold, never.
TEST_F(ProcessTest, L1IsSentToNobodyElsesTsg) {
    const auto code = [](Process& process, uint32_t value) {
        vuda_private_error error{};
        EXPECT_EQ(process.private_l1(value, &error), -1);
        return static_cast<Code>(error.code);
    };
    EXPECT_EQ(code(*process_, 0), Code::kInvalidArgument);
    EXPECT_EQ(code(*process_, 7), Code::kInvalidArgument) << "a class error";
    EXPECT_EQ(code(*process_, 3), Code::kFailedPrecondition) << "there is no renderer";
    for (char* name : {settings_.wishes.register_name, settings_.wishes.attach_name}) {
        name[0] = 'x';
        Process named(settings_, marks_);
        EXPECT_EQ(code(named, 7), Code::kFailedPrecondition) << "whatever it is";
        name[0] = '\0';
    }
}

TEST_F(ProcessTest, TheRenderersTimesliceIsLongWhileNobodyShares) {
    EXPECT_EQ(process_->turn_slice(16000), 1) << "there is no renderer";
    Gpu gpu;
    start_renderer(&gpu);
    const auto slice = [&] { return kernel().find(gpu.vk_client, kVkTsg)->group->timeslice_us; };
    EXPECT_EQ(process_->turn_slice(16000), 1);
    EXPECT_EQ(slice(), 16000u);
    start_cuda_client(&gpu);
    make_context(gpu);
    EXPECT_EQ(channels_of(gpu.vk_client, kVkTsg), 9u) << "it shares";
    EXPECT_EQ(process_->turn_slice(16000), 1);
    EXPECT_EQ(slice(), 1024u);
    CHECK(free_object(gpu.cu, gpu.cu_client, kCuTsg) == 0);
    EXPECT_EQ(process_->turn_slice(16000), 1);
    EXPECT_EQ(slice(), 16000u);
    EXPECT_EQ(process_->turn_slice(0), 1);
    EXPECT_EQ(slice(), 1024u);
    for (const int fd : {gpu.cu, gpu.uvm, gpu.vk}) EXPECT_EQ(close_file(fd), 0);
    EXPECT_EQ(process_->turn_slice(16000), 1) << "it is gone";
}

// Libraries must not be told of less shared memory than there is (libvuda_fit.so) where their kernels run unshared.
TEST_F(ProcessTest, AContextThatDoesNotShareIsRemembered) {
    Gpu gpu;
    start_renderer(&gpu);
    start_cuda_client(&gpu);
    make_context(gpu);
    EXPECT_EQ(channels_of(gpu.vk_client, kVkTsg), 9u);
    EXPECT_FALSE(process_->unshared());
    for (const int fd : {gpu.cu, gpu.uvm, gpu.vk}) EXPECT_EQ(close_file(fd), 0);
    EXPECT_FALSE(process_->unshared()) << "it shared to its end";

    Gpu alone;
    start_cuda_client(&alone);
    make_context(alone);
    EXPECT_TRUE(process_->unshared()) << "there is no renderer";
    for (const int fd : {alone.cu, alone.uvm}) EXPECT_EQ(close_file(fd), 0);
    EXPECT_TRUE(process_->unshared()) << "libraries remember what they were told";
}

// Seen on an H200: the process makes neither TSG nor address space, which are its server's.
TEST_F(ProcessTest, AClientOfMpsHearsWhyWhenCudaBegins) {
    char folder[] = "/tmp/vuda-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s/control", folder);
    const int uvm = gpu_open("/dev/nvidia-uvm");
    const auto begin = [uvm](Process& process) {
        rm::UvmInitializeArgs args{};
        errno = 0;
        return process.ioctl(uvm, rm::uvm::kInitialize, &args);
    };
    setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
    EXPECT_EQ(begin(*process_), 0);
    EXPECT_FALSE(process_->unshared()) << "nobody listens";

    const UniqueFd control(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(control.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(listen(control.get(), 8), 0);
    EXPECT_EQ(begin(*process_), 0) << "it runs as without us";
    EXPECT_TRUE(process_->unshared());

    settings_.wishes.require = 1;
    setenv("VUDA_REQUIRE", "1", 1);
    EXPECT_EQ(begin(*process_), -1);
    EXPECT_EQ(errno, EPERM);

    // One that is not to share is nobody's business.
    settings_.wishes.share_in_process = 0;
    setenv("VUDA_SHARE", "0", 1);
    EXPECT_EQ(begin(*process_), 0);

    for (const char* name : {"CUDA_MPS_PIPE_DIRECTORY", "VUDA_REQUIRE"}) unsetenv(name);
    EXPECT_EQ(close_file(uvm), 0);
    std::filesystem::remove_all(folder);
}

// The other thread ended before this one came to wait: nobody is left to wake it.
TEST_F(ProcessTest, WhatIsInNobodysWayAnyLongerDoesNotWait) {
    Gpu gpu;
    start_cuda_client(&gpu);
    rm::FreeArgs args{};
    args.hRoot = gpu.cu_client;
    args.hObjectOld = kCuTsg;
    Call call;
    call.role = FileRole::kControl;
    call.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kFree, sizeof args));
    call.arg = std::span(reinterpret_cast<const uint8_t*>(&args), sizeof args);
    Plan made_before;
    made_before.disposition = Plan::Disposition::kWait;
    made_before.intent.kind = Intent::Kind::kFree;
    const auto begin = std::chrono::steady_clock::now();
    call.now_ns = static_cast<uint64_t>(begin.time_since_epoch() / std::chrono::nanoseconds(1));
    const Plan plan = process_->wait(made_before, call);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
    EXPECT_EQ(plan.disposition, Plan::Disposition::kForward);
    for (const int fd : {gpu.cu, gpu.uvm}) EXPECT_EQ(close_file(fd), 0);
}

TEST_F(ProcessTest, ThreadsShareAndGoWhileFilesComeAndGo) {
    Gpu gpu;
    start_renderer(&gpu);
    start_cuda_client(&gpu);
    std::vector<std::thread> all;
    for (uint32_t i = 0; i < 4; ++i) {
        all.emplace_back([&gpu, i] {
            const uint32_t shift = (i + 1) * 0x1000;
            for (int round = 0; round < 10; ++round) {
                make_context(gpu, shift);
                CHECK(free_object(gpu.cu, gpu.cu_client, kCuTsg + shift) == 0);
            }
        });
    }
    all.emplace_back([this] {
        for (int i = 0; i < 200; ++i) {
            const int fd = gpu_open("/dev/nvidia0");
            CHECK(close_file(fd) == 0);
            process_->device_created();
        }
    });
    for (std::thread& thread : all) thread.join();
    EXPECT_EQ(channels_of(gpu.vk_client, kVkTsg), 1u);
    EXPECT_TRUE(kernel().ranges.empty());

    make_context(gpu);
    EXPECT_EQ(channels_of(gpu.vk_client, kVkTsg), 9u);
    for (const int fd : {gpu.cu, gpu.uvm, gpu.vk}) EXPECT_EQ(close_file(fd), 0);
}

}  // namespace
}  // namespace vuda::shim
