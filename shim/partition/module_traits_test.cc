#include "shim/partition/module_traits.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace vuda::partition {
namespace {

using Image = std::vector<uint8_t>;

template <typename T>
void put(Image& image, size_t at, T value) {
    if (image.size() < at + sizeof value) image.resize(at + sizeof value);
    std::memcpy(image.data() + at, &value, sizeof value);
}

// A cubin of what matters: a symbol table and sections of shared memory.
class Cubin {
 public:
    Cubin& arch(uint32_t number) {
        arch_ = number;
        return *this;
    }
    Cubin& symbol(const std::string& name, uint8_t type, uint8_t other, uint16_t section) {
        const size_t at = symbols_.size();
        put(symbols_, at, text(strings_, name));
        put(symbols_, at + 4, type);
        put(symbols_, at + 5, other);
        put(symbols_, at + 6, section);
        symbols_.resize(at + 24);
        return *this;
    }
    Cubin& shared(const std::string& kernel, uint64_t bytes) {
        shared_.push_back({".nv.shared." + kernel, bytes});
        return *this;
    }
    Image image() const {
        Image names(1, 0);
        struct Section {
            uint32_t name, type, link;
            uint64_t offset, size;
        };
        std::vector<Section> sections(1);
        Image out(64, 0);
        const auto add = [&](const std::string& name, uint32_t type, const Image& content, uint32_t link) {
            sections.push_back({text(names, name), type, link, out.size(), content.size()});
            out.insert(out.end(), content.begin(), content.end());
        };
        add(".strtab", 3, strings_, 0);
        add(".symtab", 2, symbols_, 1);
        for (const auto& [name, bytes] : shared_) sections.push_back({text(names, name), 8, 0, out.size(), bytes});
        add(".shstrtab", 3, {}, 0);
        sections.back().size = names.size();
        out.insert(out.end(), names.begin(), names.end());
        const char ident[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x41, 8};
        std::memcpy(out.data(), ident, sizeof ident);
        put(out, 18, uint16_t{190});
        put(out, 40, uint64_t{out.size()});
        put(out, 48, 0x6000000u | arch_ << 8 | 4);
        put(out, 58, uint16_t{64});
        put(out, 60, static_cast<uint16_t>(sections.size()));
        put(out, 62, static_cast<uint16_t>(sections.size() - 1));
        for (const Section& section : sections) {
            const size_t at = out.size();
            put(out, at, section.name);
            put(out, at + 4, section.type);
            put(out, at + 24, section.offset);
            put(out, at + 32, section.size);
            put(out, at + 40, section.link);
            out.resize(at + 64);
        }
        return out;
    }

