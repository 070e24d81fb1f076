#include "tests/faults/orders.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/unique_fd.h"
#include "tests/e2e/deployment.h"

namespace vuda::faults {

FaultyOs::FaultyOs(const std::string& folder) : path_(folder + "/orders") {
    const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!fd || ::ftruncate(fd.get(), sizeof(Orders)) != 0) std::abort();
    void* at = ::mmap(nullptr, sizeof(Orders), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (at == MAP_FAILED) std::abort();
    orders_ = static_cast<Orders*>(at);
}

FaultyOs::~FaultyOs() { ::munmap(orders_, sizeof(Orders)); }

std::string FaultyOs::library() { return e2e::built_library("libvuda_faulty_os.so"); }

std::map<std::string, std::string> FaultyOs::env() const {
    return {{"LD_PRELOAD", library()}, {kOrdersVariable, path_}};
}

void FaultyOs::only_from(const std::string& object) {
    std::strncpy(orders_->caller, object.c_str(), sizeof orders_->caller - 1);
}
void FaultyOs::only_path(const std::string& part) {
    std::strncpy(orders_->path, part.c_str(), sizeof orders_->path - 1);
}

void FaultyOs::fail(Call call, int error, int times, int spare) {
    Orders::One& one = orders_->calls[static_cast<size_t>(call)];
    one.times = times;
    one.spare = spare;
    one.done = 0;
    one.error = error;
}

void FaultyOs::heal() {
    for (Orders::One& one : orders_->calls) one.error = 0;
}

unsigned FaultyOs::done(Call call) const { return orders_->calls[static_cast<size_t>(call)].done; }

}  // namespace vuda::faults
