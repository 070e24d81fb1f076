#include "daemon/handle_set.h"

#include <algorithm>
#include <limits>
#include <string>

namespace vuda::daemon {
namespace {

Status check(const v1::Handle& handle, bool first) {
    const auto bad = [](std::string text) { return Error{Code::kInvalidArgument, std::move(text), ""}; };
    if (first != (handle.kind() == v1::HANDLE_KIND_TSG)) {
        return bad("a handle set is one TSG, first, and control buffers after it");
    }
    if (first) {
        if (handle.va() != 0 || handle.length() != 0 || handle.offset() != 0)
            return bad("a TSG has no address or length");
        return {};
    }
    return check_buffer(handle);
}

}  // namespace

Status check_buffer(const v1::Handle& handle) {
    const auto bad = [](std::string text) { return Error{Code::kInvalidArgument, std::move(text), ""}; };
    if (handle.kind() != v1::HANDLE_KIND_CONTROL_BUFFER) {
        return bad("unknown handle kind " + std::to_string(static_cast<int>(handle.kind())));
    }
    constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
    if (handle.length() == 0 || handle.va() > kMax - handle.length() || handle.offset() > kMax - handle.length()) {
        return bad("a control buffer's range is empty or wraps around");
    }
    return {};
}

v1::Handle HeldHandle::message() const {
    v1::Handle handle;
    handle.set_kind(kind);
    handle.set_va(va);
    handle.set_length(length);
    handle.set_offset(offset);
    handle.set_mapping(mapping);
    return handle;
}

Status HandleSet::append(const v1::HandleBundle& bundle, std::vector<UniqueFd> fds, size_t limit) {
    const auto fail = [&](Error error) {
        reaper_.close(std::move(fds));
        return error;
    };
    const auto count = static_cast<size_t>(bundle.handles_size());
    if (count > kHandlesPerFrame) {
        return fail(
            {Code::kInvalidArgument, "more than " + std::to_string(kHandlesPerFrame) + " handles in one frame", ""});
    }
    if (fds.size() != count) {
        return fail({Code::kInvalidArgument,
                     std::to_string(count) + " handles came with " + std::to_string(fds.size()) + " file descriptors",
                     ""});
    }
    if (items_.size() + count > limit) {
        return fail({Code::kResourceExhausted, "more than " + std::to_string(limit) + " handles for one TSG", ""});
    }
    for (const v1::Handle& handle : bundle.handles()) {
        if (Status ok = check(handle, items_.empty() && &handle == &bundle.handles(0)); !ok) return fail(ok.error());
    }
    for (size_t i = 0; i < count; ++i) {
        items_.push_back(
            std::make_shared<const HeldHandle>(reaper_, bundle.handles(static_cast<int>(i)), std::move(fds[i])));
    }
    return {};
}

v1::HandleBundle bundle_of(const HandleSet& set, size_t first, size_t count) {
    v1::HandleBundle bundle;
    count = std::min(count, set.size() - first);
    for (size_t i = first; i < first + count; ++i) {
        *bundle.add_handles() = set.items()[i]->message();
    }
    bundle.set_last(first + count == set.size());
    return bundle;
}

}  // namespace vuda::daemon
