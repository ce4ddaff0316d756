// Answers what people and tools ask over the agent's Unix socket. Who they are, the kernel says:
// root, the agent's own user and members of the admin group are administrators, others users.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "daemon/base/credentials.h"
#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/control/control.h"
#include "daemon/membership/rules.h"
#include "daemon/session/session.h"
#include "proto/mesh.pb.h"

namespace tutti {

// Its number; none for "". INVALID_ARGUMENT: there is no such group.
Result<std::optional<uint32_t>> find_group(const std::string& name);

// A call blocks while other agents are asked, so each has a thread; there are a few at once. Loop
// thread only.
class AdminDoor {
 public:
  // `admin_group` may be empty. INVALID_ARGUMENT: there is no such group.
  static Result<std::unique_ptr<AdminDoor>> open(Loop& loop, ControlServer& control,
                                                 const Credentials& credentials,
                                                 const std::string& admin_group);
  ~AdminDoor();  // Waits for the calls, seconds at most.

  // Answers, or refuses, and closes the socket. RESOURCE_EXHAUSTED, to the caller: too many ask at
  // once; users leave room for administrators.
  void answer(Fd socket, const v1::Hello& hello);

 private:
  struct Call {
    uint32_t uid = 0;
    std::thread thread;
  };
  using Calls = std::list<Call>;

  AdminDoor(Loop& loop, ControlServer& control, const Credentials& credentials,
            std::optional<uint32_t> admin_gid)
      : loop_(loop), control_(control), credentials_(credentials), admin_gid_(admin_gid) {}
  Result<Caller> caller_of(int socket, const v1::Hello& hello) const;
  bool is_admin(const PeerCredentials& peer, int socket) const;
  Status check_room(const Caller& caller) const;
  void start(Fd socket, v1::AdminRequest request, Caller caller);

  Loop& loop_;
  ControlServer& control_;
  const Credentials& credentials_;
  const std::optional<uint32_t> admin_gid_;
  Calls calls_;
  Lifetime lifetime_;
};

}  // namespace tutti
