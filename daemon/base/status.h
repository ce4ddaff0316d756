// Errors as values. A Status is OK, or a canonical code with a message that names who, what and
// where, and the culprit's rank and host where there is one. A Result is a value or a Status.
//
// A fault of a client, a peer or the system is a Status. A broken invariant of this program is a
// bug: `require`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "proto/tutti_types.h"

namespace tutti {

enum class Code : int {
  ok = TUTTI_OK,
  cancelled = TUTTI_CANCELLED,
  unknown = TUTTI_UNKNOWN,
  invalid_argument = TUTTI_INVALID_ARGUMENT,
  deadline_exceeded = TUTTI_DEADLINE_EXCEEDED,
  not_found = TUTTI_NOT_FOUND,
  already_exists = TUTTI_ALREADY_EXISTS,
  permission_denied = TUTTI_PERMISSION_DENIED,
  resource_exhausted = TUTTI_RESOURCE_EXHAUSTED,
  failed_precondition = TUTTI_FAILED_PRECONDITION,
  aborted = TUTTI_ABORTED,
  out_of_range = TUTTI_OUT_OF_RANGE,
  unimplemented = TUTTI_UNIMPLEMENTED,
  internal = TUTTI_INTERNAL,
  unavailable = TUTTI_UNAVAILABLE,
  data_loss = TUTTI_DATA_LOSS,
  unauthenticated = TUTTI_UNAUTHENTICATED,
};

// "FAILED_PRECONDITION" and so on; "UNKNOWN" for a number outside the table.
std::string_view name_of(Code code);
// The code of an untrusted number; `unknown` where it is outside the table.
Code code_of(int number);

// The rank of the group (-1: none) and the host (empty: none) that caused an error.
struct Culprit {
  int rank = -1;
  std::string host;
  bool operator==(const Culprit&) const = default;
};

// OK costs next to nothing; copies of a failure share its texts, and need no memory.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, Culprit culprit = {});
  // A failure "out of memory", which needs none.
  static Status without_memory(Code code, int culprit_rank = -1) noexcept;

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const;
  Culprit culprit() const { return {culprit_rank_, culprit_host()}; }
  int culprit_rank() const { return culprit_rank_; }
  const std::string& culprit_host() const;
  // "UNAVAILABLE: rank 3 (host b, pid 4711) left", or "OK".
  std::string to_string() const;
  bool operator==(const Status& other) const;

 private:
  struct Texts {
    std::string message;
    std::string culprit_host;
  };
  Code code_ = Code::ok;
  int culprit_rank_ = -1;
  std::shared_ptr<const Texts> texts_;  // Null: OK, or there was no memory for them.
};

// One constructor for each code in use.
Status invalid_argument(std::string message, Culprit culprit = {});
Status deadline_exceeded(std::string message, Culprit culprit = {});
Status not_found(std::string message);
Status already_exists(std::string message, Culprit culprit = {});
Status permission_denied(std::string message);
Status resource_exhausted(std::string message);
Status failed_precondition(std::string message, Culprit culprit = {});
Status aborted(std::string message, Culprit culprit = {});
Status internal_error(std::string message);
Status unavailable(std::string message, Culprit culprit = {});
Status data_loss(std::string message, Culprit culprit = {});
Status unauthenticated(std::string message);
// UNAVAILABLE because a rank left on purpose, during the operation that `what` names.
Status rank_left(const std::string& rank, const std::string& what, Culprit culprit);
// Whether the status is of rank_left(), by its message: codes and culprits are those of a death.
bool is_rank_left(const Status& status);
// The last errno as a Status: "cannot bind /run/x.sock: Address already in use".
Status errno_status(std::string_view what);

// Prints `what` and the place in the source, and aborts. For invariants that only this program can
// break.
// Not std::source_location: clang-tidy 14 cannot read that.
[[noreturn]] void fail_requirement(std::string_view what, const char* file = __builtin_FILE(),
                                   int line = __builtin_LINE());
inline void require(bool holds, std::string_view what, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  if (!holds) [[unlikely]]
    fail_requirement(what, file, line);
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose, as is the next.
  Result(Status status) : value_(std::move(status)) {
    require(!std::get<Status>(value_).ok(), "a Result without a value needs an error");
  }

  bool ok() const { return std::holds_alternative<T>(value_); }
  const Status& status() const {
    static const Status kOk;
    return ok() ? kOk : std::get<Status>(value_);
  }
  T& operator*() & { return get(); }
  const T& operator*() const& { return const_cast<Result*>(this)->get(); }
  T&& operator*() && { return std::move(get()); }
  T* operator->() { return &get(); }
  const T* operator->() const { return &const_cast<Result*>(this)->get(); }

 private:
  T& get() {
    require(ok(), "the value of a failed Result was read");
    return std::get<T>(value_);
  }
  std::variant<T, Status> value_;
};

}  // namespace tutti
