// Hands what happens in the registry to everyone who watches. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "vuda/v1/control.pb.h"

namespace vuda::daemon {

class EventHub {
 public:
    using Listener = std::function<void(const v1::Event&)>;

    // Listeners must not subscribe or unsubscribe from inside a call.
    uint64_t subscribe(Listener listener) {
        listeners_.emplace(++last_, std::move(listener));
        return last_;
    }
    void unsubscribe(uint64_t id) { listeners_.erase(id); }
    void publish(const v1::Event& event) const {
        for (const auto& [id, listener] : listeners_) listener(event);
    }

 private:
    std::map<uint64_t, Listener> listeners_;
    uint64_t last_ = 0;
};

}  // namespace vuda::daemon
