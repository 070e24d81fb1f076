// The model against measurements, and the documentation against the model.
#include "sim/model/calibration.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace vuda::sim {
namespace {

// Made once: it takes seconds.
const Calibration& all() {
    static const Calibration made = calibrate();
    return made;
}

TEST(Calibration, EveryRowStaysWithinItsTolerance) {
    const Calibration& calibration = all();
    EXPECT_GE(calibration.rows.size(), 40u);
    EXPECT_EQ(calibration.sweep.size(), 53u);
    for (const CalibrationRow& row : calibration.rows) {
        EXPECT_TRUE(row.within()) << row.gpu << ", " << row.situation << ", " << row.quantity << ": measured "
                                  << row.measured << ", simulated " << row.simulated << ", allowed " << row.tolerance;
    }
}

// What a partitioner is for: compute gets what its quota says, graphics notices nothing.
TEST(Calibration, MasksGiveComputeItsShareAndLeaveGraphicsAlone) {
    const Calibration& calibration = all();
    ASSERT_EQ(calibration.masks.size(), 8u);
    for (const MaskRow& row : calibration.masks) {
        EXPECT_NEAR(row.compute, row.proportional, 0.05 * row.proportional) << row.quota;
        EXPECT_GE(row.graphics, 99.5) << row.quota;
    }
    EXPECT_GE(calibration.masks.back().compute, 95.0);
}

TEST(Calibration, DocumentationShowsTheTableAsThisProgramMakesIt) {
    const std::string path = std::string(VUDA_SOURCE_DIR) + "/docs/simulator-model.md";
    std::ifstream file(path);
    ASSERT_TRUE(file) << path;
    std::stringstream text;
    text << file.rdbuf();
    const std::string begin = "<!-- begin: vuda-sim-calibrate -->\n", end = "<!-- end: vuda-sim-calibrate -->";
    const size_t from = text.str().find(begin), to = text.str().find(end);
    ASSERT_NE(from, std::string::npos);
    ASSERT_NE(to, std::string::npos);
    EXPECT_EQ(text.str().substr(from + begin.size(), to - from - begin.size()), to_markdown(all()))
        << "put the output of vuda-sim-calibrate between the markers of docs/simulator-model.md";
}

}  // namespace
}  // namespace vuda::sim
