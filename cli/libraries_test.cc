#include "cli/libraries.h"

#include <gtest/gtest.h>

#include "cli/test_dir.h"

namespace vuda::cli {
namespace {

LibraryPaths paths_in(const TestDir& dir) {
    LibraryPaths paths;
    paths.executable_dir = dir.path("build/bin");
    paths.relative_libdir = "../lib/x86_64-linux-gnu/vuda";
    paths.installed_libdir = "/usr/lib/x86_64-linux-gnu/vuda";
    paths.installed_manifest = "/usr/share/vulkan/implicit_layer.d/VkLayer_vuda.json";
    paths.root = dir.path("root");
    return paths;
}

TEST(Libraries, BuildTreeFirst) {
    const TestDir dir;
    const std::string preload = dir.write("build/lib/libvuda_preload.so", "");
    const std::string sim = dir.write("build/lib/libvuda_sim.so", "");
    dir.write("build/lib/vulkan/explicit_layer.d/VkLayer_vuda.json", "{}");
    dir.write("root/usr/lib/x86_64-linux-gnu/vuda/libvuda_preload.so", "");
    const Libraries found = find_libraries(paths_in(dir));
    EXPECT_EQ(found.preload, preload);
    EXPECT_EQ(found.sim, sim);
    EXPECT_EQ(found.explicit_layer, dir.path("build/lib/vulkan/explicit_layer.d"));
    EXPECT_EQ(found.layer_manifest, dir.path("build/lib/vulkan/explicit_layer.d/VkLayer_vuda.json"));
}

TEST(Libraries, PartsOfTwoPlacesAreNeverMixed) {
    const TestDir dir;
    dir.write("build/lib/libvuda_preload.so", "");
    dir.write("root/usr/lib/x86_64-linux-gnu/vuda/libvuda_preload.so", "");
    dir.write("root/usr/lib/x86_64-linux-gnu/vuda/libvuda_sim.so", "");
    dir.write("root/usr/share/vulkan/implicit_layer.d/VkLayer_vuda.json", "{}");
    const Libraries found = find_libraries(paths_in(dir));
    EXPECT_EQ(found.sim, "");
    EXPECT_EQ(found.layer_manifest, "");
}

TEST(Libraries, RelocatedThenInstalled) {
    const TestDir dir;
    const std::string installed = dir.write("root/usr/lib/x86_64-linux-gnu/vuda/libvuda_preload.so", "");
    const std::string manifest = dir.write("root/usr/share/vulkan/implicit_layer.d/VkLayer_vuda.json", "{}");
    Libraries found = find_libraries(paths_in(dir));
    EXPECT_EQ(found.preload, installed);
    EXPECT_EQ(found.layer_manifest, manifest);
    EXPECT_EQ(found.explicit_layer, "");

    const std::string relocated = dir.write("build/lib/x86_64-linux-gnu/vuda/libvuda_preload.so", "");
    EXPECT_EQ(find_libraries(paths_in(dir)).preload, relocated);
}

TEST(Libraries, NotFoundSaysWhereItLooked) {
    const TestDir dir;
    const Libraries found = find_libraries(paths_in(dir));
    EXPECT_EQ(found.preload, "");
    EXPECT_EQ(found.searched,
              (std::vector<std::string>{dir.path("build/lib"), dir.path("build/lib/x86_64-linux-gnu/vuda"),
                                        dir.path("root/usr/lib/x86_64-linux-gnu/vuda")}));
}

TEST(Libraries, DefaultsKnowThisExecutable) {
    EXPECT_FALSE(default_library_paths().executable_dir.empty());
    EXPECT_TRUE(default_library_paths().installed_libdir.is_absolute());
}

}  // namespace
}  // namespace vuda::cli
