#include "daemon/transport/grpc_options.h"

#include <algorithm>
#include <climits>
#include <string>
#include <utility>
#include <vector>

#include "proto/handshake.h"

namespace tutti {
namespace {

using Option = std::pair<std::string, int>;

// gRPC's limit is twice frame_bytes_max: the link refuses a slightly larger frame with its own
// message, gRPC refuses a much larger one without buffering it.
int message_bytes_max(const LinkLimits& limits) {
  const size_t bytes = 2 * (limits.frame_bytes_max + sizeof(FrameHeader));
  return static_cast<int>(std::min<size_t>(bytes, INT_MAX));
}

// Each side pings a silent peer after half of silence_ms and allows it the other half to answer.
// The sizes are those with the highest measured throughput.
std::vector<Option> common_options(const LinkLimits& limits) {
  const int half_silence_ms = std::max(1, limits.silence_ms / 2);
  return {
      {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, message_bytes_max(limits)},
      {GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1},
      {GRPC_ARG_KEEPALIVE_TIME_MS, half_silence_ms},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, half_silence_ms},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
      {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, (16 << 20) - 1},
      {GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 4 << 20},
      {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
      {GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0},
  };
}

}  // namespace

grpc::ChannelArguments channel_arguments(const LinkLimits& limits) {
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : common_options(limits)) arguments.SetInt(name, value);
  // A link is one connection and one attempt; the caller decides what a failure means.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, limits.connect_timeout_ms);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  return arguments;
}

void set_server_options(const LinkLimits& limits, grpc::ServerBuilder& builder) {
  for (const auto& [name, value] : common_options(limits)) builder.AddChannelArgument(name, value);
  builder.SetMaxReceiveMessageSize(message_bytes_max(limits));
  // A connection without a link may last as long as a handshake, and send twice its size, which
  // leaves room for metadata that gRPC and proxies add.
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, int{2 * kLinkHandshakeBytesMax});
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, limits.connect_timeout_ms);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, limits.connect_timeout_ms);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  // A second worker on the same port must fail, not share its connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace tutti
