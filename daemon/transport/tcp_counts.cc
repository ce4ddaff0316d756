#include "daemon/transport/tcp_counts.h"

#include <linux/tcp.h>  // <netinet/tcp.h> of glibc knows the first fields alone.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

namespace tutti {

ConnectionCounts counts_of(int socket) {
  using std::chrono::microseconds;
  tcp_info info{};
  socklen_t size = sizeof(info);
  constexpr size_t kNeeded = offsetof(tcp_info, tcpi_rwnd_limited) + sizeof(info.tcpi_rwnd_limited);
  const bool tells =
      getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && size >= kNeeded;
  if (!tells) return {};
  return {
      .acked_bytes = info.tcpi_bytes_acked,
      .busy =
          microseconds(info.tcpi_busy_time - std::min(info.tcpi_busy_time, info.tcpi_rwnd_limited)),
      .retransmits = info.tcpi_total_retrans,
      .round_trip = microseconds(info.tcpi_rtt),
      .least_round_trip = microseconds(info.tcpi_min_rtt == UINT32_MAX ? 0 : info.tcpi_min_rtt)};
}

}  // namespace tutti
