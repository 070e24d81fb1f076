#include "tests/faults/points.h"

#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/unique_fd.h"

namespace vuda::faults {
namespace {

constexpr size_t kRoom = 16;
using Bytes = std::array<uint8_t, kRoom>;

// push 39; pop rax; syscall (getpid); xchg edi, eax; push 9; pop rsi; push 62; pop rax; syscall (kill)
constexpr Bytes kKillCode = {0x6a, 0x27, 0x58, 0x0f, 0x05, 0x97, 0x6a, 0x09,
                             0x5e, 0x6a, 0x3e, 0x58, 0x0f, 0x05, 0x90, 0x90};
// again: mov eax, 34; syscall (pause); jmp again
constexpr Bytes kHoldCode = {0xb8, 0x22, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xeb,
                             0xf7, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90};

Bytes code_of(Deed deed) {
    Bytes nops;
    nops.fill(0x90);
    switch (deed) {
        case Deed::kNothing: return nops;
        case Deed::kKill: return kKillCode;
        case Deed::kHold: return kHoldCode;
    }
    return nops;
}

Error broken(const std::string& elf, const char* what) { return Error{Code::kDataLoss, elf + ": " + what, ""}; }

template <typename T>
bool read_at(const std::string& bytes, uint64_t offset, T* out) {
    if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
    std::memcpy(out, bytes.data() + offset, sizeof(T));
    return true;
}

Result<std::string> contents(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return Error{Code::kNotFound, path + " cannot be read", ""};
    std::ostringstream out;
    out << in.rdbuf();
    return std::move(out).str();
}

uint64_t align4(uint64_t value) { return (value + 3) & ~uint64_t{3}; }

// The notes of one section. Form: see base/fault_point.h.
void read_notes(const std::string& bytes, const Elf64_Shdr& section, const std::vector<Elf64_Phdr>& segments,
                std::vector<Point>& out) {
    uint64_t at = section.sh_offset;
    const uint64_t end = section.sh_offset + section.sh_size;
    Elf64_Nhdr note{};
    while (at + sizeof note <= end && read_at(bytes, at, &note)) {
        const uint64_t desc = at + sizeof note + align4(note.n_namesz);
        const uint64_t next = desc + align4(note.n_descsz);
        uint64_t address = 0;
        if (next > end || next <= at || next > bytes.size()) return;
        if (note.n_type == 3 && note.n_descsz > 24 && read_at(bytes, desc, &address)) {
            const std::string words = bytes.substr(desc + 24, note.n_descsz - 24);
            const std::string provider = words.c_str();
            const std::string name = words.substr(std::min(provider.size() + 1, words.size())).c_str();
            for (const Elf64_Phdr& segment : segments) {
                if (provider != "vuda" || segment.p_type != PT_LOAD || address < segment.p_vaddr ||
                    address - segment.p_vaddr >= segment.p_filesz)
                    continue;
                out.push_back({name, address - segment.p_vaddr + segment.p_offset, address});
            }
        }
        at = next;
    }
}

// Where the process has byte `file_offset` of the file.
uint64_t mapped_at(pid_t pid, const std::string& elf, uint64_t file_offset) {
    struct stat wanted {};
    if (::stat(elf.c_str(), &wanted) != 0) return 0;
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    std::string line;
    while (std::getline(maps, line)) {
        unsigned long long from = 0, to = 0, offset = 0, inode = 0;
        char mode[5] = {}, device[16] = {};
        if (std::sscanf(line.c_str(), "%llx-%llx %4s %llx %15s %llu", &from, &to, mode, &offset, device, &inode) != 6)
            continue;
        if (inode == wanted.st_ino && file_offset >= offset && file_offset - offset < to - from)
            return from + (file_offset - offset);
    }
    return 0;
}

}  // namespace

Result<std::vector<Point>> points_of(const std::string& elf) {
    Result<std::string> read = contents(elf);
    if (!read) return read.error();
    const std::string& bytes = *read;
    Elf64_Ehdr header{};
    if (!read_at(bytes, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64)
        return broken(elf, "not a 64-bit ELF file");
    std::vector<Elf64_Phdr> segments(header.e_phnum);
    for (size_t i = 0; i < segments.size(); ++i) {
        if (!read_at(bytes, header.e_phoff + i * header.e_phentsize, &segments[i])) return broken(elf, "cut short");
    }
    std::vector<Point> points;
    for (size_t i = 0; i < header.e_shnum; ++i) {
        Elf64_Shdr section{};
        if (!read_at(bytes, header.e_shoff + i * header.e_shentsize, &section)) return broken(elf, "cut short");
        if (section.sh_type == SHT_NOTE) read_notes(bytes, section, segments, points);
    }
    return points;
}

Status only_nops(const std::string& elf) {
    const Result<std::vector<Point>> points = points_of(elf);
    if (!points) return points.error();
    const Result<std::string> bytes = contents(elf);
    if (!bytes) return bytes.error();
    const Bytes nops = code_of(Deed::kNothing);
    for (const Point& point : *points) {
        if (bytes->size() - point.file_offset < kRoom ||
            std::memcmp(bytes->data() + point.file_offset, nops.data(), kRoom) != 0)
            return broken(elf, ("no nops at " + point.name).c_str());
    }
    return {};
}

Status patch_copy(const std::string& elf, const std::string& copy, const std::string& point, Deed deed) {
    if (Status untouched = only_nops(elf); !untouched) return untouched;
    const Result<std::vector<Point>> points = points_of(elf);
    if (!points) return points.error();
    Result<std::string> bytes = contents(elf);
    if (!bytes) return bytes.error();
    const Bytes code = code_of(deed);
    bool found = false;
    for (const Point& place : *points) {
        if (place.name != point) continue;
        std::memcpy(bytes->data() + place.file_offset, code.data(), code.size());
        found = true;
    }
    if (!found) return Error{Code::kNotFound, elf + " has no point " + point, ""};
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(copy).parent_path(), ignored);
    std::filesystem::remove(copy, ignored);  // somebody may run the one before
    {
        std::ofstream out(copy, std::ios::binary);
        out << *bytes;
        if (!out.flush()) return Error{Code::kResourceExhausted, copy + " cannot be written", ""};
    }
    if (::chmod(copy.c_str(), 0755) != 0) return errno_error(errno, "chmod " + copy);
    return {};
}

Status patch_process(pid_t pid, const std::string& elf, const std::string& point, Deed deed) {
    const Result<std::vector<Point>> points = points_of(elf);
    if (!points) return points.error();
    // The kernel writes through the mapping's protection, into a page of the process's own.
    const UniqueFd memory(::open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDWR | O_CLOEXEC));
    if (!memory) return errno_error(errno, "open the memory of " + std::to_string(pid));
    const Bytes code = code_of(deed);
    bool found = false;
    for (const Point& place : *points) {
        if (place.name != point) continue;
        const uint64_t at = mapped_at(pid, elf, place.file_offset);
        if (at == 0) return Error{Code::kFailedPrecondition, elf + " is not mapped in " + std::to_string(pid), ""};
        if (::pwrite(memory.get(), code.data(), code.size(), static_cast<off_t>(at)) !=
            static_cast<ssize_t>(code.size()))
            return errno_error(errno, "write to " + std::to_string(pid));
        found = true;
    }
    if (!found) return Error{Code::kNotFound, elf + " has no point " + point, ""};
    return {};
}

// "34 ..." in /proc/PID/task/TID/syscall: the thread is in pause(2), which nothing else here calls.
bool held(pid_t pid) {
    std::error_code failed;
    const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
    for (std::filesystem::directory_iterator it(tasks, failed), end; !failed && it != end; it.increment(failed)) {
        std::ifstream in(it->path() / "syscall");
        std::string word;
        if (in >> word && word == "34") return true;
    }
    return false;
}

// A stop and a continue make the kernel begin pause(2) anew, by running the instruction again: which is a nop by now.
void release(pid_t pid) {
    ::kill(pid, SIGSTOP);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WEXITED | WNOWAIT);
    ::kill(pid, SIGCONT);
}

}  // namespace vuda::faults
