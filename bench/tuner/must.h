// What the model and the tuner are given here is fixed, so a refusal is a defect of this program and ends it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/result.h"

namespace vuda::tuner::eval {

inline void must(const Status& status) {
    if (status) return;
    std::fprintf(stderr, "refused: %s\n", status.error().to_string().c_str());
    std::abort();
}

template <typename T>
T must(Result<T> result) {
    if (!result) must(Status(result.error()));
    return *std::move(result);
}

}  // namespace vuda::tuner::eval
