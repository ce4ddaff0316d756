#include "daemon/control/kept_stubs.h"

#include <algorithm>

#include "daemon/control/certificate_store.h"
#include "daemon/control/channel.h"

namespace tutti {
namespace {

std::shared_ptr<const Certificates> certificates_of(const Tls& tls) {
  return tls == nullptr ? nullptr : tls->current();
}

}  // namespace

KeptStubs::Stub KeptStubs::take(const std::string& host, const std::string& address) {
  const std::shared_ptr<const Certificates> now = certificates_of(tls_);
  {
    const std::lock_guard lock(mutex_);
    if (auto found = kept_.extract({host, address});
        !found.empty() && found.mapped().certificates == now)
      return std::move(found.mapped());
  }
  return take_new(host, address);
}

KeptStubs::Stub KeptStubs::take_new(const std::string& host, const std::string& address) const {
  // Before the channel reads them: at worst a new channel is taken for an old one.
  std::shared_ptr<const Certificates> now = certificates_of(tls_);
  return {.agent = {host, address},
          .certificates = std::move(now),
          .stub = v1::Admin::NewStub(make_channel(address, tls_, host))};
}

void KeptStubs::give_back(Stub stub) {
  stub.is_kept = true;
  const std::lock_guard lock(mutex_);
  kept_.insert_or_assign(stub.agent, std::move(stub));
}

void KeptStubs::keep_only(const std::vector<std::pair<std::string, std::string>>& agents) {
  const std::lock_guard lock(mutex_);
  std::erase_if(
      kept_, [&](const auto& one) { return std::ranges::find(agents, one.first) == agents.end(); });
}

size_t KeptStubs::count() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

}  // namespace tutti
