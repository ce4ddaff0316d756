// Messages between real processes: what tests send and expect, and three ranks on one or two hosts.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/process/board_fixture.h"

namespace tutti::testing {

inline std::vector<uint8_t> pattern(size_t size, int seed) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<uint8_t>(i * 31 + static_cast<size_t>(seed) * 7 + (i >> 12));
  return bytes;
}

inline void send_bytes(Group& group, const std::vector<uint8_t>& bytes, int to, uint64_t tag = 0) {
  Error::check(
      tutti_send(group.get(), bytes.data(), bytes.size(), TUTTI_U8, to, tag, nullptr, nullptr));
}

inline std::vector<uint8_t> recv_bytes(Group& group, size_t size, int from, uint64_t tag = 0) {
  std::vector<uint8_t> bytes(size);
  Error::check(tutti_recv(group.get(), bytes.data(), size, TUTTI_U8, from, tag, nullptr, nullptr));
  return bytes;
}

inline Work start_send(Group& group, const std::vector<uint8_t>& bytes, int to, uint64_t tag = 0) {
  tutti_work* work = nullptr;
  Error::check(
      tutti_send(group.get(), bytes.data(), bytes.size(), TUTTI_U8, to, tag, nullptr, &work));
  return Work(work);
}

// A receive under way and its buffer.
struct Incoming {
  std::vector<uint8_t> bytes;
  tutti_work* work = nullptr;
  Incoming(Group& group, size_t size, int from, uint64_t tag = 0) : bytes(size) {
    Error::check(tutti_recv(group.get(), bytes.data(), size, TUTTI_U8, from, tag, nullptr, &work));
  }
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;
  ~Incoming() { tutti_work_free(work); }
  int wait() {
    Error::check(tutti_work_wait(work, -1));
    return tutti_work_source(work);
  }
};

inline void expect_code(tutti_code got, tutti_code want, const std::string& words) {
  check(got == want,
        std::string("the code is ") + tutti_code_name(got) + ": " + tutti_last_error()->message);
  const std::string message = tutti_last_error()->message;
  check(message.find(words) != std::string::npos, message);
}

class Messages : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  std::string run(const Trainer::Body& body) { return mesh_.run("job", GetParam(), body); }
  SharedCounters signals_;
  TestMesh mesh_{2};
};

}  // namespace tutti::testing
