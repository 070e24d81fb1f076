#include "sim/simd/session.h"

#include <fcntl.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace vuda::sim {

namespace {

using protocol::Type;

template <typename T>
std::optional<T> take(std::span<const uint8_t> packet) {
    if (packet.size() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, packet.data(), sizeof value);
    return value;
}

template <typename T>
void put(std::vector<uint8_t>& bytes, const T& value) {
    const size_t at = bytes.size();
    bytes.resize(at + sizeof value);
    std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <typename T>
Packet packet_of(const T& value) {
    Packet packet;
    put(packet.bytes, value);
    return packet;
}

protocol::Header head(Type type) { return {protocol::kMagic, type}; }

std::string describe(const ResourceManager::Counts& counts) {
    return "clients=" + std::to_string(counts.clients) + " objects=" + std::to_string(counts.objects) +
           " tsgs=" + std::to_string(counts.tsgs) + " channels=" + std::to_string(counts.channels) +
           " memories=" + std::to_string(counts.memories) + " files=" + std::to_string(counts.files) + "\n";
}

// "XID@PID", "stuck@PID" or "free@PID". False: it is not that, or the process has no such channel, or is not stuck.
bool plant_fault(ResourceManager& rm, std::string_view text) {
    uint32_t xid = 0;
    pid_t pid = 0;
    const size_t at = text.find('@');
    if (at == std::string_view::npos) return false;
    const std::string_view what = text.substr(0, at);
    const char* const end = text.data() + text.size();
    const auto [stop, bad_pid] = std::from_chars(text.data() + at + 1, end, pid);
    if (bad_pid != std::errc() || stop != end) return false;
    if (what == "stuck" || what == "free") return rm.set_stuck(pid, what == "stuck");
    const auto [rest, bad_xid] = std::from_chars(what.data(), what.data() + what.size(), xid);
    if (bad_xid != std::errc() || xid == 0 || rest != what.data() + what.size()) return false;
    bool hit = false;
    for (size_t i = 0; i < rm.gpu_count(); i++) hit = rm.gpu(i).fault_of(pid, xid) || hit;
    return hit;
}

}  // namespace

std::optional<Packet> Session::handle(std::span<const uint8_t> packet) {
    const auto header = take<protocol::Header>(packet);
    if (!header || header->magic != protocol::kMagic) return std::nullopt;
    const bool answers = header->type == Type::kSupplyRead || header->type == Type::kSupplyFile;
    // One call at a time: a pending ioctl takes answers and nothing else.
    if (answers != request_.has_value()) return std::nullopt;
    switch (header->type) {
        case Type::kOpen: return open(packet);
        case Type::kIoctl: return start_ioctl(packet);
        case Type::kSupplyRead:
        case Type::kSupplyFile: return supply(packet, header->type);
        case Type::kMap: return map(packet);
        case Type::kQuery: return query(packet);
        default: return std::nullopt;
    }
}

std::optional<Packet> Session::open(std::span<const uint8_t> packet) {
    const auto message = take<protocol::Open>(packet);
    if (!message || message->kind > 3) return std::nullopt;
    const auto kind = static_cast<FileKind>(message->kind);
    protocol::Opened reply{head(Type::kOpened), 0, 0};
    const FileId file = rm_.open(kind, message->minor, caller_);
    if (file == 0) {
        reply.error = ENODEV;
        return packet_of(reply);
    }
    UniqueFd end = host_.publish(file, kind, message->minor);
    if (!end.valid()) {
        rm_.close(file);
        reply.error = EMFILE;
        return packet_of(reply);
    }
    Packet out = packet_of(reply);
    out.owned = std::move(end);
    return out;
}

std::optional<Packet> Session::start_ioctl(std::span<const uint8_t> packet) {
    const auto message = take<protocol::Ioctl>(packet);
    if (!message) return std::nullopt;
    Request request;
    request.file = message->file;
    request.number = message->number;
    request.address = message->address;
    const auto argument = packet.subspan(sizeof *message);
    request.argument.assign(argument.begin(), argument.end());
    request_ = std::move(request);
    needs_ = 0;
    return advance();
}

std::optional<Packet> Session::supply(std::span<const uint8_t> packet, Type type) {
    if (type == Type::kSupplyRead) {
        const auto message = take<protocol::SupplyRead>(packet);
        if (!message || need_.kind != Need::Kind::kRead) return std::nullopt;
        if (message->error != 0) return done(EFAULT);
        const auto bytes = packet.subspan(sizeof *message);
        if (bytes.size() != need_.length) return std::nullopt;
        request_->supply(need_.address, bytes);
    } else {
        const auto message = take<protocol::SupplyFile>(packet);
        if (!message || need_.kind != Need::Kind::kFile) return std::nullopt;
        request_->files.emplace_back(need_.fd, message->file);
    }
    return advance();
}

Packet Session::advance() {
    const File* file = rm_.file(request_->file);
    if (file == nullptr) return done(EBADF);
    need_ = next_need(*request_, file->kind, rm_.layout());
    if (need_.kind != Need::Kind::kNothing && ++needs_ > kMostNeeds) return done(EINVAL);
    switch (need_.kind) {
        case Need::Kind::kRead:
            return packet_of(protocol::NeedRead{head(Type::kNeedRead), need_.address, need_.length, 0});
        case Need::Kind::kFile: return packet_of(protocol::NeedFile{head(Type::kNeedFile), need_.fd, 0});
        case Need::Kind::kError: return done(need_.error);
        case Need::Kind::kNothing: break;
    }
    const Outcome outcome = rm_.ioctl(caller_, *request_);
    return done(outcome.error);
}

Packet Session::done(int error) {
    Packet out = packet_of(protocol::Done{head(Type::kDone), error, 0});
    uint32_t writes = 0;
    const auto write = [&](uint64_t address, const std::vector<uint8_t>& bytes) {
        if (bytes.empty() || address == 0) return;
        put(out.bytes, protocol::Write{address, static_cast<uint32_t>(bytes.size()), 0});
        out.bytes.insert(out.bytes.end(), bytes.begin(), bytes.end());
        writes++;
    };
    // Parameters first: the argument, with the status in it, is what the caller looks at.
    for (const Blob& blob : request_->blobs) write(blob.address, blob.bytes);
    write(request_->address, request_->argument);
    std::memcpy(out.bytes.data() + offsetof(protocol::Done, writes), &writes, sizeof writes);
    request_.reset();
    need_ = {};
    return out;
}

std::optional<Packet> Session::map(std::span<const uint8_t> packet) {
    const auto message = take<protocol::Map>(packet);
    if (!message) return std::nullopt;
    protocol::Mapped reply{head(Type::kMapped), 0, 0, 0};
    const MapOutcome outcome = rm_.map(message->file, message->length);
    reply.error = outcome.error;
    reply.offset = outcome.offset;
    const int fd = outcome.memory == nullptr ? -1 : outcome.memory->fd();
    if (outcome.error == 0 && fd < 0) reply.error = ENOMEM;
    Packet out = packet_of(reply);
    if (reply.error != 0) return out;
    // The memory may go away before the packet is sent: own a duplicate.
    out.owned.reset(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    const File* file = rm_.file(message->file);
    if (file != nullptr && file->mapping.memory != nullptr && file->mapping.memory->doorbell) host_.doorbell_mapped();
    return out;
}

std::optional<Packet> Session::query(std::span<const uint8_t> packet) {
    const auto message = take<protocol::Query>(packet);
    if (!message) return std::nullopt;
    const std::string text(reinterpret_cast<const char*>(packet.data()) + sizeof *message,
                           packet.size() - sizeof *message);
    protocol::Answer reply{head(Type::kAnswer), 0, 0};
    std::string answer;
    using protocol::What;
    switch (message->what) {
        case What::kVersionText:
            answer = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + rm_.layout().version +
                     "  Release Build  (simulated)\nGCC version:  none (simulated)\n";
            break;
        case What::kLog:
            for (const std::string& line : rm_.log().lines()) {
                if (answer.size() + line.size() + 1 > protocol::kMaxPacket / 2)
                    answer.clear();  // the newest lines matter
                answer += line + "\n";
            }
            break;
        case What::kCounts: answer = describe(rm_.counts()); break;
        case What::kGpus: answer = std::to_string(rm_.gpu_count()); break;
        case What::kRules:
            for (const RuleInfo& info : all_rules())
                answer += std::string(info.name) + (rm_.rules().on(info.rule) ? "  on   " : "  OFF  ") +
                          std::string(info.what) + "\n";
            break;
        case What::kReset:
            for (size_t i = 0; i < rm_.gpu_count(); i++) rm_.gpu(i).reset();
            break;
        case What::kBreakRule:
        case What::kFixRule:
            if (const auto rule = find_rule(text)) {
                rm_.rules().set(*rule, message->what == What::kFixRule);
            } else {
                reply.error = ENOENT;
            }
            break;
        case What::kInject: reply.error = rm_.inject(text) ? 0 : EINVAL; break;
        case What::kFault: reply.error = plant_fault(rm_, text) ? 0 : EINVAL; break;
        case What::kStatus:
            if (auto status = host_.status()) answer = std::move(*status);
            break;
        default: reply.error = EINVAL; break;
    }
    Packet out = packet_of(reply);
    out.bytes.insert(out.bytes.end(), answer.begin(), answer.end());
    return out;
}

}  // namespace vuda::sim
