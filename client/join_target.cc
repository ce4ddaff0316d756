#include "client/join_target.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <optional>

#include "client/log.h"
#include "client/options.h"
#include "daemon/base/token.h"

namespace tutti::client {
namespace {

constexpr const char* kDefaultSocket = "/run/tutti/tuttid.sock";
constexpr double kTimeoutSecondsMax = 1e6;

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::string text_or(const char* given, const char* variable, const char* fallback) {
  return given != nullptr ? given : environment(variable).value_or(fallback);
}

Status number_or(int32_t given, const char* what, const char* variable, uint32_t& number) {
  if (given >= 0) {
    number = static_cast<uint32_t>(given);
    return {};
  }
  const std::optional<std::string> text = environment(variable);
  if (!text)
    return invalid_argument(std::string("no ") + what + " given; pass one or set " + variable);
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, number);
  if (error == std::errc() && stop == end) return {};
  return invalid_argument(std::string(variable) + "='" + *text + "' is no " + what);
}

Status read_timeout(int32_t given, uint32_t& timeout_ms) {
  if (given > 0) timeout_ms = static_cast<uint32_t>(given);
  if (given >= 0) return given > 0 ? Status{} : invalid_argument("a join's timeout must be > 0");
  const std::optional<std::string> text = environment("TUTTI_TIMEOUT");
  if (!text) return {};
  char* end = nullptr;
  const double seconds = std::strtod(text->c_str(), &end);
  const bool whole = !text->empty() && *end == '\0';
  if (!whole || !(seconds > 0) || seconds > kTimeoutSecondsMax)
    return invalid_argument("TUTTI_TIMEOUT='" + *text + "' is no number of seconds above 0");
  timeout_ms = static_cast<uint32_t>(std::ceil(seconds * 1000));
  return {};
}

// Where a value is from.
const char* origin(bool given, const char* variable) {
  if (given) return "argument";
  return std::getenv(variable) == nullptr ? "default" : variable;
}

// The token itself is not told.
void log_target(const tutti_join_options& given, const JoinTarget& target) {
  if (!logs(LogLevel::debug)) return;
  const auto from = [](bool is_given, const char* variable) {
    return std::string(" (") + origin(is_given, variable) + ")";
  };
  log(LogLevel::debug,
      "joins job '" + target.job + "'" + from(given.job != nullptr, "TUTTI_JOB") + " as rank " +
          std::to_string(target.rank) + from(given.rank >= 0, "TUTTI_RANK") + " of " +
          std::to_string(target.world_size) + from(given.world_size >= 0, "TUTTI_WORLD_SIZE") +
          " at " + target.socket + from(given.socket != nullptr, "TUTTI_SOCKET") + ", for " +
          std::to_string(target.timeout_ms) + " ms" + from(given.timeout_ms > 0, "TUTTI_TIMEOUT") +
          (target.token.empty() ? ", without a token" : ", with a token"));
}

Status check(const JoinTarget& target) {
  if (target.job.empty()) return invalid_argument("no job given; pass one or set TUTTI_JOB");
  if (target.world_size == 0) return invalid_argument("a job needs a world_size of at least 1");
  if (target.rank < target.world_size) return {};
  return invalid_argument("rank " + std::to_string(target.rank) + " is out of range: the job has " +
                          std::to_string(target.world_size) + " ranks, 0 to " +
                          std::to_string(target.world_size - 1));
}

}  // namespace

Status read_target(const tutti_join_options* options, JoinTarget& target) {
  tutti_join_options given = tutti_join_defaults();
  constexpr size_t kLeast = offsetof(tutti_join_options, timeout_ms) + sizeof(given.timeout_ms);
  Status sized = read_sized(options, kLeast, "tutti_join_defaults()", given);
  if (!sized.ok()) return sized;
  target.socket = text_or(given.socket, "TUTTI_SOCKET", kDefaultSocket);
  target.job = text_or(given.job, "TUTTI_JOB", "");
  Result<std::string> token =
      given.token != nullptr ? Result<std::string>(given.token) : token_of_environment();
  if (!token.ok()) return token.status();
  target.token = *std::move(token);
  Status rank = number_or(given.rank, "rank", "TUTTI_RANK", target.rank);
  if (!rank.ok()) return rank;
  Status world = number_or(given.world_size, "world size", "TUTTI_WORLD_SIZE", target.world_size);
  if (!world.ok()) return world;
  Status timeout = read_timeout(given.timeout_ms, target.timeout_ms);
  if (!timeout.ok()) return timeout;
  log_target(given, target);
  return check(target);
}

}  // namespace tutti::client
