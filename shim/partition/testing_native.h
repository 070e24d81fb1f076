// FakeCuda with what the native side needs of CUDA: modules and libraries, whose variables exist once in each context,
// graphs, and streams that wait for numbers. Kernels run at once, on the calling thread.
#pragma once

#include <algorithm>
#include <set>
#include <thread>

#include "shim/partition/testing_cuda.h"

namespace vuda::partition::testing {

class FakeNative : public FakeCuda {
 public:
    // What a program has as code. Each kernel copies two variables of its code and its block's width to where its
    // argument says; "plain" has no variables, and copies 0 and 0; "still_larger" has static shared memory.
    static constexpr const char* kImage = ".version 6.4 // some code";

    struct Unlike {
        int load_library_result = 0;
        bool modules_are_not_told = false;    // of functions
        bool functions_are_in_nodes = false;  // a node that was made with a kernel tells of its function
        bool graph_uploads_come_twice = false;
        bool nodes_are_changed_by_kernels = false;
        bool graph_uploads_do_not_come = false;
        int clone_result = 0;
        int instantiate_elsewhere_result = 0;  // in a context that is not the program's
        int exec_update_result = 0;            // likewise
        bool numbers_do_not_work = false;
        CuStream numbers_do_not_work_on = nullptr;
    } unlike;

    using Words2 = std::array<uint32_t, 2>;
    // One instance of some code's variables: of a module, or of a library in one context.
    using Instance = std::pair<void*, CuContext>;
    struct Module {
        CuContext context;
        bool loaded = true;
    };
    struct Library {
        std::vector<int> options;
        bool loaded = true;
    };
    struct Kernel {
        Library* from = nullptr;
        Module* module = nullptr;     // one of both
        CuContext context = nullptr;  // of a function
        Kernel* kernel = nullptr;     // whose function this is
        std::string name;
    };
    struct Graph;
    struct Node {
        int type = 0;
        CuKernelNode kernel{};
        uint64_t argument = 0;  // the kernel's only one
        void* pointers[1] = {};
        CuMemset set{};
        CuContext context = nullptr;
        Graph* child = nullptr;
        const Node* original = nullptr;
        bool enabled = true;
    };
    struct Graph {
        std::vector<Node*> nodes;
        bool alive = true;
    };
    struct Exec {
        CuContext context;
        Graph* graph;
        std::vector<Node> nodes;  // flat
        std::vector<Node*> of;    // each one's in the graph
        bool uploaded = false;
        bool alive = true;
    };

    CudaDriver native_driver();

