#include "shim/partition/module_traits.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>

#include "shim/partition/safe_read.h"

namespace vuda::partition {
namespace {

// Of any one image; a larger one is not understood.
constexpr size_t kMostMembers = 1 << 16;
constexpr size_t kMostSections = 1 << 20;
constexpr size_t kMostSymbols = 1 << 22;
constexpr uint64_t kMostPtx = 64 << 20;

constexpr uint32_t kReserved = 1024;  // bytes a block, which CUDA takes for itself from sm_80 on
constexpr uint32_t kArchThatCountsThem = 90;

// elf.h's names, of the 64-bit ones. CUDA's machine: 190.
struct ElfHeader {
    uint8_t ident[16];
    uint16_t type, machine;
    uint32_t version;
    uint64_t entry, program_headers, section_headers;
    uint32_t flags;
    uint16_t size, program_header_size, program_header_count, section_header_size, section_count, section_names;
};
static_assert(sizeof(ElfHeader) == 64);
struct Section {
    uint32_t name, type;
    uint64_t flags, address, offset, size;
    uint32_t link, info;
    uint64_t align, entry_size;
};
static_assert(sizeof(Section) == 64);
struct Symbol {
    uint32_t name;
    uint8_t info, other;
    uint16_t section;
    uint64_t value, size;
};
static_assert(sizeof(Symbol) == 24);

constexpr uint16_t kMachineCuda = 190;
constexpr uint8_t kClass64 = 2;
constexpr size_t kIdentClass = 4, kIdentAbiVersion = 8;
constexpr uint8_t kAbiWithArchAbove = 8;  // from it on the architecture is in bits 15:8 of the flags, before in 7:0
constexpr uint32_t kSymbolTable = 2;      // SHT_SYMTAB
constexpr uint32_t kNoBits = 8;           // SHT_NOBITS
constexpr uint32_t kSharedUnlinked = 0x7000000a;
constexpr uint8_t kObject = 1;     // STT_OBJECT
constexpr uint8_t kUnlinked = 13;  // as an object, in code that is not linked yet
constexpr uint8_t kManaged = 4;    // STO_CUDA_MANAGED
constexpr std::string_view kSyscall = "__cuda_syscall_cnp";
constexpr std::string_view kShared = ".nv.shared.";
constexpr std::string_view kSharedOfAll = ".nv.shared.reserved";

// fatbinary.h of CUDA's toolkits before 10, and what nvcc makes.
struct FatHeader {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;  // of what follows
};
static_assert(sizeof(FatHeader) == 16);
struct FatMember {
    uint16_t kind, version;
    uint32_t header_size;
    uint64_t size;  // of what follows the header
    uint32_t compressed_size, options_offset;
    uint16_t minor, major;
    uint32_t arch;
    uint64_t names;
    uint64_t flags;
};
static_assert(sizeof(FatMember) == 48);
struct FatWrapper {
    uint32_t magic, version;
    uint64_t data;
    uint64_t names;
};
static_assert(sizeof(FatWrapper) == 24);
constexpr uint32_t kFatMagic = 0xba55ed50;
constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint16_t kMemberPtx = 1, kMemberElf = 2;
constexpr uint64_t kCompressed = 0x1000 | 0x2000 | 0x8000;  // by the formats that there were; the newest is Zstandard

// A stretch of memory of which no more is known than where it should be.
class Bytes {
 public:
    Bytes(const void* at, uint64_t length) : at_(reinterpret_cast<uintptr_t>(at)), length_(length) {
        // No stretch goes around the end of memory.
        length_ = std::min<uint64_t>(length_, UINTPTR_MAX - at_);
    }
    bool read(uint64_t offset, void* to, size_t bytes) const {
        if (offset > length_ || bytes > length_ - offset) return false;
        return bytes == 0 || read_safely(reinterpret_cast<const void*>(at_ + offset), to, bytes);
    }
    template <typename T>
    bool read(uint64_t offset, T& to) const {
        static_assert(std::is_trivially_copyable_v<T>);
        return read(offset, &to, sizeof to);
    }
    // The stretch of `length` bytes from `offset` on; empty where this one has no such.
    Bytes part(uint64_t offset, uint64_t length) const {
        if (offset > length_ || length > length_ - offset) return {nullptr, 0};
        return {reinterpret_cast<const void*>(at_ + offset), length};
    }
    // Whether the text at `offset` begins with `text`.
    bool has(uint64_t offset, std::string_view text) const {
        std::array<char, 32> found;
        return text.size() <= found.size() && read(offset, found.data(), text.size()) &&
               std::string_view(found.data(), text.size()) == text;
    }
    uint64_t length() const { return length_; }

