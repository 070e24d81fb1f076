#include "shim/partition/scg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vuda::partition {
namespace {

using ::testing::ElementsAre;

// Golden: what goes to the GPU, word for word, worked out by hand from the class headers.
TEST(Scg, InterSmOnAdaWordForWord) {
    const Result<std::vector<Method>> methods = scg_methods(0xc9c0, Mode::kInterSm, 44);
    ASSERT_TRUE(methods.ok());
    EXPECT_THAT(push_buffer(0xc9c0, *methods, 0x3'1234'5670, 0x1001),
                ElementsAre(0x20012000u, 0x0000c9c0u,  // SET_OBJECT, subchannel 1
                            0x2001207au, 0x00000000u,  // SET_SM_SCG_CONTROL 0x1e8: compute not in graphics' SMs
                            0x2001209cu, 0x0002c02cu,  // SET_SCG_CONTROL 0x270: MIN 44 at 20:12, MAX 44 at 8:0
                            0x20052017u, 0x12345670u, 0x00000003u, 0x00001001u, 0x00000000u, 0x00100001u));
}

TEST(Scg, IntraSmWordForWord) {
    for (const uint32_t cls : {0xc5c0u, 0xc6c0u, 0xc7c0u, 0xc9c0u}) {
        const Result<std::vector<Method>> methods = scg_methods(cls, Mode::kIntraSm, 0);
        ASSERT_TRUE(methods.ok());
        EXPECT_THAT(push_buffer(cls, *methods, 0x1000, 1),
                    ElementsAre(0x20012000u, cls, 0x2001207au, 0x00000001u, 0x2001209cu, 0x000001ffu, 0x20052017u,
                                0x1000u, 0u, 1u, 0u, 0x00100001u));
    }
}

TEST(Scg, EveryCountIsBothTheLeastAndTheMost) {
    for (uint32_t sms = 1; sms <= 511; ++sms) {
        const Result<std::vector<Method>> methods = scg_methods(0xc7c0, Mode::kInterSm, sms);
        ASSERT_TRUE(methods.ok()) << sms;
        EXPECT_EQ(methods->at(1).data & 0x1ff, sms);
        EXPECT_EQ(methods->at(1).data >> 12 & 0x1ff, sms);
        EXPECT_EQ(methods->at(1).data & ~(0x1ffu | 0x1ffu << 12), 0u);
    }
    EXPECT_EQ(scg_methods(0xc7c0, Mode::kInterSm, 0).error().code, Code::kInvalidArgument);
    EXPECT_EQ(scg_methods(0xc7c0, Mode::kInterSm, 512).error().code, Code::kInvalidArgument);
}

// An illegal method wedges the GPU: no class but those whose header was read and lists both gets one.
TEST(Scg, NothingForAnyOtherClass) {
    for (uint32_t cls = 0; cls <= 0xffff; ++cls) {
        const bool known = cls == 0xc5c0 || cls == 0xc6c0 || cls == 0xc7c0 || cls == 0xc9c0;
        EXPECT_EQ(has_scg(cls), known) << std::hex << cls;
        for (const Mode mode : {Mode::kIntraSm, Mode::kInterSm})
            EXPECT_EQ(scg_methods(cls, mode, 2).ok(), known) << std::hex << cls;
    }
    EXPECT_FALSE(scg_methods(0xc9c0, Mode::kSliced, 2).ok());
    ASSERT_NE(find_scg_class(0xcbc0), nullptr);
    EXPECT_FALSE(find_scg_class(0xcbc0)->scg_control) << "Hopper";
}

TEST(Scg, L1ConfigurationOf3dClassesOnly) {
    EXPECT_THAT(push_buffer(0xcb97, {{kSetL1Configuration, 3}}, 0x3'1234'5670, 0x1001),
                ElementsAre(0x20010000u, 0xcb97u, 0x200100c2u, 0x00000003u, 0x20050017u, 0x12345670u, 0x00000003u,
                            0x00001001u, 0x00000000u, 0x00100001u));
    size_t known = 0;
    for (uint32_t cls = 0; cls <= 0xffff; ++cls) known += has_l1_configuration(cls) ? 1 : 0;
    EXPECT_EQ(known, 8u);
    EXPECT_FALSE(has_l1_configuration(0xcbc0)) << "compute";
    EXPECT_FALSE(has_l1_configuration(0xb197)) << "its header was not read";
}

}  // namespace
}  // namespace vuda::partition
