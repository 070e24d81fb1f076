#include "shim/partition/native_graphs.h"

#include "shim/partition/testing_native_program.h"

namespace vuda::partition {
namespace {

using testing::FakeNative;
using Graph = FakeNative::Graph;
using Node = FakeNative::Node;

class NativeGraph : public testing::NativeProgram {
 protected:
    void SetUp() override {
        NativeProgram::SetUp();
        prove();
        library_ = fake_.make_library();
        fake_.words_of({library_, context_}) = {77, 88};
        kernel_ = fake_.kernel_of(library_, "vuda_native");
        plain_ = fake_.kernel_of(library_, "plain");
    }
    CuKernelNode node_of(CuKernel kernel, unsigned shared, Out& out, unsigned width = 32) {
        pointers_.push_back(std::make_unique<Argument>(Argument{reinterpret_cast<CuDevicePtr>(out.data()), {}}));
        Argument& argument = *pointers_.back();
        argument.pointers[0] = &argument.value;
        return {nullptr, {4, 1, 1}, {width, 1, 1}, shared, argument.pointers, nullptr, kernel, context_};
    }
    // A graph with a large kernel and a small one.
    Graph* two_kernels() {
        Graph* const graph = fake_.make_graph();
        large_ = fake_.add_kernel(graph, node_of(kernel_, kLarge, out_));
        small_ = fake_.add_kernel(graph, node_of(plain_, kSmall, other_));
        return graph;
    }
    CuGraphExec instantiate(Graph* graph, unsigned long long flags = 0) {
        CuGraphExec exec = nullptr;
        EXPECT_EQ(fake_.instantiate(&exec, graph, flags), 0);
        return exec;
    }
    CuResult launch(CuGraphExec exec) {
        out_ = other_ = {};
        fake_.steps.clear();
        return fake_.launch_graph(exec, &stream_);
    }

