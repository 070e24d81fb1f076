// Sleeping on a word of the page. A futex is 32 bits wide; the lower half of a word is one.
#pragma once

#include <chrono>
#include <cstdint>

#include "proto/page/session_page.h"

namespace vuda::page {

void wake_all(Word& word);
// Until woken, while the lower half of `word` is that of `value`; at most `limit`. May return early.
void wait_while(const Word& word, uint64_t value, std::chrono::nanoseconds limit);

}  // namespace vuda::page
