// How a host comes to use NCCL for operations on GPUs, in one epoch: offers what it has at the
// first such operation, makes a communicator when the leader asks for it, and keeps it for the
// operations that go by it once the leader has had that adopted. Until then, and where any host
// cannot, they go by links through host memory. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/group/communicator.h"
#include "daemon/group/group.h"
#include "daemon/group/link_agreement.h"
#include "proto/group.pb.h"

namespace tutti {

class GpuLink {
 public:
  struct Parts {
    Loop& loop;
    std::string job;
    const std::vector<Host>& hosts;
    int self = 0;
    std::string choice;  // The setting gpu_link.
    std::shared_ptr<const nccl::CommunicatorParts> nccl;
    std::shared_ptr<Status> failure;                 // As EpochParts::nccl_failure.
    std::function<Status(const NcclLink&)> reserve;  // Engine::reserve.
    // To another host. None of these is called from inside offer().
    std::function<void(int host, const v1::Nccl& message)> send;
    std::function<void()> adopt;  // By the leader: all hosts have made a communicator.
    std::function<void(const Status& cause)> fail;  // Ends the epoch.
  };
  explicit GpuLink(Parts parts);

  // An operation on these GPUs starts. The first call counts.
  void offer(GpuSet* set, const std::set<int>& gpus);
  // Untrusted. Not OK: the host broke the protocol.
  Status on_message(int host, const v1::Nccl& message);
  // The communicator; null: none is made.
  std::shared_ptr<NcclLink> link() const { return is_made_ ? link_ : nullptr; }
  // The epoch ends: no operation begins to use NCCL any more.
  void close();
  // The epoch has ended; work is not waited for.
  void abort();
  // `is_adopted`: the table in force has NCCL.
  GpuLinkState state(bool is_adopted) const;

 private:
  bool leads() const { return parts_.self == 0; }
  Status check(const std::set<int>& gpus) const;
  void make_link(int gpu);
  void load();
  void send_to_leader(const v1::Nccl& message);
  void send_to_all(const v1::Nccl& message);
  void send_offer(const LinkAgreement::Offer& offer);
  void post(std::function<void()> task);
  Status handle(int host, const v1::Nccl& message);
  Status follow(Result<LinkAgreement::Next> next);
  void make_id();
  Status begin(const std::string& id);
  void on_made(const Status& made);
  void refuse(const std::string& why);
  void on_refused(const Status& cause);
  void on_peer_error(const Status& cause);
  void end_epoch(const std::string& what, const Status& cause, const Culprit& culprit);
  const std::string& own_name() const {
    return parts_.hosts[static_cast<size_t>(parts_.self)].name;
  }

  const Parts parts_;
  std::optional<LinkAgreement> agreement_;  // On the leader.
  GpuSet* set_ = nullptr;
  std::shared_ptr<NcclLink> link_;
  nccl::UniqueId id_{};  // On the leader.
  bool has_offered_ = false;
  bool has_begun_ = false;
  bool is_made_ = false;
  bool is_refused_ = false;
  int version_ = 0;
  std::string why_;  // Not NCCL.
  Lifetime lifetime_;
};

}  // namespace tutti
