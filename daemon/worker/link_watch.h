// Looks once a second at the links to other hosts, and reports their pace to the agent. Loop thread
// only.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/group/group.h"
#include "proto/session.pb.h"

namespace tutti {

class LinkWatch {
 public:
  // `counts`: of the newest epoch's links; none where it has no other host.
  LinkWatch(Loop& loop, std::function<std::vector<LinkCounts>()> counts)
      : loop_(loop), counts_(std::move(counts)) {}
  ~LinkWatch() { loop_.cancel(timer_); }
  LinkWatch(const LinkWatch&) = delete;
  LinkWatch& operator=(const LinkWatch&) = delete;

  // There may be links now. It stops by itself when there are none, and keeps what is usual.
  void start();
  // The busiest, at most 16 of those that moved something, so that the report of a large mesh stays
  // small; or one, which says for how long this process waited for processors.
  std::vector<v1::LinkPace> paces() const;

 private:
  void look();

  Loop& loop_;
  const std::function<std::vector<LinkCounts>()> counts_;
  std::map<std::string, LinkPaceMeter> meters_;  // By host.
  Loop::TimerId timer_ = 0;
};

}  // namespace tutti
