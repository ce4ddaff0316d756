#include "daemon/group/gpu_link.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "daemon/base/status_message.h"

namespace tutti {
namespace {

std::vector<std::string> names_of(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return names;
}

v1::Nccl refused_message(const std::string& why) {
  v1::Nccl message;
  write_status(unavailable(why), *message.mutable_refused());
  return message;
}

}  // namespace

GpuLink::GpuLink(Parts parts) : parts_(std::move(parts)) {
  if (leads()) agreement_.emplace(names_of(parts_.hosts));
}

// Runs the task later, unless the epoch is gone by then.
void GpuLink::post(std::function<void()> task) {
  parts_.loop.post(lifetime_.guard(std::move(task)));
}

// ---- The offer ----

Status GpuLink::check(const std::set<int>& gpus) const {
  if (parts_.choice == "host" || parts_.nccl == nullptr)
    return failed_precondition("gpu_link of its tuttid is host");
  if (parts_.failure != nullptr && !parts_.failure->ok()) return *parts_.failure;
  if (gpus.size() != 1 || *gpus.begin() < 0)
    return failed_precondition("its ranks use " + std::to_string(gpus.size()) +
                               " GPUs, and NCCL is used with one on each host");
  return {};
}

void GpuLink::offer(GpuSet* set, const std::set<int>& gpus) {
  if (std::exchange(has_offered_, true) || is_refused_) return;
  const Status can = check(gpus);
  if (!can.ok()) return send_offer({can, 0});
  set_ = set;
  make_link(*gpus.begin());
  load();
}

void GpuLink::make_link(int gpu) {
  link_ = std::make_shared<NcclLink>(*parts_.nccl);
  link_->gpu = gpu;
  link_->on_refused =
      lifetime_.guard([this](const Status& cause) { post([this, cause] { on_refused(cause); }); });
  link_->on_failed = lifetime_.guard([this](const Status& cause) {
    post([this, cause] { end_epoch("host " + own_name(), cause, {-1, own_name()}); });
  });
}

void GpuLink::load() {
  link_->communicator.load(lifetime_.guard([this](const Result<int>& version) {
    if (is_refused_) return;
    if (version.ok()) version_ = *version;
    send_offer({version.status(), version_});
  }));
}

void GpuLink::send_offer(const LinkAgreement::Offer& offer) {
  v1::Nccl message;
  write_status(offer.status, *message.mutable_offer()->mutable_status());
  message.mutable_offer()->set_version(offer.version);
  send_to_leader(message);
}

// ---- Messages ----

void GpuLink::send_to_leader(const v1::Nccl& message) {
  if (!leads()) return post([this, message] { parts_.send(0, message); });
  post([this, message] {
    if (Status handled = handle(0, message); !handled.ok()) parts_.fail(handled);
  });
}

void GpuLink::send_to_all(const v1::Nccl& message) {
  for (int host = 1; host < static_cast<int>(parts_.hosts.size()); ++host)
    parts_.send(host, message);
  send_to_leader(message);
}

Status GpuLink::on_message(int host, const v1::Nccl& message) {
  const bool is_of_leader = message.has_begin() || message.has_refused();
  if (is_of_leader ? host != 0 : !leads())
    return data_loss("a message about NCCL to a host that does not decide, or from one");
  return handle(host, message);
}

Status GpuLink::handle(int host, const v1::Nccl& message) {
  switch (message.kind_case()) {
    case v1::Nccl::kOffer:
      return follow(agreement_->on_offer(
          host, {read_status(message.offer().status()), message.offer().version()}));
    case v1::Nccl::kMade:
      return follow(agreement_->on_made(host, read_status(message.made())));
    case v1::Nccl::kBegin:
      return begin(message.begin());
    case v1::Nccl::kRefused:
      refuse(read_status(message.refused()).message());
      return {};
    default:
      return data_loss("a message about NCCL that cannot be read");
  }
}

// ---- The leader ----

Status GpuLink::follow(Result<LinkAgreement::Next> next) {
  if (!next.ok()) return next.status();
  v1::Nccl message;
  switch (*next) {
    case LinkAgreement::Next::nothing:
      break;
    case LinkAgreement::Next::make_id:
      make_id();
      break;
    case LinkAgreement::Next::begin:
      message.set_begin(std::string(id_.begin(), id_.end()));
      send_to_all(message);
      break;
    case LinkAgreement::Next::adopt:
      post([this] { parts_.adopt(); });
      break;
    case LinkAgreement::Next::refuse:
      send_to_all(refused_message(agreement_->why()));
      break;
  }
  return {};
}

void GpuLink::make_id() {
  link_->communicator.make_id(lifetime_.guard([this](const Result<nccl::UniqueId>& id) {
    if (id.ok()) id_ = *id;
    if (Status followed = follow(agreement_->on_id(id.status())); !followed.ok())
      parts_.fail(followed);
  }));
}

// ---- The communicator ----

Status GpuLink::begin(const std::string& id) {
  nccl::UniqueId taken{};
  if (id.size() != taken.size() || link_ == nullptr || version_ == 0 || is_refused_ ||
      std::exchange(has_begun_, true))
    return data_loss("a communicator of NCCL that was not offered");
  std::ranges::copy(id, taken.begin());
  if (Status reserved = parts_.reserve(*link_); !reserved.ok()) {
    on_made(reserved);
    return {};
  }
  link_->communicator.begin(taken,
                            {&set_->driver(), set_->gpu(link_->gpu).context(),
                             static_cast<int>(parts_.hosts.size()), parts_.self},
                            lifetime_.guard([this](const Status& made) { on_made(made); }),
                            lifetime_.guard([this](const Status& cause) { on_peer_error(cause); }));
  return {};
}

void GpuLink::on_made(const Status& made) {
  if (is_refused_) return;
  is_made_ = made.ok();
  v1::Nccl message;
  write_status(made, *message.mutable_made());
  send_to_leader(message);
}

// Nothing went by it yet.
void GpuLink::refuse(const std::string& why) {
  is_refused_ = true;
  is_made_ = false;
  why_ = why;
  abort();
  link_ = nullptr;
  if (parts_.choice == "host") return;
  const auto level = parts_.choice == "nccl" ? spdlog::level::warn : spdlog::level::info;
  spdlog::log(level, "job {}: operations on GPUs go between hosts through host memory: {}",
              parts_.job, why);
}

// This host's NCCL does not do its work, and would not in another epoch.
void GpuLink::on_refused(const Status& cause) {
  if (cause.code() == Code::aborted) return on_peer_error(cause);
  if (parts_.failure != nullptr && parts_.failure->ok())
    *parts_.failure = failed_precondition("NCCL has failed there before: " + cause.message());
  end_epoch("NCCL on host " + own_name(), cause, {-1, own_name()});
}

// NCCL does not say which.
void GpuLink::on_peer_error(const Status& cause) {
  end_epoch("NCCL, as host " + own_name() + " sees it", cause, {});
}

void GpuLink::end_epoch(const std::string& what, const Status& cause, const Culprit& culprit) {
  parts_.fail(unavailable(what + ": " + cause.message(), culprit));
}

void GpuLink::close() {
  if (link_ != nullptr) link_->launch_order.close();
}

void GpuLink::abort() {
  if (link_ != nullptr) link_->communicator.abort();
}

GpuLinkState GpuLink::state(bool is_adopted) const {
  if (!has_offered_) return {};
  if (is_adopted) return {"nccl", ""};
  return {"host", is_refused_ ? why_ : "NCCL is being set up"};
}

}  // namespace tutti
