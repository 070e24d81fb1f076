#include "bench/compute/step_marks.h"

#include "bench/compute/loaded_library.h"

namespace vuda::bench {

StepMarks StepMarks::find(const std::string& library) {
    StepMarks marks;
    const LoadedLibrary vuda(library);
    vuda.find("vuda_step_begin", &marks.begin_);
    vuda.find("vuda_step_end", &marks.end_);
    return marks;
}

}  // namespace vuda::bench
