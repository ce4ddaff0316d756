// Inside the room: values as expressions over contributions. Equal expressions have equal ids, so
// two ranks hold the same bits where they hold the same id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tutti {

class Symbols {
 public:
  static constexpr int kNothing = -1;

  explicit Symbols(int world_size) : world_size_(world_size) {}

  int contribution(int rank, int chunk);
  // `left` op `right`, in this order.
  int combine(int left, int right);
  int finish(int value);

  bool is_finished(int value) const { return nodes_[value].finished; }
  // How many contributions are in the value.
  int count(int value) const { return nodes_[value].count; }
  bool overlap(int left, int right) const;

 private:
  enum class Kind : uint8_t { contribution, combination, finished };
  struct Node {
    int count;
    bool finished;
  };
  int intern(Kind kind, int a, int b, Node node);
  size_t words() const { return (world_size_ + 63) / 64; }

  int world_size_;
  std::vector<Node> nodes_;
  std::vector<uint64_t>
      members_;  // words() for each node: the ranks whose contributions are in it.
  std::unordered_map<uint64_t, int> ids_[3];
};

}  // namespace tutti
