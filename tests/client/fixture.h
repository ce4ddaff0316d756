// Fixture: three ranks, as threads of this process, that join a FakeJob through the C ABI.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "client/tutti.h"
#include "tests/support/fake_job.h"

namespace tutti {

class ClientTest : public ::testing::Test {
 protected:
  static constexpr int kWorld = 3;

  void TearDown() override {
    for (tutti_group* group : groups) tutti_group_free(group);
  }

  tutti_code join(int rank, tutti_group** group) const {
    tutti_join_options options = tutti_join_defaults();
    options.socket = path.c_str();
    options.job = "demo";
    options.rank = rank;
    options.world_size = kWorld;
    options.timeout_ms = 20'000;
    return tutti_join(&options, group);
  }
  void join_all() {
    groups.assign(kWorld, nullptr);
    each([this](int rank) {
      EXPECT_EQ(join(rank, &groups[static_cast<size_t>(rank)]), TUTTI_OK)
          << tutti_last_error()->message;
    });
  }
  // Runs `body` for all ranks at the same time.
  static void each(const std::function<void(int rank)>& body) {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kWorld; ++rank) ranks.emplace_back(body, rank);
    for (std::thread& rank : ranks) rank.join();
  }
  tutti_group* group(int rank) const { return groups[static_cast<size_t>(rank)]; }
  // A rank's input: i + 100 * rank. summed(i) is the sum of element i over all ranks.
  static std::vector<float> input(int rank, size_t count) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i + 100u * unsigned(rank));
    return values;
  }
  static float summed(size_t i) { return static_cast<float>(kWorld * i + 100 * (0 + 1 + 2)); }

  std::string path = ::testing::TempDir() + "client_" + std::to_string(getpid()) + ".sock";
  FakeJob job{path, kWorld};
  std::vector<tutti_group*> groups;
};

// A tensor in shared or ordinary memory.
class GroupBuffer {
 public:
  GroupBuffer(tutti_group* group, bool shared, size_t count)
      : group_(group), ordinary_(shared ? 0 : count), count_(count) {
    if (shared) shared_ = static_cast<float*>(tutti_alloc(group, count * sizeof(float)));
  }
  GroupBuffer(const GroupBuffer&) = delete;
  GroupBuffer& operator=(const GroupBuffer&) = delete;
  ~GroupBuffer() { tutti_free(group_, shared_); }

  float* data() { return shared_ != nullptr ? shared_ : ordinary_.data(); }
  void fill(const std::vector<float>& values) { std::ranges::copy(values, data()); }
  std::vector<float> values() { return {data(), data() + count_}; }

 private:
  tutti_group* group_;
  std::vector<float> ordinary_;
  float* shared_ = nullptr;
  size_t count_;
};

}  // namespace tutti