    // ---- As the program calls it, in its context.
    CuResult load_module(CuModule* module, std::vector<int> options = {}, std::vector<void*> values = {}) {
        auto* const image = kImage;
        if (options.empty()) {
            struct {
                CuModule* module;
                const void* image;
            } said{module, image};
            return call(
                19, stack().back(), [&] { *module = make_module(); }, &said);
        }
        struct {
            CuModule* module;
            const void* image;
            unsigned count;
            int* options;
            void** values;
        } said{module, image, static_cast<unsigned>(options.size()), options.data(), values.data()};
        return call(
            20, stack().back(), [&] { *module = make_module(); }, &said);
    }
    CuResult load_module_file(CuModule* module, const char* path) {
        struct {
            CuModule* module;
            const char* path;
        } said{module, path};
        return call(
            18, stack().back(), [&] { *module = make_module(); }, &said);
    }
    CuResult unload_module(CuModule module) {
        struct {
            CuModule module;
        } said{module};
        return call(
            22, stack().back(), [&] { static_cast<Module*>(module)->loaded = false; }, &said);
    }
    CuFunction function_of(CuModule module, const char* name) {
        return keep(kernels_, Kernel{nullptr, static_cast<Module*>(module), static_cast<Module*>(module)->context,
                                     nullptr, name});
    }
    CuLibrary make_library() { return keep(libraries_, Library{}); }
    // cuLibraryGetKernel
    CuKernel kernel_of(CuLibrary library, const char* name) {
        CuKernel kernel = nullptr;
        struct {
            CuKernel* kernel;
            CuLibrary library;
            const char* name;
        } said{&kernel, library, name};
        call(
            681, stack().back(), [&] { kernel = kernel_in(library, name); }, &said);
        return kernel;
    }
    Node* add(Graph* graph, Node node) {
        Node* const added = keep(nodes_, node);
        graph->nodes.push_back(added);
        return added;
    }
    Graph* make_graph() { return keep(graphs_, Graph{}); }
    Node* add_kernel(Graph* graph, const CuKernelNode& kernel) {
        Node node;
        set_kernel(node, kernel);
        return add(graph, node);
    }
    CuResult instantiate(CuGraphExec* exec, CuGraph graph, unsigned long long flags = 0) {
        struct {
            CuGraphExec* exec;
            CuGraph graph;
            unsigned long long flags;
        } said{exec, graph, flags};
        return call(
            643, stack().back(),
            [&]() -> CuResult {
                if (is_made(stack().back()) && unlike.instantiate_elsewhere_result != 0)
                    return unlike.instantiate_elsewhere_result;
                *exec = keep(execs_, Exec{stack().back(), static_cast<Graph*>(graph), {}, {}, false, true});
                flatten(static_cast<Graph*>(graph), *static_cast<Exec*>(*exec));
                if ((flags & 2) != 0) upload(*static_cast<Exec*>(*exec));
                return 0;
            },
            &said);
    }
    CuResult launch_graph(CuGraphExec exec, CuStream stream, int function = 514) {
        struct {
            CuGraphExec exec;
            CuStream stream;
        } said{exec, stream};
        return call(
            function, stack().back(),
            [&]() -> CuResult {
                Exec& its = *static_cast<Exec*>(exec);
                if (its.context != stack().back() || !its.alive) return 400;
                const bool again = its.uploaded;
                upload(its);
                if (function == 580) return 0;
                for (const Node& node : its.nodes) {
                    if (again && node.type == 0) launch_again(sent_[&node], its.context);
                }
                run(its, stream);
                return 0;
            },
            &said);
    }
    CuResult destroy_exec(CuGraphExec exec) {
        struct {
            CuGraphExec exec;
        } said{exec};
        return call(
            516, stack().back(), [&] { static_cast<Exec*>(exec)->alive = false; }, &said);
    }
    CuResult update(CuGraphExec exec, CuGraph graph) {
        uint64_t info[3] = {};
        struct {
            CuGraphExec exec;
            CuGraph graph;
            void* result;
        } said{exec, graph, info};
        return call(
            696, stack().back(), [&] { return update_now(exec, graph); }, &said);
    }
    CuResult set_kernel_node(CuGraphExec exec, Node* node, const CuKernelNode& kernel) {
        struct {
            CuGraphExec exec;
            CuGraphNode node;
            const CuKernelNode* kernel;
        } said{exec, node, &kernel};
        return call(
            692, stack().back(), [&] { return set_in(exec, node, kernel); }, &said);
    }
    CuResult enable_node(CuGraphExec exec, Node* node, unsigned on) {
        struct {
            CuGraphExec exec;
            CuGraphNode node;
            unsigned on;
        } said{exec, node, on};
        return call(
            650, stack().back(), [&] { return enable_in(exec, node, on); }, &said);
    }
    // cuStreamSynchronize, by the program.
    CuResult synchronize(CuStream stream) {
        return call(kStreamSynchronize, stack().back(), [&]() -> CuResult {
            const auto deadline = monotonic_ns() + 20'000'000'000;
            while (is_stuck(stream) && monotonic_ns() < deadline) std::this_thread::yield();
            return is_stuck(stream) ? 999 : 0;
        });
    }

