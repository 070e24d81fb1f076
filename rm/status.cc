#include "rm/status.h"

#include <cstdio>

#include "rm/abi.h"

namespace vuda::rm {

std::string_view status_name(uint32_t status) {
    switch (status) {
        case nv::kOk: return "OK";
        case nv::kBufferTooSmall: return "ERR_BUFFER_TOO_SMALL";
        case nv::kBusyRetry: return "ERR_BUSY_RETRY";
        case nv::kCardNotPresent: return "ERR_CARD_NOT_PRESENT";
        case nv::kGpuIsLost: return "ERR_GPU_IS_LOST";
        case nv::kGpuUuidNotFound: return "ERR_GPU_UUID_NOT_FOUND";
        case nv::kIllegalAction: return "ERR_ILLEGAL_ACTION";
        case nv::kInUse: return "ERR_IN_USE";
        case nv::kInsertDuplicateName: return "ERR_INSERT_DUPLICATE_NAME";
        case nv::kInsufficientResources: return "ERR_INSUFFICIENT_RESOURCES";
        case nv::kInsufficientPermissions: return "ERR_INSUFFICIENT_PERMISSIONS";
        case nv::kInvalidAccessType: return "ERR_INVALID_ACCESS_TYPE";
        case nv::kInvalidAddress: return "ERR_INVALID_ADDRESS";
        case nv::kInvalidArgument: return "ERR_INVALID_ARGUMENT";
        case nv::kInvalidChannel: return "ERR_INVALID_CHANNEL";
        case nv::kInvalidClass: return "ERR_INVALID_CLASS";
        case nv::kInvalidClient: return "ERR_INVALID_CLIENT";
        case nv::kInvalidCommand: return "ERR_INVALID_COMMAND";
        case nv::kInvalidDevice: return "ERR_INVALID_DEVICE";
        case nv::kInvalidFlags: return "ERR_INVALID_FLAGS";
        case nv::kInvalidLimit: return "ERR_INVALID_LIMIT";
        case nv::kInvalidObject: return "ERR_INVALID_OBJECT";
        case nv::kInvalidObjectHandle: return "ERR_INVALID_OBJECT_HANDLE";
        case nv::kInvalidObjectNew: return "ERR_INVALID_OBJECT_NEW";
        case nv::kInvalidObjectParent: return "ERR_INVALID_OBJECT_PARENT";
        case nv::kInvalidOffset: return "ERR_INVALID_OFFSET";
        case nv::kInvalidOwner: return "ERR_INVALID_OWNER";
        case nv::kInvalidParamStruct: return "ERR_INVALID_PARAM_STRUCT";
        case nv::kInvalidParameter: return "ERR_INVALID_PARAMETER";
        case nv::kInvalidPointer: return "ERR_INVALID_POINTER";
        case nv::kInvalidRequest: return "ERR_INVALID_REQUEST";
        case nv::kInvalidState: return "ERR_INVALID_STATE";
        case nv::kNoFreeFifos: return "ERR_NO_FREE_FIFOS";
        case nv::kNoMemory: return "ERR_NO_MEMORY";
        case nv::kNotReady: return "ERR_NOT_READY";
        case nv::kNotSupported: return "ERR_NOT_SUPPORTED";
        case nv::kObjectNotFound: return "ERR_OBJECT_NOT_FOUND";
        case nv::kObjectTypeMismatch: return "ERR_OBJECT_TYPE_MISMATCH";
        case nv::kOperatingSystem: return "ERR_OPERATING_SYSTEM";
        case nv::kOtherDeviceFound: return "ERR_OTHER_DEVICE_FOUND";
        case nv::kOutOfRange: return "ERR_OUT_OF_RANGE";
        case nv::kRcError: return "ERR_RC_ERROR";
        case nv::kResetRequired: return "ERR_RESET_REQUIRED";
        case nv::kStateInUse: return "ERR_STATE_IN_USE";
        case nv::kTimeout: return "ERR_TIMEOUT";
        case nv::kUvmAddressInUse: return "ERR_UVM_ADDRESS_IN_USE";
        case nv::kLibRmVersionMismatch: return "ERR_LIB_RM_VERSION_MISMATCH";
        case nv::kGeneric: return "ERR_GENERIC";
        default: return {};
    }
}

std::string_view status_hint(uint32_t status) {
    switch (status) {
        case nv::kInsufficientPermissions: return "the object belongs to another process, which has not exported it";
        case nv::kInvalidClient:
            return "the call was made on another nvidiactl file than the one that created the client";
        case nv::kInvalidObjectHandle: return "no such object in this client, or no right to it";
        case nv::kInvalidObjectParent: return "the object hangs off another parent than the call says";
        case nv::kInvalidObject:
            return "GSP refused the object: a compute class on runqueue 0 beside graphics does this";
        case nv::kInvalidState:
            return "an address space or channel is not registered with UVM yet, or the TSG is in legacy mode";
        case nv::kInsufficientResources: return "no free subcontext or channel is left in the TSG";
        case nv::kNoFreeFifos: return "the TSG or the runlist is full";
        case nv::kUvmAddressInUse: return "something else is mapped at that GPU address";
        case nv::kBusyRetry: return "the GPU is recovering from a fault; a restart of the machine may be needed";
        case nv::kRcError: return "the channel or its TSG has faulted; the kernel log has the Xid";
        case nv::kLibRmVersionMismatch: return "user-mode and kernel-mode driver versions differ";
        default: return {};
    }
}

std::string status_text(uint32_t status) {
    const std::string_view name = status_name(status);
    char buffer[96];
    if (name.empty()) {
        std::snprintf(buffer, sizeof buffer, "status 0x%x", status);
    } else {
        std::snprintf(buffer, sizeof buffer, "%.*s (0x%x)", static_cast<int>(name.size()), name.data(), status);
    }
    return buffer;
}

}  // namespace vuda::rm
