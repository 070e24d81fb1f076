#pragma once

// Returns from the enclosing function with the error of `expression`, a Status or Result lvalue or rvalue, if it
// failed.
#define VUDA_BENCH_TRY(expression)                                                                 \
    do {                                                                                           \
        if (const auto& try_result_ = (expression); !try_result_.ok()) return try_result_.error(); \
    } while (false)
