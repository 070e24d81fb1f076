// vuda-sim-calibrate: prints how far the timing model is from what was measured.
#include <cstdio>
#include <cstring>

#include "sim/model/calibration.h"

int main(int argc, char** argv) {
    const bool json = argc == 2 && std::strcmp(argv[1], "--json") == 0;
    const bool markdown = argc == 1 || (argc == 2 && std::strcmp(argv[1], "--markdown") == 0);
    if (!json && !markdown) {
        std::fputs(
            "usage: vuda-sim-calibrate [--markdown | --json]\n"
            "Runs the simulated GPU on the workloads that were measured on real ones and prints both.\n"
            "Exit status: 0, or 1 when a row is outside its tolerance.\n",
            argc == 2 && std::strcmp(argv[1], "--help") == 0 ? stdout : stderr);
        return argc == 2 && std::strcmp(argv[1], "--help") == 0 ? 0 : 64;
    }
    const vuda::sim::Calibration calibration = vuda::sim::calibrate();
    std::fputs((json ? to_json(calibration) : to_markdown(calibration)).c_str(), stdout);
    for (const vuda::sim::CalibrationRow& row : calibration.rows) {
        if (!row.within()) return 1;
    }
    return 0;
}
