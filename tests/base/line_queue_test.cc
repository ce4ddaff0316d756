// Lines that wait for a descriptor: their order, their number, and that nobody else waits.
#include "daemon/base/line_queue.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <unistd.h>

#include <array>

#include "daemon/base/fd.h"

namespace tutti {
namespace {

constexpr Millis kPatience{60'000};

struct LineQueues : testing::Test {
  LineQueues() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    reader.reset(ends[0]);
    writer.reset(ends[1]);
    fcntl(writer.get(), F_SETPIPE_SZ, 4096);
    queue = std::make_unique<LineQueue>(writer.get(), kLinesMax, [](uint64_t count) {
      return "missing " + std::to_string(count) + "\n";
    });
  }
  // Reads until it has read `end`.
  std::string read_until(const std::string& end) const {
    std::string text;
    std::array<char, 1000> part;
    pollfd watched{reader.get(), POLLIN, 0};
    while (!text.ends_with(end) && poll(&watched, 1, int(kPatience.count())) == 1) {
      const ssize_t count = read(reader.get(), part.data(), part.size());
      if (count <= 0) break;
      text.append(part.data(), static_cast<size_t>(count));
    }
    return text;
  }
  void add(int from, int to) {
    for (int i = from; i < to; ++i) queue->add("line " + std::to_string(i) + "\n");
  }

  static constexpr size_t kLinesMax = 16;
  Fd reader;
  Fd writer;
  std::unique_ptr<LineQueue> queue;
};

TEST_F(LineQueues, WriteWhatWasAddedInOrder) {
  add(0, 3);
  EXPECT_EQ(read_until("2\n"), "line 0\nline 1\nline 2\n");
  EXPECT_TRUE(queue->close(kPatience));
}

TEST_F(LineQueues, DropAndCountWhatFindsNoRoom) {
  const std::string stopper(8'000, 'x');  // More than the pipe holds.
  queue->add(stopper);
  pollfd watched{reader.get(), POLLIN, 0};
  ASSERT_EQ(poll(&watched, 1, int(kPatience.count())), 1);  // It is being written.
  add(0, 50);
  const std::string text = read_until("missing 34\n");
  std::string expected = stopper;
  for (int i = 0; i < 16; ++i) expected += "line " + std::to_string(i) + "\n";
  EXPECT_EQ(text, expected + "missing 34\n");
  EXPECT_EQ(queue->dropped(), 34u);
  add(100, 101);
  EXPECT_EQ(read_until("100\n"), "line 100\n");
}

TEST_F(LineQueues, EndAlthoughNobodyReads) {
  queue->add(std::string(8'000, 'x'));
  add(0, 50);
  EXPECT_FALSE(queue->close(Millis(20)));
  add(50, 60);
  EXPECT_FALSE(queue->close(Millis(20)));
  queue.reset();
  (void)writer.release();  // Stays open, as its thread is in a write: the number is not reused.
}

TEST_F(LineQueues, WriteBeforeTheyEndWhatIsRead) {
  add(0, 10);
  EXPECT_TRUE(queue->close(kPatience));
  add(10, 11);
  queue.reset();
  writer.reset();
  EXPECT_THAT(read_until("never"), testing::EndsWith("line 9\n"));
}

TEST_F(LineQueues, WaitForADescriptorThatDoesNot) {
  fcntl(writer.get(), F_SETFL, O_NONBLOCK);
  const std::string large(20'000, 'x');
  queue->add(large + "\n");
  EXPECT_EQ(read_until("\n"), large + "\n");
}

// SIGPIPE would end this test.
TEST_F(LineQueues, LoseWhatNobodyCanRead) {
  reader.reset();
  add(0, 3);
  EXPECT_TRUE(queue->close(kPatience));
}

}  // namespace
}  // namespace tutti
