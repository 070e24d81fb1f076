// Error values for code that must not throw: what happened, in words, and what to do about it.
#pragma once

#include <cassert>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace vuda {

// The codes follow gRPC's canonical codes one to one, so that an error crosses a process boundary unchanged.
// Source: https://grpc.io/docs/guides/status-codes/
enum class Code : int {
    kOk = 0,
    kCancelled = 1,
    kUnknown = 2,
    kInvalidArgument = 3,
    kDeadlineExceeded = 4,
    kNotFound = 5,
    kAlreadyExists = 6,
    kPermissionDenied = 7,
    kResourceExhausted = 8,
    kFailedPrecondition = 9,
    kAborted = 10,
    kOutOfRange = 11,
    kUnimplemented = 12,
    kInternal = 13,
    kUnavailable = 14,
    kDataLoss = 15,
    kUnauthenticated = 16,
};

std::string_view code_name(Code code);

// Sysexits value that a command-line tool returns for `code` (64 usage, 69 unavailable, 77 no permission, ...).
int exit_status(Code code);

struct Error {
    Code code = Code::kUnknown;
    std::string text;  // what happened, one line, no trailing period
    std::string hint;  // what the user can do next; may be empty

    // "text; hint" or just "text".
    std::string to_string() const;
};

// Error carrying strerror(err) and the code that fits the errno value. Without a hint of the caller's: what helps
// against that errno wherever it comes from (a full table, disk or memory).
Error errno_error(int err, std::string_view what, std::string_view hint = {});

template <typename T>
class [[nodiscard]] Result {
 public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    T& value() & {
        assert(ok());
        return std::get<0>(state_);
    }
    const T& value() const& {
        assert(ok());
        return std::get<0>(state_);
    }
    T&& value() && {
        assert(ok());
        return std::get<0>(std::move(state_));
    }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    const Error& error() const {
        assert(!ok());
        return std::get<1>(state_);
    }

 private:
    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
    Result() = default;
    Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT(google-explicit-constructor)

    bool ok() const { return ok_; }
    explicit operator bool() const { return ok_; }
    const Error& error() const {
        assert(!ok_);
        return error_;
    }

 private:
    Error error_;
    bool ok_ = true;
};

using Status = Result<void>;

}  // namespace vuda
