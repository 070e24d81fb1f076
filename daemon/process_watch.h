// Tells when a process has ended, zombies included, without asking again and again.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>

#include "daemon/peer.h"

namespace vuda::daemon {

class ProcessWatch {
 public:
    // `ended` runs once on the loop, unless the watch is destroyed before. Watches nothing when the peer has no pidfd.
    ProcessWatch(boost::asio::io_context& loop, const Peer& peer, std::function<void()> ended);
    ProcessWatch(const ProcessWatch&) = delete;
    ProcessWatch& operator=(const ProcessWatch&) = delete;
    ~ProcessWatch() { *alive_ = false; }

 private:
    void wait();

    // A wait that has completed is in the loop's queue and cannot be cancelled any more; it asks here before it calls.
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
    boost::asio::posix::stream_descriptor pidfd_;
    std::function<void()> ended_;
};

}  // namespace vuda::daemon
