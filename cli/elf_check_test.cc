#include "cli/elf_check.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/test_dir.h"

namespace vuda::cli {
namespace {

#if defined(__aarch64__)
constexpr uint16_t kHost = EM_AARCH64, kOther = EM_X86_64;
#else
constexpr uint16_t kHost = EM_X86_64, kOther = EM_AARCH64;
#endif

std::string image(uint16_t machine, bool interp, unsigned char elf_class = ELFCLASS64) {
    std::string bytes;
    if (elf_class == ELFCLASS32) {
        Elf32_Ehdr header{};
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = elf_class;
        header.e_machine = machine;
        header.e_phoff = sizeof header;
        header.e_phentsize = sizeof(Elf32_Phdr);
        header.e_phnum = 1;
        Elf32_Phdr segment{};
        segment.p_type = interp ? PT_INTERP : PT_LOAD;
        bytes.assign(reinterpret_cast<const char*>(&header), sizeof header);
        bytes.append(reinterpret_cast<const char*>(&segment), sizeof segment);
        return bytes;
    }
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = elf_class;
    header.e_machine = machine;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 2;
    Elf64_Phdr segments[2] = {};
    segments[0].p_type = PT_LOAD;
    segments[1].p_type = interp ? PT_INTERP : PT_DYNAMIC;
    bytes.assign(reinterpret_cast<const char*>(&header), sizeof header);
    bytes.append(reinterpret_cast<const char*>(segments), sizeof segments);
    return bytes;
}

TEST(ElfCheck, RealProgramsOfThisMachine) {
    const Result<ProgramFacts> facts = inspect_program("/proc/self/exe");
    ASSERT_TRUE(facts.ok()) << facts.error().to_string();
    EXPECT_TRUE(facts->elf);
    EXPECT_TRUE(facts->dynamic);
    EXPECT_TRUE(facts->same_abi);
    EXPECT_FALSE(preload_obstacle("/proc/self/exe", getuid(), getgid()));
}

TEST(ElfCheck, StaticForeignAnd32Bit) {
    const TestDir dir;
    EXPECT_EQ(preload_obstacle(dir.write("static", image(kHost, false)), 0, 0), "it is statically linked");
    EXPECT_EQ(preload_obstacle(dir.write("dynamic", image(kHost, true)), 0, 0), std::nullopt);
    EXPECT_EQ(preload_obstacle(dir.write("foreign", image(kOther, true)), 0, 0),
              "it is built for another architecture than VUDA's libraries");
    EXPECT_EQ(preload_obstacle(dir.write("old", image(EM_386, true, ELFCLASS32)), 0, 0),
              "it is built for another architecture than VUDA's libraries");
}

TEST(ElfCheck, CutShortIsAnErrorAndNotACrash) {
    const TestDir dir;
    const std::string whole = image(kHost, true);
    for (size_t size = SELFMAG; size < whole.size(); ++size) {
        const std::string path = dir.write("cut", whole.substr(0, size));
        const Result<ProgramFacts> facts = inspect_program(path);
        ASSERT_FALSE(facts.ok()) << size;
        EXPECT_EQ(facts.error().code, Code::kDataLoss);
        EXPECT_EQ(preload_obstacle(path, 0, 0), std::nullopt);
    }
    EXPECT_EQ(inspect_program(dir.path("missing")).error().code, Code::kNotFound);
}

TEST(ElfCheck, PrivilegedProgramsLoseThePreload) {
    ProgramFacts facts;
    facts.elf = facts.dynamic = facts.same_abi = true;
    facts.owner = 0;
    facts.group = 44;
    facts.setuid = true;
    EXPECT_EQ(preload_obstacle(facts, 1000, 1000), "it is setuid");
    EXPECT_EQ(preload_obstacle(facts, 0, 0), std::nullopt);  // nothing is gained
    facts.setuid = false;
    facts.setgid = true;
    EXPECT_EQ(preload_obstacle(facts, 1000, 1000), "it is setgid");
    EXPECT_EQ(preload_obstacle(facts, 1000, 44), std::nullopt);
    facts.setgid = false;
    facts.capabilities = true;
    EXPECT_EQ(preload_obstacle(facts, 1000, 1000), "it has file capabilities");
    EXPECT_EQ(preload_obstacle(facts, 0, 0), std::nullopt);
}

TEST(ElfCheck, ModeBitsAreRead) {
    const TestDir dir;
    const std::string path = dir.write("tool", image(kHost, true));
    ASSERT_EQ(chmod(path.c_str(), 06755), 0);
    const Result<ProgramFacts> facts = inspect_program(path);
    ASSERT_TRUE(facts.ok());
    EXPECT_TRUE(facts->setuid);
    EXPECT_TRUE(facts->setgid);
    EXPECT_EQ(facts->owner, getuid());
}

TEST(ElfCheck, ScriptsAreJudgedByTheirInterpreter) {
    const TestDir dir;
    const std::string interpreter = dir.write("lang", image(kHost, false));
    const std::string script = dir.write("script", "#! " + interpreter + " -x\nbody\n");
    EXPECT_EQ(preload_obstacle(script, 0, 0), "it is statically linked (its interpreter " + interpreter + ")");
    EXPECT_EQ(preload_obstacle(dir.write("sh", "#!/bin/sh\n"), 0, 0), std::nullopt);
    EXPECT_EQ(preload_obstacle(dir.write("text", "echo hello\n"), 0, 0), std::nullopt);
    const std::string loop = dir.path("loop");
    dir.write("loop", "#!" + loop + "\n");
    EXPECT_EQ(preload_obstacle(loop, 0, 0), std::nullopt);
}

}  // namespace
}  // namespace vuda::cli
