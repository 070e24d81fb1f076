#include "client/output.h"

#include <utility>

namespace vuda::client {

Status Output::add(std::string_view body, std::vector<UniqueFd> fds) {
    std::string framed;
    if (Status made = append_frame(framed, body); !made) return made;
    bytes_ += framed.size();
    fds_ += fds.size();
    if (fds.empty() && !pieces_.empty() && !pieces_.back().carries) {
        pieces_.back().bytes += framed;
        return {};
    }
    const bool carries = !fds.empty();
    pieces_.push_back({std::move(framed), 0, std::move(fds), carries});
    return {};
}

Result<bool> Output::send(int socket) {
    Piece& piece = pieces_.front();
    std::vector<int> fds;
    for (const UniqueFd& fd : piece.fds) fds.push_back(fd.get());
    const Result<size_t> sent = send_some(socket, std::string_view(piece.bytes).substr(piece.sent), fds);
    if (!sent) return sent.error();
    if (*sent == 0) return false;
    piece.sent += *sent;
    bytes_ -= *sent;
    fds_ -= piece.fds.size();
    piece.fds.clear();
    if (piece.sent == piece.bytes.size()) pieces_.pop_front();
    return true;
}

void Output::clear() {
    pieces_.clear();
    bytes_ = fds_ = 0;
}

}  // namespace vuda::client
