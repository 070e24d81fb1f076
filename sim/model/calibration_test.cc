// The model against measurements, and the documentation against the model.
#include "sim/model/calibration.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace vuda::sim {
namespace {

TEST(Calibration, EveryRowStaysWithinItsTolerance) {
    const Calibration calibration = calibrate();
    EXPECT_GE(calibration.rows.size(), 40u);
    EXPECT_EQ(calibration.sweep.size(), 53u);
    for (const CalibrationRow& row : calibration.rows) {
        EXPECT_TRUE(row.within()) << row.gpu << ", " << row.situation << ", " << row.quantity << ": measured "
                                  << row.measured << ", simulated " << row.simulated << ", allowed " << row.tolerance;
    }
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
    EXPECT_EQ(text.str().substr(from + begin.size(), to - from - begin.size()), to_markdown(calibrate()))
        << "put the output of vuda-sim-calibrate between the markers of docs/simulator-model.md";
}

}  // namespace
}  // namespace vuda::sim
