// Streams, events, and what runs in a stream without being a kernel.
#include <atomic>

#include "bench/features/cases.h"

namespace vuda::bench::features {

Status stream_priorities(Rig& rig) {
    int least = 0;
    int greatest = 0;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.priorities(&least, &greatest), "ask for stream priorities"));
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    constexpr uint32_t kCount = 1 << 16;
    constexpr uint32_t kRounds = 30;
    std::vector<std::pair<CuStream, Finally>> streams;
    std::vector<Words> data;
    for (int priority = greatest; priority <= least; ++priority) {
        CuStream stream = nullptr;
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_create_priority(&stream, kNonBlocking, priority),
                                      "make a stream of priority " + std::to_string(priority)));
        streams.emplace_back(stream, Finally([&rig, stream] { rig.cuda.stream_destroy(stream); }));
        Result<Words> words = Words::make(rig.cuda, kCount, static_cast<uint32_t>(streams.size()));
        VUDA_BENCH_TRY(words);
        data.push_back(std::move(*words));
    }
    rig.figures["priorities"] = streams.size();
    for (size_t i = 0; i < streams.size(); ++i)
        VUDA_BENCH_TRY(run_steps(rig.cuda, *step, data[i].pointer(), kCount, kRounds, streams[i].first));
    for (size_t i = 0; i < streams.size(); ++i) {
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(streams[i].first), "wait for a stream"));
        const auto found = data[i].read();
        VUDA_BENCH_TRY(found);
        rig.sum(*found);
        const auto first = static_cast<uint32_t>(i + 1);
        VUDA_BENCH_TRY(expect_equal(*found, std::vector<uint32_t>(kCount, stepped(first, kRounds)),
                                    "stream " + std::to_string(i)));
    }
    return {};
}

Status events(Rig& rig) {
    const Result<CuFunction> spin = rig.kernel("feature_spin");
    VUDA_BENCH_TRY(spin);
    const auto one = make_stream(rig.cuda);
    VUDA_BENCH_TRY(one);
    const auto other = make_stream(rig.cuda);
    VUDA_BENCH_TRY(other);
    const auto begin = make_event(rig.cuda);
    VUDA_BENCH_TRY(begin);
    const auto end = make_event(rig.cuda);
    VUDA_BENCH_TRY(end);
    const Result<Words> count = Words::make(rig.cuda, 1);
    VUDA_BENCH_TRY(count);
    constexpr unsigned long long kCycles = 4'000'000;  // 2 ms at 2 GHz
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.event_record(begin->first, one->first), "record an event"));
    VUDA_BENCH_TRY(launch(rig.cuda, *spin, 1, 32, 0, one->first, count->pointer(), kCycles));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.event_record(end->first, one->first), "record an event"));
    // The other stream waits for the first one's kernel, and the host for the other stream.
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait_event(other->first, end->first, 0), "have a stream wait"));
    VUDA_BENCH_TRY(launch(rig.cuda, *spin, 1, 32, 0, other->first, count->pointer(), 1ull));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(other->first), "wait for a stream"));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.event_wait(end->first), "wait for an event"));
    float ms = 0;
    VUDA_BENCH_TRY(
        rig.cuda.check(rig.cuda.event_elapsed(&ms, begin->first, end->first), "ask for the time between events"));
    rig.figures["event_ms"] = ms;
    // No GPU runs at more than 4 GHz; an upper bound would be one for the renderer's frames.
    VUDA_BENCH_TRY(
        expect(ms > 1.0F && ms < 10000.0F, "a kernel of 4,000,000 cycles took " + std::to_string(ms) + " ms"));
    const auto found = count->read();
    VUDA_BENCH_TRY(found);
    rig.sum(*found);
    return expect_equal(*found, {2}, "two kernels");
}

Status host_functions(Rig& rig) {
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    const auto stream = make_stream(rig.cuda);
    VUDA_BENCH_TRY(stream);
    const Result<Words> data = Words::make(rig.cuda, 1 << 16, 5);
    VUDA_BENCH_TRY(data);
    std::atomic<uint32_t> calls{0};
    const auto count = [](void* calls_at) { ++*static_cast<std::atomic<uint32_t>*>(calls_at); };
    constexpr uint32_t kRounds = 10;
    const auto size = static_cast<uint32_t>(data->size());
    Status status;
    for (uint32_t round = 1; round <= kRounds && status.ok(); ++round) {
        status = launch(rig.cuda, *step, 64, 256, 0, stream->first, data->pointer(), size, round);
        if (status.ok())
            status = rig.cuda.check(rig.cuda.launch_host(stream->first, count, &calls), "put a function into a stream");
    }
    // Waited for in any case: the functions use `calls`.
    const Status end = rig.cuda.check(rig.cuda.stream_wait(stream->first), "wait for a stream");
    VUDA_BENCH_TRY(status);
    VUDA_BENCH_TRY(end);
    VUDA_BENCH_TRY(
        expect(calls == kRounds, std::to_string(calls) + " of " + std::to_string(kRounds) + " functions were called"));
    const auto found = data->read();
    VUDA_BENCH_TRY(found);
    rig.sum(*found);
    return expect_equal(*found, std::vector<uint32_t>(size, stepped(5, kRounds)), "kernels between functions");
}

// One stream waits for values that another writes: its channel stands still in the meantime.
Status stream_memory_operations(Rig& rig) {
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    const auto waiting = make_stream(rig.cuda);
    VUDA_BENCH_TRY(waiting);
    const auto writing = make_stream(rig.cuda);
    VUDA_BENCH_TRY(writing);
    const Result<Words> flag = Words::make(rig.cuda, 1);
    VUDA_BENCH_TRY(flag);
    const Result<Words> data = Words::make(rig.cuda, 1 << 16, 5);
    VUDA_BENCH_TRY(data);
    const auto size = static_cast<uint32_t>(data->size());
    constexpr uint32_t kRounds = 5;
    // Odd numbers let the waiting stream go, which answers with even ones.
    Status status;
    for (uint32_t round = 1; round <= kRounds && status.ok(); ++round) {
        const CuPointer at = flag->pointer();
        status = rig.cuda.check(rig.cuda.stream_wait_value(waiting->first, at, 2 * round - 1, kWaitGreaterEqual),
                                "have a stream wait for a value");
        if (status.ok()) status = launch(rig.cuda, *step, 64, 256, 0, waiting->first, data->pointer(), size, round);
        if (status.ok())
            status = rig.cuda.check(rig.cuda.stream_write_value(waiting->first, at, 2 * round, 0),
                                    "have a stream write a value");
        if (status.ok())
            status = rig.cuda.check(rig.cuda.stream_write_value(writing->first, at, 2 * round - 1, 0),
                                    "have a stream write a value");
        if (status.ok())
            status = rig.cuda.check(rig.cuda.stream_wait_value(writing->first, at, 2 * round, kWaitGreaterEqual),
                                    "have a stream wait for a value");
    }
    VUDA_BENCH_TRY(status);
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(writing->first), "wait for a stream"));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(waiting->first), "wait for a stream"));
    const auto found = data->read();
    VUDA_BENCH_TRY(found);
    rig.sum(*found);
    return expect_equal(*found, std::vector<uint32_t>(size, stepped(5, kRounds)), "kernels between values");
}

}  // namespace vuda::bench::features
