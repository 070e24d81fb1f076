#include "shim/preload/turn_slice.h"

#include "rm/abi.h"
#include "shim/preload/settings.h"

namespace vuda::shim {

bool TurnSlice::differs(const Tsg& at, uint32_t us) const {
    if (at.client == 0) return false;
    const uint32_t wanted = at.shared ? 0 : us;
    return at.order == order_ ? !refused_ && wanted != now_us_ : wanted != 0;
}

void TurnSlice::ask(const Tsg& at, uint32_t us, const Control& control) {
    if (!differs(at, us)) return;
    if (at.order != order_) *this = {};
    order_ = at.order;
    const uint32_t wanted = at.shared ? 0 : us;
    uint32_t status = own_us_ != 0 ? rm::nv::kOk : control(at, rm::ctrl::kTsgGetTimeslice, &own_us_);
    if (status == rm::nv::kOk && own_us_ != 0) {
        uint64_t given = wanted != 0 ? wanted : own_us_;
        status = control(at, rm::ctrl::kTsgSetTimeslice, &given);
    }
    if (status == rm::nv::kOk && own_us_ != 0) {
        now_us_ = wanted;
        return;
    }
    refused_ = true;
    say(LogLevel::kInfo,
        "the driver does not let the timeslice of the renderer's TSG be set (NV_STATUS 0x%x): turns cost more", status);
}

}  // namespace vuda::shim
