// The client's own reader of welcomes against protobuf's: where both read, both read the same, and
// the client reads whatever protobuf does, but for what no writer of this schema writes.
#include "client/rank/hello.h"
#include "daemon/base/status.h"
#include "proto/session.pb.h"
#include "tests/fuzz/input.h"

namespace tutti {
namespace {

void check_same(const client::Welcome& mine, const v1::Welcome& real) {
  require(mine.code == code_of(real.code()), "code");
  require(mine.message == real.message(), "message");
  require(mine.culprit.rank == real.culprit_rank(), "culprit's rank");
  require(mine.culprit.host == real.culprit_host(), "culprit's host");
  require(mine.version == real.version(), "version");
  require(mine.epoch == real.epoch(), "epoch");
  require(mine.hosts.size() == static_cast<size_t>(real.hosts_size()), "number of hosts");
  for (size_t i = 0; i < mine.hosts.size(); ++i)
    require(mine.hosts[i] == real.hosts(static_cast<int>(i)), "a host");
}

// Groups, which proto3 has none of, and nothing else.
bool has_group(const v1::Welcome& welcome) {
  const auto& unknown = welcome.GetReflection()->GetUnknownFields(welcome);
  for (int i = 0; i < unknown.field_count(); ++i)
    if (unknown.field(i).type() == google::protobuf::UnknownField::TYPE_GROUP) return true;
  return false;
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  const fuzz::Input input(data, size);
  const std::string bytes(input.rest());
  const auto mine = client::decode_welcome(bytes);
  v1::Welcome real;
  if (!real.ParseFromString(bytes)) return 0;
  require(mine.has_value() || has_group(real), "the client reads what protobuf writes");
  if (!mine) return 0;
  check_same(*mine, real);
  const auto again = client::decode_welcome(real.SerializeAsString());
  require(again.has_value(), "what was read and is written again is read again");
  check_same(*again, real);
  return 0;
}