    struct Argument {
        CuDevicePtr value;
        void* pointers[1];
    };
    std::vector<std::unique_ptr<Argument>> pointers_;
    CuLibrary library_ = nullptr;
    CuKernel kernel_ = nullptr, plain_ = nullptr;
    Node *large_ = nullptr, *small_ = nullptr;
    Out other_{};
};

TEST_F(NativeGraph, WithAKernelThatDoesNotFitRunsAsAWholeAndSeesTheProgramsVariables) {
    const CuGraphExec exec = instantiate(two_kernels());
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(launch(exec), 0) << why();
        EXPECT_EQ(out_, (Out{77, 88, 32, 0}));
        EXPECT_EQ(other_, (Out{0, 0, 32, 0}));
        EXPECT_TRUE(ran_natively());
        EXPECT_FALSE(ran_at_home()) << "the program's own was skipped";
    }
    const auto steps = fake_.program_steps();
    ASSERT_EQ(steps.size(), 5u);
    EXPECT_EQ(steps[0].what, "record");
    EXPECT_EQ(steps[0].stream, &stream_);
    EXPECT_EQ(steps[1].event, steps[0].event);
    EXPECT_EQ(steps[2].what, "graph");
    EXPECT_EQ(steps[3].what, "write");
    EXPECT_EQ(steps[3].stream, steps[2].stream);
    EXPECT_EQ(steps[4].what, "wait");
    EXPECT_EQ(steps[4].stream, &stream_);
    EXPECT_EQ(hook_->native_launches(), 3u);
    EXPECT_EQ(hook_->launch_guard().refusals(), 0u);
}

TEST_F(NativeGraph, ThatFitsStaysWhereItIs) {
    Graph* const graph = fake_.make_graph();
    fake_.add_kernel(graph, node_of(kernel_, kSmall, out_));
    const CuGraphExec exec = instantiate(graph);
    EXPECT_EQ(launch(exec), 0);
    EXPECT_TRUE(ran_at_home());
    EXPECT_EQ(out_[0], 77u);
    EXPECT_TRUE(fake_.made_contexts.empty());
}

TEST_F(NativeGraph, StaticSharedMemoryCounts) {
    Graph* const graph = fake_.make_graph();
    fake_.add_kernel(graph, node_of(fake_.kernel_of(library_, "still_larger"), 0, out_));
    EXPECT_EQ(launch(instantiate(graph)), 0) << why();
    EXPECT_TRUE(ran_natively());
}

TEST_F(NativeGraph, GraphsInGraphsAreLookedInto) {
    Graph* const inner = two_kernels();
    Graph* const graph = fake_.make_graph();
    Node child;
    child.type = 4;
    child.child = inner;
    fake_.add(graph, child);
    EXPECT_EQ(launch(instantiate(graph)), 0) << why();
    EXPECT_TRUE(ran_natively());
    EXPECT_EQ(out_[0], 77u);
}

TEST_F(NativeGraph, CopiesAndMemsetsMoveWithIt) {
    Graph* const graph = two_kernels();
    uint32_t filled[4] = {};
    Node set;
    set.type = 2;
    set.context = context_;
    set.set = {reinterpret_cast<CuDevicePtr>(filled), 0, 9, 4, 4, 1};
    fake_.add(graph, set);
    Node copy;
    copy.type = 1;
    copy.context = context_;
    fake_.add(graph, copy);
    EXPECT_EQ(launch(instantiate(graph)), 0) << why();
    EXPECT_EQ(filled[3], 9u);
    EXPECT_EQ(graph->nodes[2]->context, context_) << "in the program's own nothing is changed";
}

TEST_F(NativeGraph, AModulesKernelsRunInItToo) {
    CuModule module = nullptr;
    ASSERT_EQ(fake_.load_module(&module), 0);
    fake_.words_of({module, context_}) = {5, 6};
    Graph* const graph = two_kernels();
    CuKernelNode kernel = node_of(nullptr, kLarge, other_);
    kernel.function = fake_.function_of(module, "vuda_native");
    fake_.add_kernel(graph, kernel);
    EXPECT_EQ(launch(instantiate(graph)), 0) << why();
    EXPECT_TRUE(ran_natively());
    EXPECT_EQ(out_[0], 77u);
    EXPECT_EQ(other_[0], 5u) << "each its own module's";
}

TEST_F(NativeGraph, NodesThatTellOfAFunctionAreFoundByTheirName) {
    fake_.unlike.functions_are_in_nodes = true;
    EXPECT_EQ(launch(instantiate(two_kernels())), 0) << why();
    EXPECT_TRUE(ran_natively());
    EXPECT_EQ(out_[0], 77u);
}

TEST_F(NativeGraph, UploadedByTheProgramItIsNotWithheld) {
    const CuGraphExec exec = instantiate(two_kernels(), 2);  // CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
    EXPECT_EQ(fake_.launch_graph(exec, &stream_, 580), 0) << why();
    EXPECT_EQ(launch(exec), 0) << why();
    EXPECT_TRUE(ran_natively());
    fake_.wait(FakeNative::kStreamSynchronize, context_);
    EXPECT_EQ(fake_.last_wait_result, 0u);
    EXPECT_EQ(hook_->launch_guard().refusals(), 0u);
}

TEST_F(NativeGraph, WhatWouldWaitForItFollowsIt) {
    const CuGraphExec exec = instantiate(two_kernels());
    ASSERT_EQ(launch(exec), 0) << why();
    hook_->watch_all_calls();
    fake_.lanes_are_slow = true;
    ASSERT_EQ(launch(exec), 0) << why();
    EXPECT_EQ(NativeProgram::launch(kernel_, kSmall), 0);
    EXPECT_TRUE(ran_natively());
    EXPECT_EQ(out_[0], 77u);
    fake_.call(281, context_, [] {});  // cuMemcpyDtoDAsync_v2
    EXPECT_EQ(NativeProgram::launch(kernel_, kSmall), 0);
    EXPECT_TRUE(ran_at_home()) << "another thing came between";
}

TEST_F(NativeGraph, AModuleAtThePlaceOfOneThatIsGoneIsNotTakenForIt) {
    CuModule module = nullptr;
    ASSERT_EQ(fake_.load_module(&module), 0);
    const auto with_module = [&] {
        fake_.words_of({module, context_}) = {5, 6};
        Graph* const graph = fake_.make_graph();
        CuKernelNode kernel = node_of(nullptr, kLarge, out_);
        kernel.function = fake_.function_of(module, "vuda_native");
        fake_.add_kernel(graph, kernel);
        return graph;
    };
    ASSERT_EQ(launch(instantiate(with_module())), 0) << why();
    ASSERT_EQ(fake_.unload_module(module), 0);
    // In our context the new one's variables are where the old one's were.
    fake_.reuse_places = true;
    ASSERT_EQ(fake_.load_module(&module), 0);
    EXPECT_EQ(launch(instantiate(with_module())), 0) << why();
    EXPECT_EQ(out_, (Out{5, 6, 32, 0}));
}

TEST_F(NativeGraph, InACaptureTheProgramsOwnIsTaken) {
    const CuGraphExec exec = instantiate(two_kernels());
    fake_.capturing = 1;
    const uint64_t before = hook_->native_launches();
    launch(exec);
    EXPECT_EQ(hook_->native_launches(), before);
}

TEST_F(NativeGraph, IsRefusedWithWhatCannotRunElsewhere) {
    for (const int type : {6, 7, 8, 9, 10, 11, 12, 13, 99}) {
        SCOPED_TRACE(type);
        Graph* const graph = two_kernels();
        Node other;
        other.type = type;
        fake_.add(graph, other);
        const CuGraphExec exec = instantiate(graph);
        EXPECT_EQ(launch(exec), limits::kLaunchOutOfResources);
        EXPECT_NE(why().find("nodes other than"), std::string::npos) << why();
        EXPECT_EQ(launch(exec), limits::kLaunchOutOfResources) << "each time";
        EXPECT_NE(why().find("nodes other than"), std::string::npos) << why();
    }
    // Kernels that kernels change, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE.
    fake_.unlike.nodes_are_changed_by_kernels = true;
    const CuGraphExec changed = instantiate(two_kernels());
    EXPECT_EQ(launch(changed), limits::kLaunchOutOfResources);
    EXPECT_NE(why().find("that kernels change"), std::string::npos) << why();
    fake_.unlike = {};
    const CuGraphExec exec = instantiate(two_kernels(), 4);
    EXPECT_EQ(launch(exec), limits::kLaunchOutOfResources);
    EXPECT_NE(why().find("launched by kernels"), std::string::npos) << why();
    EXPECT_EQ(hook_->native_launches(), 0u);
    EXPECT_EQ(launch(instantiate(two_kernels())), 0) << why();
}

TEST_F(NativeGraph, IsRefusedWhereCudaDoesNotCopyOrMakeIt) {
    ASSERT_EQ(launch(instantiate(two_kernels())), 0) << why();
    const auto refused = [&](const char* text) {
        const size_t execs = fake_.execs_alive(), graphs = fake_.graphs_alive();
        const CuGraphExec exec = instantiate(two_kernels());
        EXPECT_EQ(launch(exec), limits::kLaunchOutOfResources);
        EXPECT_NE(why().find(text), std::string::npos) << why();
        EXPECT_EQ(fake_.execs_alive(), execs + 1);
        EXPECT_EQ(fake_.graphs_alive(), graphs + 1) << "nothing of ours is left";
    };
    fake_.unlike.clone_result = 801;
    refused("does not copy");
    fake_.unlike = {};
    fake_.unlike.instantiate_elsewhere_result = 1;
    refused("does not make");
    fake_.unlike = {};
    fake_.unlike.graph_uploads_come_twice = true;
    refused("with variables, 1, CUDA uploads 2");
    fake_.unlike = {};
    fake_.quirks.banks_differ_in_size = true;
    refused("not alike");
    fake_.quirks = {};
    EXPECT_EQ(launch(instantiate(two_kernels())), 0) << why();
}

TEST_F(NativeGraph, NoneGoesThatWayWhereTheProofFails) {
    const auto refused = [&](const char* text) {
        SCOPED_TRACE(text);
        EXPECT_EQ(launch(instantiate(two_kernels())), limits::kLaunchOutOfResources);
        EXPECT_NE(why().find(text), std::string::npos) << why();
        fake_.quirks = {};
        fake_.unlike = {};
        EXPECT_EQ(launch(instantiate(two_kernels())), limits::kLaunchOutOfResources) << "for good";
        EXPECT_EQ(NativeProgram::launch(kernel_, kLarge), 0) << "kernels go on: " << why();
        TearDown();
        SetUp();
    };
    fake_.quirks.skips_are_ignored = true;
    refused("does not skip a call");
    fake_.quirks.skip_slot_holds = 0x7f00'0000'1234;
    refused("(0x7f0000001234, 0, 3)");
    fake_.unlike.graph_uploads_do_not_come = true;
    refused("with variables, 1, CUDA uploads 0");
    fake_.quirks.skipped_calls_have_an_end = false;
    EXPECT_EQ(launch(instantiate(two_kernels())), 0) << why();
    EXPECT_EQ(launch(instantiate(two_kernels())), 0) << "either way will do: " << why();
}

TEST_F(NativeGraph, ChangesOfItsNodesAreChangesOfTheTwin) {
    const CuGraphExec exec = instantiate(two_kernels());
    EXPECT_EQ(launch(exec), 0) << why();
    EXPECT_EQ(fake_.set_kernel_node(exec, large_, node_of(kernel_, kLarge, out_, 64)), 0);
    EXPECT_EQ(launch(exec), 0) << why();
    EXPECT_EQ(out_, (Out{77, 88, 64, 0}));
    EXPECT_EQ(fake_.enable_node(exec, large_, 0), 0);
    EXPECT_EQ(launch(exec), 0);
    EXPECT_EQ(out_, Out{}) << "switched off";
    EXPECT_EQ(other_[2], 32u);
    EXPECT_TRUE(ran_natively());
    EXPECT_EQ(fake_.enable_node(exec, large_, 1), 0);
    // One that cannot be repeated.
    struct {
        CuGraphExec exec;
        CuGraphNode node;
        CuEvent event;
    } said{exec, large_, nullptr};
    EXPECT_EQ(fake_.call(
                  595, context_, [] {}, &said),
              0);
    EXPECT_EQ(launch(exec), limits::kLaunchOutOfResources);
    EXPECT_NE(why().find("does not follow a change"), std::string::npos) << why();
}

TEST_F(NativeGraph, AWholeUpdateIsOneOfTheTwin) {
    const CuGraphExec exec = instantiate(two_kernels());
    ASSERT_EQ(launch(exec), 0) << why();
    const size_t execs = fake_.execs_alive();
    Graph* const other = fake_.make_graph();
    fake_.add_kernel(other, node_of(kernel_, kLarge, out_, 96));
    fake_.add_kernel(other, node_of(kernel_, kSmall, other_));
    ASSERT_EQ(fake_.update(exec, other), 0);
    EXPECT_EQ(launch(exec), 0) << why();
    EXPECT_TRUE(ran_natively());
    EXPECT_EQ(out_, (Out{77, 88, 96, 0}));
    EXPECT_EQ(other_, (Out{77, 88, 32, 0}));
    EXPECT_EQ(fake_.execs_alive(), execs);
    // Where the twin cannot follow, it is made anew.
    fake_.unlike.exec_update_result = 910;
    ASSERT_EQ(fake_.update(exec, two_kernels()), 0);
    EXPECT_EQ(launch(exec), 0) << why();
    EXPECT_EQ(out_, (Out{77, 88, 32, 0}));
    EXPECT_EQ(fake_.execs_alive(), execs);
}

TEST_F(NativeGraph, AnUpdateMakesAGraphThatFitOneThatDoesNot) {
    Graph* const graph = fake_.make_graph();
    Node* const node = fake_.add_kernel(graph, node_of(kernel_, kSmall, out_));
    fake_.add_kernel(graph, node_of(plain_, kSmall, other_));
    const CuGraphExec exec = instantiate(graph);
    ASSERT_EQ(launch(exec), 0);
    EXPECT_TRUE(ran_at_home());
    ASSERT_EQ(fake_.update(exec, two_kernels()), 0);
    EXPECT_EQ(launch(exec), 0) << why();
    EXPECT_TRUE(ran_natively());
    // Of a single node, the rest of the graph is not known any more.
    const CuGraphExec another = instantiate(graph);
    ASSERT_EQ(fake_.set_kernel_node(another, node, node_of(kernel_, kLarge, out_)), 0);
    EXPECT_EQ(launch(another), limits::kLaunchOutOfResources);
    EXPECT_NE(why().find("instantiate it again"), std::string::npos) << why();
}

TEST_F(NativeGraph, ItsTwinGoesWithIt) {
    ASSERT_EQ(launch(instantiate(two_kernels())), 0);
    const size_t execs = fake_.execs_alive(), graphs = fake_.graphs_alive();
    Graph* const graph = two_kernels();
    const CuGraphExec exec = instantiate(graph);
    ASSERT_EQ(launch(exec), 0);
    EXPECT_EQ(fake_.execs_alive(), execs + 2);
    ASSERT_EQ(fake_.destroy_exec(exec), 0);
    EXPECT_EQ(fake_.execs_alive(), execs);
    EXPECT_EQ(fake_.graphs_alive(), graphs + 1) << "the program's";
}

TEST_F(NativeGraph, WhoseCallIsNotKnownToBeToldAsItIsIsRefused) {
    TearDown();
    fake_.quirks.arguments_are_elsewhere = true;
    cuda_ = fake_.native_driver();
    cuda_.ctx_push(context_);
    Result<std::unique_ptr<LaunchHook>> hook = LaunchHook::install(cuda_, events_);
    ASSERT_TRUE(hook);
    const Result<Proof> proof = self_check(cuda_, **hook, layout_, context_);
    ASSERT_TRUE(proof) << proof.error().to_string();
    EXPECT_TRUE(proof->refuses);
    EXPECT_FALSE(proof->arguments);
    (*hook)->start(*proof->layout, proof->map, *page_);
    (*hook)->guard(49'152);
    (*hook)->approve(context_);
    (*hook)->settled();
    NativeSide side(cuda_, *proof->layout, *this, (*hook)->modules());
    (*hook)->run_natively(&side);
    fake_.quirks = {};
    EXPECT_EQ(launch(instantiate(two_kernels())), limits::kLaunchOutOfResources);
    EXPECT_TRUE(fake_.made_contexts.empty());
    *hook = nullptr;
}

TEST_F(NativeGraph, WithoutTheNativeSideItIsRefused) {
    hook_->run_natively(nullptr);
    EXPECT_EQ(launch(instantiate(two_kernels())), limits::kLaunchOutOfResources);
    EXPECT_TRUE(fake_.made_contexts.empty());
}

TEST(BankMap, KnowsInstancesByTheirPlacesAndTakesNoContradiction) {
    constexpr uint64_t kSize = 0x00800000'00000000;
    const auto banks = [](uint64_t three, uint64_t four) {
        ModuleBanks made;
        made.banks[0].place = three;
        made.banks[1].place = four;
        return made;
    };
    BankMap map;
    EXPECT_TRUE(map.learn(banks(kSize + 0x100, 0), banks(kSize + 0x200, 0)));
    EXPECT_TRUE(map.learn(banks(kSize + 0x100, 0), banks(kSize + 0x200, 0))) << "the same again";
    EXPECT_FALSE(map.learn(banks(kSize + 0x100, 0), banks(kSize + 0x300, 0)));
    EXPECT_FALSE(map.learn(banks(kSize + 0x500, 0), banks(0, 0))) << "one has variables";
    EXPECT_FALSE(map.learn(banks(kSize + 0x500, 0), banks(2 * kSize + 0x500, 0))) << "not as many";
    map.outdate();
    EXPECT_TRUE(map.learn(banks(kSize + 0x100, 0), banks(kSize + 0x300, 0))) << "another module at that place";
}

TEST(GraphCall, IsReadFromArgumentsThatMayBeAnything) {
    EXPECT_FALSE(read_graph_call(307, nullptr, true));
    for (int function = 500; function < 760; ++function) {
        EXPECT_FALSE(read_graph_call(function, nullptr, true));
        EXPECT_FALSE(read_graph_call(function, reinterpret_cast<void*>(0x10), true));
        uint64_t bad[4] = {0x10, 0x10, 0x10, 0x10};
        const auto call = read_graph_call(function, bad, true);
        EXPECT_EQ(call.has_value(), kind_of_graph_call(function) != GraphCall::Kind::kNone);
        if (call && call->kind == GraphCall::Kind::kInstantiate) {
            EXPECT_EQ(call->exec, nullptr);
        }
    }
    uint64_t launch[2] = {0x1000, 0};
    EXPECT_EQ(read_graph_call(514, launch, true)->stream, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read_graph_call(515, launch, true)->stream), 2u) << "the thread's own";
}

}  // namespace
}  // namespace vuda::partition
