// Code images that a program hands to CUDA, of any content.
#include "shim/partition/module_traits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const vuda::partition::ModuleTraits traits = vuda::partition::inspect_image(data, size);
    static_cast<void>(vuda::partition::children_may_exceed(traits, 0, 49'152));
    return 0;
}
