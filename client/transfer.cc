#include "client/transfer.h"

#include <algorithm>

#include "base/fault_point.h"
#include "client/messages.h"
#include "client/own_fd.h"

namespace vuda::client {
namespace {

Error bad_set(const std::string& what) {
    return Error{Code::kDataLoss, "vudad sent " + what, "check that client and daemon are of one release"};
}

}  // namespace

Status push_handles(const std::string& socket, const Token& token, const HandleSet& set, Deadline deadline,
                    bool stored) {
    Result<UniqueFd> connected = connect_unix(socket, deadline);
    if (!connected) return connected.error();
    const OwnFd connection(*std::move(connected));
    VUDA_FAULT_POINT(client_push_connected);
    for (size_t at = 0; at < set.items.size(); at += kFrameFdLimit) {
        const size_t count = std::min(kFrameFdLimit, set.items.size() - at);
        std::vector<HandleInfo> infos;
        std::vector<int> fds;
        for (size_t i = at; i < at + count; ++i) {
            infos.push_back(set.items[i].info);
            fds.push_back(set.items[i].fd.get());
        }
        const bool last = at + count == set.items.size();
        Status sent = send_frame(connection.get(), encode_push(token, infos, last, set.channels_in_use, set.generation),
                                 fds, deadline);
        if (!sent) return sent;
        VUDA_FAULT_POINT(client_push_part_sent);
    }
    if (!stored) return {};
    // vudad closes the connection when all is well, and says what is not.
    FrameReader reader(connection.get());
    const Result<std::string> said = reader.read(deadline);
    if (!said) return said.error().code == Code::kUnavailable ? Status{} : said.error();
    const Result<ServerMessage> message = decode_server_message(*said);
    if (!message) return message.error();
    const auto* error = std::get_if<Error>(&message->body);
    return error != nullptr ? *error : bad_set("something else than the end of a push");
}

Result<HandleSet> pull_handles(const std::string& socket, const Token& token, size_t expected, Deadline deadline) {
    Result<UniqueFd> connected = connect_unix(socket, deadline);
    if (!connected) return connected.error();
    const OwnFd connection(*std::move(connected));
    if (Status sent = send_frame(connection.get(), encode_pull(token), {}, deadline); !sent) return sent.error();
    VUDA_FAULT_POINT(client_pull_asked);

    FrameReader reader(connection.get());
    HandleSet set;
    for (;;) {
        Result<std::string> frame = reader.read(deadline);
        if (!frame) return frame.error();
        Result<Bundle> bundle = decode_bundle(*frame, token);
        if (!bundle) return bundle.error();
        if (set.items.size() + bundle->handles.size() > expected) return bad_set("more handles than it announced");
        if (bundle->handles.empty() && !bundle->last) return bad_set("an empty part of a transfer");
        Result<std::vector<UniqueFd>> fds = reader.take_fds(bundle->handles.size());
        if (!fds) return fds.error();
        for (size_t i = 0; i < fds->size(); ++i) {
            const bool tsg = bundle->handles[i].kind == HandleKind::kTsg;
            if (tsg != set.items.empty())
                return bad_set("handles that are not one TSG followed by its control buffers");
            set.items.push_back({bundle->handles[i], std::move((*fds)[i])});
        }
        if (!bundle->last) continue;
        if (set.items.size() != expected) return bad_set("fewer handles than it announced");
        if (reader.pending_fds() != 0) return bad_set("file descriptors that it did not announce");
        set.channels_in_use = bundle->channels_in_use;
        set.generation = bundle->generation;
        VUDA_FAULT_POINT(client_fds_received);
        return set;
    }
}

}  // namespace vuda::client
