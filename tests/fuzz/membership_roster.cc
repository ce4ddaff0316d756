// A roster from the coordinator, and the addresses in it.
#include "daemon/base/address.h"
#include "daemon/membership/roster_message.h"
#include "tests/fuzz/input.h"

namespace tutti {
namespace {

void check_address(const std::string& text) {
  const Result<Address> read = parse_address(text);
  if (!read.ok()) return require(read.status().code() == Code::invalid_argument, "refused");
  require(!read->host.empty(), "an address has a host");
  const Result<Address> again = parse_address(read->to_string());
  require(again.ok() && again->host == read->host && again->port == read->port,
          "what is written is read");
}

void check_roster(const v1::Roster& message) {
  const Result<Roster> read = from_message(message);
  if (!read.ok()) return require(read.status().code() == Code::invalid_argument, "refused");
  require(static_cast<int>(read->ranks.size()) == message.ranks_size(), "every rank is there");
  require(!read->ranks.empty(), "somebody takes part");
  for (int rank = 0; rank < message.ranks_size(); ++rank)
    require(message.ranks(rank).rank() == static_cast<uint32_t>(rank), "in order");
  for (const RosterRank& rank : read->ranks) check_address(rank.address);
  const Result<Roster> again = from_message(to_message(*read));
  require(again.ok() && *again == *read, "what is written is read");
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  const std::string bytes(fuzz::Input(data, size).rest());
  check_address(bytes);
  v1::Roster roster;
  if (roster.ParseFromString(bytes)) check_roster(roster);
  v1::StatusMessage status;
  if (!status.ParseFromString(bytes)) return 0;
  const Status read = read_status(status);
  require(read.ok() == (status.code() == 0), "no error becomes none");
  v1::StatusMessage written;
  write_status(read, written);
  require(read_status(written) == read, "what is written is read");
  return 0;
}
