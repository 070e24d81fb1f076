#include "daemon/live_set.h"

#include <string>
#include <utility>

namespace vuda::daemon {
namespace {

Error senseless(std::string text) { return Error{Code::kInvalidArgument, std::move(text), ""}; }

// The first of `buffers` that has a byte in [va, va + length).
template <typename Map>
auto first_over(Map& buffers, uint64_t va, uint64_t length) {
    auto at = buffers.upper_bound(va);
    if (at != buffers.begin()) {
        const auto before = std::prev(at);
        if (before->second->va + before->second->length > va) return before;
    }
    return at != buffers.end() && at->first < va + length ? at : buffers.end();
}

}  // namespace

void LiveSet::replace(HandleSetPtr set, uint64_t generation) {
    tsg_ = nullptr;
    buffers_.clear();
    generation_ = generation;
    set_ = std::move(set);
    if (!set_ || set_->size() == 0) {
        set_ = nullptr;
        return;
    }
    reaper_ = &set_->reaper();
    tsg_ = set_->items().front();
    for (size_t i = 1; i < set_->size(); ++i) {
        const HeldPtr& buffer = set_->items()[i];
        // What an owner pushes is its own affair, but updates go by address.
        if (!buffers_.emplace(buffer->va, buffer).second) generation_ = 0;
    }
}

Status LiveSet::update(const v1::MirrorUpdate& update, const std::vector<HeldPtr>& added, size_t limit) {
    if (!tsg_ || generation_ == 0 || update.from() != generation_) {
        return Error{Code::kFailedPrecondition,
                     "an update of set " + std::to_string(update.from()) + ", while set " +
                         std::to_string(generation_) + " is held",
                     ""};
    }
    if (update.to() <= update.from()) return senseless("an update that does not go on to a higher number");
    if (static_cast<size_t>(update.added_size()) != added.size())
        return senseless(std::to_string(update.added_size()) + " buffers came with " + std::to_string(added.size()) +
                         " file descriptors");
    if (update.removed_size() > kRangesPerUpdate) return senseless("too many ranges in one update");
    for (const v1::Handle& handle : update.added()) {
        if (Status ok = check_buffer(handle); !ok) return ok.error();
    }

    // On the live map, with a way back: an update touches few of thousands.
    std::vector<HeldPtr> gone;
    std::vector<uint64_t> put;
    const auto back = [&](Error error) -> Status {
        for (const uint64_t va : put) buffers_.erase(va);
        for (HeldPtr& buffer : gone) buffers_.emplace(buffer->va, std::move(buffer));
        return error;
    };
    for (const v1::MirrorRange& range : update.removed()) {
        const auto found = buffers_.find(range.va());
        if (found == buffers_.end() || found->second->length != range.length() ||
            found->second->mapping != range.mapping()) {
            return back(senseless("an update that takes away what is not there"));
        }
        gone.push_back(std::move(found->second));
        buffers_.erase(found);
    }
    for (const HeldPtr& buffer : added) {
        if (first_over(buffers_, buffer->va, buffer->length) != buffers_.end())
            return back(senseless("an update with a buffer over another"));
        buffers_.emplace(buffer->va, buffer);
        put.push_back(buffer->va);
    }
    if (size() > limit) {
        return back({Code::kResourceExhausted, "more than " + std::to_string(limit) + " handles for one TSG", ""});
    }
    generation_ = update.to();
    set_ = nullptr;
    return {};
}

HandleSetPtr LiveSet::set() const {
    if (!set_ && tsg_) {
        std::vector<HeldPtr> items{tsg_};
        items.reserve(size());
        for (const auto& [va, buffer] : buffers_) items.push_back(buffer);
        set_ = std::make_shared<const HandleSet>(*reaper_, std::move(items));
    }
    return set_;
}

}  // namespace vuda::daemon
