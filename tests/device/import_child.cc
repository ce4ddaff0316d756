// The other process of the import test: maps what its arguments name, checks that it sees the
// parent's pattern and leaves another. Arguments: device, bytes, descriptor, IPC handle in hex.
// Exit code 0 only if all of it worked.
#include <cstdio>
#include <cstdlib>

#include "tests/device/fixture.h"

namespace tutti {
namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

int fail(const Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

Status exchange(Device& device, const MemoryHandle& handle) {
  Result<std::unique_ptr<Buffer>> imported = device.import_memory(handle);
  if (!imported.ok()) return imported.status();
  Result<std::unique_ptr<Stream>> stream = device.make_stream();
  if (!stream.ok()) return stream.status();
  Bytes seen(handle.bytes);
  Status status = device.copy(**stream, seen.data(), (*imported)->data(), seen.size());
  if (status.ok()) status = device.wait(**stream);
  if (status.ok() && seen != pattern(handle.bytes, 1)) status = data_loss("other bytes than sent");
  const Bytes answer = pattern(handle.bytes, 2);
  if (status.ok()) status = device.copy(**stream, (*imported)->data(), answer.data(), seen.size());
  if (status.ok()) status = device.wait(**stream);
  return status;
}

int run(char** arguments) {
  Result<std::unique_ptr<Device>> device = make_device(arguments[1]);
  if (!device.ok()) return fail(device.status());
  const MemoryHandle handle = {.fd = std::atoi(arguments[3]),
                               .ipc = from_hex(arguments[4]),
                               .bytes = static_cast<size_t>(std::atoll(arguments[2]))};
  const Status status = exchange(**device, handle);
  return status.ok() ? 0 : fail(status);
}

}  // namespace
}  // namespace tutti

int main(int count, char** arguments) { return count == 5 ? tutti::run(arguments) : 2; }
