#include "daemon/base/status.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "proto/types.h"

namespace tutti {
namespace {

constexpr int kReaderPatienceMs = 1'000;

}  // namespace

Code code_of(int number) {
  return number >= 0 && number < static_cast<int>(kCodeNames.size()) ? static_cast<Code>(number)
                                                                     : Code::unknown;
}

std::string_view name_of(Code code) {
  return kCodeNames[static_cast<size_t>(code_of(static_cast<int>(code)))];
}

Status::Status(Code code, std::string message, Culprit culprit)
    : code_(code),
      culprit_rank_(culprit.rank),
      texts_(std::make_shared<const Texts>(Texts{std::move(message), std::move(culprit.host)})) {}

Status Status::without_memory(Code code, int culprit_rank) noexcept {
  Status status;
  status.code_ = code;
  status.culprit_rank_ = culprit_rank;
  return status;
}

const std::string& Status::message() const {
  static const std::string kNone;
  static const std::string kNoMemory = "out of memory";  // Short enough to need none.
  return texts_ != nullptr ? texts_->message : ok() ? kNone : kNoMemory;
}

const std::string& Status::culprit_host() const {
  static const std::string kNone;
  return texts_ != nullptr ? texts_->culprit_host : kNone;
}

std::string Status::to_string() const {
  return ok() ? "OK" : std::string(name_of(code_)) + ": " + message();
}

bool Status::operator==(const Status& other) const {
  return code_ == other.code_ && culprit_rank_ == other.culprit_rank_ &&
         message() == other.message() && culprit_host() == other.culprit_host();
}

Status invalid_argument(std::string message, Culprit culprit) {
  return {Code::invalid_argument, std::move(message), std::move(culprit)};
}
Status deadline_exceeded(std::string message, Culprit culprit) {
  return {Code::deadline_exceeded, std::move(message), std::move(culprit)};
}
Status not_found(std::string message) { return {Code::not_found, std::move(message)}; }
Status already_exists(std::string message, Culprit culprit) {
  return {Code::already_exists, std::move(message), std::move(culprit)};
}
Status permission_denied(std::string message) {
  return {Code::permission_denied, std::move(message)};
}
Status resource_exhausted(std::string message) {
  return {Code::resource_exhausted, std::move(message)};
}
Status failed_precondition(std::string message, Culprit culprit) {
  return {Code::failed_precondition, std::move(message), std::move(culprit)};
}
Status aborted(std::string message, Culprit culprit) {
  return {Code::aborted, std::move(message), std::move(culprit)};
}
Status internal_error(std::string message) { return {Code::internal, std::move(message)}; }
Status unavailable(std::string message, Culprit culprit) {
  return {Code::unavailable, std::move(message), std::move(culprit)};
}
Status data_loss(std::string message, Culprit culprit) {
  return {Code::data_loss, std::move(message), std::move(culprit)};
}
Status unauthenticated(std::string message) { return {Code::unauthenticated, std::move(message)}; }

namespace {
constexpr std::string_view kLeftDuring = " left during ";
}

Status rank_left(const std::string& rank, const std::string& what, Culprit culprit) {
  return unavailable(rank + std::string(kLeftDuring) + what, std::move(culprit));
}

bool is_rank_left(const Status& status) {
  return status.code() == Code::unavailable &&
         status.message().find(kLeftDuring) != std::string::npos;
}

Status errno_status(std::string_view what) {
  const int error = errno;
  const Code code = error == EACCES || error == EPERM ? Code::permission_denied
                    : error == ENOENT                 ? Code::not_found
                    : error == EMFILE || error == ENFILE || error == ENOMEM
                        ? Code::resource_exhausted
                        : Code::unavailable;
  return {code, std::string(what) + ": " + std::strerror(error)};
}

// Anyone who does not read stderr must not keep a broken process alive.
void fail_requirement(std::string_view what, const char* file, int line) {
  pollfd room{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&room, 1, kReaderPatienceMs) == 0) std::abort();
  std::fprintf(stderr, "tutti: bug at %s:%d: %.*s\n", file, line, static_cast<int>(what.size()),
               what.data());
  std::abort();
}

}  // namespace tutti
