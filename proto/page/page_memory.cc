#include "proto/page/page_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

namespace vuda::page {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Error wrong(const char* what) {
    return Error{Code::kFailedPrecondition, std::string("vudad's session page ") + what,
                 "use client and daemon of one release"};
}

}  // namespace

Result<UniqueFd> make_page_fd() {
    UniqueFd fd(::memfd_create("vuda-session", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) return errno_error(errno, "cannot make a session page");
    if (::ftruncate(fd.get(), kPageBytes) != 0) return errno_error(errno, "cannot size a session page");
    if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return errno_error(errno, "cannot seal a session page");
    const Result<PageMapping> mapped = PageMapping::of_own(fd.get());
    if (!mapped) return mapped.error();
    Page& page = **mapped;
    page.daemon.bytes.store(kPageBytes, std::memory_order_relaxed);
    page.daemon.magic.store(kMagic, std::memory_order_release);
    return fd;
}

PageMapping::PageMapping(PageMapping&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}

PageMapping& PageMapping::operator=(PageMapping&& other) noexcept {
    std::swap(page_, other.page_);
    return *this;
}

PageMapping::~PageMapping() {
    if (page_ != nullptr) ::munmap(page_, kPageBytes);
}

Result<PageMapping> PageMapping::of_own(int fd) {
    void* at = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return errno_error(errno, "cannot map a session page");
    return PageMapping(static_cast<Page*>(at));
}

Result<PageMapping> PageMapping::of_received(int fd, uint64_t bytes) {
    void* at = ::mmap(nullptr, kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return errno_error(errno, "cannot map vudad's session page");
    PageMapping mapping(static_cast<Page*>(at));
    if (Status mapped = mapping.replace(fd, bytes); !mapped) return mapped.error();
    return mapping;
}

Status PageMapping::replace(int fd, uint64_t bytes) {
    struct stat facts {};
    if (::fstat(fd, &facts) != 0) return errno_error(errno, "cannot look at vudad's session page");
    if (bytes != kPageBytes || static_cast<uint64_t>(facts.st_size) != kPageBytes) return wrong("has another size");
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & kSeals) != kSeals) return wrong("can be resized");
    {
        const Result<PageMapping> look = of_own(fd);
        if (!look) return look.error();
        if ((*look)->daemon.magic.load(std::memory_order_acquire) != kMagic ||
            (*look)->daemon.bytes.load(std::memory_order_relaxed) != kPageBytes) {
            return wrong("is not one that this libvuda.so knows");
        }
    }
    char* at = reinterpret_cast<char*>(page_);
    if (::mmap(at, kProcessHalf, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
        ::mmap(at + kProcessHalf, kPageBytes - kProcessHalf, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
               kProcessHalf) == MAP_FAILED) {
        const int error = errno;
        // What was there may be gone (mmap(2)), and others read it at this moment: better an empty page than none.
        static_cast<void>(
            ::mmap(at, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
        return errno_error(error, "cannot map vudad's session page");
    }
    return {};
}

}  // namespace vuda::page