    Words2& words_of(const Instance& instance) {
        const std::lock_guard lock(mutex_);
        return words_.try_emplace(instance, Words2{1, 2}).first->second;
    }
    template <typename T>
    static size_t alive(const std::vector<std::unique_ptr<T>>& all) {
        return static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const auto& one) { return one->alive; }));
    }
    size_t execs_alive() const { return alive(execs_); }
    size_t graphs_alive() const { return alive(graphs_); }
    const std::vector<std::unique_ptr<Library>>& libraries() const { return libraries_; }

    // A kernel of this name faults where it runs; `fault` is what its context says then, once it shows.
    std::string faulting;
    CuResult fault = 700;
    std::atomic<bool> fault_shows{true};
    std::atomic<int> capturing{0};
    bool reuse_places = false;    // in contexts that are not the program's, of libraries that are gone
    bool lanes_are_slow = false;  // what they write has not come yet
    bool is_dead(CuContext context) {
        const std::lock_guard lock(mutex_);
        return dead_.count(context) != 0;
    }
    std::vector<Step> program_steps() {
        const std::lock_guard lock(mutex_);
        return steps;
    }

    static FakeNative& self() { return static_cast<FakeNative&>(*FakeCuda::current()); }
    template <typename T>
    T* keep(std::vector<std::unique_ptr<T>>& where, T value) {
        const std::lock_guard lock(mutex_);
        where.push_back(std::make_unique<T>(std::move(value)));
        return where.back().get();
    }
    void step(const char* what, CuStream stream) {
        const std::lock_guard lock(mutex_);
        steps.push_back({what, stack().back(), stream, nullptr});
    }
    CuModule make_module() { return keep(modules_, Module{stack().back()}); }
    CuKernel kernel_in(CuLibrary library, const char* name) {
        for (const auto& known : kernels_) {
            if (known->from == library && known->name == name) return known.get();
        }
        return keep(kernels_, Kernel{static_cast<Library*>(library), nullptr, nullptr, nullptr, name});
    }
    CuResult function_in(CuFunction* function, CuKernel kernel, CuContext context) {
        auto* const its = static_cast<Kernel*>(kernel);
        if (its->from == nullptr) return 400;
        for (const auto& known : kernels_) {
            if (known->kernel == its && known->context == context) return *function = known.get(), 0;
        }
        return *function = keep(kernels_, Kernel{nullptr, nullptr, context, its, its->name}), 0;
    }
    CuResult launch_one(const CuLaunchConfig& config, CuFunction handle, void** parameters, void** extra,
                        int function = kLaunchKernelEx);

    void set_kernel(Node& node, const CuKernelNode& kernel) const {
        node.type = 0;
        node.kernel = kernel;
        node.context = kernel.function != nullptr ? static_cast<Kernel*>(kernel.function)->context : kernel.context;
        node.argument = kernel.extra != nullptr && kernel.parameters == nullptr
                            ? *static_cast<uint64_t*>(kernel.extra[1])
                            : *static_cast<uint64_t*>(kernel.parameters[0]);
    }
    void flatten(Graph* graph, Exec& exec) {
        for (Node* node : graph->nodes) {
            if (node->type == 4) {
                flatten(node->child, exec);
                continue;
            }
            exec.nodes.push_back(*node);
            exec.of.push_back(node);
        }
    }
    void upload(Exec& exec) {
        if (std::exchange(exec.uploaded, true)) return;
        for (int i = 0; i < (unlike.graph_uploads_come_twice ? 2 : 1); ++i) {
            for (Node& node : exec.nodes) {
                if (node.type != 0) continue;
                if (!unlike.graph_uploads_do_not_come || !is_made(exec.context)) patch(node, exec.context);
            }
        }
    }
    void run(Exec& exec, CuStream stream) {
        step("graph", stream);
        for (Node& node : exec.nodes) {
            if (!node.enabled) continue;
            if (node.type == 2) std::fill_n(reinterpret_cast<uint32_t*>(node.set.to), node.set.width, node.set.value);
            if (node.type == 0) compute(node, exec.context);
        }
    }
    CuResult update_now(CuGraphExec exec, CuGraph graph) {
        Exec& its = *static_cast<Exec*>(exec);
        if (is_made(its.context) && unlike.exec_update_result != 0) return unlike.exec_update_result;
        Exec fresh{its.context, static_cast<Graph*>(graph), {}, {}, false, true};
        flatten(fresh.graph, fresh);
        if (fresh.nodes.size() != its.nodes.size()) return 910;
        its.nodes = fresh.nodes;
        its.uploaded = false;
        return 0;
    }
    Node* in_exec(Exec& exec, const void* node) {
        for (size_t i = 0; i < exec.of.size(); ++i) {
            if (exec.of[i] == node) return &exec.nodes[i];
        }
        return nullptr;
    }
    CuResult set_in(CuGraphExec exec, CuGraphNode node, const CuKernelNode& kernel) {
        Node* const its = in_exec(*static_cast<Exec*>(exec), node);
        if (its == nullptr) return 1;
        set_kernel(*its, kernel);
        static_cast<Exec*>(exec)->uploaded = false;
        return 0;
    }
    CuResult enable_in(CuGraphExec exec, CuGraphNode node, unsigned on) {
        Node* const its = in_exec(*static_cast<Exec*>(exec), node);
        if (its == nullptr) return 1;
        its->enabled = on != 0;
        return 0;
    }
    Graph* clone(const Graph* graph) {
        Graph* const copy = make_graph();
        for (const Node* node : graph->nodes) {
            Node other = *node;
            other.original = node;
            if (node->child != nullptr) other.child = clone(node->child);
            add(copy, other);
        }
        return copy;
    }

    // ---- Streams that wait for numbers
    bool is_stuck(CuStream stream) {
        const std::lock_guard lock(mutex_);
        const auto found = waits_.find(stream);
        if (found == waits_.end()) return false;
        const uint32_t now = std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(found->second.first)).load();
        if (static_cast<int32_t>(now - found->second.second) < 0) return true;
        waits_.erase(found);
        return false;
    }

 private:
    static const Kernel& code_of(const CuKernelNode& node) {
        const auto& its = *static_cast<Kernel*>(node.function != nullptr ? node.function : node.kernel);
        return its.kernel != nullptr ? *its.kernel : its;
    }
    // Whose variables a kernel of that code has in `context`, and where its constant bank is.
    static Instance instance_of(const Kernel& code, CuContext context) {
        return code.from != nullptr ? Instance{code.from, context} : Instance{code.module, code.module->context};
    }
    uint64_t bank_of(const Instance& instance) {
        words_of(instance);
        const std::lock_guard lock(mutex_);
        const auto [place, fresh] = places_.try_emplace(instance, 0);
        if (fresh) {
            place->second = 0x00800000'00000000 + 0x100 * places_.size();
            if (reuse_places && is_made(instance.second)) {
                for (const auto& [other, at] : places_) {
                    const bool gone = other.second == instance.second && other.first != instance.first &&
                                      !static_cast<Library*>(other.first)->loaded;
                    if (gone) place->second = at;
                }
            }
            instances_[place->second] = instance;
        }
        return place->second;
    }
    static unsigned static_shared(const Kernel& code) { return code.name == "still_larger" ? 60'000 : 0; }
    std::array<uint8_t, kQmdLookBytes> descriptor(const CuKernelNode& node, CuContext context);
    void patch(Node& node, CuContext context) { sent_[&node] = descriptor(node.kernel, context); }
    void compute(Node& node, CuContext context) { compute(sent_[&node], node.kernel, node.argument, context); }
    void compute(const std::array<uint8_t, kQmdLookBytes>& qmd, const CuKernelNode& node, uint64_t argument,
                 CuContext context);

    std::mutex mutex_;
    std::vector<std::unique_ptr<Module>> modules_;
    std::vector<std::unique_ptr<Library>> libraries_;
    std::vector<std::unique_ptr<Kernel>> kernels_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<std::unique_ptr<Graph>> graphs_;
    std::vector<std::unique_ptr<Exec>> execs_;
    std::vector<std::unique_ptr<std::array<uint32_t, 256>>> host_;
    std::vector<std::unique_ptr<CuContext>> streams_;
    std::map<Instance, Words2> words_;
    std::map<Instance, uint64_t> places_;
    std::map<uint64_t, Instance> instances_;
    std::map<CuStream, std::pair<CuDevicePtr, uint32_t>> waits_;
    std::map<const Node*, std::array<uint8_t, kQmdLookBytes>> sent_;
    std::set<CuContext> dead_;
};

