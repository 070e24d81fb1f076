// Reads the error notifiers of channels in a shared TSG.
//
// The program's own mapping of that memory is not used: where it lies is not said in any ioctl, it comes and goes as
// the program likes, and process_vm_readv cannot read a driver's mapping. The memory object is mapped once more
// instead, for reading; the pages stay until that mapping goes, whatever the program frees.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shim/preload/fd_table.h"
#include "shim/preload/redirector.h"
#include "shim/preload/rm_calls.h"

namespace vuda::shim {

class FaultWatch {
 public:
    struct Found {
        bool host = false;    // the renderer's TSG died
        bool shared = false;  // the one that vudad handed over did
        uint32_t host_xid = 0;
        uint32_t shared_xid = 0;
        uint64_t host_tsg = 0;  // Notifier::tsg
    };

    FaultWatch(const FdTable& files, RmCalls& calls) : files_(files), calls_(calls) {}
    ~FaultWatch();
    FaultWatch(const FaultWatch&) = delete;
    FaultWatch& operator=(const FaultWatch&) = delete;

    // True when watch() has something to do: the notifiers are not those of the last time.
    bool differs(std::span<const Notifier> notifiers) const;
    // Maps what is new, lets go of what is gone. One that cannot be mapped is not tried again. The program's files must
    // not be closed meanwhile.
    void watch(std::span<const Notifier> notifiers);
    // What was written since the last look. Reads 16 bytes each.
    Found look();

    size_t watched() const;

    // The number of the fault that the driver wrote at `at`, 16 bytes; nullopt: none.
    static std::optional<uint32_t> read(const uint8_t* at);

 private:
    struct Mapped {
        Notifier notifier;
        void* page = nullptr;  // null: cannot be had
        bool told = false;
    };
    void* map(const Notifier& notifier);

    const FdTable& files_;
    RmCalls& calls_;
    std::vector<Mapped> mapped_;
};

}  // namespace vuda::shim
