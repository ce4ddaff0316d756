#include "client/faces/burn/collective_error.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace tutti::burn {
namespace {

struct ErrorKind {
  std::string_view name;
  Code code;
};

constexpr std::array<ErrorKind, 14> kKinds = {{
    {"InvalidConfig", Code::invalid_argument},
    {"MultipleRegister", Code::already_exists},
    {"RegisterParamsMismatch", Code::invalid_argument},
    {"MultipleUnregister", Code::failed_precondition},
    {"RegisterNotFirstOperation", Code::failed_precondition},
    {"AllReduceShapeMismatch", Code::invalid_argument},
    {"AllReduceOperationMismatch", Code::invalid_argument},
    {"ReduceShapeMismatch", Code::invalid_argument},
    {"ReduceOperationMismatch", Code::invalid_argument},
    {"ReduceRootMismatch", Code::invalid_argument},
    {"BroadcastNoTensor", Code::invalid_argument},
    {"BroadcastMultipleTensors", Code::invalid_argument},
    {"LocalServerMissing", Code::aborted},
    {"Other", Code::failed_precondition},
}};

const ErrorKind& kind_of(CollectiveError error) { return kKinds[static_cast<size_t>(error)]; }

}  // namespace

Status error_of(CollectiveError error, const std::string& message) {
  return {kind_of(error).code, name_of(error) + ": " + message};
}

Status wrong_call(CollectiveError error, const std::string& message) {
  return invalid_argument(name_of(error) + ": " + message);
}

Status named(const Status& status) {
  const std::string name = status.message().substr(0, status.message().find_first_of(":("));
  const bool known = name == "Global" || std::ranges::any_of(kKinds, [&](const ErrorKind& kind) {
                       return kind.name == name;
                     });
  if (status.ok() || known) return status;
  return {status.code(), name_of(CollectiveError::other) + ": " + status.message(),
          status.culprit()};
}

std::string name_of(CollectiveError error) { return std::string(kind_of(error).name); }

Status global_error(const Status& status) {
  const int rank = status.culprit_rank();
  const bool lost = status.code() == Code::unavailable && rank >= 0;
  const std::string name = lost ? "PeerLost(" + std::to_string(rank) + ")" : "Server";
  return {status.code(), "Global(" + name + "): " + status.message(), status.culprit()};
}

}  // namespace tutti::burn
