#include "client/operations/group.h"

#include <set>
#include <string_view>

namespace tutti::client {

std::string Members::name_of(uint32_t rank) const {
  return "rank " + std::to_string(rank) + " (host " + connection->hosts()[ranks[rank]] + ")";
}

Culprit Members::culprit(uint32_t rank) const {
  return {static_cast<int>(ranks[rank]), connection->hosts()[ranks[rank]]};
}

void complete_group(Group& group, const Connection::Subgroup& subgroup) {
  Connection& connection = *group.connection;
  group.number = subgroup.number;
  group.queue =
      std::make_shared<OpQueue>(connection, subgroup.area, connection.local_ranks_of(group.ranks),
                                static_cast<uint32_t>(group.ranks.size()));
  group.completer = std::make_shared<TaskThread>("tutti-completer");
  group.stream_failure = std::make_shared<StreamFailure>();
  group.passer = std::make_shared<TaskThread>("tutti-passer");
  std::set<std::string_view> hosts;
  for (const uint32_t rank : group.ranks) hosts.insert(connection.hosts()[rank]);
  group.hosts = static_cast<uint32_t>(hosts.size());
  connection.under_way().add(group.queue);
}

}  // namespace tutti::client
