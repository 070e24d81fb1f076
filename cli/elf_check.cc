#include "cli/elf_check.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/unique_fd.h"

namespace vuda::cli {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_NONE;
#endif

// Linux follows at most four "#!" steps (BINPRM recursion limit in fs/exec.c).
constexpr int kMaxScriptDepth = 4;

bool read_at(int fd, void* out, size_t size, off_t offset) {
    return pread(fd, out, size, offset) == static_cast<ssize_t>(size);
}

template <typename Header, typename Segment>
Result<bool> has_interpreter(int fd) {
    Header header;
    const Error cut_short{Code::kDataLoss, "ELF file is cut short", ""};
    if (!read_at(fd, &header, sizeof header, 0)) return cut_short;
    if (header.e_phnum != 0 && header.e_phentsize != sizeof(Segment)) return cut_short;
    for (unsigned i = 0; i < header.e_phnum; ++i) {
        Segment segment;
        const auto offset = static_cast<off_t>(header.e_phoff) + static_cast<off_t>(i * sizeof segment);
        if (offset < 0 || !read_at(fd, &segment, sizeof segment, offset)) return cut_short;
        if (segment.p_type == PT_INTERP) return true;
    }
    return false;
}

std::string script_interpreter(std::string_view head) {
    head.remove_prefix(2);
    head = head.substr(0, head.find('\n'));
    const size_t start = head.find_first_not_of(" \t");
    if (start == head.npos) return {};
    head.remove_prefix(start);
    return std::string(head.substr(0, head.find_first_of(" \t")));
}

}  // namespace

Result<ProgramFacts> inspect_program(const std::string& path) {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) return errno_error(errno, path);
    struct stat info {};
    if (fstat(fd.get(), &info) != 0) return errno_error(errno, path);

    ProgramFacts facts;
    facts.setuid = (info.st_mode & S_ISUID) != 0;
    facts.setgid = (info.st_mode & S_ISGID) != 0 && (info.st_mode & S_IXGRP) != 0;
    facts.owner = info.st_uid;
    facts.group = info.st_gid;
    facts.capabilities = fgetxattr(fd.get(), "security.capability", nullptr, 0) > 0;

    std::array<char, 256> head{};
    const ssize_t got = pread(fd.get(), head.data(), head.size(), 0);
    if (got < 0) return errno_error(errno, path);
    const std::string_view text(head.data(), static_cast<size_t>(got));
    if (text.starts_with("#!")) {
        facts.interpreter = script_interpreter(text);
        return facts;
    }
    if (!text.starts_with(std::string_view(ELFMAG, SELFMAG))) return facts;
    facts.elf = true;
    if (text.size() < sizeof(Elf32_Ehdr)) return Error{Code::kDataLoss, path + ": ELF file is cut short", ""};

    // e_machine lies at the same offset in both classes.
    uint16_t machine = 0;
    std::memcpy(&machine, head.data() + offsetof(Elf64_Ehdr, e_machine), sizeof machine);
    const bool is_64 = head[EI_CLASS] == ELFCLASS64;
    facts.same_abi = is_64 && machine == kMachine;
    Result<bool> dynamic =
        is_64 ? has_interpreter<Elf64_Ehdr, Elf64_Phdr>(fd.get()) : has_interpreter<Elf32_Ehdr, Elf32_Phdr>(fd.get());
    if (!dynamic) return Error{dynamic.error().code, path + ": " + dynamic.error().text, ""};
    facts.dynamic = *dynamic;
    return facts;
}

std::optional<std::string> preload_obstacle(const ProgramFacts& facts, uid_t uid, gid_t gid) {
    if (facts.elf && !facts.dynamic) return "it is statically linked";
    if (facts.elf && !facts.same_abi) return "it is built for another architecture than VUDA's libraries";
    if (facts.setuid && facts.owner != uid) return "it is setuid";
    if (facts.setgid && facts.group != gid) return "it is setgid";
    // The kernel sets AT_SECURE for file capabilities only if the real user is not root (security/commoncap.c).
    if (facts.capabilities && uid != 0) return "it has file capabilities";
    return std::nullopt;
}

std::optional<std::string> preload_obstacle(const std::string& path, uid_t uid, gid_t gid) {
    std::string at = path;
    for (int depth = 0; depth <= kMaxScriptDepth; ++depth) {
        const Result<ProgramFacts> facts = inspect_program(at);
        if (!facts) return std::nullopt;
        if (facts->interpreter.empty()) {
            std::optional<std::string> obstacle = preload_obstacle(*facts, uid, gid);
            if (obstacle && depth > 0) *obstacle += " (its interpreter " + at + ")";
            return obstacle;
        }
        // The kernel ignores setuid bits of scripts.
        at = facts->interpreter;
    }
    return std::nullopt;
}

}  // namespace vuda::cli
