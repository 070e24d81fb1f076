// Kinds of launches.
#include <fstream>
#include <iterator>

#include "bench/features/cases.h"

namespace vuda::bench::features {
namespace {

Status waited(Rig& rig, CuStream stream = nullptr) {
    return rig.cuda.check(rig.cuda.stream_wait(stream), "wait for the kernels");
}

Result<std::vector<uint32_t>> waited_for(Rig& rig, const Words& words) {
    VUDA_BENCH_TRY(waited(rig));
    Result<std::vector<uint32_t>> found = words.read();
    if (found.ok()) rig.sum(*found);
    return found;
}

std::vector<uint32_t> shared_result(unsigned blocks, unsigned words) {
    std::vector<uint32_t> wanted(blocks);
    for (unsigned block = 0; block < blocks; ++block)
        for (unsigned i = 0; i < words; ++i) wanted[block] += ((words - 1 - i) * 2654435761u + block) * (i + 1);
    return wanted;
}

// Blocks which each wait for all others again and again, so many on each multiprocessor; 0: as many as fit.
Status cooperate(Rig& rig, int each) {
    VUDA_BENCH_TRY(rig.require(kCooperative, "cooperative launches"));
    const Result<CuFunction> function = rig.kernel("feature_grid_sync");
    VUDA_BENCH_TRY(function);
    const Result<int> processors = rig.attribute(kMultiprocessors);
    VUDA_BENCH_TRY(processors);
    constexpr int kThreads = 256;
    constexpr unsigned kRounds = 50;
    if (each == 0)
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.blocks_per_multiprocessor(&each, *function, kThreads, 0),
                                      "ask how many blocks fit"));
    const auto blocks = static_cast<unsigned>(*processors * each);
    rig.figures["blocks"] = blocks;
    const Result<Words> marks = Words::make(rig.cuda, blocks);
    VUDA_BENCH_TRY(marks);
    const Result<Words> errors = Words::make(rig.cuda, 1);
    VUDA_BENCH_TRY(errors);
    CuPointer marks_at = marks->pointer();
    CuPointer errors_at = errors->pointer();
    unsigned rounds = kRounds;
    void* arguments[] = {&marks_at, &errors_at, &rounds};
    VUDA_BENCH_TRY(
        rig.cuda.check(rig.cuda.launch_cooperative(*function, blocks, 1, 1, kThreads, 1, 1, 0, nullptr, arguments),
                       "launch " + std::to_string(blocks) + " cooperating blocks"));
    const auto wrong_rounds = waited_for(rig, *errors);
    VUDA_BENCH_TRY(wrong_rounds);
    VUDA_BENCH_TRY(expect_equal(*wrong_rounds, {0}, "grid.sync"));
    std::vector<uint32_t> wanted(blocks);
    for (unsigned block = 0; block < blocks; ++block) wanted[block] = kRounds * 1000003u + block;
    const auto found = waited_for(rig, *marks);
    VUDA_BENCH_TRY(found);
    return expect_equal(*found, wanted, "cooperating blocks");
}

}  // namespace

Status plain_launch(Rig& rig) {
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    const auto stream = make_stream(rig.cuda);
    VUDA_BENCH_TRY(stream);
    return steps_come_out(rig, *step, 1 << 20, 20, stream->first);
}

// With CUDA's own 1,024 bytes: the most that runs beside a draw, and the most that runs at all.
Status shared_memory(Rig& rig) {
    const Result<CuFunction> function = rig.kernel("feature_shared");
    VUDA_BENCH_TRY(function);
    const Result<int> processors = rig.attribute(kMultiprocessors);
    VUDA_BENCH_TRY(processors);
    const auto blocks = static_cast<unsigned>(2 * *processors);
    for (const unsigned bytes : {47104u, 48128u}) {
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.set_function(*function, kDynamicSharedBytes, static_cast<int>(bytes)),
                                      "ask for " + std::to_string(bytes) + " bytes of shared memory a block"));
        const Result<Words> out = Words::make(rig.cuda, blocks);
        VUDA_BENCH_TRY(out);
        const unsigned words = bytes / 4;
        VUDA_BENCH_TRY(launch(rig.cuda, *function, blocks, 256, bytes, nullptr, out->pointer(), words));
        const auto found = waited_for(rig, *out);
        VUDA_BENCH_TRY(found);
        VUDA_BENCH_TRY(expect_equal(*found, shared_result(blocks, words), std::to_string(bytes) + " bytes a block"));
    }
    return {};
}

Status cooperative_launch(Rig& rig) { return cooperate(rig, 1); }

// Not one block has room beside a draw then.
Status cooperative_full(Rig& rig) { return cooperate(rig, 0); }

Status cluster_launch(Rig& rig) {
    VUDA_BENCH_TRY(rig.require(kCluster, "thread block clusters"));
    const Result<CuFunction> function = rig.kernel_sm90("feature_cluster");
    VUDA_BENCH_TRY(function);
    constexpr unsigned kBlocks = 256;
    constexpr unsigned kSalt = 77;
    for (const unsigned size : {2u, 4u, 8u}) {
        const Result<Words> out = Words::make(rig.cuda, kBlocks);
        VUDA_BENCH_TRY(out);
        LaunchAttribute attribute{};
        attribute.id = kAttributeCluster;
        attribute.value.cluster = {size, 1, 1};
        const LaunchConfig config{kBlocks, 1, 1, 128, 1, 1, 0, nullptr, &attribute, 1};
        CuPointer out_at = out->pointer();
        unsigned salt = kSalt;
        void* arguments[] = {&out_at, &salt};
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.launch_with(&config, *function, arguments, nullptr),
                                      "launch clusters of " + std::to_string(size)));
        std::vector<uint32_t> wanted(kBlocks, size * 1000003u);
        for (unsigned block = 0; block < kBlocks; ++block) {
            const unsigned before = block / size * size + (block % size + size - 1) % size;
            for (unsigned i = 0; i < 32; ++i) wanted[block] += ((before + kSalt) * 32 + i) * (i + 1);
        }
        const auto found = waited_for(rig, *out);
        VUDA_BENCH_TRY(found);
        VUDA_BENCH_TRY(expect_equal(*found, wanted, "clusters of " + std::to_string(size)));
    }
    return {};
}

