#include "sim/rm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace vuda::sim {

SharedMemory::~SharedMemory() {
    if (data_ != nullptr) munmap(data_, bytes_);
}

int SharedMemory::fd() {
    if (!fd_.valid()) {
        UniqueFd made(memfd_create("vuda-sim-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (!made.valid()) return -1;
        const auto pages = static_cast<off_t>((bytes_ + 4095) / 4096 * 4096);
        // A program holds this fd for a moment when it maps: without seals it could shrink the memory under the server
        // (SIGBUS).
        if (ftruncate(made.get(), pages) != 0 || fcntl(made.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
            return -1;
        fd_ = std::move(made);
    }
    return fd_.get();
}

uint8_t* SharedMemory::data() {
    if (data_ == nullptr) {
        const int file = fd();
        if (file < 0) return nullptr;
        void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped == MAP_FAILED) return nullptr;
        data_ = static_cast<uint8_t*>(mapped);
    }
    return data_;
}

bool SharedMemory::read(uint64_t offset, void* out, uint64_t length) {
    if (!inside(offset, length)) return false;
    const uint8_t* from = data();
    if (from == nullptr) return false;
    auto* to = static_cast<uint8_t*>(out);
    uint64_t i = 0;
    if ((offset & 3) == 0) {
        for (; i + 4 <= length; i += 4) {
            const uint32_t word = *reinterpret_cast<const volatile uint32_t*>(from + offset + i);
            std::memcpy(to + i, &word, 4);
        }
    }
    for (; i < length; i++) to[i] = *reinterpret_cast<const volatile uint8_t*>(from + offset + i);
    return true;
}

bool SharedMemory::write(uint64_t offset, const void* in, uint64_t length) {
    if (!inside(offset, length)) return false;
    uint8_t* to = data();
    if (to == nullptr) return false;
    const auto* from = static_cast<const uint8_t*>(in);
    uint64_t i = 0;
    if ((offset & 3) == 0) {
        for (; i + 4 <= length; i += 4) {
            uint32_t word;
            std::memcpy(&word, from + i, 4);
            __atomic_store_n(reinterpret_cast<uint32_t*>(to + offset + i), word, __ATOMIC_RELEASE);
        }
    }
    for (; i < length; i++) *reinterpret_cast<volatile uint8_t*>(to + offset + i) = from[i];
    return true;
}

}  // namespace vuda::sim