inline std::array<uint8_t, kQmdLookBytes> FakeNative::descriptor(const CuKernelNode& node, CuContext context) {
    const Kernel& code = code_of(node);
    const bool plain = code.name == "plain";
    const uint64_t bank = plain ? 0 : bank_of(instance_of(code, context));
    before_upload = [&](uint8_t* qmd) {
        if (plain) return;
        const uint32_t valid = 0x00011000;  // banks 3 and 4
        std::memcpy(qmd + 52, &valid, 4);
        const uint64_t size = quirks.banks_differ_in_size && is_made(context) ? uint64_t{1} << 60 : 0;
        const uint64_t places[2] = {bank + size, bank + 0x80};
        std::memcpy(qmd + 192 + 8 * 3, places, sizeof places);
    };
    const unsigned shared = static_shared(code) + (node.shared_bytes + 127) / 128 * 128 + 1024;
    const auto qmd = launch({{node.grid[0], node.grid[1], node.grid[2]}, {node.block[0], node.block[1], node.block[2]}},
                            QmdKind::kGrid, context, nullptr, {}, 1, shared);
    before_upload = nullptr;
    return qmd;
}

inline void FakeNative::compute(const std::array<uint8_t, kQmdLookBytes>& qmd, const CuKernelNode& node,
                                uint64_t argument, CuContext context) {
    if ((load32(qmd.data()) >> 23 & 7) == 1) return;
    const Kernel& code = code_of(node);
    if (!faulting.empty() && code.name == faulting && is_made(context)) {
        const std::lock_guard lock(mutex_);
        dead_.insert(context);
        return;
    }
    auto* out = reinterpret_cast<uint32_t*>(argument);
    uint64_t bank = 0;
    std::memcpy(&bank, qmd.data() + 192 + 8 * 3, 8);
    Words2 words{0, 0};
    if (code.name != "plain") {
        if (quirks.banks_are_ignored) bank = bank_of(instance_of(code, context));
        words = words_of(instances_.at(bank));
    }
    out[0] = words[0];
    out[1] = words[1];
    out[2] = node.block[0];
}

