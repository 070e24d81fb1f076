// vuda-simctl: asks a running vuda-simd for its kernel log, counts and state, and changes its rules.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "sim/protocol/protocol.h"

namespace {

constexpr char kHelp[] =
    "usage: vuda-simctl [--socket PATH] COMMAND\n"
    "  log             the simulated kernel log\n"
    "  counts          clients, objects, TSGs, channels, memories, files\n"
    "  status          GPUs, simulated time, Xids\n"
    "  rules           every rule and whether it is on\n"
    "  break RULE, fix RULE\n"
    "  inject WHAT     as vuda-simd --inject; 'clear' ends all\n"
    "  fault XID@PID   end each TSG that the process has a graphics-engine channel in, with that error number\n"
    "  fault stuck@PID, fault free@PID\n"
    "                  the GPU repeats page faults of that process, 50000 a second, and ends its TSGs with Xid 31 "
    "when\n"
    "                  the process ends; no longer\n"
    "  reset           make wedged GPUs usable again\n"
    "PATH defaults to $VUDA_SIM_SOCKET.\n";

struct Command {
    std::string_view name;
    vuda::sim::protocol::What what;
    bool argument;
};

constexpr Command kCommands[] = {
    {"log", vuda::sim::protocol::What::kLog, false},        {"counts", vuda::sim::protocol::What::kCounts, false},
    {"status", vuda::sim::protocol::What::kStatus, false},  {"rules", vuda::sim::protocol::What::kRules, false},
    {"break", vuda::sim::protocol::What::kBreakRule, true}, {"fix", vuda::sim::protocol::What::kFixRule, true},
    {"fault", vuda::sim::protocol::What::kFault, true},     {"inject", vuda::sim::protocol::What::kInject, true},
    {"reset", vuda::sim::protocol::What::kReset, false},
};

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    const char* fallback = std::getenv("VUDA_SIM_SOCKET");
    std::string path = fallback != nullptr ? fallback : "";
    if (words.size() >= 2 && words[0] == "--socket") {
        path = words[1];
        words.erase(words.begin(), words.begin() + 2);
    }
    const Command* command = nullptr;
    for (const Command& candidate : kCommands) {
        if (!words.empty() && words[0] == candidate.name && words.size() == (candidate.argument ? 2u : 1u))
            command = &candidate;
    }
    if (command == nullptr) {
        const bool help = !words.empty() && words[0] == "--help";
        std::fputs(kHelp, help ? stdout : stderr);
        return help ? 0 : 64;
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path) {
        std::fputs("vuda-simctl: no usable socket path; give --socket or set VUDA_SIM_SOCKET\n", stderr);
        return 64;
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    vuda::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        std::fprintf(stderr, "vuda-simctl: cannot reach vuda-simd at %s: %s\n", path.c_str(), std::strerror(errno));
        return 69;
    }
    namespace protocol = vuda::sim::protocol;
    protocol::Query query{{protocol::kMagic, protocol::Type::kQuery}, command->what, 0};
    std::string packet(reinterpret_cast<const char*>(&query), sizeof query);
    if (command->argument) packet += words[1];
    std::vector<char> answer(protocol::kMaxPacket);
    ssize_t got = -1;
    if (send(socket.get(), packet.data(), packet.size(), MSG_NOSIGNAL) >= 0)
        got = recv(socket.get(), answer.data(), answer.size(), 0);
    protocol::Answer head{};
    if (got < static_cast<ssize_t>(sizeof head)) {
        std::fputs("vuda-simctl: vuda-simd did not answer\n", stderr);
        return 69;
    }
    std::memcpy(&head, answer.data(), sizeof head);
    if (head.error != 0) {
        std::fprintf(stderr, "vuda-simctl: %s\n", std::strerror(head.error));
        return 64;
    }
    std::fwrite(answer.data() + sizeof head, 1, static_cast<size_t>(got) - sizeof head, stdout);
    return 0;
}
