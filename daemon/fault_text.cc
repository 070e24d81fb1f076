#include "daemon/fault_text.h"

#include <algorithm>

#include "daemon/text.h"
#include "rm/xid.h"

namespace vuda::daemon {

int64_t unix_ms() {
    return std::chrono::duration_cast<Milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string cause_text(const v1::Fault& fault) {
    const std::string said = clean_text(fault.text(), kTextLimit / 2);
    std::string text = fault.xid() != 0                             ? rm::describe_xid(fault.xid())
                       : fault.kind() == v1::FAULT_KIND_DEVICE_LOST ? "the device was lost, no Xid was seen"
                                                                    : rm::describe_xid(0);
    return said.empty() || said == text ? text : text + ": " + said;
}

Suspect suspect_of(const Peer& peer) { return {peer.uid, peer.exe.empty() ? "[" + peer.program + "]" : peer.exe}; }

std::string who_text(const Suspect& who, pid_t pid) {
    return clean_text(who.program, kTextLimit / 2) + ", pid " + std::to_string(pid) + ", uid " +
           std::to_string(who.uid);
}

std::string time_text(Milliseconds time) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(time).count();
    return seconds < 120 ? std::to_string(seconds) + " s" : std::to_string((seconds + 59) / 60) + " min";
}

Milliseconds left_of(TimePoint until, TimePoint now) {
    return until <= now ? Milliseconds(0) : std::chrono::ceil<Milliseconds>(until - now);
}

v1::Event fault_event(const char* kind, const std::string& name, TimePoint now) {
    v1::Event event;
    event.set_monotonic_us(
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count()));
    event.set_kind(kind);
    event.set_name(name);
    return event;
}

}  // namespace vuda::daemon
