#include "shim/partition/scg_follower.h"

#include <signal.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "proto/page/split_wait.h"

namespace vuda::partition {
namespace {

// How long the end of the follower may take, and a page that was replaced go unseen.
constexpr auto kNap = std::chrono::milliseconds(100);
constexpr size_t kStack = 256 << 10;

}  // namespace

ScgFollower::~ScgFollower() {
    stopping_ = true;
    if (started_) ::pthread_join(thread_, nullptr);
}

Status ScgFollower::start() {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, kStack);
    // The program's signals are the program's business.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = ::pthread_create(&thread_, &attributes, &ScgFollower::thread_main, this);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::pthread_attr_destroy(&attributes);
    if (rc != 0) return errno_error(rc, "cannot start the thread that follows the split");
    started_ = true;
    return {};
}

void* ScgFollower::thread_main(void* self) {
    ::pthread_setname_np(::pthread_self(), "vuda-scg");
    try {
        static_cast<ScgFollower*>(self)->run();
    } catch (const std::exception&) {  // out of memory: the split stays as it is
    }
    return nullptr;
}

void ScgFollower::run() {
    page::SampleWriter writer(page_);
    uint64_t applied = 0;
    while (!stopping_.load(std::memory_order_relaxed)) {
        const uint64_t version = page::split_version(page_.daemon);
        page::Split split;
        if (!page::read_split(page_.daemon, split)) continue;
        if (split.generation != applied) {
            if (Status done = apply(split); !done) return host_.failed(done.error());
            applied = split.generation;
            writer.set_applied(applied);
        }
        page::wait_for_split(page_.daemon, version, kNap);
    }
}

Status ScgFollower::apply(const page::Split& split) {
    const bool limit = split.mode == page::SplitMode::kInterSm && split.applied_tpcs > 0;
    // A TSG that was never limited has the GPU's own default, which is co-residency on most chips and the chip's choice
    // on all.
    if (!limit && !limited_) return {};
    const Result<std::vector<Method>> methods =
        scg_methods(compute_class_, limit ? Mode::kInterSm : Mode::kIntraSm, split.applied_tpcs * sms_per_tpc_);
    if (!methods) return methods.error();
    if (Status ran = host_.run(*methods); !ran) return ran;
    limited_ = limit;
    return {};
}

}  // namespace vuda::partition
