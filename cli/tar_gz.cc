#include "cli/tar_gz.h"

#include <zlib.h>

#include <array>
#include <cstdio>
#include <cstring>

namespace vuda::cli {
namespace {

constexpr size_t kBlock = 512;

// Source: POSIX.1-2017, pax, "ustar Interchange Format".
struct Header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, linkname[100], magic[6],
        version[2], uname[32], gname[32], devmajor[8], devminor[8], prefix[155], padding[12];
};
static_assert(sizeof(Header) == kBlock);

void octal(char* field, size_t size, uint64_t value) {
    std::snprintf(field, size, "%0*llo", static_cast<int>(size - 1), static_cast<unsigned long long>(value));
}

}  // namespace

void TarGz::add(std::string_view name, std::string_view content, int64_t mtime) {
    Header header{};
    std::memcpy(header.name, name.data(), std::min(name.size(), sizeof header.name - 1));
    octal(header.mode, sizeof header.mode, 0644);
    octal(header.uid, sizeof header.uid, 0);
    octal(header.gid, sizeof header.gid, 0);
    octal(header.size, sizeof header.size, content.size());
    octal(header.mtime, sizeof header.mtime, static_cast<uint64_t>(mtime));
    header.type = '0';
    std::memcpy(header.magic, "ustar", 6);
    std::memcpy(header.version, "00", 2);
    std::memcpy(header.uname, "root", 4);
    std::memcpy(header.gname, "root", 4);
    // Counted with blanks in its own place.
    std::memset(header.checksum, ' ', sizeof header.checksum);
    std::array<unsigned char, kBlock> bytes;
    std::memcpy(bytes.data(), &header, kBlock);
    unsigned sum = 0;
    for (const unsigned char byte : bytes) sum += byte;
    std::snprintf(header.checksum, sizeof header.checksum, "%06o", sum);
    tar_.append(reinterpret_cast<const char*>(&header), kBlock);
    tar_ += content;
    tar_.append((kBlock - content.size() % kBlock) % kBlock, '\0');
}

Result<std::string> TarGz::finish() && {
    tar_.append(2 * kBlock, '\0');
    z_stream stream{};
    constexpr int kGzip = 15 + 16;
    if (::deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return Error{Code::kInternal, "zlib cannot start", ""};
    std::string out(::deflateBound(&stream, tar_.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(tar_.data());
    stream.avail_in = static_cast<uInt>(tar_.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    const int done = ::deflate(&stream, Z_FINISH);
    out.resize(out.size() - stream.avail_out);
    ::deflateEnd(&stream);
    if (done != Z_STREAM_END) return Error{Code::kInternal, "zlib cannot compress the report", ""};
    return out;
}

}  // namespace vuda::cli
