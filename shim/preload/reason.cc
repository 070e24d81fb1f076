#include "shim/preload/reason.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "base/result.h"

namespace vuda::shim {
namespace {

template <size_t N>
[[gnu::format(printf, 2, 3)]] void format(char (&out)[N], const char* text, ...) {
    va_list args;
    va_start(args, text);
    std::vsnprintf(out, N, text, args);
    va_end(args);
}

}  // namespace

Words describe(const Refusal& refusal) {
    Words words;
    const auto set = [&](Code code) { words.code = static_cast<int>(code); };
    switch (refusal.reason) {
        case Reason::kNone: break;
        case Reason::kNoHost:
            set(Code::kFailedPrecondition);
            format(words.text, "this process has no renderer TSG to share yet");
            format(words.hint, "create the Vulkan device before the first CUDA call");
            break;
        case Reason::kHostLegacy:
            set(Code::kFailedPrecondition);
            format(words.text, "the renderer's TSG takes no further context share (it runs in RM's legacy mode)");
            format(words.hint, "start the renderer with sharing asked for, so that its TSG is set up for it");
            break;
        case Reason::kHostEarlier:
            set(Code::kFailedPrecondition);
            format(words.text, "the renderer's device was made before sharing was asked for, and cannot be shared");
            format(words.hint, "call vuda_register or vuda_reserve before vkCreateDevice");
            break;
        case Reason::kOtherGpu:
            set(Code::kFailedPrecondition);
            format(words.text, "CUDA uses GPU instance %" PRIu64 ", the renderer uses %" PRIu64, refusal.detail,
                   refusal.other);
            format(words.hint, "choose one GPU for both (CUDA_VISIBLE_DEVICES, or the renderer's device setting)");
            break;
        case Reason::kNotRegistered:
            set(Code::kFailedPrecondition);
            format(words.text, "CUDA's address space is not registered with UVM");
            break;
        case Reason::kTsgFull:
            set(Code::kResourceExhausted);
            format(words.text, "the renderer's TSG is full: %" PRIu64 " channels in use", refusal.detail);
            format(words.hint, "end another program that is attached to it");
            break;
        case Reason::kImportRefused:
            set(Code::kPermissionDenied);
            format(words.text, "the driver refused the renderer's TSG (NV_STATUS 0x%x)", refusal.status);
            break;
        case Reason::kBufferRefused:
            set(Code::kInternal);
            format(words.text, "the driver refused to map a control buffer at 0x%" PRIx64 " (NV_STATUS 0x%x)",
                   refusal.detail, refusal.status);
            break;
        case Reason::kBufferOverlap:
            set(Code::kFailedPrecondition);
            format(words.text,
                   "CUDA's address space holds something else at 0x%" PRIx64 ", where a control buffer must go",
                   refusal.detail);
            break;
        case Reason::kVeidTaken:
            set(Code::kUnavailable);
            format(words.text, "a program that shared the TSG has not let go of subcontext %" PRIu64 " yet",
                   refusal.detail);
            format(words.hint, "start this one again");
            break;
        case Reason::kCtxshareRefused:
            set(Code::kResourceExhausted);
            format(words.text, "the driver refused a context share in the renderer's TSG (NV_STATUS 0x%x)",
                   refusal.status);
            break;
        case Reason::kChannelRefused:
            set(Code::kResourceExhausted);
            format(words.text, "the driver refused a channel in the renderer's TSG (NV_STATUS 0x%x)", refusal.status);
            break;
        case Reason::kContextGone:
            set(Code::kAborted);
            format(words.text, "the CUDA context was destroyed before its channels ran");
            break;
        case Reason::kBusy:
            set(Code::kDeadlineExceeded);
            format(words.text, "another CUDA context of this process was being set up for too long");
            break;
        case Reason::kAttachFailed:
            set(Code::kUnavailable);
            format(words.text, "vudad did not hand out the renderer's TSG");
            break;
        case Reason::kPartialUnsupported:
            set(Code::kUnimplemented);
            format(words.text,
                   "reserve %" PRIu64 ": CUDA makes %" PRIu64 " channels for a context, and all of them were moved",
                   refusal.detail, refusal.other);
            format(words.hint, "set CUDA_DEVICE_MAX_CONNECTIONS=%" PRIu64 " before the program starts", refusal.detail);
            break;
        case Reason::kDebugger:
            set(Code::kFailedPrecondition);
            format(words.text,
                   "cuda-gdb (pid %" PRIu64 ") debugs this process: to stop its kernels would stop the renderer",
                   refusal.detail);
            format(words.hint, "start the program without VUDA while you debug it");
            break;
        case Reason::kCoreDumps:
            set(Code::kFailedPrecondition);
            format(words.text,
                   "CUDA is to write GPU core dumps: a kernel that fails would hold up the renderer while it does");
            format(words.hint, "unset CUDA_ENABLE_COREDUMP_ON_EXCEPTION and its like to share");
            break;
        case Reason::kMps:
            set(Code::kFailedPrecondition);
            format(words.text,
                   "an MPS control daemon runs: its clients work through a server, with which sharing was never tried");
            format(words.hint, "end it, or set CUDA_MPS_PIPE_DIRECTORY to a folder in which there is none");
            break;
        case Reason::kMig:
            set(Code::kFailedPrecondition);
            format(words.text, "CUDA works in a MIG instance, and a TSG cannot be shared across instances");
            format(words.hint, "turn MIG mode off to share");
            break;
        case Reason::kVirtualGpu:
            set(Code::kUnimplemented);
            format(words.text, "this is a vGPU, on which sharing was never tried");
            break;
        case Reason::kConfidential:
            set(Code::kUnimplemented);
            format(words.text, "confidential computing is on, and sharing has no part in it");
            break;
        case Reason::kStopped:
            set(Code::kCancelled);
            format(words.text, "sharing was ended by vudad");
            break;
    }
    return words;
}

}  // namespace vuda::shim
