// The daemon's events, followed in a thread of their own and handed over through a descriptor that poll() can wait for.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "cli/daemon_client.h"

namespace vuda::cli {

class EventFeed {
 public:
    // `client` must outlive this object.
    explicit EventFeed(DaemonClient& client);
    EventFeed(const EventFeed&) = delete;
    EventFeed& operator=(const EventFeed&) = delete;
    ~EventFeed();

    // Readable while there is something to take, or when the feed has ended.
    int fd() const { return wake_.get(); }
    std::vector<v1::Event> take();
    bool ended();

 private:
    void follow();

    UniqueFd wake_;
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientReader<v1::Event>> reader_;
    std::mutex mutex_;
    std::vector<v1::Event> events_;
    bool ended_ = false;
    std::thread thread_;
};

}  // namespace vuda::cli