inline CuResult FakeNative::launch_one(const CuLaunchConfig& config, CuFunction handle, void** parameters, void** extra,
                                       int function) {
    const CuContext context = stack().back();
    auto* const kernel = static_cast<Kernel*>(handle);
    if (kernel->context != nullptr && kernel->context != context) return 400;
    struct {
        CuFunction function;
        unsigned shape[7];
        CuStream stream;
        void** parameters;
        void** extra;
    } plain{handle,
            {config.grid[0], config.grid[1], config.grid[2], config.block[0], config.block[1], config.block[2],
             config.shared_bytes},
            config.stream,
            parameters,
            extra};
    struct {
        const CuLaunchConfig* config;
        CuFunction function;
        void** parameters;
        void** extra;
    } ex{&config, handle, parameters, extra};
    CuKernelNode node{kernel->from == nullptr ? handle : nullptr,
                      {config.grid[0], config.grid[1], config.grid[2]},
                      {config.block[0], config.block[1], config.block[2]},
                      config.shared_bytes,
                      parameters,
                      extra,
                      kernel->from == nullptr ? nullptr : handle,
                      context};
    const uint64_t argument =
        extra != nullptr ? *static_cast<uint64_t*>(extra[1]) : *static_cast<uint64_t*>(parameters[0]);
    return call(
        function, context,
        [&] {
            const auto qmd = descriptor(node, context);
            if ((load32(qmd.data()) >> 23 & 7) != 1) step("launch", config.stream);
            compute(qmd, node, argument, context);
        },
        function == kLaunchKernelEx ? static_cast<void*>(&ex) : static_cast<void*>(&plain));
}