 private:
    static uint32_t text(Image& into, const std::string& word) {
        const auto at = static_cast<uint32_t>(into.size());
        into.insert(into.end(), word.begin(), word.end());
        into.push_back(0);
        return at;
    }
    uint32_t arch_ = 90;
    Image strings_ = Image(1, 0);
    Image symbols_ = Image(24, 0);
    struct Shared {
        std::string name;
        uint64_t bytes;
    };
    std::vector<Shared> shared_;
};

Cubin parent() { return Cubin().symbol("kernel", 2, 0x10, 4).symbol("__cuda_syscall_cnpv2LaunchDeviceV2", 0x12, 0, 0); }

struct Member {
    uint16_t kind;
    uint64_t flags;
    Image content;
};
Image fatbin(const std::vector<Member>& members) {
    Image out(16, 0);
    for (const Member& member : members) {
        const size_t at = out.size();
        put(out, at, member.kind);
        put(out, at + 2, uint16_t{0x101});
        put(out, at + 4, 64u);
        put(out, at + 8, uint64_t{member.content.size()});
        put(out, at + 28, 90u);
        put(out, at + 40, member.flags);
        out.resize(at + 64);
        out.insert(out.end(), member.content.begin(), member.content.end());
    }
    put(out, 0, 0xba55ed50u);
    put(out, 4, uint16_t{1});
    put(out, 6, uint16_t{16});
    put(out, 8, uint64_t{out.size() - 16});
    return out;
}

ModuleTraits inspect(const Image& image) { return inspect_image(image.data(), image.size()); }

Image text(const char* words) {
    Image out(words, words + std::strlen(words) + 1);
    return out;
}

TEST(ModuleTraits, ManagedVariablesAreMarkedInTheSymbolTable) {
    ModuleTraits traits = inspect(Cubin().symbol("plain", 1, 0, 5).symbol("counter", 1, 4, 5).image());
    EXPECT_TRUE(traits.understood);
    EXPECT_TRUE(traits.managed);
    EXPECT_FALSE(traits.launches);
    traits = inspect(Cubin()
                         .symbol("plain", 1, 0, 5)
                         .symbol("kernel", 2, 0x14, 5)
                         .symbol("elsewhere", 1, 4, 0)
                         .symbol("alias", 0, 0xa4, 5)
                         .image());
    EXPECT_TRUE(traits.understood);
    EXPECT_FALSE(traits.managed) << "a function, one that is defined elsewhere, something else";
}

TEST(ModuleTraits, AKernelThatLaunchesNeedsTheDeviceRuntime) {
    ModuleTraits traits = inspect(parent().shared("kernel", 5024).shared("child", 50'000).image());
    EXPECT_TRUE(traits.launches);
    EXPECT_EQ(traits.largest_shared, 50'000u);
    traits = inspect(parent().arch(80).shared("kernel", 4000).shared("reserved.0", 90'000).image());
    EXPECT_EQ(traits.largest_shared, 5024u) << "the section leaves CUDA's own out";
    EXPECT_EQ(inspect(parent().image()).largest_shared, 0u);
    traits = inspect(Cubin().symbol("__cuda_syscall_cnpv2LaunchDeviceV2", 0x12, 0, 3).shared("k", 90'000).image());
    EXPECT_FALSE(traits.launches) << "a program's own function of that name";
    EXPECT_EQ(traits.largest_shared, 0u);
}

TEST(ModuleTraits, ChildrenThatMayBeTooLarge) {
    constexpr uint32_t kLimit = 49'152;
    const auto traits = [](uint32_t shared) { return inspect(parent().shared("child", shared).image()); };
    EXPECT_FALSE(children_may_exceed(traits(1024), 0, kLimit));
    EXPECT_FALSE(children_may_exceed(traits(kLimit), 0, kLimit));
    EXPECT_TRUE(children_may_exceed(traits(kLimit + 1), 0, kLimit));
    EXPECT_FALSE(children_may_exceed(traits(1024), kLimit - 1024, kLimit));
    EXPECT_TRUE(children_may_exceed(traits(1024), kLimit - 1023, kLimit));
    EXPECT_TRUE(children_may_exceed(traits(1024), UINT32_MAX, kLimit));
    EXPECT_FALSE(children_may_exceed(traits(99'999), 0, 0)) << "there is no limit";
    EXPECT_FALSE(children_may_exceed(inspect(Cubin().shared("large", 99'999).image()), 99'999, kLimit));
}

TEST(ModuleTraits, EachMemberOfAFatBinaryCounts) {
    const Image plain = Cubin().symbol("plain", 1, 0, 5).image();
    const Image managed = Cubin().symbol("counter", 1, 4, 5).image();
    ModuleTraits traits = inspect(fatbin({{2, 0x11, plain}, {2, 0x11, managed}}));
    EXPECT_TRUE(traits.understood);
    EXPECT_TRUE(traits.managed);
    EXPECT_FALSE(traits.compressed);
    traits = inspect(fatbin({{2, 0x11, plain}, {1, 0x8011, text("(")}}));
    EXPECT_TRUE(traits.understood);
    EXPECT_FALSE(traits.compressed) << "its PTX is not what runs";
    for (const uint64_t flag : {0x1000u, 0x2000u, 0x8000u}) {
        traits = inspect(fatbin({{2, flag | 0x11, plain}}));
        EXPECT_TRUE(traits.compressed);
        EXPECT_FALSE(traits.understood);
    }
    traits = inspect(fatbin({{2, 0x8011, plain}, {2, 0x11, managed}}));
    EXPECT_TRUE(traits.compressed && traits.managed && traits.understood);
    EXPECT_FALSE(inspect(fatbin({})).understood);
    EXPECT_FALSE(inspect(fatbin({{2, 0x11, text("not a cubin")}})).understood);
    EXPECT_TRUE(inspect(fatbin({{2, 0x11, plain}, {9, 0, text("options")}})).understood);
}

TEST(ModuleTraits, TheWrapperThatCompilersMake) {
    const Image inner = fatbin({{2, 0x11, Cubin().symbol("counter", 1, 4, 5).image()}});
    Image wrapper;
    put(wrapper, 0, 0x466243b1u);
    put(wrapper, 4, 1u);
    put(wrapper, 8, reinterpret_cast<uintptr_t>(inner.data()));
    put(wrapper, 16, uint64_t{0});
    EXPECT_TRUE(inspect_image(wrapper.data()).managed) << "nobody says how long it is";
    put(wrapper, 8, uintptr_t{0x1000});
    EXPECT_FALSE(inspect_image(wrapper.data()).understood);
    put(wrapper, 8, reinterpret_cast<uintptr_t>(wrapper.data()));
    EXPECT_FALSE(inspect_image(wrapper.data()).understood) << "a wrapper of itself";
}

TEST(ModuleTraits, Ptx) {
    EXPECT_TRUE(inspect(text(".version 9.0\n.global .attribute(.managed) .align 4 .u32 counter = 7;\n")).managed);
    ModuleTraits traits = inspect(text(".version 9.0\n.extern .func cudaLaunchDeviceV2\n"));
    EXPECT_TRUE(traits.understood && traits.launches && !traits.managed);
    traits = inspect(text(".version 9.0\n.visible .entry kernel() { ret; }\n"));
    EXPECT_TRUE(traits.understood && !traits.launches && !traits.managed);
    // Wherever the word stands: pieces overlap.
    for (size_t before = 16'300; before < 16'400; ++before) {
        std::string words(before, ' ');
        words += ".attribute(.managed)";
        EXPECT_TRUE(inspect(text(words.c_str())).managed) << before;
    }
}

// Nobody says how long a PTX or a cubin is: what lies behind need not be there.
TEST(ModuleTraits, MemoryThatEndsBehindTheImage) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    void* const two = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(two, MAP_FAILED);
    ASSERT_EQ(::mprotect(static_cast<char*>(two) + page, page, PROT_NONE), 0);
    for (const Image& image :
         {text(".global .attribute(.managed) .u32 counter;"), Cubin().symbol("counter", 1, 4, 5).image()}) {
        char* const at = static_cast<char*>(two) + page - image.size();
        std::memcpy(at, image.data(), image.size());
        EXPECT_TRUE(inspect_image(at).managed);
        EXPECT_TRUE(inspect_image(at).understood);
    }
    EXPECT_FALSE(inspect_image(static_cast<char*>(two) + page).understood);
    EXPECT_FALSE(inspect_image(nullptr).understood);
    ::munmap(two, 2 * page);
}

// Cut anywhere, and with any byte another: no crash (sanitizers watch), and what is cut is not taken for whole.
TEST(ModuleTraits, DamagedImages) {
    const Image whole = fatbin({{2, 0x11, parent().symbol("counter", 1, 4, 5).shared("k", 3000).image()}});
    ASSERT_TRUE(inspect(whole).understood);
    for (size_t length = 0; length < whole.size(); ++length)
        EXPECT_FALSE(inspect(Image(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length))).understood)
            << length;
    for (size_t at = 0; at < whole.size(); ++at) {
        for (const uint8_t value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
            Image damaged = whole;
            damaged[at] = value;
            static_cast<void>(inspect(damaged));
        }
    }
}

// What nvcc 13.0 made for sm_90 of a __managed__ variable, with and without -Xfatbin -compress-all, and of none.
TEST(ModuleTraits, WhatNvccMakes) {
    const auto of_file = [](const char* name) {
        std::ifstream file(std::string(VUDA_TEST_IMAGES) + "/" + name, std::ios::binary);
        Image image{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
        EXPECT_FALSE(image.empty()) << name;
        return inspect(image);
    };
    EXPECT_TRUE(of_file("managed.cubin").managed);
    EXPECT_TRUE(of_file("managed.ptx").managed);
    const ModuleTraits plain = of_file("plain.cubin");
    EXPECT_TRUE(plain.understood);
    EXPECT_FALSE(plain.managed || plain.launches || plain.compressed);
    const ModuleTraits compressed = of_file("compressed.fatbin");
    EXPECT_TRUE(compressed.compressed);
    EXPECT_FALSE(compressed.understood);
}

}  // namespace
}  // namespace vuda::partition
