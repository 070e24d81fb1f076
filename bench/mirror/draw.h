// vuda-bench-mirror draw: vuda-bench-render, whose control buffers come and go meanwhile.
#pragma once

#include <memory>

namespace CLI {
class App;
}

namespace vuda::bench {

class DrawCommand {
 public:
    // Adds the options of vuda-bench-render and --map-ms to `app`, which must live as long as this.
    explicit DrawCommand(CLI::App& app);
    ~DrawCommand();
    DrawCommand(const DrawCommand&) = delete;
    DrawCommand& operator=(const DrawCommand&) = delete;

    // Draws, prints what vuda-bench-render --json prints with "maps" and "map_max_ms", and returns its exit status.
    int run();

 private:
    struct Options;
    std::unique_ptr<Options> options_;
};

}  // namespace vuda::bench
