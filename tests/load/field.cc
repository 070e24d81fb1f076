#include "tests/load/scenarios.h"
#include "tests/load/session.h"

namespace vuda::load {
namespace {

Order order_of(Order::Kind kind, const std::string& name) {
    Order order{kind};
    order.set_name(name);
    return order;
}

}  // namespace

Field::Field(const std::string& handle_socket, const Options& options) {
    const uint32_t sessions = options.sessions;
    const auto add = [&](std::vector<Member>& to, uint32_t count, const char* program) {
        to.reserve(count);
        for (uint32_t i = 0; i < count; ++i) {
            to.push_back(Member::start([&handle_socket, &options, program](int line) {
                play(line, handle_socket, program, options.buffers);
            }));
        }
    };
    const uint32_t quarter = sessions / 4;
    add(owners_, quarter, "owner");
    add(registrants_, quarter, "registrant");
    add(attachers_, sessions - 2 * quarter, "attacher");
}

bool Field::open() {
    const auto all = [](const std::vector<Member>& members, const auto& order_for) {
        for (size_t i = 0; i < members.size(); ++i) members[i].order(order_for(i));
        bool good = true;
        for (const Member& member : members) {
            const std::optional<Answer> answer = member.answer();
            good = good && answer && answer->code == 0;
        }
        return good;
    };
    const auto hello = [](size_t) { return Order{Order::Kind::kOpen}; };
    return all(owners_, hello) && all(registrants_, hello) && all(attachers_, hello) &&
           all(owners_, [](size_t i) { return order_of(Order::Kind::kRegister, "field-" + std::to_string(i)); });
}

void Field::begin(double seconds, double cycles_per_s) {
    const double period = static_cast<double>(registrants_.size() + attachers_.size()) / cycles_per_s;
    for (size_t i = 0; i < registrants_.size(); ++i) {
        Order order = order_of(Order::Kind::kRegisterCycles, "cycle-" + std::to_string(i));
        order.seconds = seconds;
        order.period_s = period;
        registrants_[i].order(order);
    }
    for (size_t i = 0; i < attachers_.size(); ++i) {
        Order order = order_of(Order::Kind::kAttachCycles, "field-" + std::to_string(i % owners_.size()));
        order.seconds = seconds;
        order.period_s = period;
        attachers_[i].order(order);
    }
}

Field::Result Field::collect(double seconds) {
    Result out;
    const Milliseconds patience(static_cast<int64_t>(seconds * 1000) + 60'000);
    const auto take = [&](const Member& member, std::vector<double>& first, std::vector<double>& whole) {
        const std::optional<Answer> answer = member.answer(patience);
        if (!answer || answer->code != 0) {
            ++out.failed;
            out.code = answer ? answer->code : kLost;
        }
        if (!answer) return;
        first.insert(first.end(), answer->first.begin(), answer->first.end());
        whole.insert(whole.end(), answer->whole.begin(), answer->whole.end());
    };
    std::vector<double> none;
    for (const Member& member : registrants_) take(member, out.registers, none);
    for (const Member& member : attachers_) take(member, out.replies, out.attaches);
    return out;
}

}  // namespace vuda::load
