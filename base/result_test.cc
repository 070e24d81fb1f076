#include "base/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

#include "base/uuid.h"

namespace vuda {
namespace {

TEST(Result, HoldsValueOrError) {
    Result<std::unique_ptr<int>> good = std::make_unique<int>(7);
    ASSERT_TRUE(good.ok());
    EXPECT_EQ(**good, 7);
    std::unique_ptr<int> taken = *std::move(good);
    EXPECT_EQ(*taken, 7);

    Result<int> bad = Error{Code::kNotFound, "no TSG named 'game'", "start the renderer first"};
    ASSERT_FALSE(bad.ok());
    EXPECT_EQ(bad.error().to_string(), "no TSG named 'game'; start the renderer first");
}

TEST(Result, ErrnoBecomesCodeAndText) {
    const Error error = errno_error(EACCES, "connect /run/vuda/vudad.sock");
    EXPECT_EQ(error.code, Code::kPermissionDenied);
    EXPECT_EQ(error.text, "connect /run/vuda/vudad.sock: Permission denied");
    EXPECT_EQ(exit_status(error.code), 77);
    EXPECT_EQ(errno_error(EMFILE, "x").code, Code::kResourceExhausted);
    EXPECT_NE(errno_error(EMFILE, "x").hint.find("ulimit -n"), std::string::npos);
    EXPECT_EQ(errno_error(EMFILE, "x", "mine").hint, "mine");
    EXPECT_EQ(errno_error(EACCES, "x").hint, "");
}

TEST(Result, EveryCodeHasItsNameAndAnExitStatus) {
    for (int i = 0; i <= 16; ++i) {
        const Code code = static_cast<Code>(i);
        EXPECT_EQ(code_name(code) == "UNKNOWN", code == Code::kUnknown) << i;
        EXPECT_EQ(exit_status(code) == 0, code == Code::kOk) << i;
    }
}

TEST(Uuid, RoundTripsAndRejects) {
    const std::string text = "GPU-2c8e0ad8-0710-ab4e-90dd-54719fe5f74b";
    Result<Uuid> uuid = parse_uuid(text);
    ASSERT_TRUE(uuid.ok());
    EXPECT_EQ(uuid->to_string(), text);
    EXPECT_EQ(*parse_uuid("2C8E0AD8-0710-AB4E-90DD-54719FE5F74B"), *uuid);
    for (const char* bad :
         {"", "GPU-", "GPU-2c8e0ad8-0710-ab4e-90dd-54719fe5f74", "GPU-2c8e0ad8-0710-ab4e-90dd-54719fe5f74bb",
          "2c8e0ad8x0710-ab4e-90dd-54719fe5f74b", "gc8e0ad8-0710-ab4e-90dd-54719fe5f74b"}) {
        EXPECT_FALSE(parse_uuid(bad).ok()) << bad;
    }
}

}  // namespace
}  // namespace vuda
