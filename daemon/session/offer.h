// Reads a rank's offer of memory from its segment.
#pragma once

#include <memory>
#include <vector>

#include "daemon/session/board_events.h"
#include "daemon/session/mapping.h"

namespace tutti {

// Copies the record at `offset` once and checks the copy. Takes `received`, which must be the
// descriptors of the chunks. INVALID_ARGUMENT: what lies there is no offer.
Result<OfferedMemory> read_offer(const std::shared_ptr<const Mapping>& segment, uint64_t offset,
                                 std::vector<Fd>& received);

// Receives descriptors that came on a trainer's socket: those of chunks are added, that of the
// trainer's process is set. Where this process has too many open files, they are lost. False: the
// socket has ended or brought anything else, or more than kOfferedChunksMax are waiting.
bool receive_descriptors(int socket, std::vector<Fd>& chunks, Fd& process);

}  // namespace tutti
