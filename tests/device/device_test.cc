// What every device promises about memory, copies, streams and events.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>

#include "tests/device/fixture.h"

namespace tutti {
namespace {

constexpr int kChildFd = 100;

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[static_cast<int>(byte) >> 4];
    text += "0123456789abcdef"[static_cast<int>(byte) & 15];
  }
  return text;
}

// Runs the child of the import test to its end; its exit code, or -1.
int run_child(const std::string& device, const MemoryHandle& handle) {
  std::array<std::string, 5> texts = {beside_this_test("device_import_child"), device,
                                      std::to_string(handle.bytes), std::to_string(kChildFd),
                                      to_hex(handle.ipc)};
  std::array<char*, 6> arguments = {};
  for (size_t i = 0; i < texts.size(); ++i) arguments[i] = texts[i].data();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (handle.fd >= 0) posix_spawn_file_actions_adddup2(&actions, handle.fd, kChildFd);
  pid_t child = -1;
  const int failed =
      posix_spawn(&child, texts[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int state = -1;
  if (failed != 0 || waitpid(child, &state, 0) != child) return -1;
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

TEST_P(DeviceTest, AllocatesAlignedMemoryOfTheSizeAsked) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4097}, size_t{3} << 20}) {
    const std::unique_ptr<Buffer> buffer = allocate(bytes);
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 4096, 0u);
    const std::unique_ptr<Buffer> filled = upload(pattern(bytes, 5));
    EXPECT_EQ(download(filled->data(), bytes), pattern(bytes, 5));
  }
}

TEST_P(DeviceTest, RefusesMoreMemoryThanThereIs) {
  for (const size_t bytes : {SIZE_MAX, size_t{1} << 50}) {
    const auto refused = device->allocate(bytes);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), Code::resource_exhausted) << refused.status().to_string();
  }
}

TEST_P(DeviceTest, AnotherProcessSeesExportedMemory) {
  constexpr size_t kBytes = 300'001;
  const std::unique_ptr<Buffer> buffer = upload(pattern(kBytes, 1));
  const Result<MemoryHandle> handle = device->export_memory(*buffer);
  ASSERT_TRUE(handle.ok()) << handle.status().to_string();
  EXPECT_EQ((*handle).bytes, kBytes);
  EXPECT_EQ(run_child(GetParam(), *handle), 0);
  EXPECT_EQ(download(buffer->data(), kBytes), pattern(kBytes, 2));
}

TEST_P(DeviceTest, RefusesToImportNonsense) {
  const auto refused = device->import_memory({.fd = -1, .ipc = Bytes(3), .bytes = 64});
  ASSERT_FALSE(refused.ok());
}

TEST_P(DeviceTest, CopiesBetweenHostAndDeviceAtAnyOffset) {
  const Bytes sent = pattern(100'003, 9);
  for (const size_t offset : {0, 1, 3, 4095}) {
    const std::unique_ptr<Buffer> from = upload(sent, offset);
    const std::unique_ptr<Buffer> to = allocate(sent.size() + 7);
    expect_ok(device->copy(*stream, to->data() + 7, from->data() + offset, sent.size()));
    EXPECT_EQ(download(to->data() + 7, sent.size()), sent) << "offset " << offset;
  }
}

TEST_P(DeviceTest, CopiesNothing) {
  expect_ok(device->copy(*stream, nullptr, nullptr, 0));
  expect_ok(device->wait(*stream));
}

TEST_P(DeviceTest, AStreamWorksInOrder) {
  constexpr size_t kCount = 1 << 20;
  const std::vector<float> ones(kCount, 1.0f);
  const std::unique_ptr<Buffer> one = upload(std::as_bytes(std::span(ones)));
  const std::unique_ptr<Buffer> sum = upload(std::as_bytes(std::span(ones)));
  const std::array<Operand, 2> sources = {Operand{sum->data(), Dtype::f32},
                                          Operand{one->data(), Dtype::f32}};
  const Target target{sum->data(), Dtype::f32};
  for (int round = 0; round < 20; ++round)
    expect_ok(device->reduce(*stream, {&target, 1}, sources, {.count = kCount}));
  const Bytes read = download(sum->data(), kCount * sizeof(float));
  const std::vector<float> expected(kCount, 21.0f);
  EXPECT_EQ(std::memcmp(read.data(), expected.data(), read.size()), 0);
}

TEST_P(DeviceTest, AnEventOrdersTwoStreams) {
  constexpr size_t kBytes = size_t{16} << 20;
  const Bytes sent = pattern(kBytes, 3);
  const std::unique_ptr<Buffer> first = upload(sent);
  const std::unique_ptr<Buffer> middle = allocate(kBytes);
  const std::unique_ptr<Buffer> last = allocate(kBytes);
  const std::unique_ptr<Stream> later = *device->make_stream();
  expect_ok(device->copy(*stream, middle->data(), first->data(), kBytes));
  const Result<std::unique_ptr<Event>> copied = device->record(*stream);
  ASSERT_TRUE(copied.ok()) << copied.status().to_string();
  expect_ok(device->wait(*later, **copied));
  expect_ok(device->copy(*later, last->data(), middle->data(), kBytes));
  expect_ok(device->wait(*later));
  EXPECT_EQ(download(last->data(), kBytes), sent);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTest, kDevices, device_name);

// ---- What only the host promises.

class HostDeviceTest : public DeviceTest {
 protected:
  void SetUp() override { use("host"); }
};

TEST_F(HostDeviceTest, ImportInTheSameProcessIsTheSameMemory) {
  const std::unique_ptr<Buffer> buffer = upload(pattern(5000, 1));
  const MemoryHandle handle = *device->export_memory(*buffer);
  const std::unique_ptr<Buffer> twin = *device->import_memory(handle);
  EXPECT_NE(twin->data(), buffer->data());
  EXPECT_EQ(download(twin->data(), 5000), pattern(5000, 1));
  twin->data()[4999] = std::byte{42};
  EXPECT_EQ(buffer->data()[4999], std::byte{42});
}

TEST_F(HostDeviceTest, ImportedMemoryOutlivesItsExporter) {
  std::unique_ptr<Buffer> buffer = upload(pattern(5000, 1));
  const std::unique_ptr<Buffer> twin = *device->import_memory(*device->export_memory(*buffer));
  buffer.reset();
  EXPECT_EQ(download(twin->data(), 5000), pattern(5000, 1));
}

TEST_F(HostDeviceTest, RefusesToExportAgainWhatItImported) {
  const std::unique_ptr<Buffer> buffer = allocate(64);
  const std::unique_ptr<Buffer> twin = *device->import_memory(*device->export_memory(*buffer));
  EXPECT_EQ(device->export_memory(*twin).status().code(), Code::failed_precondition);
}

TEST_F(HostDeviceTest, RefusesToImportMoreThanTheMemoryHas) {
  const std::unique_ptr<Buffer> buffer = allocate(4096);
  MemoryHandle handle = *device->export_memory(*buffer);
  handle.bytes = 4097;
  const Status status = device->import_memory(handle).status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "imported memory has 4096 bytes, not 4097");
}

// An unsealed file could be truncated by its owner: reading it would end the process.
TEST_F(HostDeviceTest, RefusesToImportMemoryThatCanShrink) {
  const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(device->import_memory({.fd = fd, .bytes = 64}).status().code(), Code::invalid_argument);
  close(fd);
}

}  // namespace
}  // namespace tutti
