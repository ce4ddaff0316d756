#include "client/messages/channel.h"

#include "proto/types.h"

namespace tutti::client {

bool MessageShape::is_sound() const {
  uint64_t bytes = 0;
  return magic == MessageHeader::kMagic && dtype < kDtypes &&
         !__builtin_mul_overflow(count, tutti_dtype_size(static_cast<tutti_dtype>(dtype)),
                                 &bytes) &&
         bytes <= PTRDIFF_MAX;
}

bool is_lost_alone(const Status& why) {
  return why.code() == Code::deadline_exceeded || why.code() == Code::unavailable ||
         why.code() == Code::cancelled;
}

Result<std::unique_ptr<Group>> make_channel(const Members& members, uint32_t from, uint32_t to,
                                            TimePoint deadline) {
  auto made = std::make_unique<Group>();
  made->connection = members.connection;
  made->device_memory = members.device_memory;
  made->is_channel = true;
  made->ranks = {members.ranks[from], members.ranks[to]};
  made->rank = members.rank == from ? 0 : 1;
  const Result<Connection::Subgroup> subgroup =
      members.connection->make_subgroup(made->ranks, deadline, uint64_t{members.number} + 1);
  if (!subgroup.ok()) return subgroup.status();
  complete_group(*made, *subgroup);
  return made;
}

}  // namespace tutti::client
