// Whatever vudad, or something in its place, sends: decoded without a crash, and what passes has been checked.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/frame_io.h"
#include "client/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vuda::client;
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const auto message = decode_server_message(bytes);
    if (message) {
        if (const auto* reply = std::get_if<AttachReply>(&message->body)) {
            if (reply->handles == 0 || reply->handles > kHandleLimit) std::abort();
        }
        if (const auto* error = std::get_if<vuda::Error>(&message->body)) {
            if (error->code == vuda::Code::kOk || error->text.empty()) std::abort();
        }
    }
    const Token token{'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};
    const auto bundle = decode_bundle(bytes, token);
    if (bundle && bundle->handles.size() > vuda::kFrameFdLimit) std::abort();
    return 0;
}
