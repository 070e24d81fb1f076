#include "shim/preload/fd_table.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include <array>
#include <cerrno>
#include <memory>

#include "shim/preload/call_runner.h"
#include "shim/preload/user_memory.h"

namespace vuda::shim {
namespace {

TEST(FileRoleOf, PathsOfNvidiasDevices) {
    EXPECT_EQ(role_of_path("/dev/nvidiactl"), FileRole::kControl);
    EXPECT_EQ(role_of_path("/dev/nvidia0"), FileRole::kGpu);
    EXPECT_EQ(role_of_path("/dev/nvidia12"), FileRole::kGpu);
    EXPECT_EQ(role_of_path("/dev/nvidia-uvm"), FileRole::kUvm);
    for (const char* other : {"/dev/nvidia", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/nvidia-caps/x",
                              "/dev/nvidiactl2", "/dev/nvidia0x", "/dev/null", "", "nvidiactl"}) {
        EXPECT_EQ(role_of_path(other), FileRole::kOther) << other;
    }
}

TEST(FileRoleOf, DeviceNumbers) {
    EXPECT_EQ(role_of_device(makedev(195, 255), 0), FileRole::kControl);
    EXPECT_EQ(role_of_device(makedev(195, 0), 0), FileRole::kGpu);
    EXPECT_EQ(role_of_device(makedev(195, 254), 0), FileRole::kOther);
    EXPECT_EQ(role_of_device(makedev(510, 0), 510), FileRole::kUvm);
    EXPECT_EQ(role_of_device(makedev(510, 1), 510), FileRole::kOther);
    EXPECT_EQ(role_of_device(makedev(510, 0), 0), FileRole::kOther);
}

class FdTableTest : public ::testing::Test {
 protected:
    std::unique_ptr<FdMarks> marks_ = std::make_unique<FdMarks>();
    FdTable table_{marks_.get()};
    std::vector<FileId> gone_;
};

TEST_F(FdTableTest, AFileLivesUntilItsLastDescriptorIsClosed) {
    const FileId file = table_.opened(5, FileRole::kControl, &gone_);
    table_.duplicated(5, 9, &gone_);
    EXPECT_EQ(marks_->file(9), file);
    table_.closed(5, &gone_);
    EXPECT_TRUE(gone_.empty());
    EXPECT_EQ(table_.descriptor(file), 9);
    EXPECT_EQ(table_.role(file), FileRole::kControl);
    table_.closed(9, &gone_);
    EXPECT_EQ(gone_, std::vector<FileId>{file});
    EXPECT_EQ(table_.descriptor(file), -1);
}

TEST_F(FdTableTest, ANumberThatIsReusedIsAnotherFile) {
    const FileId first = table_.opened(5, FileRole::kControl, &gone_);
    const FileId second = table_.opened(5, FileRole::kUvm, &gone_);
    EXPECT_NE(first, second);
    EXPECT_EQ(gone_, std::vector<FileId>{first});
    table_.opened(6, FileRole::kGpu, &gone_);
    table_.duplicated(6, 5, &gone_);
    EXPECT_EQ(gone_.back(), second);
    EXPECT_EQ(table_.role(marks_->file(5)), FileRole::kGpu);
    table_.duplicated(6, 5, &gone_);
    EXPECT_EQ(gone_.size(), 2u);
}

TEST_F(FdTableTest, AnUntrackedDescriptorTakesTheNumberAway) {
    const FileId file = table_.opened(5, FileRole::kControl, &gone_);
    table_.duplicated(3, 5, &gone_);
    EXPECT_EQ(gone_, std::vector<FileId>{file});
    EXPECT_EQ(marks_->file(5), 0u);
}

TEST_F(FdTableTest, NumbersOutOfRangeAreNotFollowed) {
    EXPECT_EQ(table_.opened(FdMarks::kLimit, FileRole::kControl, &gone_), 0u);
    EXPECT_EQ(table_.opened(-1, FileRole::kControl, &gone_), 0u);
    EXPECT_FALSE(marks_->special(FdMarks::kLimit));
    EXPECT_FALSE(marks_->special(-1));
    marks_->set_guard(1 << 30, true);
    EXPECT_EQ(marks_->guards(), 0);
}

TEST_F(FdTableTest, GuardsAreCountedAndCleared) {
    marks_->set_guard(700, true);
    marks_->set_guard(700, true);
    EXPECT_EQ(marks_->guards(), 1);
    EXPECT_EQ(marks_->high_water(), 700);
    EXPECT_TRUE(marks_->special(700));
    marks_->clear();
    EXPECT_EQ(marks_->guards(), 0);
    EXPECT_FALSE(marks_->special(700));
    EXPECT_EQ(marks_->high_water(), -1);
}

TEST(UserMemory, BadPointersAreReportedNotFollowed) {
    int value = 7;
    int copy = 0;
    EXPECT_TRUE(read_user(reinterpret_cast<uintptr_t>(&value), &copy, sizeof copy));
    EXPECT_EQ(copy, 7);
    copy = 9;
    EXPECT_TRUE(write_user(reinterpret_cast<uintptr_t>(&value), &copy, sizeof copy));
    EXPECT_EQ(value, 9);
    errno = 5;
    EXPECT_FALSE(read_user(0, &copy, sizeof copy));
    EXPECT_FALSE(read_user(~uint64_t{0} - 2, &copy, sizeof copy));
    EXPECT_FALSE(write_user(16, &copy, sizeof copy));
    EXPECT_EQ(errno, 5);
    EXPECT_TRUE(read_user(0, &copy, 0));

    void* const page = mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_EQ(mprotect(static_cast<char*>(page) + 4096, 4096, PROT_NONE), 0);
    EXPECT_FALSE(write_user(reinterpret_cast<uintptr_t>(page), &copy, sizeof copy));
    EXPECT_FALSE(read_user(reinterpret_cast<uintptr_t>(page) + 4094, &copy, sizeof copy));
    munmap(page, 8192);
}

TEST(VisibleBlock, ShowsWhatTheKernelWroteAndNothingOfOurs) {
    const std::array<uint8_t, 12> original = {1, 2, 3, 4, 0x10, 0, 0, 0, 9, 9, 9, 9};
    const std::array<Edit, 2> edits = {Edit{Edit::Where::kParams, 0, 4, 0xaabbccdd, ~uint64_t{0}},
                                       Edit{Edit::Where::kParams, 4, 4, 0x50, 0x50}};
    auto sent = original;
    ASSERT_TRUE(apply_edits(Edit::Where::kParams, edits, sent));
    auto left = sent;
    left[4] |= 0x20;  // RM's bit
    left[9] = 0x77;
    const auto seen = visible_block(Edit::Where::kParams, original, sent, left, edits);
    const std::vector<uint8_t> expected = {1, 2, 3, 4, 0x30, 0, 0, 0, 9, 0x77, 9, 9};
    EXPECT_EQ(seen, expected);
}

TEST(VisibleBlock, EditsOutsideTheBlockAreRefused) {
    std::array<uint8_t, 8> block{};
    const std::array<Edit, 1> outside = {Edit{Edit::Where::kArg, 6, 4, 1, ~uint64_t{0}}};
    EXPECT_FALSE(apply_edits(Edit::Where::kArg, outside, block));
    EXPECT_TRUE(apply_edits(Edit::Where::kParams, outside, block));
}

}  // namespace
}  // namespace vuda::shim
