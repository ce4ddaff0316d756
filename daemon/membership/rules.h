// Who may do what: one row for each call and each descriptor that crosses a border of trust.
// permit() decides the calls that a token or the Unix socket allows; passes, secrets and file modes
// decide the others, where they arrive. SECURITY.md shows the same rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "daemon/base/status.h"

namespace tutti {

// Who calls, as far as it is proven.
struct Caller {
  enum class Kind { anybody, user, agent, admin };
  Kind kind = Kind::anybody;
  uint32_t uid = 0;     // Of a user, or of an admin on this host.
  std::string subject;  // Of a user.
  std::string name;     // For the log: "user 1000", "10.0.0.7 with an agent's token".
};

// From `status` to `stop_job`: what an AdminRequest asks for.
enum class Rpc {
  attend,
  enlist,
  status,
  trace,
  set_strategy,
  drain,
  stop,
  stop_job,
  health,
  reflection
};

struct Rule {
  std::string_view door;   // "Mesh.Enlist", "hello", "a rank's segment (memfd)".
  std::string_view who;    // May pass.
  std::string_view proof;  // Of who it is.
};
std::span<const Rule> rules();

// PERMISSION_DENIED or, if the caller is not known at all, UNAUTHENTICATED, saying who may. `agent`
// is this agent's address, for messages.
Status permit(Rpc rpc, const Caller& caller, const std::string& agent);
std::string_view name_of(Rpc rpc);  // "Mesh.Enlist"

}  // namespace tutti
