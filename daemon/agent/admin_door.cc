#include "daemon/agent/admin_door.h"

#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/base/framing.h"

namespace tutti {
namespace {

constexpr size_t kCallsMax = 16;
constexpr size_t kUsersCallsMax = 12;  // The rest is left to administrators.
constexpr size_t kUserCallsMax = 4;    // Of one user.
constexpr Millis kSendTimeout{2'000};

// Gives up on a caller that does not read.
void send_answer(const Fd& socket, const v1::AdminAnswer& answer) {
  const std::string bytes = framed(answer.SerializeAsString());
  const TimePoint until = Clock::now() + kSendTimeout;
  for (size_t sent = 0; sent < bytes.size() && Clock::now() < until;) {
    const ssize_t count =
        send(socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) sent += static_cast<size_t>(count);
    if (count > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return;
    pollfd writable{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    poll(&writable, 1, static_cast<int>(kSendTimeout.count()));
  }
}

}  // namespace

Result<std::optional<uint32_t>> find_group(const std::string& name) {
  if (name.empty()) return std::optional<uint32_t>();
  const group* found = getgrnam(name.c_str());
  if (found == nullptr)
    return failed_precondition("admin_group = '" + name +
                               "': there is no such group; add it with "
                               "groupadd, or leave it empty");
  return std::optional<uint32_t>(found->gr_gid);
}

Result<std::unique_ptr<AdminDoor>> AdminDoor::open(Loop& loop, ControlServer& control,
                                                   const Credentials& credentials,
                                                   const std::string& admin_group) {
  const Result<std::optional<uint32_t>> gid = find_group(admin_group);
  if (!gid.ok()) return gid.status();
  return std::unique_ptr<AdminDoor>(new AdminDoor(loop, control, credentials, *gid));
}

AdminDoor::~AdminDoor() {
  for (Call& call : calls_) call.thread.join();
}

void AdminDoor::answer(Fd socket, const v1::Hello& hello) {
  v1::AdminRequest request;
  const Result<Caller> caller = caller_of(socket.get(), hello);
  Status status = caller.status();
  if (status.ok() && !request.ParseFromString(hello.admin()))
    status = invalid_argument("the request cannot be read");
  if (status.ok()) status = check_room(*caller);
  if (!status.ok()) return refuse_trainer(socket.get(), status);
  start(std::move(socket), std::move(request), *caller);
}

Result<Caller> AdminDoor::caller_of(int socket, const v1::Hello& hello) const {
  const Result<PeerCredentials> peer = peer_credentials(socket);
  if (!peer.ok()) return peer.status();
  const Token* token = find_token(credentials_.tokens, hello.token());
  Caller caller{
      .kind = Caller::Kind::user,
      .uid = peer->uid,
      .subject = token == nullptr ? "" : token->subject,
      .name = "user " + std::to_string(peer->uid) + " (pid " + std::to_string(peer->pid) + ")"};
  if (is_admin(*peer, socket) || (token != nullptr && token->admin))
    caller.kind = Caller::Kind::admin;
  return caller;
}

bool AdminDoor::is_admin(const PeerCredentials& peer, int socket) const {
  if (peer.uid == 0 || peer.uid == geteuid()) return true;
  if (!admin_gid_) return false;
  if (peer.gid == *admin_gid_) return true;
  const Result<std::vector<uint32_t>> groups = peer_groups(socket);
  return groups.ok() && std::ranges::find(*groups, *admin_gid_) != groups->end();
}

Status AdminDoor::check_room(const Caller& caller) const {
  const Status full = resource_exhausted("too many ask this agent at once; try again");
  if (calls_.size() >= kCallsMax) return full;
  if (caller.kind == Caller::Kind::admin) return {};
  const auto own = static_cast<size_t>(std::ranges::count(calls_, caller.uid, &Call::uid));
  return calls_.size() >= kUsersCallsMax || own >= kUserCallsMax ? full : Status();
}

void AdminDoor::start(Fd socket, v1::AdminRequest request, Caller caller) {
  const auto call = calls_.insert(calls_.end(), {.uid = caller.uid, .thread = {}});
  const auto end = lifetime_.guard([this, call] {
    call->thread.join();
    calls_.erase(call);
  });
  call->thread = std::thread([this, end, socket = std::move(socket), request = std::move(request),
                              caller = std::move(caller)]() mutable {
    send_answer(socket, control_.admin(request, caller));
    socket.reset();
    loop_.post(end);
  });
}

}  // namespace tutti
