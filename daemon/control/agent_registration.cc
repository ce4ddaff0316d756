#include "daemon/control/agent_registration.h"

#include "daemon/control/address.h"
#include "daemon/control/channel.h"

namespace tutti {
namespace {

constexpr Millis kFinishTimeout{500};

}  // namespace

AgentRegistration::AgentRegistration(Loop& loop, const std::string& coordinator,
                                     v1::AgentMessage self, const std::string& token,
                                     const Tls& tls, std::function<void(const Status&)> on_change)
    : self_(std::move(self)),
      coordinator_(coordinator),
      tls_(tls),
      on_change_(std::move(on_change)),
      reachability_("the coordinator " + coordinator),
      stream_(loop,
              // A new channel for each stream, so that a name is resolved again.
              [this, token](auto* context, auto* reactor) {
                show_token(*context, token);
                stub_ = v1::Mesh::NewStub(make_channel(coordinator_, tls_));
                stub_->async()->Enlist(context, reactor);
              },
              {.on_open = [this] { on_open(); },
               .on_message = [](const v1::AgentAnswer&) {},
               .on_broken = [this](const Status& why) { this->on_broken(why); }}) {}

void AgentRegistration::finish() {
  if (stream_.is_open()) stream_.finish(kFinishTimeout);
}

void AgentRegistration::on_open() {
  reachability_.reached();
  stream_.send(self_);
  on_change_({});
}

void AgentRegistration::on_broken(const Status& why) {
  // Which machines a name leads to may have changed since the start.
  const Status one = check_coordinator(coordinator_);
  const std::string text =
      one.ok() ? registration_obstacle(coordinator_, why, tls_) : one.message();
  reachability_.lost({one.ok() ? why.code() : one.code(), text});
  const bool names_it = text.starts_with("the coordinator ");
  on_change_(unavailable(
      (names_it ? "not registered: " : "not registered at the coordinator " + coordinator_ + ": ") +
      text));
}

}  // namespace tutti
