// The leader's part in bringing hosts to use NCCL: all of them or none. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {

class LinkAgreement {
 public:
  // What the leader does next.
  enum class Next : uint8_t {
    nothing,
    make_id,  // And then begin: on_id().
    begin,    // Send the id to all hosts.
    adopt,    // From an operation on, by a change of strategies.
    refuse,   // Tell all hosts why().
  };
  struct Offer {
    Status status;  // OK: the host can use NCCL.
    int version = 0;
  };

  explicit LinkAgreement(std::vector<std::string> hosts) : hosts_(std::move(hosts)) {}

  // DATA_LOSS: the host says it out of order.
  Result<Next> on_offer(int host, const Offer& offer);
  Next on_id(const Status& made);
  Result<Next> on_made(int host, const Status& made);
  const std::string& why() const { return why_; }

 private:
  enum class Phase : uint8_t { collecting, making_id, beginning, adopted, refused };
  Next refuse(const std::string& why);

  const std::vector<std::string> hosts_;
  Phase phase_ = Phase::collecting;
  std::set<int> offered_;
  std::set<int> made_;
  int version_ = 0;         // Of the first offer.
  std::string version_of_;  // Its host.
  std::string why_;
};

}  // namespace tutti