 private:
    uintptr_t at_;
    uint64_t length_;
};

// Table entries, so many at a time.
template <typename Entry, typename Take>
bool for_each(const Bytes& table, uint64_t count, Take take) {
    std::array<Entry, 256> some;
    for (uint64_t done = 0; done < count;) {
        const auto now = static_cast<size_t>(std::min<uint64_t>(count - done, some.size()));
        if (!table.read(done * sizeof(Entry), some.data(), now * sizeof(Entry))) return false;
        for (size_t i = 0; i < now; ++i) {
            if (!take(some[i])) return false;
        }
        done += now;
    }
    return true;
}

uint32_t arch_of(const ElfHeader& header) {
    return header.ident[kIdentAbiVersion] >= kAbiWithArchAbove ? header.flags >> 8 & 0xff : header.flags & 0xff;
}

bool read_symbols(const Bytes& image, const Section& table, const Section& names, ModuleTraits& traits) {
    const uint64_t count = table.size / sizeof(Symbol);
    if (count > kMostSymbols) return false;
    const Bytes strings = image.part(names.offset, names.size);
    return for_each<Symbol>(image.part(table.offset, table.size), count, [&](const Symbol& symbol) {
        const uint8_t type = symbol.info & 0xf;
        if ((type == kObject || type == kUnlinked) && (symbol.other & kManaged) != 0 && symbol.section != 0)
            traits.managed = true;
        if (symbol.section == 0 && symbol.name != 0 && strings.has(symbol.name, kSyscall)) traits.launches = true;
        return true;
    });
}

// How much the section says a kernel wants; 0: it is none of those.
uint64_t shared_of(const Section& section, const Bytes& names, uint32_t arch) {
    if (section.type != kNoBits && section.type != kSharedUnlinked) return 0;
    if (!names.has(section.name, kShared) || names.has(section.name, kSharedOfAll)) return 0;
    const bool counted = arch >= kArchThatCountsThem && section.type == kNoBits;
    return section.size + (counted ? 0 : kReserved);
}

bool read_elf(const Bytes& image, ModuleTraits& traits) {
    ElfHeader header;
    if (!image.read(0, header) || header.ident[kIdentClass] != kClass64 || header.machine != kMachineCuda ||
        header.section_header_size != sizeof(Section) || header.section_headers == 0)
        return false;
    const auto section = [&](uint64_t index, Section& out) {
        return image.read(header.section_headers + index * sizeof(Section), out);
    };
    // More sections than the header has room for: the first one says how many.
    Section first, names;
    if (header.section_headers > image.length() || !section(0, first)) return false;
    const uint64_t count = header.section_count != 0 ? header.section_count : first.size;
    const uint64_t names_at = header.section_names != 0xffff ? header.section_names : first.link;
    if (count > kMostSections || names_at >= count || !section(names_at, names)) return false;
    const Bytes table = image.part(header.section_headers, count * sizeof(Section));
    const Bytes name_bytes = image.part(names.offset, names.size);
    if (!for_each<Section>(table, count, [&](const Section& at) {
            if (at.type != kSymbolTable) return true;
            Section strings;
            return at.link < count && section(at.link, strings) && read_symbols(image, at, strings, traits);
        }))
        return false;
    if (!traits.launches) return true;
    const uint32_t arch = arch_of(header);
    return for_each<Section>(table, count, [&](const Section& at) {
        const uint64_t shared = std::min<uint64_t>(shared_of(at, name_bytes, arch), UINT32_MAX);
        traits.largest_shared = std::max(traits.largest_shared, static_cast<uint32_t>(shared));
        return true;
    });
}

// Text that ends with a zero, or where the image does. Read in pieces that overlap, so that no word is cut.
bool read_ptx(const Bytes& image, ModuleTraits& traits) {
    constexpr size_t kPiece = 16384, kOverlap = 64;
    constexpr std::string_view kManagedWord = ".managed";
    constexpr std::string_view kLaunchWords[] = {"cudaLaunchDevice", "__cudaCDP2LaunchDevice", kSyscall};
    const std::unique_ptr<char[]> piece = std::make_unique_for_overwrite<char[]>(kPiece);
    const uint64_t most = std::min<uint64_t>(image.length(), kMostPtx);
    for (uint64_t at = 0; at < most;) {
        // To the end of a page: what lies behind the text may not be there.
        const auto bytes = static_cast<size_t>(std::min<uint64_t>(kPiece, most - at));
        size_t got = bytes;
        while (got > 0 && !image.read(at, piece.get(), got)) got /= 2;
        if (got == 0) return false;
        std::string_view text(piece.get(), got);
        const size_t end = text.find('\0');
        text = text.substr(0, end);
        traits.managed = traits.managed || text.find(kManagedWord) != std::string_view::npos;
        for (const std::string_view word : kLaunchWords)
            traits.launches = traits.launches || text.find(word) != std::string_view::npos;
        if (end != std::string_view::npos || at + got >= image.length()) return true;
        at += got > 2 * kOverlap ? got - kOverlap : got;
    }
    return false;
}

bool read_fat(const Bytes& image, ModuleTraits& traits, bool& any) {
    FatHeader header;
    if (!image.read(0, header) || header.header_size < sizeof header) return false;
    const Bytes members = image.part(header.header_size, header.size);
    size_t count = 0;
    bool good = members.length() == header.size;
    for (uint64_t at = 0; good && at < members.length();) {
        FatMember member;
        if (++count > kMostMembers || !members.read(at, member) || member.header_size < sizeof member) return false;
        const uint64_t left = members.length() - at;
        if (member.header_size > left || member.size > left - member.header_size) return false;
        const Bytes content = members.part(at + member.header_size, member.size);
        at += member.header_size + member.size;
        if (member.kind != kMemberElf && member.kind != kMemberPtx) continue;
        if ((member.flags & kCompressed) != 0) {
            // PTX is for GPUs that came later than the program.
            if (member.kind == kMemberElf) traits.compressed = true;
            continue;
        }
        good = member.kind == kMemberElf ? read_elf(content, traits) : read_ptx(content, traits);
        any = any || good;
    }
    return good;
}

}  // namespace

ModuleTraits inspect_image(const void* image, size_t length) {
    ModuleTraits traits;
    Bytes bytes(image, length);
    uint32_t magic = 0;
    if (image == nullptr || !bytes.read(0, magic)) return traits;
    if (magic == kWrapperMagic) {
        FatWrapper wrapper;
        if (!bytes.read(0, wrapper) || wrapper.data == 0) return traits;
        bytes = Bytes(reinterpret_cast<const void*>(static_cast<uintptr_t>(wrapper.data)), kUnknownLength);
        if (!bytes.read(0, magic) || magic != kFatMagic) return traits;
    }
    if (magic == kFatMagic) {
        bool any = false;
        traits.understood = read_fat(bytes, traits, any) && any;
        return traits;
    }
    constexpr std::array<uint8_t, 4> kElfMagic = {0x7f, 'E', 'L', 'F'};
    traits.understood =
        std::memcmp(&magic, kElfMagic.data(), sizeof magic) == 0 ? read_elf(bytes, traits) : read_ptx(bytes, traits);
    return traits;
}

uint32_t largest_child(const ModuleTraits& traits, uint32_t raised) {
    const uint64_t fixed = std::max(traits.largest_shared, kReserved);
    return static_cast<uint32_t>(std::min<uint64_t>(fixed + raised, UINT32_MAX));
}

bool children_may_exceed(const ModuleTraits& traits, uint32_t raised, uint32_t limit) {
    return traits.launches && limit != 0 && largest_child(traits, raised) > limit;
}

}  // namespace vuda::partition