inline CudaDriver FakeNative::native_driver() {
    CudaDriver cuda = driver();
    cuda.stream_create = [](CuStream* stream, unsigned) {
        return *stream = self().keep(self().streams_, stack().back()), 0;
    };
    cuda.module_load = [](CuModule* module, const void*) { return self().load_module(module); };
    cuda.module_unload = [](CuModule module) { return self().unload_module(module); };
    cuda.module_get_function = [](CuFunction* function, CuModule module, const char* name) {
        // The self-check's is FakeCuda's own.
        *function = std::string(name) == "vuda_probe" ? FakeCuda::current() : self().function_of(module, name);
        return 0;
    };
    cuda.launch = [](CuFunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                     unsigned shared, CuStream stream, void** parameters, void** extra) {
        const CuLaunchConfig config{{gx, gy, gz}, {bx, by, bz}, shared, stream, nullptr, 0};
        if (function != FakeCuda::current())
            return self().launch_one(config, function, parameters, extra, kLaunchKernel);
        return FakeCuda::current()->launch_plain(config, function, parameters);
    };
    cuda.launch_config = [](const CuLaunchConfig* config, CuFunction function, void** parameters, void** extra) {
        return self().launch_one(*config, function, parameters, extra);
    };
    cuda.load_library = [](CuLibrary* library, const void*, int* options, void**, unsigned count, int*, void**,
                           unsigned) {
        if (self().unlike.load_library_result != 0) return self().unlike.load_library_result;
        Library made;
        if (count != 0) made.options.assign(options, options + count);
        return *library = self().keep(self().libraries_, made), 0;
    };
    cuda.load_library_file = [](CuLibrary* library, const char*, int*, void**, unsigned, int*, void**, unsigned) {
        return *library = self().make_library(), 0;
    };
    cuda.unload_library = [](CuLibrary library) { return static_cast<Library*>(library)->loaded = false, 0; };
    cuda.kernel_of_library = [](CuKernel* kernel, CuLibrary library, const char* name) {
        return *kernel = self().kernel_in(library, name), 0;
    };
    cuda.global_of_library = [](CuDevicePtr* memory, size_t* bytes, CuLibrary library, const char* name) {
        Words2& words = self().words_of({library, stack().back()});
        *memory = reinterpret_cast<CuDevicePtr>(&words[std::string(name) == "vuda_constant_word" ? 1 : 0]);
        return *bytes = 4, 0;
    };
    cuda.module_get_global = [](CuDevicePtr* memory, size_t* bytes, CuModule module, const char* name) {
        Words2& words = self().words_of({module, static_cast<Module*>(module)->context});
        *memory = reinterpret_cast<CuDevicePtr>(&words[std::string(name) == "vuda_constant_word" ? 1 : 0]);
        return *bytes = 4, 0;
    };
    cuda.kernel_get_function = [](CuFunction* function, CuKernel kernel) {
        return self().function_in(function, kernel, stack().back());
    };
    cuda.function_get_module = [](CuModule* module, CuFunction function) {
        if (self().unlike.modules_are_not_told || static_cast<Kernel*>(function)->module == nullptr) return 400;
        return *module = static_cast<Kernel*>(function)->module, 0;
    };
    cuda.function_get_name = [](const char** name, CuFunction function) {
        return *name = static_cast<Kernel*>(function)->name.c_str(), 0;
    };
    cuda.function_get_attribute = [](int* value, int attribute, CuFunction function) {
        *value = attribute == 1 ? static_cast<int>(static_shared(*static_cast<Kernel*>(function))) : 0;
        return 0;
    };
    cuda.kernel_get_attribute = [](int* value, int attribute, CuKernel kernel, int) {
        *value = attribute == 1 ? static_cast<int>(static_shared(*static_cast<Kernel*>(kernel))) : 0;
        return 0;
    };
    cuda.function_parameter = [](CuFunction, size_t index, size_t* offset, size_t* bytes) {
        return *offset = 0, *bytes = 8, index == 0 ? 0 : 1;
    };
    cuda.kernel_parameter = cuda.function_parameter;
    cuda.graph_create = [](CuGraph* graph, unsigned) { return *graph = self().make_graph(), 0; };
    cuda.graph_add_kernel = [](CuGraphNode* node, CuGraph graph, const CuGraphNode*, size_t,
                               const CuKernelNode* kernel) {
        return *node = self().add_kernel(static_cast<Graph*>(graph), *kernel), 0;
    };
    cuda.graph_clone = [](CuGraph* copy, CuGraph graph) {
        if (self().unlike.clone_result != 0) return self().unlike.clone_result;
        return *copy = self().clone(static_cast<Graph*>(graph)), 0;
    };
    cuda.graph_destroy = [](CuGraph graph) { return static_cast<Graph*>(graph)->alive = false, 0; };
    cuda.graph_get_nodes = [](CuGraph graph, CuGraphNode* nodes, size_t* count) {
        const auto& own = static_cast<Graph*>(graph)->nodes;
        if (nodes != nullptr) std::copy_n(own.begin(), std::min(*count, own.size()), nodes);
        return *count = own.size(), 0;
    };
    cuda.graph_node_type = [](CuGraphNode node, int* type) { return *type = static_cast<Node*>(node)->type, 0; };
    cuda.graph_of_child = [](CuGraphNode node, CuGraph* graph) { return *graph = static_cast<Node*>(node)->child, 0; };
    cuda.graph_find_in_clone = [](CuGraphNode* node, CuGraphNode original, CuGraph copy) {
        for (Node* own : static_cast<Graph*>(copy)->nodes) {
            if (own->original == original) return *node = own, 0;
        }
        return 1;
    };
    cuda.kernel_node_get = [](CuGraphNode node, CuKernelNode* kernel) {
        Node& its = *static_cast<Node*>(node);
        *kernel = its.kernel;
        its.pointers[0] = &its.argument;
        kernel->parameters = its.pointers;
        kernel->extra = nullptr;
        if (self().unlike.functions_are_in_nodes && kernel->function == nullptr) {
            self().function_in(&kernel->function, kernel->kernel, its.context);
            kernel->kernel = nullptr;
        }
        return 0;
    };
    cuda.kernel_node_set = [](CuGraphNode node, const CuKernelNode* kernel) {
        return self().set_kernel(*static_cast<Node*>(node), *kernel), 0;
    };
    cuda.kernel_node_attribute = [](CuGraphNode, unsigned attribute, void* value) {
        if (attribute != 13 || !self().unlike.nodes_are_changed_by_kernels) return 1;
        return *static_cast<int*>(value) = 1, 0;
    };
    cuda.copy_node_get = [](CuGraphNode, CuCopy3D*) { return 0; };
    cuda.set_node_get = [](CuGraphNode node, CuMemset* set) { return *set = static_cast<Node*>(node)->set, 0; };
    cuda.graph_node_set = [](CuGraphNode node, CuNodeParams* params) {
        if (params->type != static_cast<Node*>(node)->type) return 1;
        static_cast<Node*>(node)->context = params->type == 1 ? params->copy.context : params->set.context;
        return 0;
    };
    cuda.graph_instantiate = [](CuGraphExec* exec, CuGraph graph, unsigned long long flags) {
        return self().instantiate(exec, graph, flags);
    };
    cuda.exec_destroy = [](CuGraphExec exec) { return self().destroy_exec(exec); };
    cuda.exec_upload = [](CuGraphExec exec, CuStream stream) { return self().launch_graph(exec, stream, 580); };
    cuda.exec_launch = [](CuGraphExec exec, CuStream stream) { return self().launch_graph(exec, stream); };
    cuda.exec_update = [](CuGraphExec exec, CuGraph graph, void*) { return self().update(exec, graph); };
    cuda.exec_set_kernel = [](CuGraphExec exec, CuGraphNode node, const CuKernelNode* kernel) {
        return self().set_in(exec, node, *kernel);
    };
    cuda.exec_set_copy = [](CuGraphExec, CuGraphNode, const CuCopy3D*, CuContext) { return 0; };
    cuda.exec_set_memset = [](CuGraphExec exec, CuGraphNode node, const CuMemset* set, CuContext) {
        Node* const its = self().in_exec(*static_cast<Exec*>(exec), node);
        return its == nullptr ? 1 : (its->set = *set, 0);
    };
    cuda.exec_set_host = [](CuGraphExec, CuGraphNode, const void*) { return 0; };
    cuda.exec_enable_node = [](CuGraphExec exec, CuGraphNode node, unsigned on) {
        return self().enable_in(exec, node, on);
    };
    cuda.stream_is_capturing = [](CuStream, int* status) { return *status = self().capturing, 0; };
    cuda.stream_get_context = [](CuStream, CuContext* context) { return *context = stack().back(), 0; };
    cuda.host_alloc = [](void** memory, size_t, unsigned) {
        return *memory = self().keep(self().host_, std::array<uint32_t, 256>{})->data(), 0;
    };
    cuda.stream_query = [](CuStream stream) {
        if (self().is_dead(stack().back())) return self().fault_shows ? self().fault : 600;
        return self().is_stuck(stream) ? 600 : 0;
    };
    cuda.stream_synchronize = [](CuStream stream) { return self().synchronize(stream); };
    cuda.stream_wait_value = [](CuStream stream, CuDevicePtr at, uint32_t value, unsigned) {
        if (self().unlike.numbers_do_not_work || stream == self().unlike.numbers_do_not_work_on) return 801;
        self().step("wait", stream);
        const std::lock_guard lock(self().mutex_);
        return self().waits_[stream] = {at, value}, 0;
    };
    cuda.stream_write_value = [](CuStream stream, CuDevicePtr at, uint32_t value, unsigned) {
        if (self().is_dead(stack().back())) return 0;
        self().step("write", stream);
        if (self().lanes_are_slow) return 0;
        std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(at)).store(value);
        return 0;
    };
    return cuda;
}

}  // namespace vuda::partition::testing
