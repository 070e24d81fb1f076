// What a test has to know of its own build: AddressSanitizer keeps the lower terabytes of the address space for itself.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VUDA_HAS_ASAN true
#endif
#endif
#if !defined(VUDA_HAS_ASAN) && defined(__SANITIZE_ADDRESS__)
#define VUDA_HAS_ASAN true
#endif
#if !defined(VUDA_HAS_ASAN)
#define VUDA_HAS_ASAN false
#endif

namespace vuda {

inline constexpr bool kAddressSanitizer = VUDA_HAS_ASAN;

}  // namespace vuda

#undef VUDA_HAS_ASAN
