// Making and mapping the session page (session_page.h).
#pragma once

#include "base/result.h"
#include "base/unique_fd.h"
#include "proto/page/session_page.h"

namespace vuda::page {

// vudad's: a memfd of kPageBytes that nobody can resize (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), filled in and
// ready to be sent. Memory is used for what is touched only. UNAVAILABLE, RESOURCE_EXHAUSTED: out of descriptors or
// memory.
Result<UniqueFd> make_page_fd();

// A mapping of a page; the descriptor may be closed afterwards.
class PageMapping {
 public:
    PageMapping() = default;
    PageMapping(PageMapping&& other) noexcept;
    PageMapping& operator=(PageMapping&& other) noexcept;
    PageMapping(const PageMapping&) = delete;
    PageMapping& operator=(const PageMapping&) = delete;
    ~PageMapping();

    // vudad's, of a descriptor from make_page_fd().
    static Result<PageMapping> of_own(int fd);
    // The process's, of a descriptor that came with HelloReply.page_bytes == `bytes`. Checks size, seals and magic: a
    // page that could shrink would be a SIGBUS in somebody else's program. FAILED_PRECONDITION when something is wrong
    // with it.
    static Result<PageMapping> of_received(int fd, uint64_t bytes);
    // The page of the next vudad takes this one's place at the same address: whoever uses it meanwhile sees the one or
    // the other. As of_received; after an error the old page is still there.
    Status replace(int fd, uint64_t bytes);

    explicit operator bool() const { return page_ != nullptr; }
    Page& operator*() const { return *page_; }
    Page* operator->() const { return page_; }

 private:
    explicit PageMapping(Page* page) : page_(page) {}

    Page* page_ = nullptr;
};

}  // namespace vuda::page
