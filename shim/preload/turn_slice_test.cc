#include "shim/preload/turn_slice.h"

#include <gtest/gtest.h>

#include <vector>

#include "rm/abi.h"

namespace vuda::shim {
namespace {

class TurnSliceTest : public ::testing::Test {
 protected:
    // What the driver was told, in order.
    std::vector<uint64_t> ask(uint32_t us) {
        std::vector<uint64_t> told;
        slice_.ask(at_, us, [&](const TurnSlice::Tsg& of, uint32_t command, uint64_t* value) {
            EXPECT_EQ(of.tsg, at_.tsg);
            ++calls_;
            if (status_ != 0) return status_;
            if (command == rm::ctrl::kTsgGetTimeslice) {
                *value = 1024;
            } else {
                EXPECT_EQ(command, rm::ctrl::kTsgSetTimeslice);
                told.push_back(*value);
            }
            return uint32_t{0};
        });
        return told;
    }

    TurnSlice slice_;
    TurnSlice::Tsg at_{1, 0xc1d00001, 0xcef80003, 7, false};
    uint32_t status_ = 0;
    int calls_ = 0;
};

using Told = std::vector<uint64_t>;

TEST_F(TurnSliceTest, IsSetOnceAndGivenBack) {
    EXPECT_EQ(ask(0), Told{}) << "it has its own";
    EXPECT_EQ(calls_, 0);
    EXPECT_EQ(ask(16000), Told{16000});
    const int calls = calls_;
    EXPECT_FALSE(slice_.differs(at_, 16000));
    EXPECT_EQ(ask(16000), Told{});
    EXPECT_EQ(calls_, calls) << "each frame asks";
    EXPECT_EQ(ask(32000), Told{32000});
    EXPECT_EQ(ask(0), Told{1024}) << "what the driver had given it, not what we gave it";
    EXPECT_EQ(ask(0), Told{});
}

TEST_F(TurnSliceTest, NobodyWhoSharesIsKeptWaiting) {
    EXPECT_EQ(ask(16000), Told{16000});
    at_.shared = true;
    EXPECT_TRUE(slice_.differs(at_, 16000));
    EXPECT_EQ(ask(16000), Told{1024});
    EXPECT_EQ(ask(16000), Told{});
    at_.shared = false;
    EXPECT_EQ(ask(16000), Told{16000});
}

TEST_F(TurnSliceTest, AnotherTsgHasItsOwn) {
    EXPECT_EQ(ask(16000), Told{16000});
    at_.order = 8;
    at_.tsg = 0xcef80004;
    EXPECT_FALSE(slice_.differs(at_, 0)) << "nobody set anything there";
    EXPECT_EQ(ask(16000), Told{16000});
    at_.client = 0;
    EXPECT_FALSE(slice_.differs(at_, 0)) << "it is gone";
    EXPECT_EQ(ask(0), Told{});
}

TEST_F(TurnSliceTest, ADriverThatRefusesIsNotAskedAgain) {
    status_ = rm::nv::kNotSupported;
    EXPECT_EQ(ask(16000), Told{});
    EXPECT_EQ(calls_, 1);
    EXPECT_FALSE(slice_.differs(at_, 32000));
    EXPECT_EQ(ask(32000), Told{});
    EXPECT_EQ(calls_, 1);
    status_ = 0;
    at_.order = 8;
    EXPECT_EQ(ask(16000), Told{16000}) << "another TSG may do";
}

}  // namespace
}  // namespace vuda::shim
