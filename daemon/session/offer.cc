#include "daemon/session/offer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "daemon/session/session.h"

namespace tutti {
namespace {

constexpr size_t kDescriptorsPerMessage = 253;  // What Linux allows.

Status check_pages(const MemoryOffer& offer, const Mapping& segment) {
  if (page_up(offer.offset) != offer.offset || page_up(offer.bytes) != offer.bytes ||
      offer.bytes == 0 || !in_arena(offer.offset, offer.bytes, segment.bytes()))
    return invalid_argument("memory of the segment is offered in whole pages");
  return {};
}

Status read_chunks(const MemoryOffer& offer, const Mapping& segment, uint64_t at,
                   std::vector<Fd>& received, OfferedMemory& memory) {
  const uint64_t bytes = uint64_t{offer.chunks} * sizeof(uint64_t);
  if (offer.chunks == 0 || offer.chunks > kOfferedChunksMax ||
      !in_arena(at, bytes, segment.bytes()))
    return invalid_argument("an offer has from 1 to " + std::to_string(kOfferedChunksMax) +
                            " chunks, not " + std::to_string(offer.chunks));
  if (received.size() != offer.chunks)
    return invalid_argument("an offer of " + std::to_string(offer.chunks) + " chunks came with " +
                            std::to_string(received.size()) + " descriptors");
  memory.chunk_bytes.resize(offer.chunks);
  std::memcpy(memory.chunk_bytes.data(), segment.base() + at, bytes);
  uint64_t sum = 0;
  for (const uint64_t chunk : memory.chunk_bytes)
    if (__builtin_add_overflow(sum, chunk, &sum)) return invalid_argument("chunks are too large");
  if (sum < offer.bytes) return invalid_argument("the chunks are smaller than the memory");
  memory.descriptors = std::exchange(received, {});
  return {};
}

}  // namespace

Result<OfferedMemory> read_offer(const std::shared_ptr<const Mapping>& segment, uint64_t offset,
                                 std::vector<Fd>& received) {
  MemoryOffer offer;
  if (!in_arena(offset, sizeof(offer), segment->bytes()) || offset % alignof(MemoryOffer) != 0)
    return invalid_argument("the offer lies outside the segment");
  std::memcpy(&offer, segment->base() + offset, sizeof(offer));
  OfferedMemory memory;
  memory.kind = static_cast<OfferKind>(offer.kind);
  memory.number = offer.number;
  memory.bytes = offer.bytes;
  memory.offset = offer.offset;
  std::ranges::copy(offer.gpu, memory.gpu.begin());
  const auto* ipc = reinterpret_cast<const std::byte*>(offer.ipc);
  switch (memory.kind) {
    case OfferKind::ipc:
      memory.ipc.assign(ipc, ipc + sizeof(offer.ipc));
      return memory;
    case OfferKind::chunks:
      if (Status s = read_chunks(offer, *segment, offset + sizeof(offer), received, memory);
          !s.ok())
        return s;
      return memory;
    case OfferKind::words:
    case OfferKind::staging:
      if (Status s = check_pages(offer, *segment); !s.ok()) return s;
      memory.pinned = segment->base() + offer.offset;
      memory.keeps = segment;
      return memory;
    case OfferKind::forget:
      return memory;
  }
  return invalid_argument("unknown kind of offer " + std::to_string(offer.kind));
}

bool receive_descriptors(int socket, std::vector<Fd>& chunks, Fd& process) {
  for (;;) {
    char byte = 0;
    iovec part = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsPerMessage * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 && errno == EAGAIN;
    std::vector<Fd> received = descriptors_of(message);
    const bool is_truncated = (message.msg_flags & MSG_CTRUNC) != 0;  // By the limit of open files.
    if (received.empty() && !is_truncated) return false;
    if (byte == kChunksMessage)
      std::ranges::move(received, std::back_inserter(chunks));
    else if (!received.empty())
      process = std::move(received.front());
    if (chunks.size() > kOfferedChunksMax) return false;
  }
}

}  // namespace tutti
