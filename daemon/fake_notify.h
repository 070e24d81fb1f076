// A service manager's end of NOTIFY_SOCKET.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "base/frame_io.h"
#include "base/unique_fd.h"
#include "daemon/test_support.h"

namespace vuda::daemon {

class FakeNotify {
 public:
    // A path, or '@' and an abstract name.
    explicit FakeNotify(std::string address)
        : address_(std::move(address)), fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        std::memcpy(name.sun_path, address_.data(), address_.size());
        if (address_[0] == '@') name.sun_path[0] = '\0';
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
        if (::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0) std::abort();
    }
    const std::string& address() const { return address_; }

    std::optional<std::string> next(std::chrono::milliseconds patience = kPatience) {
        if (!wait_readable(fd_.get(), deadline_in(patience))) return std::nullopt;
        std::array<char, 4096> text;
        const ssize_t got = ::recv(fd_.get(), text.data(), text.size(), 0);
        return std::string(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
    }

 private:
    std::string address_;
    UniqueFd fd_;
};

}  // namespace vuda::daemon