// Each launch may begin while the one before it still runs, as libraries do it from compute capability 9.0 on.
Status dependent_launch(Rig& rig) {
    const Result<CuFunction> function = rig.kernel_sm90("feature_dependent");
    VUDA_BENCH_TRY(function);
    constexpr uint32_t kCount = 1 << 18;
    constexpr uint32_t kRounds = 50;
    const Result<Words> data = Words::make(rig.cuda, kCount, 5);
    VUDA_BENCH_TRY(data);
    const auto stream = make_stream(rig.cuda);
    VUDA_BENCH_TRY(stream);
    LaunchAttribute attribute{};
    attribute.id = kAttributeEarlyDependents;
    attribute.value.flag = 1;
    const LaunchConfig config{64, 1, 1, 256, 1, 1, 0, stream->first, &attribute, 1};
    CuPointer data_at = data->pointer();
    uint32_t count = kCount;
    for (uint32_t round = 1; round <= kRounds; ++round) {
        void* arguments[] = {&data_at, &count, &round};
        VUDA_BENCH_TRY(
            rig.cuda.check(rig.cuda.launch_with(&config, *function, arguments, nullptr), "launch a dependent kernel"));
    }
    VUDA_BENCH_TRY(waited(rig, stream->first));
    const auto found = waited_for(rig, *data);
    VUDA_BENCH_TRY(found);
    return expect_equal(*found, std::vector<uint32_t>(kCount, stepped(5, kRounds)), "dependent launches");
}

namespace {

// kernels of nested.cu. UNIMPLEMENTED: this build has none.
Result<Kernels> nested_kernels(Rig& rig) {
    if (rig.options.nested_image.empty())
        return Error{Code::kUnimplemented, "this build had no nvcc to make the kernels with", ""};
    std::ifstream file(rig.options.nested_image, std::ios::binary);
    const std::string image{std::istreambuf_iterator<char>(file), {}};
    if (image.empty()) return Error{Code::kUnimplemented, "there is no " + rig.options.nested_image, ""};
    const Result<int> major = rig.attribute(kComputeMajor);
    VUDA_BENCH_TRY(major);
    Result<Kernels> kernels = Kernels::load(rig.cuda, image.data());
    if (!kernels.ok() && *major != 9) return Error{Code::kUnimplemented, "the kernels are for another GPU", ""};
    return kernels;
}

}  // namespace

// Their launch descriptors are made on the GPU: whoever looks at launches does not see them.
Status dynamic_parallelism(Rig& rig) {
    const Result<Kernels> kernels = nested_kernels(rig);
    VUDA_BENCH_TRY(kernels);
    const Result<CuFunction> function = kernels->get("feature_parent");
    VUDA_BENCH_TRY(function);
    constexpr unsigned kBlocks = 32;
    constexpr unsigned kPart = 4096;
    const Result<Words> data = Words::make(rig.cuda, kBlocks * kPart, 5);
    VUDA_BENCH_TRY(data);
    constexpr uint32_t kAdd = 1;
    VUDA_BENCH_TRY(launch(rig.cuda, *function, kBlocks, 32, 0, nullptr, data->pointer(), kPart, kAdd));
    const auto found = waited_for(rig, *data);
    VUDA_BENCH_TRY(found);
    return expect_equal(*found, std::vector<uint32_t>(kBlocks * kPart, stepped(5, 2)), "kernels that kernels launched");
}

// The child takes more shared memory than may run beside graphics. To refuse the parent is right there.
Status dynamic_parallelism_large(Rig& rig) {
    const Result<Kernels> kernels = nested_kernels(rig);
    VUDA_BENCH_TRY(kernels);
    const Result<CuFunction> parent = kernels->get("feature_large_parent");
    VUDA_BENCH_TRY(parent);
    const Result<CuFunction> child = kernels->get("feature_large_child");
    VUDA_BENCH_TRY(child);
    constexpr uint32_t kWords = 16'384;  // 64 KiB
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.set_function(*child, kDynamicSharedBytes, static_cast<int>(4 * kWords)),
                                  "allow a kernel 64 KiB"));
    const Result<Words> data = Words::make(rig.cuda, 4, 5);
    VUDA_BENCH_TRY(data);
    constexpr CuResult kTooManyResources = 701;
    CuPointer pointer = data->pointer();
    uint32_t words = kWords;
    void* arguments[] = {&pointer, &words};
    const CuResult launched = rig.cuda.launch(*parent, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr);
    rig.figures["refused"] = launched == kTooManyResources;
    // The checksum is the same whether it ran or not; what it wrote is compared here.
    rig.sum({&words, 1});
    if (launched == kTooManyResources) return {};
    VUDA_BENCH_TRY(rig.cuda.check(launched, "launch a kernel"));
    VUDA_BENCH_TRY(waited(rig));
    const Result<std::vector<uint32_t>> found = data->read();
    VUDA_BENCH_TRY(found);
    return expect_equal(*found, {words, words, words, words}, "large kernels that a kernel launched");
}

}  // namespace vuda::bench::features
