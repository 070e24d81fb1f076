#include "rm/xid.h"

namespace vuda::rm {

// Those that can end a channel or follow from it.
std::string_view xid_text(uint32_t xid) {
    switch (xid) {
        case 1: return "invalid or corrupted push buffer";
        case 8: return "GPU stopped processing";
        case 11: return "invalid push buffer";
        case 12: return "driver error handling";
        case 13: return "graphics engine exception";
        case 31: return "MMU fault";
        case 32: return "invalid or corrupted push buffer";
        case 38: return "driver firmware error";
        case 39: return "copy engine 0 exception";
        case 40: return "copy engine 1 exception";
        case 41: return "copy engine 2 exception";
        case 43: return "GPU stopped processing";
        case 44: return "graphics engine fault during context switch";
        case kXidStopped: return "preemptive cleanup, due to previous errors";
        case 46: return "GPU stopped processing";
        case 48: return "double-bit ECC error";
        case 61: return "internal micro-controller breakpoint";
        case 62: return "internal micro-controller halt";
        case 63: return "ECC page retirement or row remapping";
        case 64: return "ECC page retirement or row remapping failed";
        case 68: return "NVDEC0 exception";
        case 69: return "graphics engine class error";
        case 74: return "NVLink error";
        case 79: return "GPU has fallen off the bus";
        case 92: return "high single-bit ECC error rate";
        case 94: return "contained ECC error";
        case 95: return "uncontained ECC error";
        case 109: return "context switch timeout";
        case 119: return "GSP RPC timeout";
        case 120: return "GSP error";
        case 140: return "unrecovered ECC error";
        case 144: return "NVLink: SAW error";
        case 154: return "GPU recovery action changed";
        default: return "";
    }
}

std::string describe_xid(uint32_t xid) {
    if (xid == 0) return "an error that the driver did not number";
    const std::string_view text = xid_text(xid);
    return "Xid " + std::to_string(xid) + (text.empty() ? "" : " (" + std::string(text) + ")");
}

}  // namespace vuda::rm
