// A program that calls vuda.h and was started without the preload.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vuda/vuda.h"

namespace {

TEST(WithoutPreload, CallsSayHowToGetIt) {
    EXPECT_EQ(vuda_register("game"), VUDA_E_NO_SHIM);
    EXPECT_THAT(vuda_last_error(), testing::HasSubstr("vudactl run"));
    EXPECT_EQ(vuda_attach("game"), VUDA_E_NO_SHIM);
    EXPECT_EQ(vuda_reserve(VUDA_ALL_CHANNELS), VUDA_E_NO_SHIM);
    EXPECT_EQ(vuda_detach(), VUDA_E_NO_SHIM);
    vuda_state state{};
    state.size = sizeof state;
    EXPECT_EQ(vuda_get_state(&state), VUDA_OK);
    EXPECT_EQ(state.state, VUDA_STATE_NONE);
}

}  // namespace
