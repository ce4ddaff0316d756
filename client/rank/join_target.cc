#include "client/rank/join_target.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <optional>

#include "client/rank/launcher.h"
#include "client/rank/log.h"
#include "client/rank/options.h"
#include "daemon/base/program.h"
#include "daemon/base/token.h"

namespace tutti::client {
namespace {

constexpr const char* kDefaultSocket = "/run/tutti/tuttid.sock";
constexpr double kTimeoutSecondsMax = 1e6;

std::string text_or(const char* given, const char* variable, const char* fallback) {
  return given != nullptr ? given : find_variable(variable).value_or(fallback);
}

Status no_number(const char* what, const std::optional<Launch>& launch, const char* variable) {
  const std::string missing = std::string("no ") + what + " given; pass one";
  if (!launch) return invalid_argument(missing + ", or set both of: " + describe_launchers());
  return invalid_argument(missing + " or set " + variable + ", too");
}

Status read_number(const std::string& text, const std::string& variable, const char* what,
                   uint32_t& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end) return {};
  return invalid_argument(variable + "='" + text + "' is no " + what);
}

// Takes what the caller has not given from the launch.
Status read_rank(int32_t given, const std::optional<Launch>& launch, uint32_t& rank) {
  rank = static_cast<uint32_t>(std::max(given, 0));
  if (given >= 0) return {};
  if (launch && launch->rank) return read_number(*launch->rank, launch->rank_name, "rank", rank);
  return no_number("rank", launch, launch ? launch->rank_name : "");
}

Status read_world_size(int32_t given, const std::optional<Launch>& launch, uint32_t& size) {
  size = static_cast<uint32_t>(std::max(given, 0));
  if (given >= 0) return {};
  if (launch && launch->world_size)
    return read_number(*launch->world_size, launch->world_size_name, "world size", size);
  return no_number("world size", launch, launch ? launch->world_size_name : "");
}

// The launcher's own name for the job goes with its rank and world size only.
Status read_job(const tutti_join_options& given, const std::optional<Launch>& launch,
                std::string& job) {
  job = text_or(given.job, "TUTTI_JOB", "");
  const bool is_all_of_launch = launch && given.rank < 0 && given.world_size < 0;
  if (!job.empty() || !is_all_of_launch) return {};
  job = launch->job;
  if (!job.empty() || *launch->how_to_name == '\0') return {};
  return invalid_argument(
      "no job given; pass one or set TUTTI_JOB: " + std::string(launch->launcher) +
      " gives no name that no other job has, but does so with " + launch->how_to_name);
}

// "RANK and WORLD_SIZE of torchrun": what was taken from the launch.
std::string origin_of(const tutti_join_options& given, const Launch& launch) {
  std::string names = given.rank < 0 ? launch.rank_name : "";
  if (given.rank < 0 && given.world_size < 0) names += " and ";
  if (given.world_size < 0) names += launch.world_size_name;
  const bool is_ours = std::string_view(launch.rank_name).starts_with("TUTTI_");
  return is_ours ? names : names + " of " + launch.launcher;
}

Status read_timeout(int32_t given, uint32_t& timeout_ms) {
  if (given > 0) timeout_ms = static_cast<uint32_t>(given);
  if (given >= 0) return given > 0 ? Status{} : invalid_argument("a join's timeout must be > 0");
  const std::optional<std::string> text = find_variable("TUTTI_TIMEOUT");
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
const char* source(bool given, const char* variable) {
  if (given) return "argument";
  return std::getenv(variable) == nullptr ? "default" : variable;
}

// The token itself is not shown.
void log_target(const tutti_join_options& given, const std::optional<Launch>& launch,
                const JoinTarget& target) {
  if (!logs(LogLevel::debug)) return;
  const auto from = [](bool is_given, const char* variable) {
    return std::string(" (") + source(is_given, variable) + ")";
  };
  const bool is_launchers_job = launch && !launch->job.empty() && target.job == launch->job;
  const std::string job = is_launchers_job ? std::string(" (") + launch->launcher + ")"
                                           : from(given.job != nullptr, "TUTTI_JOB");
  log(LogLevel::debug,
      "joins job '" + target.job + "'" + job + " as rank " + std::to_string(target.rank) +
          from(given.rank >= 0, launch ? launch->rank_name : "") + " of " +
          std::to_string(target.world_size) +
          from(given.world_size >= 0, launch ? launch->world_size_name : "") + " at " +
          target.socket + from(given.socket != nullptr, "TUTTI_SOCKET") + ", for " +
          std::to_string(target.timeout_ms) + " ms" + from(given.timeout_ms > 0, "TUTTI_TIMEOUT") +
          (target.token.empty() ? ", without a token" : ", with a token"));
}

Status read_choice(const char* name, int32_t given, const char* variable, bool& choice) {
  choice = given > 0;
  if (Status s = check_choice(name, given, "tutti_join_defaults()"); !s.ok()) return s;
  if (given != 0) return {};
  const std::optional<std::string> text = find_variable(variable);
  if (!text || *text == "0") return {};
  choice = *text == "1";
  return choice ? Status()
                : invalid_argument(std::string(variable) + "='" + *text + "' is neither 0 nor 1");
}

Status read_launch(const tutti_join_options& given, const std::optional<Launch>& launch,
                   JoinTarget& target) {
  if (launch && (given.rank < 0 || given.world_size < 0)) {
    target.launcher = launch->launcher;
    target.origin = origin_of(given, *launch);
  }
  Status status = read_rank(given.rank, launch, target.rank);
  if (status.ok()) status = read_world_size(given.world_size, launch, target.world_size);
  if (status.ok()) status = read_job(given, launch, target.job);
  return status;
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
  Result<std::string> token =
      given.token != nullptr ? Result<std::string>(given.token) : token_of_environment();
  if (!token.ok()) return token.status();
  target.token = *std::move(token);
  const std::optional<Launch> launch = find_launch();
  if (Status read = read_launch(given, launch, target); !read.ok()) return read;
  Status timeout = read_timeout(given.timeout_ms, target.timeout_ms);
  if (!timeout.ok()) return timeout;
  Status choices =
      read_choice("reproducible", given.reproducible, "TUTTI_REPRODUCIBLE", target.reproducible);
  if (choices.ok()) choices = read_choice("verify", given.verify, "TUTTI_VERIFY", target.verifies);
  if (!choices.ok()) return choices;
  log_target(given, launch, target);
  Status checked = check(target);
  return checked.ok() ? checked : with_origin(checked, target);
}

Status with_origin(const Status& why, const JoinTarget& target) {
  if (target.origin.empty()) return why;
  return {why.code(),
          why.message() + "; this is rank " + std::to_string(target.rank) + " of " +
              std::to_string(target.world_size) + " of job '" + target.job + "' by " +
              target.origin,
          why.culprit()};
}

}  // namespace tutti::client
