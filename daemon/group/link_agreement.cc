#include "daemon/group/link_agreement.h"

#include "daemon/nccl/nccl.h"

namespace tutti {

LinkAgreement::Next LinkAgreement::refuse(const std::string& why) {
  phase_ = Phase::refused;
  why_ = why;
  return Next::refuse;
}

Result<LinkAgreement::Next> LinkAgreement::on_offer(int host, const Offer& offer) {
  if (!offered_.insert(host).second) return data_loss("a second offer of NCCL");
  if (phase_ != Phase::collecting) return Next::nothing;
  const std::string& name = hosts_[static_cast<size_t>(host)];
  if (!offer.status.ok()) return refuse("host " + name + ": " + offer.status.message());
  if (version_ == 0) {
    version_ = offer.version;
    version_of_ = name;
  }
  if (offer.version != version_)
    return refuse("host " + version_of_ + " has NCCL " + nccl::version_text(version_) + ", host " +
                  name + " " + nccl::version_text(offer.version) +
                  "; install the same on all hosts");
  if (offered_.size() < hosts_.size()) return Next::nothing;
  phase_ = Phase::making_id;
  return Next::make_id;
}

LinkAgreement::Next LinkAgreement::on_id(const Status& made) {
  if (phase_ != Phase::making_id) return Next::nothing;
  if (!made.ok()) return refuse("host " + hosts_.front() + ": " + made.message());
  phase_ = Phase::beginning;
  return Next::begin;
}

Result<LinkAgreement::Next> LinkAgreement::on_made(int host, const Status& made) {
  if (phase_ == Phase::refused) return Next::nothing;
  if (phase_ != Phase::beginning || !made_.insert(host).second)
    return data_loss("a communicator of NCCL that was not asked for");
  if (!made.ok())
    return refuse("host " + hosts_[static_cast<size_t>(host)] + ": " + made.message());
  if (made_.size() < hosts_.size()) return Next::nothing;
  phase_ = Phase::adopted;
  return Next::adopt;
}

}  // namespace tutti
