#include "base/result.h"

#include <cerrno>
#include <cstring>

namespace vuda {

std::string_view code_name(Code code) {
    switch (code) {
        case Code::kOk: return "OK";
        case Code::kCancelled: return "CANCELLED";
        case Code::kUnknown: return "UNKNOWN";
        case Code::kInvalidArgument: return "INVALID_ARGUMENT";
        case Code::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
        case Code::kNotFound: return "NOT_FOUND";
        case Code::kAlreadyExists: return "ALREADY_EXISTS";
        case Code::kPermissionDenied: return "PERMISSION_DENIED";
        case Code::kResourceExhausted: return "RESOURCE_EXHAUSTED";
        case Code::kFailedPrecondition: return "FAILED_PRECONDITION";
        case Code::kAborted: return "ABORTED";
        case Code::kOutOfRange: return "OUT_OF_RANGE";
        case Code::kUnimplemented: return "UNIMPLEMENTED";
        case Code::kInternal: return "INTERNAL";
        case Code::kUnavailable: return "UNAVAILABLE";
        case Code::kDataLoss: return "DATA_LOSS";
        case Code::kUnauthenticated: return "UNAUTHENTICATED";
    }
    return "UNKNOWN";
}

// Values of <sysexits.h>; spelled out because that header only has macros.
int exit_status(Code code) {
    constexpr int kUsage = 64, kNoInput = 66, kUnavailable = 69, kSoftware = 70, kCantCreate = 73, kTempFail = 75,
                  kNoPerm = 77;
    switch (code) {
        case Code::kOk: return 0;
        case Code::kInvalidArgument:
        case Code::kOutOfRange: return kUsage;
        case Code::kNotFound: return kNoInput;
        case Code::kPermissionDenied:
        case Code::kUnauthenticated: return kNoPerm;
        case Code::kAlreadyExists: return kCantCreate;
        case Code::kDeadlineExceeded:
        case Code::kAborted:
        case Code::kCancelled:
        case Code::kResourceExhausted: return kTempFail;
        case Code::kUnavailable:
        case Code::kFailedPrecondition:
        case Code::kUnimplemented: return kUnavailable;
        case Code::kUnknown:
        case Code::kInternal:
        case Code::kDataLoss: return kSoftware;
    }
    return kSoftware;
}

std::string Error::to_string() const { return hint.empty() ? text : text + "; " + hint; }

namespace {

// What helps whatever was being done.
std::string_view remedy(int err) {
    switch (err) {
        case EMFILE: return "raise the limit of open files of this process (ulimit -n; LimitNOFILE= of a unit)";
        case ENFILE: return "the machine's table of open files is full: raise fs.file-max";
        case ENOMEM: return "free some memory";
        case ENOSPC:
        case EDQUOT: return "free some space there";
        default: return "";
    }
}

}  // namespace

Error errno_error(int err, std::string_view what, std::string_view hint) {
    Code code = Code::kInternal;
    switch (err) {
        case EACCES:
        case EPERM: code = Code::kPermissionDenied; break;
        case ENOENT: code = Code::kNotFound; break;
        case EEXIST:
        case EADDRINUSE: code = Code::kAlreadyExists; break;
        case EINVAL:
        case ENAMETOOLONG: code = Code::kInvalidArgument; break;
        case EMFILE:
        case ENFILE:
        case ENOMEM:
        case EDQUOT:
        case ENOSPC: code = Code::kResourceExhausted; break;
        case ECONNREFUSED:
        case ECONNRESET:
        case EPIPE: code = Code::kUnavailable; break;
        case ETIMEDOUT:
        case EAGAIN: code = Code::kDeadlineExceeded; break;
        default: break;
    }
    char buffer[128];
    const char* reason = strerror_r(err, buffer, sizeof buffer);  // GNU variant: thread-safe, never null
    std::string text(what);
    text += ": ";
    text += reason;
    return Error{code, std::move(text), std::string(hint.empty() ? remedy(err) : hint)};
}

}  // namespace vuda
