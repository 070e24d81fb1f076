#include "cli/event_feed.h"

#include <sys/eventfd.h>

#include <utility>

namespace vuda::cli {

EventFeed::EventFeed(DaemonClient& client)
    : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), reader_(client.stub().Watch(&context_, v1::WatchRequest())) {
    thread_ = std::thread([this] { follow(); });
}

EventFeed::~EventFeed() {
    context_.TryCancel();
    thread_.join();
}

std::vector<v1::Event> EventFeed::take() {
    uint64_t count = 0;
    if (::eventfd_read(wake_.get(), &count) != 0) return {};
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
}

bool EventFeed::ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
}

void EventFeed::follow() {
    v1::Event event;
    while (reader_->Read(&event)) {
        {
            const std::lock_guard lock(mutex_);
            events_.push_back(event);
        }
        ::eventfd_write(wake_.get(), 1);
    }
    reader_->Finish();
    {
        const std::lock_guard lock(mutex_);
        ended_ = true;
    }
    ::eventfd_write(wake_.get(), 1);
}

}  // namespace vuda::cli
