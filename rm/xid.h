// The error numbers that NVIDIA's driver writes into a channel's error notifier; the kernel log calls them Xid.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vuda::rm {

// The driver writes one number into the notifiers of all channels of the TSG (NvNotification::info32, with status
// kNotificationError), and nothing in them says whose channel it was. Source: krcErrorSetNotifier in NVIDIA's open
// kernel modules, kernel/gpu/rc/kernel_rc_notification.c.

// Larger numbers were never assigned (nverror.h ends far below): such a notifier was not written by the driver.
inline constexpr uint32_t kXidLimit = 1023;

// A channel that is stopped has this written into its own notifier, also when all is well: UVM stops each channel of a
// CUDA context that ends. Source: kchannelNotifyRc, kernel/gpu/fifo/kernel_channel.c.
inline constexpr uint32_t kXidStopped = 45;
constexpr bool is_fault(uint32_t xid) { return xid != kXidStopped; }

// "MMU fault"; empty for a number that is not in the table. Source: nverror.h's names and NVIDIA's document "Xid
// Errors".
std::string_view xid_text(uint32_t xid);

// "Xid 31 (MMU fault)", "Xid 999"; for 0 "an error that the driver did not number".
std::string describe_xid(uint32_t xid);

}  // namespace vuda::rm
